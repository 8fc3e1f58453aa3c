"""The command line, thin over :mod:`uttu.operations`: one module per subject.

Data goes to standard output, everything else to standard error. ``app`` has the list of commands, and builds only the
one that is asked for. Commands import what they need when they run, so that ``uttu --help`` answers at once.
``exit_codes`` turns errors into messages and exit codes.
"""

from __future__ import annotations

import os
import sys

is_program = False
"""Whether this process is the ``uttu`` command, and not another program that calls :func:`run`."""


def main() -> None:
    """The entry point of the ``uttu`` command."""
    global is_program
    from uttu.cli.exit_codes import exit_process

    is_program = True
    _open_closed_streams()
    exit_process(run())


def _open_closed_streams() -> None:
    """Open standard streams that were closed before the program started, as with ``>&-``.

    Otherwise the next opened file, such as a database, would become standard output. Standard input and output are
    opened read-only on ``/dev/null``, so writing to standard output fails, as in other programs. Text for standard
    error is dropped.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest free number, which is this one
            os.set_inheritable(number, True)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def run() -> int:
    """Run the command in ``sys.argv``. Returns its exit code."""
    from uttu.cli.exit_codes import run_to_exit_code

    return run_to_exit_code(_command)


def _command() -> None:
    from uttu.cli.app import app_for, check_word

    _warn_of_misspelled_variables()
    if any(name.startswith("UTTU_LOG_") for name in os.environ):
        from uttu.runtime.logs import set_up

        set_up()
    check_word(*sys.argv[1:2])
    app_for(*sys.argv[1:2])(prog_name="uttu")


def _warn_of_misspelled_variables() -> None:
    """Warn about environment variables that are probably misspelled."""
    if "--tied" in sys.argv:
        return  # a worker process; its parent has printed the warnings
    if any(name.startswith(("UTTU_", "WEFT_")) and not name.startswith("UTTU_TEST_") for name in os.environ):
        from uttu.settings import find_misspelled_variables

        for warning in find_misspelled_variables(os.environ).values():
            print(f"uttu: {warning}", file=sys.stderr)

"""The command line: one file a command. Data goes to standard output, everything else to standard error.

Only typer is imported here; what a command needs it imports when it runs, so that ``weft --help``
answers at once.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the ``weft`` command."""
    from weft.cli.exits import end

    end(run())


def run() -> int:
    """The command that ``sys.argv`` asks for; returns its exit code."""
    from weft.cli.exits import code_of

    return code_of(_command)


def _command() -> None:
    from weft.cli.app import app_for

    app_for(*sys.argv[1:2])(prog_name="weft")

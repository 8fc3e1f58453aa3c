"""The command line: one file a command. Data goes to standard output, everything else to standard error.

Only typer is imported here; what a command needs it imports when it runs, so that ``weft --help``
answers at once.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the ``weft`` command."""
    from weft.cli.app import app
    from weft.cli.exits import guarded

    with guarded():
        app(prog_name="weft")
    sys.exit(0)

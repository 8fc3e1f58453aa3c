"""Standard output: JSON Lines for the next program in a pipe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import BinaryIO

from weft.errors import SinkError
from weft.frontier.base import StoredItem
from weft.sinks.rows import line


class Stdout:
    """Prints items, each *at least* once.

    What was printed can't be taken back: after a kill -9 the last batch may appear again in the
    next run. An interrupted crawl that is resumed prints only what it did not print before.

    ``out`` is where standard output leads to, if that is not ``sys.stdout`` for the moment.
    """

    name = "-"

    def __init__(self, out: BinaryIO | None = None) -> None:
        self._out = out

    def open(self, state: bytes) -> None:
        """Nothing to get ready, nothing that could be undone."""

    def write(self, items: Sequence[StoredItem]) -> bytes:
        out = self._out or sys.stdout.buffer
        try:
            out.write(b"".join(map(line, items)))
            out.flush()
        except BrokenPipeError as error:
            _abandon(out)
            raise SinkError("the reader of standard output went away") from error
        except OSError as error:
            _abandon(out)
            raise SinkError(f"can't write to standard output: {error.strerror or error}") from error
        return b"printed"

    def close(self, finished: bool) -> None:
        """Standard output stays open; it is not ours."""


def _abandon(out: BinaryIO) -> None:
    # The bytes that were refused are still in Python's buffer, which is flushed at exit and would
    # complain then. They go nowhere instead.
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, out.fileno())
        finally:
            os.close(nowhere)

"""JSON Lines and JSON arrays in files, and JSON Lines on standard output.

The state of both file formats is the length of the file. A JSON array is a complete document after every batch: each
batch overwrites the closing bracket, writes its items and closes the array again, so the file can be parsed between two
batches.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from uttu.errors import SinkError
from uttu.frontier.base import StoredItem
from uttu.sinks.files import AppendFile, parse_length, to_line


class JsonLines:
    """Appends items to a file, each as its stored JSON."""

    replaces_file = True

    def __init__(self, path: str | Path) -> None:
        self._file = AppendFile(Path(path).absolute())
        self.name = str(self._file.path)

    def open(self, state: bytes) -> None:
        self._file.open(parse_length(state), ends=b"\n")

    def write(self, items: Sequence[StoredItem]) -> bytes:
        return b"%d" % self._file.append(b"".join(map(to_line, items)))

    def close(self, finished: bool) -> None:
        self._file.close()


_BEGIN: Final = b"["
_END: Final = b"\n]\n"


class Json:
    """One array with one item per line. Use JSON Lines if large outputs are read as a stream."""

    replaces_file = True

    def __init__(self, path: str | Path) -> None:
        self._file = AppendFile(Path(path).absolute())
        self.name = str(self._file.path)

    def open(self, state: bytes) -> None:
        self._file.open(parse_length(state), begins=_BEGIN)
        self._file.append(b"" if state else _BEGIN, _END)

    def write(self, items: Sequence[StoredItem]) -> bytes:
        data = b",".join(b"\n" + item.json for item in items)
        if self._file.offset > len(_BEGIN):
            data = b"," + data
        return b"%d" % self._file.append(data, _END)

    def close(self, finished: bool) -> None:
        self._file.close()


class Stdout:
    """Prints items, each *at least* once.

    Printed items cannot be taken back: after a kill -9 the last batch may appear again in the next run. An interrupted
    crawl that is resumed prints only items that it did not print before.

    :param out: used instead of ``sys.stdout``.
    """

    name = "-"

    def __init__(self, out: BinaryIO | None = None) -> None:
        self._out = out

    def open(self, state: bytes) -> None:
        """Do nothing: standard output needs no preparation, and printed items cannot be undone."""

    def write(self, items: Sequence[StoredItem]) -> bytes:
        out = self._out or sys.stdout.buffer
        try:
            out.write(b"".join(map(to_line, items)))
            out.flush()
        except BrokenPipeError as error:
            _discard(out)
            raise SinkError("Cannot write to standard output: its reader has closed it") from error
        except OSError as error:
            _discard(out)
            raise SinkError(f"Cannot write to standard output: {error.strerror or error}") from error
        return b"printed"

    def close(self, finished: bool) -> None:
        """Do nothing: standard output stays open."""


def _discard(out: BinaryIO) -> None:
    # Python flushes the rejected bytes again at exit, which would print an error. Redirect them to /dev/null.
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, out.fileno())
        finally:
            os.close(null)

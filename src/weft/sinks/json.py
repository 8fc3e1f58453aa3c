"""A JSON array in a file that is a whole document after every batch.

The note is the length up to the last item. Each batch overwrites the closing bracket, writes its
items and closes the array again, so whoever reads the file between two batches can parse it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from weft.frontier.base import StoredItem
from weft.sinks.file import AppendFile, length

_BEGIN: Final = b"["
_END: Final = b"\n]\n"


class Json:
    """One array, an item a line. To read a large one as a stream, JSON Lines is the better format."""

    def __init__(self, path: str | Path) -> None:
        self._file = AppendFile(Path(path).absolute())
        self.name = str(self._file.path)

    def open(self, state: bytes) -> None:
        self._file.open(length(state), begins=_BEGIN)
        self._file.append(b"" if state else _BEGIN, _END)

    def write(self, items: Sequence[StoredItem]) -> bytes:
        data = b",".join(b"\n" + item.json for item in items)
        if self._file.offset > len(_BEGIN):
            data = b"," + data
        return b"%d" % self._file.append(data, _END)

    def close(self, finished: bool) -> None:
        self._file.close()

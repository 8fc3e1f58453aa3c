"""JSON Lines: one item a line. The note is the file's length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weft.frontier.base import StoredItem
from weft.sinks.file import AppendFile, length
from weft.sinks.rows import line


class JsonLines:
    """Appends items to a file, each as the JSON it was stored as."""

    def __init__(self, path: str | Path) -> None:
        self._file = AppendFile(Path(path).absolute())
        self.name = str(self._file.path)

    def open(self, state: bytes) -> None:
        self._file.open(length(state), ends=b"\n")

    def write(self, items: Sequence[StoredItem]) -> bytes:
        return b"%d" % self._file.append(b"".join(map(line, items)))

    def close(self, finished: bool) -> None:
        self._file.close()

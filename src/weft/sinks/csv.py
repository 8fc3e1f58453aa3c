"""CSV with a header: RFC 4180 quoting, UTF-8, lines that end in a line feed.

A line feed and not CR LF, because ``wc``, ``cut`` and ``diff`` are the first readers of most
outputs and every CSV parser takes both. A missing key and null are an empty cell; true, false,
lists and objects are JSON.

The columns stand in the first line, so a key that appears later does not fit any more. The sink
then asks for all items again and begins with every column it knows by now. The note is the length
of the file and its columns.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from weft.frontier.base import StoredItem
from weft.sinks.base import Restart
from weft.sinks.file import AppendFile
from weft.sinks.rows import MAX_COLUMNS, VALUE, row, text, too_many_columns

_EOL: Final = "\r\n"


class _Note(msgspec.Struct, frozen=True):
    offset: int
    columns: list[str]


class Csv:
    """A row an item; columns in the order in which their keys were first seen."""

    def __init__(self, path: str | Path) -> None:
        self._file = AppendFile(Path(path).absolute())
        self.name = str(self._file.path)
        self._columns: dict[str, None] = {}

    def open(self, state: bytes) -> None:
        offset = 0
        if state:
            try:
                note = msgspec.json.decode(state, type=_Note)
            except msgspec.DecodeError:
                raise Restart("the note on this output is not one of a CSV file") from None
            offset, self._columns = note.offset, dict.fromkeys(note.columns)
        self._file.open(offset, begins=_encoded([list(self._columns)]), ends=b"\n")

    def write(self, items: Sequence[StoredItem]) -> bytes:
        rows = [row(item) for item in items]
        known = len(self._columns)
        for each in rows:
            self._columns.update(dict.fromkeys(each))
        if not self._columns:  # only empty objects; a row without a cell would not be a row
            self._columns[VALUE] = None
        if len(self._columns) > MAX_COLUMNS:
            raise too_many_columns(self._file.path)

        table: list[list[str]] = []
        if self._file.offset == 0:
            table.append(list(self._columns))
        elif len(self._columns) > known:
            raise Restart(f"{self._file.path} needs new columns")
        table.extend([_cell(each.get(column)) for column in self._columns] for each in rows)

        offset = self._file.append(_encoded(table))
        return msgspec.json.encode(_Note(offset, list(self._columns)))

    def close(self, finished: bool) -> None:
        self._file.close()


def _cell(value: Any) -> str:
    return "" if value is None else text(value)


class _Lines(list[bytes]):
    """What ``csv.writer`` writes to: it hands over one finished row at a time."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix(_EOL).encode() + b"\n")


def _encoded(table: list[list[str]]) -> bytes:
    # The writer quotes a bare CR only when CR is part of its line end (before Python 3.13), so it is
    # given CR LF, and that is taken off again.
    lines = _Lines()
    csv.writer(lines, lineterminator=_EOL).writerows(table)
    return b"".join(lines)

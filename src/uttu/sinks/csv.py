"""CSV with a header: RFC 4180 quoting, UTF-8, lines that end with a line feed.

A line feed and not CR LF, because ``wc``, ``cut`` and ``diff`` are the first readers of most outputs, and every CSV
parser accepts both. A missing key and null become an empty cell; true, false, lists and objects become JSON.

The columns are in the first line, so a key that appears later has no column. The sink then raises ``Restart`` and
begins again with all columns it has seen. The state is the length of the file and its columns.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from uttu.frontier.base import StoredItem
from uttu.sinks.base import Restart
from uttu.sinks.files import MAX_COLUMNS, VALUE, AppendFile, to_row, to_text, too_many_columns

_EOL: Final = "\r\n"


class _CsvState(msgspec.Struct, frozen=True):
    offset: int
    columns: list[str]


class Csv:
    """One row per item; columns in the order in which their keys were first seen."""

    replaces_file = True
    needs_all = True  # a key that appears late needs a column in all rows

    def __init__(self, path: str | Path) -> None:
        self._file = AppendFile(Path(path).absolute())
        self.name = str(self._file.path)
        self._columns: dict[str, None] = {}

    def open(self, state: bytes) -> None:
        offset = 0
        if state:
            try:
                stored = msgspec.json.decode(state, type=_CsvState)
            except msgspec.DecodeError:
                raise Restart("The stored state is not that of a CSV file") from None
            offset, self._columns = stored.offset, dict.fromkeys(stored.columns)
        self._file.open(offset, begins=_encode([list(self._columns)]), ends=b"\n")

    def write(self, items: Sequence[StoredItem]) -> bytes:
        rows = [to_row(item) for item in items]
        known = len(self._columns)
        for each in rows:
            self._columns.update(dict.fromkeys(each))
        if not self._columns:  # only empty objects; a row must have at least one cell
            self._columns[VALUE] = None
        if len(self._columns) > MAX_COLUMNS:
            raise too_many_columns(self._file.path)

        table: list[list[str]] = []
        if self._file.offset == 0:
            table.append(list(self._columns))
        elif len(self._columns) > known:
            raise Restart(f"{self._file.path} needs new columns")
        table.extend([_cell(each.get(column)) for column in self._columns] for each in rows)

        offset = self._file.append(_encode(table))
        return msgspec.json.encode(_CsvState(offset, list(self._columns)))

    def close(self, finished: bool) -> None:
        self._file.close()


def _cell(value: Any) -> str:
    return "" if value is None else to_text(value)


class _Lines(list[bytes]):
    """The file object for ``csv.writer``, which writes one complete row per call."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix(_EOL).encode() + b"\n")


def _encode(table: list[list[str]]) -> bytes:
    # Before Python 3.13 the writer quotes a bare CR only if CR is part of its line end. So it gets CR LF, and _Lines
    # removes it.
    lines = _Lines()
    csv.writer(lines, lineterminator=_EOL).writerows(table)
    return b"".join(lines)

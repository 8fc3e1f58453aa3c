"""Parquet: typed columns, for dataframes and warehouses.

A Parquet file ends with its index, so it cannot be appended to, and its schema must be known before the first row. So
items are collected as JSON Lines in a hidden file beside the output (``.<name>.spool``), which is exact after a crash
like any other; its length is the state. When the run ends, the spool is read twice, once for the schema and once for
the rows, and the new file replaces the old one in one step: at any time the output is absent or a complete Parquet
file. The spool is removed when the crawl is finished; an interrupted crawl keeps it. Memory holds one row group,
whatever the size of the crawl.

The type of a column is derived from its values. It starts as NULL and only ever widens, so the result does not depend
on the order of the items:

    bool ─────────────┐
    int ── float ─────┼── text ──┐
    string ───────────┘          ├── JSON text
    list of a kind ──────────────┤
    struct of kinds ─────────────┘

Text means: strings unchanged, other scalars as their JSON. A column is JSON text if it mixes scalars with lists or
structs, if a struct has more than ``MAX_FIELDS`` keys (keys that hold data), or if values are nested deeper than
``MAX_DEPTH``. Integers beyond 64 bits are text.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, BinaryIO, Final

from uttu.errors import SinkError
from uttu.frontier.base import StoredItem
from uttu.sinks.files import (
    MAX_COLUMNS,
    VALUE,
    AppendFile,
    map_os_errors,
    parse_length,
    parse_row,
    to_json,
    to_line,
    to_row,
    to_text,
    too_many_columns,
)

MAX_FIELDS: Final = 200
MAX_DEPTH: Final = 8
_INT64: Final = range(-(1 << 63), 1 << 63)


class ScalarKind(Enum):
    """The kind of a column whose values are scalars, or anything as JSON text."""

    NULL = auto()
    BOOL = auto()
    INT = auto()
    FLOAT = auto()
    TEXT = auto()
    JSON = auto()


@dataclass(slots=True)
class StructKind:
    """An object with these fields, in the order in which they were first seen."""

    fields: dict[str, Kind] = field(default_factory=dict)


@dataclass(slots=True)
class ListKind:
    """A list whose elements have one kind."""

    element: Kind = ScalarKind.NULL


Kind = ScalarKind | StructKind | ListKind


def widen(kind: Kind, value: Any, depth: int = 0) -> Kind:
    """Return the narrowest kind that holds all values of ``kind`` and ``value``; may change ``kind`` in place."""
    if value is None or kind is ScalarKind.JSON:
        return kind
    if isinstance(value, dict):
        return _widen_struct(StructKind() if kind is ScalarKind.NULL else kind, value, depth)
    if isinstance(value, list):
        return _widen_list(ListKind() if kind is ScalarKind.NULL else kind, value, depth)
    return _widen_scalar(kind, _scalar_kind(value))


def _widen_struct(kind: Kind, value: dict[str, Any], depth: int) -> Kind:
    if not isinstance(kind, StructKind) or depth >= MAX_DEPTH:
        return ScalarKind.JSON
    for key, each in value.items():
        kind.fields[key] = widen(kind.fields.get(key, ScalarKind.NULL), each, depth + 1)
    return kind if len(kind.fields) <= MAX_FIELDS else ScalarKind.JSON


def _widen_list(kind: Kind, value: list[Any], depth: int) -> Kind:
    if not isinstance(kind, ListKind) or depth >= MAX_DEPTH:
        return ScalarKind.JSON
    for each in value:
        kind.element = widen(kind.element, each, depth + 1)
    return kind


def _widen_scalar(kind: Kind, seen: ScalarKind) -> Kind:
    if kind is ScalarKind.NULL or kind is seen:
        return seen
    if not isinstance(kind, ScalarKind):
        return ScalarKind.JSON
    return ScalarKind.FLOAT if {kind, seen} == {ScalarKind.INT, ScalarKind.FLOAT} else ScalarKind.TEXT


def _scalar_kind(value: Any) -> ScalarKind:
    if isinstance(value, bool):
        return ScalarKind.BOOL
    if isinstance(value, int):
        return ScalarKind.INT if value in _INT64 else ScalarKind.TEXT
    return ScalarKind.FLOAT if isinstance(value, float) else ScalarKind.TEXT


def make_storable(kind: Kind) -> Kind:
    """Replace what a Parquet file cannot hold: NULL columns become text, structs without fields become JSON."""
    if kind is ScalarKind.NULL:
        return ScalarKind.TEXT
    if isinstance(kind, StructKind):
        return (
            StructKind({key: make_storable(each) for key, each in kind.fields.items()})
            if kind.fields
            else ScalarKind.JSON
        )
    if isinstance(kind, ListKind):
        return ListKind(make_storable(kind.element))
    return kind


def fit(kind: Kind, value: Any) -> Any:
    """Convert a value to the kind of its column."""
    if value is None:
        return None
    if isinstance(kind, StructKind):
        return {key: fit(each, value.get(key)) for key, each in kind.fields.items()}
    if isinstance(kind, ListKind):
        return [fit(kind.element, each) for each in value]
    match kind:
        case ScalarKind.FLOAT:
            return float(value)
        case ScalarKind.TEXT:
            return to_text(value)
        case ScalarKind.JSON:
            return to_json(value)
        case _:
            return value


_GROUP_ROWS: Final = 10_000
_GROUP_BYTES: Final = 32 << 20


class Parquet:
    """One Parquet file, written when the run ends. Needs pyarrow.

    :raises SinkError: pyarrow cannot be imported.
    """

    replaces_file = True
    needs_all = True  # the spool is deleted after the crawl; a crawl that continues later is written from the start

    def __init__(self, path: str | Path) -> None:
        _import_arrow("pyarrow.parquet")
        self._path = Path(path).absolute()
        self.name = str(self._path)
        self._spool = AppendFile(self._path.with_name(f".{self._path.name}.spool"))
        self._opened = False

    def open(self, state: bytes) -> None:
        with map_os_errors(self._path):
            if self._path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        self._spool.open(parse_length(state), ends=b"\n")
        self._opened = True

    def write(self, items: Sequence[StoredItem]) -> bytes:
        for item in items:
            to_row(item)  # raises for an unreadable item now rather than at the end of the crawl
        return b"%d" % self._spool.append(b"".join(map(to_line, items)))

    def close(self, finished: bool) -> None:
        if not self._opened:
            return
        self._opened = False
        self._spool.close()
        with map_os_errors(self._path):
            self._convert()
            if finished:
                self._spool.path.unlink(missing_ok=True)

    def _convert(self) -> None:
        table = StructKind()
        for document in self._documents():
            fields = parse_row(document)
            for key, value in fields.items():
                table.fields[key] = widen(table.fields.get(key, ScalarKind.NULL), value)
            if len(table.fields) > MAX_COLUMNS:
                raise too_many_columns(self._path)
        if not table.fields and self._spool.offset:  # only empty objects: a row needs a column
            table.fields[VALUE] = ScalarKind.NULL
        columns = {key: make_storable(kind) for key, kind in table.fields.items()}

        temporary = self._path.with_name(f".{self._path.name}.tmp")
        try:
            with temporary.open("wb") as file:
                self._write_rows(file, columns)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def _write_rows(self, file: BinaryIO, columns: dict[str, Kind]) -> None:
        pa, pq = _import_arrow("pyarrow"), _import_arrow("pyarrow.parquet")
        schema = pa.schema([pa.field(key, _to_arrow_type(pa, kind)) for key, kind in columns.items()])
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for group in self._groups():
                arrays = [
                    pa.array([fit(kind, each.get(key)) for each in group], type=schema.field(index).type)
                    for index, (key, kind) in enumerate(columns.items())
                ]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=len(group))

    def _groups(self) -> Iterator[list[dict[str, Any]]]:
        group: list[dict[str, Any]] = []
        size = 0
        for document in self._documents():
            group.append(parse_row(document))
            size += len(document)
            if len(group) >= _GROUP_ROWS or size >= _GROUP_BYTES:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _documents(self) -> Iterator[bytes]:
        """Yield the confirmed lines of the spool."""
        left = self._spool.offset
        with self._spool.path.open("rb") as spool:
            while left > 0 and (document := spool.readline()):
                left -= len(document)
                yield document
        if left:
            raise SinkError(
                f"Cannot write {self._path}: {self._spool.path} was changed by another process. "
                "Run the same command again: the file is written anew from the crawl's store"
            )


def _to_arrow_type(pa: Any, kind: Kind) -> Any:
    if isinstance(kind, StructKind):
        return pa.struct([pa.field(key, _to_arrow_type(pa, each)) for key, each in kind.fields.items()])
    if isinstance(kind, ListKind):
        return pa.list_(_to_arrow_type(pa, kind.element))
    match kind:
        case ScalarKind.BOOL:
            return pa.bool_()
        case ScalarKind.INT:
            return pa.int64()
        case ScalarKind.FLOAT:
            return pa.float64()
        case _:
            return pa.string()


def _import_arrow(module: str) -> Any:
    """Import a pyarrow module late, because it is large and optional.

    :raises SinkError: it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SinkError(f"Parquet output needs the \"parquet\" extra: pip install 'uttu[parquet]' ({error})") from error

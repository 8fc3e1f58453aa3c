"""Parquet: typed columns, for dataframes and warehouses.

A Parquet file ends in its index, so it can't be appended to, and its schema stands before the
first row is known to be like the last. So items are collected as JSON Lines in a hidden file
beside the output (``.<name>.spool``), which is exact after a crash like any other, and its length
is the note. When the run ends, the spool is read twice, once for the schema and once for the rows,
and the new file takes the place of the old in one step: at any time the output is absent, or a
whole Parquet file. The spool goes when the crawl is finished; an interrupted one keeps it.

Memory holds one row group, whatever the crawl's size. Which types come out is told in
:mod:`weft.sinks.columns`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from weft.errors import SinkError
from weft.frontier.base import StoredItem
from weft.sinks.columns import Kind, List, Scalar, Struct, fit, storable, widen
from weft.sinks.file import AppendFile, length, writing
from weft.sinks.rows import MAX_COLUMNS, VALUE, line, parse, row, too_many_columns

_GROUP_ROWS: Final = 10_000
_GROUP_BYTES: Final = 32 << 20


class Parquet:
    """One Parquet file, written when the run ends. Needs pyarrow.

    :raises SinkError: pyarrow can't be imported.
    """

    def __init__(self, path: str | Path) -> None:
        _arrow("pyarrow.parquet")
        self._path = Path(path).absolute()
        self.name = str(self._path)
        self._spool = AppendFile(self._path.with_name(f".{self._path.name}.spool"))
        self._opened = False

    def open(self, state: bytes) -> None:
        with writing(self._path):
            if self._path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        self._spool.open(length(state), ends=b"\n")
        self._opened = True

    def write(self, items: Sequence[StoredItem]) -> bytes:
        for item in items:
            row(item)  # what can't be read is better told now than after the crawl
        return b"%d" % self._spool.append(b"".join(map(line, items)))

    def close(self, finished: bool) -> None:
        if not self._opened:
            return
        self._opened = False
        self._spool.close()
        with writing(self._path):
            self._convert()
            if finished:
                self._spool.path.unlink(missing_ok=True)

    def _convert(self) -> None:
        table = Struct()
        for document in self._documents():
            fields = parse(document)
            for key, value in fields.items():
                table.fields[key] = widen(table.fields.get(key, Scalar.NULL), value)
            if len(table.fields) > MAX_COLUMNS:
                raise too_many_columns(self._path)
        if not table.fields and self._spool.offset:  # only empty objects: rows need a column to be counted in
            table.fields[VALUE] = Scalar.NULL
        columns = {key: storable(kind) for key, kind in table.fields.items()}

        draft = self._path.with_name(f".{self._path.name}.tmp")
        try:
            with draft.open("wb") as file:
                self._write_rows(file, columns)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    def _write_rows(self, file: BinaryIO, columns: dict[str, Kind]) -> None:
        pa, pq = _arrow("pyarrow"), _arrow("pyarrow.parquet")
        schema = pa.schema([pa.field(key, _type(pa, kind)) for key, kind in columns.items()])
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for group in self._groups():
                arrays = [
                    pa.array([fit(kind, each.get(key)) for each in group], type=schema.field(at).type)
                    for at, (key, kind) in enumerate(columns.items())
                ]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=len(group))

    def _groups(self) -> Iterator[list[dict[str, Any]]]:
        group: list[dict[str, Any]] = []
        size = 0
        for document in self._documents():
            group.append(parse(document))
            size += len(document)
            if len(group) >= _GROUP_ROWS or size >= _GROUP_BYTES:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _documents(self) -> Iterator[bytes]:
        """The counted part of the spool, line by line."""
        left = self._spool.offset
        with self._spool.path.open("rb") as spool:
            while left > 0 and (document := spool.readline()):
                left -= len(document)
                yield document
        if left:
            raise SinkError(
                f"can't write {self._path}: {self._spool.path} was changed by someone else; "
                "run the same command again, it is made anew from the crawl's store"
            )


def _type(pa: Any, kind: Kind) -> Any:
    if isinstance(kind, Struct):
        return pa.struct([pa.field(key, _type(pa, each)) for key, each in kind.fields.items()])
    if isinstance(kind, List):
        return pa.list_(_type(pa, kind.element))
    match kind:
        case Scalar.BOOL:
            return pa.bool_()
        case Scalar.INT:
            return pa.int64()
        case Scalar.FLOAT:
            return pa.float64()
        case _:
            return pa.string()


def _arrow(module: str) -> Any:
    """A pyarrow module; imported late because it is large and optional."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SinkError(
            f"Parquet output needs pyarrow, which can't be imported: pip install 'weft[parquet]' ({error})"
        ) from error

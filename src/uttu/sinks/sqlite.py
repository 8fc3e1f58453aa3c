"""A table in an SQLite file: one row per item, one column per key.

    items
      _id      TEXT PRIMARY KEY    the id of the item
      <key>    no declared type    number, text or NULL as in the item; lists and objects as JSON

Columns are added as keys appear. A batch is one transaction, and a row that exists is left alone. So there is nothing
to undo after a crash: the last batch is simply written again. The state is the id of the last item and the column of
each key. SQLite does not distinguish ``Name`` from ``name``, so the second one becomes ``name_2``.

Other tables of the file are not touched. The sink uses the rollback journal and not the write-ahead log, so that the
database is always a single file that can be copied.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from uttu.errors import SinkError
from uttu.frontier.base import StoredItem
from uttu.sinks.base import Restart
from uttu.sinks.files import MAX_COLUMNS, map_os_errors, to_json, to_row, too_many_columns

_ID: Final = "_id"
_BUSY_SECONDS: Final = 30.0
# SQLite's own locks begin at byte 1 << 30, so the bytes below this one are free for ours.
_LOCKABLE: Final = 1 << 20
_INT64: Final = range(-(1 << 63), 1 << 63)


class _TableState(msgspec.Struct, frozen=True):
    last: str
    columns: dict[str, str]


class Sqlite:
    """One table of an SQLite file."""

    def __init__(self, path: str | Path, table: str = "items") -> None:
        self._path = Path(path).absolute()
        self._table = table
        self.name = str(self._path) if table == "items" else f"{self._path}#{table}"
        self._db: sqlite3.Connection | None = None
        self._lock = -1
        self._columns: dict[str, str] = {}
        self._existing: set[str] = set()

    def open(self, state: bytes) -> None:
        self.close(finished=False)
        stored = _parse_state(state)
        with map_os_errors(self._path):
            if stored is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            elif not self._path.exists():
                raise Restart(f"{self._path} was deleted")
            self._lock_table()
        with self._map_errors():
            # The engine uses a sink from one thread at a time, but not always from the same one.
            self._db = db = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                if stored is None:
                    self._create(db)
                else:
                    self._resume(db, stored)
            except BaseException:
                self.close(finished=False)
                raise

    def write(self, items: Sequence[StoredItem]) -> bytes:
        db = self._db
        assert db is not None, "write before open"
        with self._map_errors(), _transaction(db):
            for item in items:
                fields = to_row(item)
                names = [_quote(self._ensure_column(db, key)) for key in fields]
                db.execute(
                    f"INSERT OR IGNORE INTO {_quote(self._table)} ({', '.join([_quote(_ID), *names])}) "
                    f"VALUES ({', '.join('?' * (len(names) + 1))})",
                    (item.id, *map(_cell, fields.values())),
                )
        return msgspec.json.encode(_TableState(items[-1].id, self._columns))

    def close(self, finished: bool) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        # After the database: closing any descriptor of a file drops the locks that SQLite holds on it.
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _lock_table(self) -> None:
        """Lock out other processes that write this table, with a lock on one byte that SQLite does not use."""
        self._lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        byte = zlib.crc32(self._table.encode()) % _LOCKABLE
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            os.close(self._lock)
            self._lock = -1
            raise SinkError(f"Cannot write {self._path}: another crawl is writing it. Choose another file") from None

    def _create(self, db: sqlite3.Connection) -> None:
        with _transaction(db):
            columns = self._read_columns(db)
            if columns and columns[0] != _ID:
                raise SinkError(
                    f"Cannot write {self._path}: its table {self._table!r} was not made by Uttu, and would be lost. "
                    "Rename the table, or choose another file"
                )
            table = _quote(self._table)
            db.execute(f"DROP TABLE IF EXISTS {table}")
            db.execute(f"CREATE TABLE {table} ({_quote(_ID)} TEXT PRIMARY KEY)")
        self._columns, self._existing = {}, {_ID}

    def _resume(self, db: sqlite3.Connection, stored: _TableState) -> None:
        existing = {name.lower() for name in self._read_columns(db)}
        if not existing.issuperset(column.lower() for column in (_ID, *stored.columns.values())):
            raise Restart(f"The table {self._table} in {self._path} has lost columns")
        last = f"SELECT 1 FROM {_quote(self._table)} WHERE {_quote(_ID)} = ?"
        if db.execute(last, (stored.last,)).fetchone() is None:
            raise Restart(f"The table {self._table} in {self._path} has lost rows")
        self._columns, self._existing = dict(stored.columns), existing

    def _read_columns(self, db: sqlite3.Connection) -> list[str]:
        return [name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (self._table,))]

    def _ensure_column(self, db: sqlite3.Connection, key: str) -> str:
        """Return the column of a key, adding it if needed."""
        if key in self._columns:
            return self._columns[key]
        # Names depend on the stored state, not on the table: a batch that is written again must find its columns under
        # the same names.
        taken = {_ID, *(column.lower() for column in self._columns.values())}
        stem = name = key.replace("\0", "") or "_"
        number = 1
        while name.lower() in taken:
            number += 1
            name = f"{stem}_{number}"
        if len(taken) >= MAX_COLUMNS:
            raise too_many_columns(self._path)
        if name.lower() not in self._existing:
            db.execute(f"ALTER TABLE {_quote(self._table)} ADD COLUMN {_quote(name)}")
            self._existing.add(name.lower())
        self._columns[key] = name
        return name

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise SinkError(
                f"Cannot write {self._path}: {error}. Fix this, then run the same command again; "
                "no item is lost, they wait in the crawl's store"
            ) from error


def _parse_state(state: bytes) -> _TableState | None:
    try:
        return msgspec.json.decode(state, type=_TableState) if state else None
    except msgspec.DecodeError:
        raise Restart("The stored state is not that of an SQLite table") from None


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cell(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return to_json(value)
    if isinstance(value, int) and value not in _INT64:
        return str(value)
    return value

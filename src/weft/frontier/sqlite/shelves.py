"""The smaller contracts of the store, on the same file: Outbox, Memo and Ledger."""

from __future__ import annotations

import sqlite3

from weft.clock import Clock, SystemClock
from weft.frontier.base import Cursor, StoredItem
from weft.frontier.sqlite.database import Database
from weft.frontier.sqlite.liveness import Liveness


class SqliteOutbox:
    """See :class:`weft.frontier.base.Outbox`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def items(self, after: int, limit: int) -> list[StoredItem]:
        return await self._database.read(_items, after, limit)

    async def cursor(self, sink: str) -> Cursor:
        return await self._database.read(_cursor, sink)

    async def advance(self, sink: str, cursor: Cursor, owner: str) -> bool:
        return await self._database.write(_advance, sink, cursor, owner, self._clock.time())


class SqliteMemo:
    """See :class:`weft.frontier.base.Memo`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def recall(self, key: str) -> bytes | None:
        return await self._database.read(_recall, key, self._clock.time())

    async def remember(self, key: str, value: bytes, seconds: float) -> None:
        await self._database.write(_remember, key, value, self._clock.time() + seconds)


class SqliteLedger:
    """See :class:`weft.frontier.base.Ledger`.

    What is claimed by a process that is gone is free at once: a crawl that was killed goes on without a wait.
    """

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._liveness = Liveness(database.path.with_name(database.path.name + ".workers"))
        database.at_close(lambda: self._liveness.leave(self._liveness.own))

    async def facts(self) -> dict[str, str]:
        return await self._database.read(read_facts)

    async def note(self, **facts: str) -> None:
        await self._database.write(write_facts, facts)

    async def report(self, worker: str, report: bytes) -> None:
        await self._database.write(_report, worker, self._clock.time(), report)

    async def reports(self) -> dict[str, tuple[float, bytes]]:
        return await self._database.read(_reports, self._clock.time())

    async def claim(self, role: str, owner: str, seconds: float) -> bool:
        return await self._database.write(self._claim, role, owner, seconds)

    async def release(self, role: str, owner: str) -> None:
        await self._database.write(_release, role, owner)

    async def claimed(self) -> dict[str, str]:
        return await self._database.read(self._claimed)

    def _claim(self, db: sqlite3.Connection, role: str, owner: str, seconds: float) -> bool:
        if self._claimed(db).get(role, owner) != owner:
            return False
        if not self._liveness.alive(_file_of(owner)):
            self._liveness.claim(_file_of(owner))
        db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (role, owner, self._clock.time() + seconds))
        return True

    def _claimed(self, db: sqlite3.Connection) -> dict[str, str]:
        rows = db.execute("SELECT role, owner FROM claims WHERE until > ?", (self._clock.time(),))
        return {role: owner for role, owner in rows if self._liveness.alive(_file_of(owner))}


def _file_of(owner: str) -> str:
    """The name of an owner's lock; a worker may have the same name, and has a lock of its own."""
    return f"owner {owner}"


def _release(db: sqlite3.Connection, role: str, owner: str) -> None:
    db.execute("DELETE FROM claims WHERE role = ? AND owner = ?", (role, owner))


def _items(db: sqlite3.Connection, after: int, limit: int) -> list[StoredItem]:
    query = "SELECT position, fp, n, json FROM outbox WHERE position > ? ORDER BY position LIMIT ?"
    return [
        StoredItem(position, f"{fp & 0xFFFFFFFFFFFFFFFF:016x}-{n if n >= 0 else f'e{-n}'}", json.encode())
        for position, fp, n, json in db.execute(query, (after, limit))
    ]


def _cursor(db: sqlite3.Connection, sink: str) -> Cursor:
    row = db.execute("SELECT position, state FROM cursors WHERE sink = ?", (sink,)).fetchone()
    return Cursor(*row) if row else Cursor()


def _advance(db: sqlite3.Connection, sink: str, cursor: Cursor, owner: str, now: float) -> bool:
    query = "SELECT 1 FROM claims WHERE role = ? AND owner = ? AND until > ?"
    if db.execute(query, (f"drain {sink}", owner, now)).fetchone() is None:
        return False
    db.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?, ?)", (sink, cursor.position, cursor.state))
    return True


def _recall(db: sqlite3.Connection, key: str, now: float) -> bytes | None:
    row = db.execute("SELECT value FROM memo WHERE key = ? AND until > ?", (key, now)).fetchone()
    return row[0] if row else None


def _remember(db: sqlite3.Connection, key: str, value: bytes, until: float) -> None:
    db.execute("INSERT OR REPLACE INTO memo VALUES (?, ?, ?)", (key, value, until))


def read_facts(db: sqlite3.Connection) -> dict[str, str]:
    return dict(db.execute("SELECT key, value FROM facts").fetchall())


def write_facts(db: sqlite3.Connection, facts: dict[str, str]) -> None:
    db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())


def _report(db: sqlite3.Connection, worker: str, now: float, report: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO workers VALUES (?, ?, ?)", (worker, now, report))


def _reports(db: sqlite3.Connection, now: float) -> dict[str, tuple[float, bytes]]:
    return {worker: (now - at, report) for worker, at, report in db.execute("SELECT id, at, report FROM workers")}

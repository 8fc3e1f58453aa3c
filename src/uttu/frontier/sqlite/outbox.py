"""The smaller contracts of the store on SQLite: Outbox with trimming, Memo and Ledger.

Trimming removes items that all outputs have, and returns the space to the file system. The table ``marks`` says where
the outbox may be cut: it has the position of about every hundredth item, with the number of items stored by then. A cut
at a mark leaves ``items - total`` items. Rows and file pages are released in short steps (``_STEP_SECONDS``), because
all other transactions wait meanwhile.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Final, Unpack

from uttu.clock import Clock, SystemClock
from uttu.errors import ItemsTrimmed
from uttu.frontier.base import Cursor, StoredItem, Trimmed
from uttu.frontier.sqlite.database import Database
from uttu.frontier.sqlite.liveness import Liveness
from uttu.model.facts import CrawlFacts, FactChanges, decode_facts, encode_facts

_STEP_SECONDS: Final = 0.005  # a step ends after this time or after _STEP_MARKS
_STEP_MARKS: Final = 20
# Rows deleted, or pages released, between two looks at the clock.
_AT_ONCE: Final = 50
# Free pages that stay in the file for later items: this number, or 1/_FREE_SHARE of the file if that is more. Releasing
# a page costs as much as removing about ten items, so pages that are soon reused are kept.
_FREE_PAGES: Final = 1024
_FREE_SHARE: Final = 4
_INCREMENTAL: Final = 2  # the value of PRAGMA auto_vacuum for incremental mode


def read_trimmed(db: sqlite3.Connection) -> Trimmed:
    return Trimmed(*db.execute("SELECT trimmed, cut FROM tally").fetchone())


def check_not_trimmed(db: sqlite3.Connection, after: int) -> None:
    """:raises ItemsTrimmed: items after this position were removed."""
    gone = read_trimmed(db)
    if after < gone.position:
        raise ItemsTrimmed(f"{gone.count:,} items have been removed from the crawl's store")


def find_cut(db: sqlite3.Connection, sinks: Sequence[str], keep: int, now: float) -> int:
    """Return the position up to which one step may remove items; 0 for nothing."""
    counting = set(sinks)
    for (role,) in db.execute("SELECT role FROM claims WHERE until > ?", (now,)):
        kind, _, name = role.partition(" ")
        if kind == "whole":
            return 0
        if kind == "drain":
            counting.add(name)
    if not counting:
        return 0
    # An empty state means that the sink has no items, whatever its position.
    cursors = dict(db.execute("SELECT sink, iif(length(state), position, 0) FROM cursors"))
    reached = min(cursors.get(name, 0) for name in counting)
    query = (
        "SELECT coalesce(max(position), 0) FROM (SELECT position FROM marks"
        " WHERE total <= (SELECT items FROM tally) - ? AND position <= ? ORDER BY total LIMIT ?)"
    )
    (found,) = db.execute(query, (keep, reached, _STEP_MARKS)).fetchone()
    return int(found)


def is_trim_due(db: sqlite3.Connection, sinks: Sequence[str], keep: int, now: float) -> bool:
    """Whether there is an item to remove or space to release."""
    return _spare_pages(db) > 0 or find_cut(db, sinks, keep, now) > 0


def trim_outbox(db: sqlite3.Connection, sinks: Sequence[str], keep: int, now: float) -> bool:
    """See :meth:`uttu.frontier.base.Outbox.trim`."""
    last = find_cut(db, sinks, keep, now)
    if last:
        _remove(db, last)
    return _give_back(db) or find_cut(db, sinks, keep, now) > 0


def _remove(db: sqlite3.Connection, last: int) -> None:
    ends, removed, count = time.monotonic() + _STEP_SECONDS, 0, _AT_ONCE
    while count == _AT_ONCE and time.monotonic() < ends:
        count = db.execute(
            "DELETE FROM outbox WHERE position IN"
            " (SELECT position FROM outbox WHERE position <= ? ORDER BY position LIMIT ?)",
            (last, _AT_ONCE),
        ).rowcount
        removed += count
    (first,) = db.execute("SELECT min(position) FROM outbox").fetchone()
    cut = last if first is None else min(last, first - 1)
    db.execute("UPDATE tally SET trimmed = trimmed + ?, cut = max(cut, ?)", (removed, cut))
    db.execute("DELETE FROM marks WHERE position <= ?", (cut,))


def _spare_pages(db: sqlite3.Connection) -> int:
    """Return the number of free pages to release.

    0 for a file of an older version without incremental vacuum.
    """
    if db.execute("PRAGMA auto_vacuum").fetchone() != (_INCREMENTAL,):
        return 0
    (free,), (pages,) = (db.execute(f"PRAGMA {what}").fetchone() for what in ("freelist_count", "page_count"))
    return max(0, int(free) - max(_FREE_PAGES, int(pages) // _FREE_SHARE))


def _give_back(db: sqlite3.Connection) -> bool:
    """Release free pages for ``_STEP_SECONDS``; return whether more are left."""
    ends = time.monotonic() + _STEP_SECONDS
    spare = _spare_pages(db)
    for number in range(1, spare + 1):
        # One page per call: Python's driver stops the statement after the first page, whatever number is given.
        db.execute("PRAGMA incremental_vacuum(1)")
        if number % _AT_ONCE == 0 and time.monotonic() > ends:
            return number < spare
    return False


class SqliteOutbox:
    """See :class:`uttu.frontier.base.Outbox`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def items(self, after: int, limit: int) -> list[StoredItem]:
        return await self._database.read(_items, after, limit)

    async def latest(self, limit: int, before: int = 0) -> list[StoredItem]:
        return await self._database.inspect(_latest, limit, before)

    async def cursor(self, sink: str) -> Cursor:
        return await self._database.read(_cursor, sink)

    async def advance(self, sink: str, cursor: Cursor, owner: str) -> bool:
        return await self._database.write(_advance, sink, cursor, owner, self._clock.time())

    async def trim(self, sinks: Sequence[str], keep: int) -> bool:
        # Most calls find nothing to do: a read avoids waiting for other writers.
        now = self._clock.time()
        if not await self._database.read(is_trim_due, sinks, keep, now):
            return False
        return await self._database.write(trim_outbox, sinks, keep, now)

    async def trimmed(self) -> Trimmed:
        return await self._database.read(read_trimmed)


class SqliteMemo:
    """See :class:`uttu.frontier.base.Memo`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def recall(self, key: str) -> bytes | None:
        return await self._database.read(_recall, key, self._clock.time())

    async def remember(self, key: str, value: bytes, seconds: float) -> None:
        await self._database.write(_remember, key, value, self._clock.time() + seconds)


class SqliteLedger:
    """See :class:`uttu.frontier.base.Ledger`.

    A claim ends at once when the process of its owner dies, so a killed crawl resumes without a wait.
    """

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._liveness = Liveness(database.path.with_name(database.path.name + ".workers"))
        database.at_close(lambda: self._liveness.leave(self._liveness.own))

    async def facts(self) -> CrawlFacts:
        return decode_facts(await self._database.read(read_facts))

    async def note(self, **changes: Unpack[FactChanges]) -> None:
        await self._database.write(write_facts, encode_facts(changes))

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
        if not self._liveness.alive(_lock_name(owner)):
            self._liveness.claim(_lock_name(owner))
        db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (role, owner, self._clock.time() + seconds))
        return True

    def _claimed(self, db: sqlite3.Connection) -> dict[str, str]:
        rows = db.execute("SELECT role, owner FROM claims WHERE until > ?", (self._clock.time(),))
        return {role: owner for role, owner in rows if self._liveness.alive(_lock_name(owner))}


def _lock_name(owner: str) -> str:
    """Return the name of an owner's lock file. The prefix keeps it apart from a worker of the same name."""
    return f"owner {owner}"


def _release(db: sqlite3.Connection, role: str, owner: str) -> None:
    db.execute("DELETE FROM claims WHERE role = ? AND owner = ?", (role, owner))


def _items(db: sqlite3.Connection, after: int, limit: int) -> list[StoredItem]:
    check_not_trimmed(db, after)
    query = "SELECT position, fp, n, json FROM outbox WHERE position > ? ORDER BY position LIMIT ?"
    return [_stored_item(*row) for row in db.execute(query, (after, limit))]


def _latest(db: sqlite3.Connection, limit: int, before: int) -> list[StoredItem]:
    query = "SELECT position, fp, n, json FROM outbox WHERE position < ? ORDER BY position DESC LIMIT ?"
    return [_stored_item(*row) for row in db.execute(query, (before or 2**63 - 1, limit))]


def _stored_item(position: int, fp: int, n: int, json: str) -> StoredItem:
    return StoredItem(position, f"{fp & 0xFFFFFFFFFFFFFFFF:016x}-{n if n >= 0 else f'e{-n}'}", json.encode())


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
    """Return the encoded facts; see :mod:`uttu.model.facts`."""
    return dict(db.execute("SELECT key, value FROM facts").fetchall())


def write_facts(db: sqlite3.Connection, facts: dict[str, str]) -> None:
    db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())


def _report(db: sqlite3.Connection, worker: str, now: float, report: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO workers VALUES (?, ?, ?)", (worker, now, report))


def _reports(db: sqlite3.Connection, now: float) -> dict[str, tuple[float, bytes]]:
    return {worker: (now - at, report) for worker, at, report in db.execute("SELECT id, at, report FROM workers")}

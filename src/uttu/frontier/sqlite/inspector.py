"""The Inspector on SQLite: inspection and manual changes of a crawl.

Everything that only reads runs in a helper thread; see ``database``. Leases, retries and dead letters are searched by
fingerprint, queue and history by a full scan: the crawl itself needs no index for this, so none is kept. If the lane of
a request is known, only its part of the queue is scanned.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from uttu.clock import Clock, SystemClock
from uttu.errors import RefusedData
from uttu.frontier.sqlite import dead_letters
from uttu.frontier.sqlite.database import Database
from uttu.frontier.sqlite.dead_letters import contains
from uttu.model import Pace, Request
from uttu.model.inspection import DeadGroup, DeadPage, DeadQuery, LaneFilter, LanePage, LaneQuery
from uttu.model.lease import LaneState, RequestState, Trace, decode_note


class SqliteInspector:
    """See :class:`uttu.frontier.base.Inspector`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self.database = database
        self._clock = clock or SystemClock()

    async def trace(self, fingerprint: int, lane: str = "") -> Trace:
        return await self.database.inspect(_trace, fingerprint, lane, self._clock.time())

    async def lanes(self, query: LaneQuery) -> LanePage:
        return await self.database.inspect(_page_of_lanes, query, self._clock.time())

    async def dead(self, query: DeadQuery) -> DeadPage:
        return await self.database.inspect(dead_letters.read_page, query)

    async def dead_groups(self) -> list[DeadGroup]:
        return await self.database.inspect(dead_letters.read_groups)

    async def repace(self, old: Pace, new: Pace) -> int:
        return await self.database.write(_repace, old, new)

    async def pin(self, lane: str, delay: float | None) -> None:
        await self.database.write(_pin, lane, delay, self._clock.time())

    async def revive(self, kind: str = "", url: str = "", message: str = "") -> int:
        return await self.database.write(dead_letters.revive, kind, url, message, aside=True)


def _trace(db: sqlite3.Connection, fp: int, lane: str, now: float) -> Trace:
    if (
        db.execute("SELECT 1 FROM seen WHERE fp = ?1 UNION SELECT 1 FROM recent WHERE fp = ?1", (fp,)).fetchone()
        is None
    ):
        return Trace(state=RequestState.UNKNOWN)
    for look in (_leased, _delayed, _buried):
        found = look(db, fp)
        if found is not None:
            return found
    # The queue is ordered by lane, not by fingerprint: without a lane this is a full scan, and so is the history.
    return (
        (_pending(db, fp, now, lane) if lane else None)
        or _done(db, fp)
        or _pending(db, fp, now)
        or Trace(state=RequestState.DONE)
    )


def _leased(db: sqlite3.Connection, fp: int) -> Trace | None:
    row = db.execute(
        "SELECT record, attempt, name, worker, deadline FROM leases JOIN lanes ON lanes.id = lane WHERE fp = ?", (fp,)
    ).fetchone()
    if row is None:
        return None
    record, attempt, lane, worker, deadline = row
    return Trace(
        state=RequestState.LEASED,
        request=Request.from_record(record),
        attempt=attempt,
        lane=lane,
        worker=worker,
        due=deadline,
    )


def _delayed(db: sqlite3.Connection, fp: int) -> Trace | None:
    row = db.execute(
        "SELECT record, attempt, name, delayed.due, delayed.reason FROM delayed JOIN lanes ON lanes.id = lane"
        " WHERE fp = ?",
        (fp,),
    ).fetchone()
    if row is None:
        return None
    record, attempt, lane, due, reason = row
    return Trace(
        state=RequestState.DELAYED,
        request=Request.from_record(record),
        attempt=attempt,
        lane=lane,
        due=due,
        reason=reason,
    )


def _buried(db: sqlite3.Connection, fp: int) -> Trace | None:
    row = db.execute(
        "SELECT record, attempt, name, at, kind, dead.reason, detail, status FROM dead JOIN lanes ON lanes.id = lane"
        " WHERE fp = ?",
        (fp,),
    ).fetchone()
    if row is None:
        return None
    record, attempt, lane, at, kind, reason, detail, status = row
    return Trace(
        state=RequestState.DEAD,
        request=Request.from_record(record),
        attempt=attempt,
        lane=lane,
        at=at,
        kind=kind,
        reason=reason,
        detail=detail,
        status=status,
    )


def _done(db: sqlite3.Connection, fp: int) -> Trace | None:
    row = db.execute(
        "SELECT at, status, size, links, items, note FROM history WHERE fp = ? ORDER BY seq DESC LIMIT 1", (fp,)
    ).fetchone()
    if row is None:
        return None
    at, status, size, links, items, stored = row
    note, redirect = decode_note(stored)
    return Trace(
        state=RequestState.DONE,
        at=at,
        status=status,
        size=size,
        links=links,
        items=items,
        reason=note,
        redirect=redirect,
    )


def _pending(db: sqlite3.Connection, fp: int, now: float, lane_name: str = "") -> Trace | None:
    """Look for a request in the queue, or in the queue of one lane."""
    place = "lane = (SELECT id FROM lanes WHERE name = ?3)" if lane_name else "?3 = ''"
    row = db.execute(
        "SELECT record, attempt, lane, rank, seq, name, due, iif(held > ?2, reason, '') FROM queue"
        f" JOIN lanes ON lanes.id = lane WHERE fp = ?1 AND {place}",
        (fp, now, lane_name),
    ).fetchone()
    if row is None:
        return None
    record, attempt, lane, rank, seq, name, due, reason = row
    (ahead,) = db.execute(
        "SELECT count(*) FROM queue WHERE lane = ? AND (rank, seq) < (?, ?)", (lane, rank, seq)
    ).fetchone()
    return Trace(
        state=RequestState.PENDING,
        request=Request.from_record(record),
        attempt=attempt,
        lane=name,
        due=due,
        reason=reason,
        ahead=ahead,
    )


def _page_of_lanes(db: sqlite3.Connection, query: LaneQuery, now: float) -> LanePage:
    """Read all lanes, unless one is named: an index on the number of pending requests would cost every lease."""
    chosen = _FILTERS[query.only]
    bindings: dict[str, Any] = {"now": now, "limit": query.limit + 1}
    if query.match:
        chosen, bindings["match"] = f"({chosen}) AND name LIKE :match ESCAPE '\\'", contains(query.match)
    if query.name:
        chosen, bindings["one"] = f"({chosen}) AND name = :one", query.name
    (total,) = db.execute(f"SELECT count(*) FROM lanes WHERE {chosen}", bindings).fetchone()
    if query.after:
        bindings["pending"], bindings["name"] = _parse_cursor(query.after)
        chosen = f"({chosen}) AND (-pending, name) > (-:pending, :name)"
    rows = db.execute(
        "SELECT name, pending, active, total, delay, cap, due, held, reason, pinned FROM lanes"
        f" WHERE {chosen} ORDER BY pending DESC, name LIMIT :limit",
        bindings,
    ).fetchall()
    lanes = [
        LaneState(
            name=name,
            pending=pending,
            active=active,
            total=total,
            pace=Pace(delay, cap),
            wait=max(0.0, due - now),
            reason=reason if held > now else "",
            pinned=bool(pinned),
        )
        for name, pending, active, total, delay, cap, due, held, reason, pinned in rows[: query.limit]
    ]
    return LanePage(lanes, f"{lanes[-1].pending} {lanes[-1].name}" if len(rows) > query.limit else "", total)


_FILTERS: Final = {
    LaneFilter.ALL: "pending > 0 OR active > 0",
    LaneFilter.HELD: "held > :now",
    LaneFilter.WAITING: "pending > 0 AND due > :now",
    LaneFilter.READY: "pending > 0 AND due <= :now",
    LaneFilter.ACTIVE: "active > 0",
    LaneFilter.PINNED: "pinned",
    LaneFilter.IDLE: "pending = 0 AND active = 0",
}


def _parse_cursor(after: str) -> tuple[int, str]:
    pending, _, name = after.partition(" ")
    try:
        if name:
            return int(pending), name
    except ValueError:
        pass
    raise RefusedData(f"There is no page of lanes after {after!r}; begin with the first page")


def _repace(db: sqlite3.Connection, old: Pace, new: Pace) -> int:
    paces = (new.delay, new.limit, old.delay, old.limit)
    db.execute("UPDATE lanes SET own_delay = ?, own_cap = ? WHERE own_delay = ? AND own_cap = ? AND pinned", paces)
    return db.execute("UPDATE lanes SET delay = ?, cap = ? WHERE delay = ? AND cap = ? AND NOT pinned", paces).rowcount


def _pin(db: sqlite3.Connection, lane: str, delay: float | None, now: float) -> None:
    if delay is None:
        _unpin(db, lane, now)
        return
    db.execute("INSERT OR IGNORE INTO lanes (name, due, delay, cap, pinned) VALUES (?, ?, ?, 1, 1)", (lane, now, delay))
    # A wait that has begun keeps its start and gets the new delay.
    db.execute(
        "UPDATE lanes SET due = max(held, due + ?2 - delay), delay = ?2, cap = 1, pinned = 1,"
        " own_delay = iif(pinned, own_delay, delay), own_cap = iif(pinned, own_cap, cap) WHERE name = ?1",
        (lane, delay),
    )


def _unpin(db: sqlite3.Connection, lane: str, now: float) -> None:
    # A pinned lane without a pace to return to never had a request: remove it.
    db.execute("DELETE FROM lanes WHERE name = ? AND pinned AND own_delay IS NULL", (lane,))
    db.execute(
        "UPDATE lanes SET delay = own_delay, cap = own_cap, pinned = 0, own_delay = NULL, own_cap = NULL,"
        # With a limit above 1, the delay counts from the start of the previous request; one in flight may start now.
        " due = max(held, iif(own_cap <> 1 AND active > 0, max(due, ?2) + own_delay, due + own_delay - delay))"
        " WHERE name = ?1 AND pinned",
        (lane, now),
    )

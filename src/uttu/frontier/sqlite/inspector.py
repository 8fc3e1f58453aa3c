"""The Inspector on SQLite: inspection and manual changes of a crawl.

Leases, retries, dead letters and history are searched by fingerprint, the queue by a full scan: the crawl itself needs
no index for this, so none is kept.
"""

from __future__ import annotations

import sqlite3

from uttu.clock import Clock, SystemClock
from uttu.frontier.sqlite.database import Database
from uttu.model import Pace, Request
from uttu.model.lease import DeadLetter, LaneState, RequestState, Trace, decode_note


class SqliteInspector:
    """See :class:`uttu.frontier.base.Inspector`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def trace(self, fingerprint: int) -> Trace:
        return await self._database.read(_trace, fingerprint, self._clock.time())

    async def lanes(self, limit: int) -> list[LaneState]:
        return await self._database.read(_lanes, limit, self._clock.time())

    async def dead(self, limit: int, kind: str = "") -> list[DeadLetter]:
        return await self._database.read(_dead, limit, kind)

    async def dead_kinds(self) -> dict[str, int]:
        return await self._database.read(_dead_kinds)

    async def repace(self, old: Pace, new: Pace) -> int:
        return await self._database.write(_repace, old, new)

    async def pin(self, lane: str, delay: float | None) -> None:
        await self._database.write(_pin, lane, delay, self._clock.time())

    async def revive(self, kind: str = "", url: str = "") -> int:
        return await self._database.write(_revive, kind, url)


def _trace(db: sqlite3.Connection, fp: int, now: float) -> Trace:
    if (
        db.execute("SELECT 1 FROM seen WHERE fp = ?1 UNION SELECT 1 FROM recent WHERE fp = ?1", (fp,)).fetchone()
        is None
    ):
        return Trace(state=RequestState.UNKNOWN)
    for look in (_leased, _delayed, _buried, _done):
        found = look(db, fp)
        if found is not None:
            return found
    # The queue is ordered by lane, not by fingerprint: this is a full scan.
    return _pending(db, fp, now) or Trace(state=RequestState.DONE)


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


def _pending(db: sqlite3.Connection, fp: int, now: float) -> Trace | None:
    row = db.execute(
        "SELECT record, attempt, lane, rank, seq, name, due, iif(held > ?2, reason, '') FROM queue"
        " JOIN lanes ON lanes.id = lane WHERE fp = ?1",
        (fp, now),
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


def _lanes(db: sqlite3.Connection, limit: int, now: float) -> list[LaneState]:
    rows = db.execute(
        "SELECT name, pending, active, total, delay, cap, due, held, reason, pinned FROM lanes"
        " WHERE pending > 0 OR active > 0 ORDER BY pending DESC, active DESC LIMIT ?",
        (limit,),
    )
    return [
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
        for name, pending, active, total, delay, cap, due, held, reason, pinned in rows
    ]


def _dead(db: sqlite3.Connection, limit: int, kind: str) -> list[DeadLetter]:
    rows = db.execute(
        "SELECT record, kind, reason, detail, status, attempt, at FROM dead WHERE ?1 IN ('', kind)"
        " ORDER BY at DESC LIMIT ?2",
        (kind, limit),
    )
    return [
        DeadLetter(
            request=Request.from_record(record),
            kind=kind,
            reason=reason,
            detail=detail,
            status=status,
            attempt=attempt,
            at=at,
        )
        for record, kind, reason, detail, status, attempt, at in rows
    ]


def _dead_kinds(db: sqlite3.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT kind, count(*) FROM dead GROUP BY kind ORDER BY 2 DESC").fetchall())


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


def _revive(db: sqlite3.Connection, kind: str, url: str) -> int:
    chosen = "FROM dead WHERE ?1 IN ('', kind) AND ?2 IN ('', record ->> 'u')"
    revived = db.execute(
        "INSERT INTO queue (lane, rank, seq, fp, attempt, losses, record)"
        f" SELECT lane, rank, seq, fp, 0, 0, record {chosen}",
        (kind, url),
    ).rowcount
    db.execute(
        f"UPDATE lanes SET pending = pending + n FROM (SELECT lane, count(*) n {chosen} GROUP BY lane) back"
        " WHERE lanes.id = back.lane",
        (kind, url),
    )
    db.execute(f"DELETE {chosen}", (kind, url))
    db.execute("UPDATE tally SET dead = dead - ?1, pending = pending + ?1", (revived,))
    return revived

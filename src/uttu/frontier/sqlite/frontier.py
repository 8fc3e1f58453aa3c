"""The Frontier on SQLite. See ``database`` for the tables and the threads.

Each method is one transaction over its whole batch. Its cost depends on the rows touched, not on the size of the crawl:
lanes that cannot give a request are not in the index ``lanes_ready``, seen fingerprints are looked up in a clustered
tree, and queues are appended to or read from the front.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence

import msgspec

from uttu.clock import Clock, SystemClock
from uttu.errors import StoreError
from uttu.frontier.base import Rules
from uttu.frontier.sqlite.database import Database
from uttu.frontier.sqlite.dead_letters import bury
from uttu.frontier.sqlite.liveness import Liveness
from uttu.frontier.sqlite.settlement import Admission, settle
from uttu.model import Counts, Lease, Outcome, Request, Retry
from uttu.model.lease import DeadKind

_Lane = tuple[int, str, float, int]  # id, name, due time, number of requests it may give now
_Taken = tuple[int, int, int, int, bytes]  # lease id, fingerprint, lane, attempt, record

# Seconds between two checks for dead workers on this machine.
_LIVENESS_SECONDS = 1.0
# An outcome with more children or items than this (about 20 ms of work) is stored in a helper thread.
_MOST_ON_LOOP = 2000
_MOST_BYTES_ON_LOOP = 4_000_000


class SqliteFrontier:
    """See :class:`uttu.frontier.base.Frontier`."""

    def __init__(self, database: Database, rules: Rules, clock: Clock | None = None) -> None:
        self.database = database
        self.rules = rules
        self._clock = clock or SystemClock()
        self._admission = Admission(rules)
        self._liveness = Liveness(database.path.with_name(database.path.name + ".workers"))
        self._looked = float("-inf")

    async def put(self, requests: Sequence[Request]) -> int:
        return await self.database.write(self._put, requests, failed=self._admission.forget)

    async def lease(self, limit: int, worker: str) -> list[Lease]:
        lanes, taken, deadline = await self.database.write(self._lease, limit, worker)
        by_id = {lane: (name, due) for lane, name, due, _ in lanes}
        now = self._clock.time()  # read again: leasing took time
        return [
            Lease(
                id=number,
                fingerprint=fp,
                lane=by_id[lane][0],
                request=Request.from_record(record),
                attempt=attempt,
                wait=max(0.0, by_id[lane][1] - now),
                deadline=deadline,
            )
            for number, fp, lane, attempt, record in taken
        ]

    async def extend(self, leases: Sequence[Lease]) -> set[int]:
        return await self.database.write(self._extend, [lease.id for lease in leases])

    async def settle(self, outcomes: Sequence[Outcome]) -> set[int]:
        return await self.database.write(
            settle,
            outcomes,
            self._admission,
            self._clock,
            failed=self._admission.forget,
            aside=any(map(_is_large, outcomes)),
        )

    async def hold(self, lane: str, seconds: float, reason: str) -> None:
        await self.database.write(self._hold, lane, seconds, reason, failed=self._admission.forget)

    async def counts(self) -> Counts:
        return await self.database.read(read_counts)

    async def close(self) -> None:
        # A process that only looks has no workers here, and must not make the crawl wait for a transaction.
        if self._liveness.own and not self.database.closed:
            with contextlib.suppress(StoreError):
                await self.database.write(self._leave)
        self.database.close()
        self._liveness.release()

    def _leave(self, db: sqlite3.Connection) -> None:
        """Remove the lock files of workers that hold no leases, so others need not check them."""
        self._liveness.leave([worker for worker in self._liveness.own if not _holds(db, worker)])

    def _put(self, db: sqlite3.Connection, requests: Sequence[Request]) -> int:
        return self._admission.admit(db, requests, self._clock.time())

    def _lease(self, db: sqlite3.Connection, limit: int, worker: str) -> tuple[list[_Lane], list[_Taken], float]:
        """Return the lanes that are leased from, the new leases, and their deadline."""
        now = self._clock.time()
        deadline = now + self.rules.lease_seconds
        self._liveness.claim(worker)
        gone = self._gone()
        self._end_lost(db, now, gone)
        # If this transaction fails, the leases of dead workers end at their deadlines instead.
        self._liveness.forget(gone)
        self._wake_delayed(db, now)
        if self.rules.max_pages:
            (pages,) = db.execute("SELECT done + dead + leased FROM tally").fetchone()
            limit = min(limit, self.rules.max_pages - pages)
        if self.rules.max_items:
            (items,) = db.execute("SELECT items FROM tally").fetchone()
            limit = limit if items < self.rules.max_items else 0
        if limit <= 0:
            return [], [], deadline
        lanes: list[_Lane] = db.execute(
            "SELECT id, name, due, CASE WHEN delay > 0 THEN 1 WHEN cap = 0 THEN pending"
            " ELSE min(pending, cap - active) END FROM lanes"
            " WHERE pending > 0 AND (cap = 0 OR active < cap) AND due <= ?1 + ?2 ORDER BY due LIMIT ?3",
            (now, self.rules.ahead, limit),
        ).fetchall()
        if not lanes:
            return [], [], deadline
        before = self._last_lease(db)
        self._take(db, lanes, limit, worker, deadline)
        return lanes, self._taken(db, before, now), deadline

    @staticmethod
    def _take(db: sqlite3.Connection, lanes: list[_Lane], limit: int, worker: str, deadline: float) -> None:
        """Move the first requests of these lanes to ``leases``; several per lane only if it has no delay."""
        into = "INSERT INTO leases (fp, lane, rank, seq, attempt, losses, record, worker, deadline)"
        columns = "q.fp, q.lane, q.rank, q.seq, q.attempt + 1, q.losses, q.record, :worker, :deadline"
        bind = {"worker": worker, "deadline": deadline}
        single = [lane for lane, _, _, room in lanes if room == 1]
        db.execute(
            f"{into} SELECT {columns} FROM json_each(:lanes) l JOIN queue q ON q.lane = l.value AND (q.rank, q.seq) ="
            " (SELECT rank, seq FROM queue WHERE lane = l.value ORDER BY rank, seq LIMIT 1)",
            bind | {"lanes": str(single)},
        )
        left = limit - len(single)
        # Equal shares. Lanes with few requests come first, so that their unused share goes to the others.
        several = sorted((room, lane) for lane, _, _, room in lanes if room > 1)
        for index, (room, lane) in enumerate(several):
            share = min(room, -(-left // (len(several) - index)))
            db.execute(
                f"{into} SELECT {columns} FROM queue q WHERE q.lane = :lane ORDER BY rank, seq LIMIT :share",
                bind | {"lane": lane, "share": share},
            )
            left -= share

    @staticmethod
    def _taken(db: sqlite3.Connection, before: int, now: float) -> list[_Taken]:
        """Return the new leases (ids above ``before``), and remove them from the queue and the lane counters."""
        query = "SELECT id, fp, lane, attempt, record FROM leases WHERE id > ? ORDER BY id"
        taken: list[_Taken] = db.execute(query, (before,)).fetchall()
        db.execute(
            "DELETE FROM queue WHERE (lane, rank, seq) IN (SELECT lane, rank, seq FROM leases WHERE id > ?)", (before,)
        )
        # With a limit of 1, the delay is added when the outcome brings the time of the last touch.
        db.execute(
            "UPDATE lanes SET active = active + n, pending = pending - n, due = max(due, ?1) + delay * (cap <> 1)"
            " FROM (SELECT lane, count(*) n FROM leases WHERE id > ?2 GROUP BY lane) taken WHERE lanes.id = taken.lane",
            (now, before),
        )
        db.execute("UPDATE tally SET pending = pending - ?1, leased = leased + ?1", (len(taken),))
        return taken

    def _gone(self) -> list[str]:
        """Return workers that were found dead; checks at most every ``_LIVENESS_SECONDS``."""
        if self._clock.monotonic() - self._looked < _LIVENESS_SECONDS:
            return []
        self._looked = self._clock.monotonic()
        return self._liveness.gone()

    def _end_lost(self, db: sqlite3.Connection, now: float, gone: list[str]) -> None:
        """Return expired leases, and leases of dead workers, to their lanes."""
        late = "SELECT id FROM leases WHERE deadline <= ?1"
        if gone:
            late += " OR worker IN (SELECT value FROM json_each(?2))"
            lost = [row[0] for row in db.execute(late, (now, msgspec.json.encode(gone).decode()))]
        else:
            lost = [row[0] for row in db.execute(late, (now,))]
        if not lost:
            return
        ids, most = str(lost), self.rules.max_losses
        these = "leases WHERE id IN (SELECT value FROM json_each(?1))"
        back = db.execute(
            "INSERT INTO queue (lane, rank, seq, fp, attempt, losses, record)"
            f" SELECT lane, rank, seq, fp, attempt, losses + 1, record FROM {these} AND losses + 1 < ?2",
            (ids, most),
        ).rowcount
        given_up = db.execute(f"SELECT id, losses + 1 FROM {these} AND losses + 1 >= ?2", (ids, most)).fetchall()
        why = "its worker was lost {} times while it had this page"
        bury(db, [(number, DeadKind.LOST, why.format(losses), "", 0) for number, losses in given_up], now)
        # The lost worker may have contacted the host at any time up to now.
        db.execute(
            "UPDATE lanes SET active = active - n, pending = pending + returned, due = max(due, ?3 + delay)"
            f" FROM (SELECT lane, count(*) n, sum(losses + 1 < ?2) returned FROM {these} GROUP BY lane) ended"
            " WHERE lanes.id = ended.lane",
            (ids, most, now),
        )
        db.execute(f"DELETE FROM {these}", (ids,))
        db.execute("UPDATE tally SET leased = leased - ?1, pending = pending + ?2", (len(lost), back))

    @staticmethod
    def _wake_delayed(db: sqlite3.Connection, now: float) -> None:
        woken = db.execute(
            "INSERT INTO queue (lane, rank, seq, fp, attempt, losses, record)"
            " SELECT lane, rank, seq, fp, attempt, losses, record FROM delayed WHERE due <= ?",
            (now,),
        ).rowcount
        if woken:
            db.execute(
                "UPDATE lanes SET pending = pending + n FROM (SELECT lane, count(*) n FROM delayed WHERE due <= ?"
                " GROUP BY lane) woken WHERE lanes.id = woken.lane",
                (now,),
            )
            db.execute("DELETE FROM delayed WHERE due <= ?", (now,))
            db.execute("UPDATE tally SET delayed = delayed - ?1, pending = pending + ?1", (woken,))

    def _extend(self, db: sqlite3.Connection, ids: list[int]) -> set[int]:
        held = find_living_leases(db, ids)
        db.execute(
            "UPDATE leases SET deadline = ? WHERE id IN (SELECT value FROM json_each(?))",
            (self._clock.time() + self.rules.lease_seconds, str(sorted(held))),
        )
        return set(ids) - held

    def _hold(self, db: sqlite3.Connection, lane: str, seconds: float, reason: str) -> None:
        now = self._clock.time()
        db.execute(
            "UPDATE lanes SET due = max(due, ?1), held = ?1, reason = ?2 WHERE id = ?3 AND held < ?1",
            (now + seconds, reason, self._admission.lane_ids(db, {lane}, now)[lane]),
        )

    @staticmethod
    def _last_lease(db: sqlite3.Connection) -> int:
        row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'leases'").fetchone()
        return row[0] if row else 0


def _is_large(outcome: Outcome) -> bool:
    """Whether storing it takes too long for the event loop."""
    return not isinstance(outcome, Retry) and (
        len(outcome.children) > _MOST_ON_LOOP
        or len(outcome.items) > _MOST_ON_LOOP
        or sum(map(len, outcome.items)) > _MOST_BYTES_ON_LOOP
    )


def _holds(db: sqlite3.Connection, worker: str) -> bool:
    return db.execute("SELECT 1 FROM leases WHERE worker = ? LIMIT 1", (worker,)).fetchone() is not None


def find_living_leases(db: sqlite3.Connection, ids: Sequence[int]) -> set[int]:
    """Return those of the lease ids that are still in force."""
    query = "SELECT id FROM leases WHERE id IN (SELECT value FROM json_each(?))"
    return {row[0] for row in db.execute(query, (str(list(ids)),))}


def read_counts(db: sqlite3.Connection) -> Counts:
    row = db.execute("SELECT pending, leased, delayed, done, dead, items, bytes FROM tally").fetchone()
    return Counts(**dict(zip(Counts.__struct_fields__, row, strict=True)))

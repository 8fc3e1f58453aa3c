"""Ending leases: children, items and the end of the lease in the caller's one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from weft.clock import Clock
from weft.frontier.sqlite.admission import Admission
from weft.model import Dead, Done, Outcome, Retry


def settle(db: sqlite3.Connection, outcomes: Sequence[Outcome], admission: Admission, clock: Clock) -> set[int]:
    """See :meth:`weft.frontier.base.Frontier.settle`."""
    # In this order: should the process be kept waiting between the two, hosts are due later rather than too early.
    monotonic = clock.monotonic()
    now = clock.time()
    offset = now - monotonic
    lane_of = _lanes_of_living(db, outcomes)
    first: dict[int, Outcome] = {}
    for outcome in outcomes:
        if outcome.lease.id in lane_of:
            first.setdefault(outcome.lease.id, outcome)
    kept = list(first.values())
    ended = [outcome for outcome in kept if not isinstance(outcome, Retry)]
    admission.admit(db, (child for outcome in ended for child in outcome.children), now)
    _store_items(db, ended)
    _finish(db, [outcome for outcome in kept if isinstance(outcome, Done)], now)
    _bury(db, [outcome for outcome in kept if isinstance(outcome, Dead)], now)
    returned = _give_back(db, [outcome for outcome in kept if isinstance(outcome, Retry)], now)
    db.execute("DELETE FROM leases WHERE id IN (SELECT value FROM json_each(?))", (str(list(lane_of)),))
    db.execute("UPDATE tally SET leased = leased - ?", (len(kept),))
    _release_lanes(db, kept, lane_of, returned, offset)
    return {outcome.lease.id for outcome in outcomes} - lane_of.keys()


def _lanes_of_living(db: sqlite3.Connection, outcomes: Sequence[Outcome]) -> dict[int, int]:
    query = "SELECT id, lane FROM leases WHERE id IN (SELECT value FROM json_each(?))"
    return dict(db.execute(query, (str([outcome.lease.id for outcome in outcomes]),)).fetchall())


def _store_items(db: sqlite3.Connection, ended: Sequence[Done | Dead]) -> None:
    rows = [
        (outcome.lease.fingerprint, _number(outcome, index), item.decode())
        for outcome in ended
        for index, item in enumerate(outcome.items)
    ]
    if rows:
        db.executemany("INSERT INTO outbox (fp, n, json) VALUES (?, ?, ?)", rows)
        db.execute("UPDATE tally SET items = items + ?", (len(rows),))


def _number(outcome: Done | Dead, index: int) -> int:
    """A page is done once, but may die and be revived many times: its items then are told apart by the lease."""
    return index if isinstance(outcome, Done) else -(outcome.lease.id * 1000 + index)


def _finish(db: sqlite3.Connection, done: Sequence[Done], now: float) -> None:
    if not done:
        return
    rows = [
        (each.lease.fingerprint, now, each.status, each.size, len(each.children), len(each.items), each.note)
        for each in done
    ]
    db.executemany("INSERT INTO history (fp, at, status, size, links, items, note) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    db.execute("UPDATE tally SET done = done + ?, bytes = bytes + ?", (len(done), sum(each.size for each in done)))


def _bury(db: sqlite3.Connection, dead: Sequence[Dead], now: float) -> None:
    if not dead:
        return
    db.executemany(
        "INSERT INTO dead (fp, lane, rank, seq, attempt, record, at, kind, reason, detail, status)"
        " SELECT fp, lane, rank, seq, attempt, record, ?, ?, ?, ?, ? FROM leases WHERE id = ?",
        [(now, each.kind, each.reason, each.detail, each.status, each.lease.id) for each in dead],
    )
    db.execute("UPDATE tally SET dead = dead + ?", (len(dead),))


def _give_back(db: sqlite3.Connection, retries: Sequence[Retry], now: float) -> set[int]:
    """Retries wait for their time, or return to their lane at once; returns the leases of the latter."""
    if not retries:
        return set()
    at_once = [each for each in retries if each.after <= 0]
    later = [each for each in retries if each.after > 0]
    db.executemany(
        "INSERT INTO queue (lane, rank, seq, fp, attempt, losses, record)"
        " SELECT lane, rank, seq, fp, attempt - 1 + ?, losses, record FROM leases WHERE id = ?",
        [(each.counted, each.lease.id) for each in at_once],
    )
    db.executemany(
        "INSERT INTO delayed (due, fp, lane, rank, seq, attempt, losses, record, reason)"
        " SELECT ?, fp, lane, rank, seq, attempt - 1 + ?, losses, record, ? FROM leases WHERE id = ?",
        [(now + each.after, each.counted, each.reason, each.lease.id) for each in later],
    )
    db.execute("UPDATE tally SET pending = pending + ?, delayed = delayed + ?", (len(at_once), len(later)))
    return {each.lease.id for each in at_once}


def _release_lanes(
    db: sqlite3.Connection, kept: Sequence[Outcome], lane_of: dict[int, int], returned: set[int], offset: float
) -> None:
    """Free the lanes' places, count their delay from the last touch, and set a new pace where one came."""
    lanes: dict[int, list[Any]] = {}
    for outcome in kept:
        # lane, places freed, requests returned, last touched, delay, cap: ?1 to ?6
        row = lanes.setdefault(lane_of[outcome.lease.id], [lane_of[outcome.lease.id], 0, 0, None, None, None])
        row[1] += 1
        row[2] += outcome.lease.id in returned
        if outcome.touched is not None:
            row[3] = max(row[3] or 0.0, outcome.touched + offset)
        if outcome.pace is not None:
            row[4], row[5] = outcome.pace.delay, outcome.pace.limit
    db.executemany(
        "UPDATE lanes SET active = active - ?2, pending = pending + ?3,"
        # A pinned lane keeps the operator's pace, whose limit is 1, and goes back to the new one later.
        " delay = iif(pinned, delay, coalesce(?5, delay)), cap = iif(pinned, cap, coalesce(?6, cap)),"
        " own_delay = iif(pinned, coalesce(?5, own_delay), NULL), own_cap = iif(pinned, coalesce(?6, own_cap), NULL),"
        # If the host was not asked, no turn was used. Where several may be out, the turn was counted at its start.
        " due = CASE WHEN ?4 IS NOT NULL AND (cap = 1 OR ?6 IS NOT NULL)"
        "  THEN max(due, ?4 + iif(pinned, delay, coalesce(?5, delay))) ELSE due END"
        " WHERE id = ?1",
        lanes.values(),
    )

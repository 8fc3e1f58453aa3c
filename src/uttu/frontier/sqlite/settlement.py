"""Admit requests and settle outcomes within the caller's transaction.

:class:`Admission` puts requests that were not seen before into their lanes. :func:`settle` ends leases: children, items
    and the end of the lease are written together.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from uttu.clock import Clock
from uttu.frontier.base import TRIM_STEP, Rules
from uttu.frontier.sqlite.dead_letters import bury
from uttu.model import Dead, Done, Outcome, Request, Retry
from uttu.model.lease import encode_redirect

# Maximum size of the cache of lane ids. Every admitted request needs one; a broad crawl has too many hosts for all.
_MOST_LANES_KEPT = 100_000
# Fingerprints stay in ``recent`` up to this number, or up to 1/``_SEEN_PER_RECENT`` of all if that is more.
_FEWEST_RECENT = 20_000
_SEEN_PER_RECENT = 16
_WINDOWS = 64


class Admission:
    """Admits requests within the caller's transaction, and caches lane ids."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.max_items = rules.max_items
        self._lanes: dict[str, int] = {}

    def admit(self, db: sqlite3.Connection, requests: Iterable[Request], now: float) -> int:
        """Admit the requests that were not seen before; return their number."""
        by_fingerprint: dict[int, Request] = {}
        for request in requests:
            by_fingerprint.setdefault(request.fingerprint, request)
        if not by_fingerprint:
            return 0
        # Sorted by fingerprint, so that neighbours share pages of the tree.
        candidates = str(sorted(by_fingerprint))
        new = {
            row[0]
            for row in db.execute(
                "SELECT value FROM json_each(?)"
                " WHERE value NOT IN (SELECT fp FROM recent) AND value NOT IN (SELECT fp FROM seen)",
                (candidates,),
            )
        }
        if not new:
            return 0
        admitted = [(fp, request) for fp, request in by_fingerprint.items() if fp in new]
        names = [request.lane for _, request in admitted]
        lanes = self.lane_ids(db, set(names), now)
        if self._rules.max_per_lane:
            admitted, names = self._within_room(db, admitted, names, lanes)
        db.executemany("INSERT INTO recent VALUES (?)", sorted((fp,) for fp, _ in admitted))
        self._enqueue(db, admitted, [lanes[name] for name in names])
        self._move_recent(db)
        return len(admitted)

    def forget(self) -> None:
        """Clear the cache of lane ids: the transaction failed, so lanes that it created do not exist."""
        self._lanes.clear()

    def _enqueue(self, db: sqlite3.Connection, admitted: list[tuple[int, Request]], lanes: list[int]) -> None:
        (last,) = db.execute("SELECT seq FROM tally").fetchone()
        direction = -1 if self._rules.order == "lifo" else 1
        ranked = self._rules.order == "priority"
        rows = [
            (lane, -request.priority if ranked else 0, direction * number, fp, request.record().decode())
            for number, (lane, (fp, request)) in enumerate(zip(lanes, admitted, strict=True), last + 1)
        ]
        db.executemany(
            "INSERT INTO queue (lane, rank, seq, fp, attempt, losses, record) VALUES (?, ?, ?, ?, 0, 0, ?)",
            sorted(rows),
        )
        db.executemany(
            "UPDATE lanes SET pending = pending + ?2, total = total + ?2 WHERE id = ?1", Counter(lanes).items()
        )
        db.execute("UPDATE tally SET pending = pending + ?1, seq = seq + ?1, recent = recent + ?1", (len(rows),))

    @staticmethod
    def _move_recent(db: sqlite3.Connection) -> None:
        """Move fingerprints from ``recent`` to ``seen`` once there are enough for several to share a page of the tree.

        The 64-bit range is divided into ``_WINDOWS`` windows that are moved in turn: a few thousand neighbouring
        fingerprints at a time.
        """
        seen, recent, window = db.execute("SELECT seq, recent, window FROM tally").fetchone()
        most = max(_FEWEST_RECENT, seen // _SEEN_PER_RECENT)
        while recent > most:
            low = window * (2**64 // _WINDOWS) - 2**63
            bounds = (low, low + 2**64 // _WINDOWS - 1)
            db.execute("INSERT INTO seen SELECT fp FROM recent WHERE fp BETWEEN ? AND ? ORDER BY fp", bounds)
            recent -= db.execute("DELETE FROM recent WHERE fp BETWEEN ? AND ?", bounds).rowcount
            window = (window + 1) % _WINDOWS
            db.execute("UPDATE tally SET recent = ?, window = ?", (recent, window))

    def lane_ids(self, db: sqlite3.Connection, names: set[str], now: float) -> dict[str, int]:
        """Return the ids of these lanes, creating missing ones."""
        known = {name: self._lanes[name] for name in names if name in self._lanes}
        missing = names - known.keys()
        if missing:
            listed = msgspec.json.encode(sorted(missing)).decode()
            pace = self._rules.pace
            db.execute(
                # WHERE true: without it SQLite parses ON as part of a join.
                "INSERT INTO lanes (name, due, delay, cap) SELECT value, ?2, ?3, ?4 FROM json_each(?1) WHERE true"
                # A lane that was pinned before its first request now records its own pace.
                " ON CONFLICT (name) DO UPDATE SET own_delay = excluded.delay, own_cap = excluded.cap"
                " WHERE pinned AND own_delay IS NULL",
                (listed, now, pace.delay, 1 if self._rules.probe else pace.limit),
            )
            query = "SELECT name, id FROM lanes WHERE name IN (SELECT value FROM json_each(?))"
            known |= dict(db.execute(query, (listed,)).fetchall())
            if len(self._lanes) > _MOST_LANES_KEPT:
                self._lanes.clear()
            self._lanes |= known
        return known

    def _within_room(
        self, db: sqlite3.Connection, admitted: list[tuple[int, Request]], names: list[str], lanes: dict[str, int]
    ) -> tuple[list[tuple[int, Request]], list[str]]:
        """Leave out requests beyond ``max_per_lane`` of their host."""
        query = "SELECT name, total FROM lanes WHERE id IN (SELECT value FROM json_each(?))"
        totals: dict[str, int] = dict(db.execute(query, (str(list(lanes.values())),)).fetchall())
        kept, kept_names = [], []
        for entry, name in zip(admitted, names, strict=True):
            if totals[name] < self._rules.max_per_lane:
                totals[name] += 1
                kept.append(entry)
                kept_names.append(name)
        return kept, kept_names


def settle(db: sqlite3.Connection, outcomes: Sequence[Outcome], admission: Admission, clock: Clock) -> set[int]:
    """See :meth:`uttu.frontier.base.Frontier.settle`."""
    # In this order: if the process is suspended between the two calls, hosts become due too late, not too early.
    monotonic = clock.monotonic()
    now = clock.time()
    offset = now - monotonic
    lane_of = _lanes_of_living(db, outcomes)
    first: dict[int, Outcome] = {}
    for outcome in outcomes:
        if outcome.lease.id in lane_of:
            first.setdefault(outcome.lease.id, outcome)
    kept, refused = list(first.values()), set[int]()
    if admission.max_items:
        kept, refused = _within_room(db, kept, admission.max_items)
    ended = [outcome for outcome in kept if not isinstance(outcome, Retry)]
    admission.admit(db, (child for outcome in ended for child in outcome.children), now)
    _store_items(db, ended)
    _finish(db, [outcome for outcome in kept if isinstance(outcome, Done)], now)
    bury(
        db,
        [(each.lease.id, each.kind, each.reason, each.detail, each.status) for each in kept if isinstance(each, Dead)],
        now,
    )
    returned = _give_back(db, [outcome for outcome in kept if isinstance(outcome, Retry)], now)
    db.execute("DELETE FROM leases WHERE id IN (SELECT value FROM json_each(?))", (str(list(lane_of)),))
    db.execute("UPDATE tally SET leased = leased - ?", (len(kept),))
    _release_lanes(db, kept, lane_of, returned, offset)
    return {outcome.lease.id for outcome in outcomes} - lane_of.keys() | refused


def _within_room(db: sqlite3.Connection, outcomes: list[Outcome], max_items: int) -> tuple[list[Outcome], set[int]]:
    """Cut the items to what ``max_items`` allows.

    Return the outcomes to store, and the lease ids of outcomes that are given back instead.
    """
    (stored,) = db.execute("SELECT items FROM tally").fetchone()
    room = max_items - stored
    kept: list[Outcome] = []
    refused: set[int] = set()
    for outcome in outcomes:
        if not isinstance(outcome, Retry) and outcome.items:
            if room <= 0:
                refused.add(outcome.lease.id)
                outcome = Retry(lease=outcome.lease, touched=outcome.touched, pace=outcome.pace, counted=False)
            else:
                outcome = msgspec.structs.replace(outcome, items=outcome.items[:room])
                room -= len(outcome.items)
        kept.append(outcome)
    return kept, refused


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
        (total,) = db.execute("UPDATE tally SET items = items + ? RETURNING items", (len(rows),)).fetchone()
        if total // TRIM_STEP > (total - len(rows)) // TRIM_STEP:
            db.execute("INSERT INTO marks SELECT ?, max(position) FROM outbox", (total,))


def _number(outcome: Done | Dead, index: int) -> int:
    """Return the number of an item on its page.

    A page is done once, but it may die and be revived many times: the lease id makes the numbers of those items unique.
    """
    return index if isinstance(outcome, Done) else -(outcome.lease.id * 1000 + index)


def _finish(db: sqlite3.Connection, done: Sequence[Done], now: float) -> None:
    if not done:
        return
    rows = [
        (
            each.lease.fingerprint,
            now,
            each.status,
            each.size,
            len(each.children),
            len(each.items),
            each.note if each.redirect is None else encode_redirect(each.redirect),
        )
        for each in done
    ]
    db.executemany("INSERT INTO history (fp, at, status, size, links, items, note) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    db.execute("UPDATE tally SET done = done + ?, bytes = bytes + ?", (len(done), sum(each.size for each in done)))


def _give_back(db: sqlite3.Connection, retries: Sequence[Retry], now: float) -> set[int]:
    """Delay the retries, or return them to their lane if ``after`` is 0; return the lease ids of the latter."""
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
    """Update the lanes: free places, count the delay from the last touch, and set the pace if an outcome brings one."""
    lanes: dict[int, list[Any]] = {}
    for outcome in kept:
        # The bindings ?1 to ?6: lane, places freed, requests returned, last touched, delay, cap.
        row = lanes.setdefault(lane_of[outcome.lease.id], [lane_of[outcome.lease.id], 0, 0, None, None, None])
        row[1] += 1
        row[2] += outcome.lease.id in returned
        if outcome.touched is not None:
            row[3] = max(row[3] or 0.0, outcome.touched + offset)
        if outcome.pace is not None:
            row[4], row[5] = outcome.pace.delay, outcome.pace.limit
    db.executemany(
        "UPDATE lanes SET active = active - ?2, pending = pending + ?3,"
        # A pinned lane keeps the operator's pace (limit 1). The new pace becomes the one it returns to.
        " delay = iif(pinned, delay, coalesce(?5, delay)), cap = iif(pinned, cap, coalesce(?6, cap)),"
        " own_delay = iif(pinned, coalesce(?5, own_delay), NULL), own_cap = iif(pinned, coalesce(?6, own_cap), NULL),"
        # Without a touch no turn was used. With a limit above 1, the turn was counted at its start.
        " due = CASE WHEN ?4 IS NOT NULL AND (cap = 1 OR ?6 IS NOT NULL)"
        "  THEN max(due, ?4 + iif(pinned, delay, coalesce(?5, delay))) ELSE due END"
        " WHERE id = ?1",
        lanes.values(),
    )

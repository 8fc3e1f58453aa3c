"""Letting requests in: those not seen before, each into its lane."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable

import msgspec

from weft.frontier.base import Rules
from weft.model import Request

# Lane ids are looked up for every admitted request; a broad crawl has more hosts than are worth keeping.
_MOST_LANES_KEPT = 100_000
# How many fingerprints are recent: this many, or this share of all.
_FEWEST_RECENT = 20_000
_SEEN_PER_RECENT = 16
_WINDOWS = 64


class Admission:
    """Admits requests within the caller's transaction."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._lanes: dict[str, int] = {}

    def admit(self, db: sqlite3.Connection, requests: Iterable[Request], now: float) -> int:
        by_fingerprint: dict[int, Request] = {}
        for request in requests:
            by_fingerprint.setdefault(request.fingerprint, request)
        if not by_fingerprint:
            return 0
        # In order of the tree they go into: neighbours share its pages.
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
        """The transaction failed: lanes made in it do not exist."""
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
        """Move recent fingerprints to the others, once there are so many that several share a page of the tree.

        By windows of the number range, in turn: a few thousand at a time, and yet close together.
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
        """The lanes of these names; those that are not there are made."""
        known = {name: self._lanes[name] for name in names if name in self._lanes}
        missing = names - known.keys()
        if missing:
            listed = msgspec.json.encode(sorted(missing)).decode()
            pace = self._rules.pace
            db.execute(
                # WHERE true: or else SQLite would take ON for that of a join.
                "INSERT INTO lanes (name, due, delay, cap) SELECT value, ?2, ?3, ?4 FROM json_each(?1) WHERE true"
                # One that was pinned before it was known learns what its own pace is.
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
        """Leave out what would make a host's pages more than are wanted of it."""
        query = "SELECT name, total FROM lanes WHERE id IN (SELECT value FROM json_each(?))"
        totals: dict[str, int] = dict(db.execute(query, (str(list(lanes.values())),)).fetchall())
        kept, kept_names = [], []
        for entry, name in zip(admitted, names, strict=True):
            if totals[name] < self._rules.max_per_lane:
                totals[name] += 1
                kept.append(entry)
                kept_names.append(name)
        return kept, kept_names

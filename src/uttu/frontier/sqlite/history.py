"""The History on SQLite: samples and events of a crawl. See ``layout`` for the tables.

A sample's slot is its key, so the first sample of a slot wins. Samples are thinned out once a minute: the index on
their times has all that it needs.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from uttu.clock import Clock, SystemClock
from uttu.frontier.sqlite.database import Database
from uttu.model.history import MOST_EVENTS, SAMPLE_SECONDS, CrawlEvent, CrawlSample, EventKind, thin_out

_THIN_SECONDS: Final = 60

Fields = dict[str, str | int | float]


class SqliteHistory:
    """See :class:`uttu.frontier.base.History`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def record(self, sample: CrawlSample) -> None:
        await self._database.write(_record, sample, self._clock.time())

    async def samples(self, since: float, until: float = math.inf) -> list[CrawlSample]:
        return await self._database.inspect(_samples, since, until)

    async def add_events(self, events: Sequence[tuple[EventKind, Fields]]) -> None:
        if events:
            await self._database.write(_add_events, events, self._clock.time())

    async def events(self, after: int, limit: int, before: int = 0) -> list[CrawlEvent]:
        return await self._database.inspect(_events, after, limit, before)


def _record(db: sqlite3.Connection, sample: CrawlSample, now: float) -> None:
    (latest,) = db.execute("SELECT max(at) FROM samples").fetchone()
    row = (_slot(sample.at), sample.at, msgspec.json.encode(sample).decode())
    added = db.execute("INSERT OR IGNORE INTO samples VALUES (?, ?, ?)", row).rowcount
    if not added or (latest is not None and latest // _THIN_SECONDS == sample.at // _THIN_SECONDS):
        return
    times = [at for (at,) in db.execute("SELECT at FROM samples ORDER BY at")]
    db.executemany("DELETE FROM samples WHERE slot = ?", [(_slot(at),) for at in thin_out(times, now)])


def _slot(at: float) -> int:
    return int(at // SAMPLE_SECONDS)


def _samples(db: sqlite3.Connection, since: float, until: float) -> list[CrawlSample]:
    rows = db.execute("SELECT sample FROM samples WHERE at BETWEEN ? AND ? ORDER BY at", (since, until))
    return [_decode_sample(sample) for (sample,) in rows]


_decode_sample = msgspec.json.Decoder(CrawlSample).decode
_decode_fields = msgspec.json.Decoder(Fields).decode


def _add_events(db: sqlite3.Connection, events: Sequence[tuple[EventKind, Fields]], now: float) -> None:
    (last,) = db.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()
    first = max(int(now * 1_000_000), last + 1)
    db.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?)",
        [
            (position, now, str(kind), msgspec.json.encode(fields).decode())
            for position, (kind, fields) in enumerate(events, first)
        ],
    )
    db.execute(
        "DELETE FROM events WHERE position <="
        f" (SELECT position FROM events ORDER BY position DESC LIMIT 1 OFFSET {MOST_EVENTS})"
    )


def _events(db: sqlite3.Connection, after: int, limit: int, before: int) -> list[CrawlEvent]:
    if after >= 0:
        query = "SELECT position, at, kind, fields FROM events WHERE position > ? ORDER BY position LIMIT ?"
        rows = db.execute(query, (after, limit)).fetchall()
    else:
        query = "SELECT position, at, kind, fields FROM events WHERE position < ? ORDER BY position DESC LIMIT ?"
        rows = db.execute(query, (before or 2**63 - 1, limit)).fetchall()[::-1]
    return [
        CrawlEvent(position=position, at=at, kind=EventKind(kind), fields=_decode_fields(fields))
        for position, at, kind, fields in rows
    ]

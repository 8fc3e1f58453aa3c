"""A crawl's file as plain records: see :mod:`weft.frontier.moving`.

Pouring walks each table along its key, a page a transaction, so it needs little memory however large the crawl is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from weft.clock import Clock, SystemClock
from weft.errors import StoreError
from weft.frontier.moving import (
    Batch,
    DeadBatch,
    HistoryBatch,
    ItemBatch,
    LaneBatch,
    MovedDead,
    MovedDone,
    MovedItem,
    MovedLane,
    MovedRequest,
    RequestBatch,
    Rest,
    SeenBatch,
)
from weft.frontier.sqlite.database import Database
from weft.frontier.sqlite.filling import fill, last_given
from weft.frontier.sqlite.shelves import read_facts

S = TypeVar("S", bound=msgspec.Struct)
Row = tuple[Any, ...]

# A batch ends at so many rows, or at so much text in them.
_ROWS = 5000
_CHARACTERS = 8_000_000
# How much of the history is carried along: other stores keep no more.
_HISTORY = 100_000
_LOWEST = float("-inf")


class _Walk(NamedTuple):
    """Through a table along its key. The query's rows begin with the key, which is ``after`` in its bindings."""

    query: str
    start: Row
    batch: Callable[[list[Row]], Batch]
    text: int | None = None
    """Which column is long."""


class SqliteMover:
    """See :class:`weft.frontier.moving.Mover`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def pour(self) -> AsyncIterator[Batch]:
        for walk in _WALKS:
            after: Row | None = walk.start
            while after is not None:
                rows = await self._database.read(_page, walk, after, self._clock.time())
                after = rows[-1][: len(walk.start)] if rows else None
                if rows:
                    yield walk.batch([row[len(walk.start) :] for row in rows])
        yield await self._database.read(_rest, self._clock.time())

    async def fill(self, batch: Batch) -> None:
        await self._database.write(fill, batch, self._clock.time())


def _page(db: sqlite3.Connection, walk: _Walk, after: Row, now: float) -> list[Row]:
    _check_rest(db)
    rows: list[Row] = []
    size = 0
    for row in db.execute(walk.query, (now, _ROWS, *after)):
        rows.append(row)
        size += len(row[walk.text]) if walk.text is not None else 0
        if size > _CHARACTERS:
            break
    return rows


def _check_rest(db: sqlite3.Connection) -> None:
    (leased,) = db.execute("SELECT leased FROM tally").fetchone()
    if leased:
        raise StoreError(
            f"{leased:,} of the crawl's pages are leased: it is at work, or its workers are gone and their leases have "
            "not ended yet. Stop it, and wait for that"
        )


def _structs(kind: type[S]) -> Callable[[list[Row]], list[S]]:
    """Rows with the columns of a struct in its order, as structs."""
    names = kind.__struct_fields__
    return lambda rows: [kind(**dict(zip(names, row, strict=True))) for row in rows]


def _items(rows: list[Row]) -> Batch:
    return ItemBatch([MovedItem(position, fp, number, json.encode()) for position, fp, number, json in rows])


_lanes, _requests = _structs(MovedLane), _structs(MovedRequest)
_dead, _history = _structs(MovedDead), _structs(MovedDone)

# ?1 is now, ?2 how many rows, from ?3 on stands the last key.
_WALKS = (
    _Walk(
        "SELECT id, name, max(0.0, due - ?1), delay, cap, total, max(0.0, held - ?1), iif(held > ?1, reason, ''),"
        " pinned <> 0, own_delay, own_cap FROM lanes WHERE id > ?3 ORDER BY id LIMIT ?2",
        (0,),
        lambda rows: LaneBatch(_lanes([(*row[:-3], bool(row[-3]), *row[-2:]) for row in rows])),
    ),
    _Walk(
        "SELECT q.lane, q.rank, q.seq, q.fp, l.name, q.rank, q.seq, q.attempt, q.losses, q.record, NULL, ''"
        # CROSS: in the queue's order, not that of the lanes
        " FROM queue q CROSS JOIN lanes l ON l.id = q.lane WHERE (q.lane, q.rank, q.seq) > (?3, ?4, ?5)"
        " ORDER BY q.lane, q.rank, q.seq LIMIT ?2",
        (0, 0, 0),
        lambda rows: RequestBatch(_requests(rows)),
        text=9,
    ),
    _Walk(
        "SELECT d.due, d.fp, d.fp, l.name, d.rank, d.seq, d.attempt, d.losses, d.record, max(0.0, d.due - ?1), d.reason"
        " FROM delayed d CROSS JOIN lanes l ON l.id = d.lane WHERE (d.due, d.fp) > (?3, ?4)"
        " ORDER BY d.due, d.fp LIMIT ?2",
        (0.0, 0),
        lambda rows: RequestBatch(_requests(rows)),
        text=8,
    ),
    _Walk(
        "SELECT d.fp, d.fp, l.name, d.rank, d.seq, d.attempt, d.record, ?1 - d.at, d.kind, d.reason, d.detail, d.status"
        " FROM dead d CROSS JOIN lanes l ON l.id = d.lane WHERE d.fp > ?3 ORDER BY d.fp LIMIT ?2",
        (_LOWEST,),
        lambda rows: DeadBatch(_dead(rows)),
        text=6,
    ),
    *(
        _Walk(
            f"SELECT fp, fp FROM {table} WHERE fp > ?3 ORDER BY fp LIMIT ?2",
            (_LOWEST,),
            lambda rows: SeenBatch([fp for (fp,) in rows]),
        )
        for table in ("seen", "recent")
    ),
    _Walk(
        "SELECT position, position, fp, n, json FROM outbox WHERE position > ?3 ORDER BY position LIMIT ?2",
        (0,),
        _items,
        text=4,
    ),
    _Walk(
        "SELECT seq, fp, ?1 - at, status, size, links, items, note FROM history"
        f" WHERE seq > max(?3, (SELECT max(seq) FROM history) - {_HISTORY}) ORDER BY seq LIMIT ?2",
        (0,),
        lambda rows: HistoryBatch(_history(rows)),
    ),
)


def _rest(db: sqlite3.Connection, now: float) -> Rest:
    _check_rest(db)
    done, size, items, seq = db.execute("SELECT done, bytes, items, seq FROM tally").fetchone()
    memo = db.execute("SELECT key, value, until - ?1 FROM memo WHERE until > ?1", (now,))
    cursors = db.execute("SELECT sink, position, state FROM cursors")
    return Rest(
        facts=read_facts(db),
        memo={key: (value, left) for key, value, left in memo},
        cursors={sink: (position, state) for sink, position, state in cursors},
        done=done,
        bytes=size,
        items=items,
        last_seq=seq,
        last_lease=last_given(db, "leases"),
        last_position=last_given(db, "outbox"),
    )

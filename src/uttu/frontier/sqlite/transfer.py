"""Dump the SQLite file of a crawl as plain records, or load one; see :mod:`uttu.frontier.transfer`.

A dump reads each table along its key, one page per transaction, so it needs little memory however large the crawl is.

A load only writes rows. The counters of lanes and tally are computed from the rows when ``FinalBatch`` comes, so
loading a batch twice is safe as long as it leaves no row twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple

from uttu.clock import Clock, SystemClock
from uttu.errors import StoreError
from uttu.frontier.sqlite import outbox
from uttu.frontier.sqlite.database import Database
from uttu.frontier.sqlite.dead_letters import join_groups, recount_groups
from uttu.frontier.sqlite.outbox import read_facts, write_facts
from uttu.frontier.transfer import (
    DeadBatch,
    FinalBatch,
    HistoryBatch,
    ItemBatch,
    LaneBatch,
    MovedDead,
    MovedDone,
    MovedItem,
    MovedLane,
    MovedRequest,
    RequestBatch,
    SeenBatch,
    TransferBatch,
)


def load_batch(db: sqlite3.Connection, batch: TransferBatch, now: float) -> None:
    """Load one batch within the caller's transaction."""
    match batch:
        case LaneBatch():
            _fill_lanes(db, batch.lanes, now)
        case RequestBatch():
            _fill_requests(db, batch.requests, now)
        case DeadBatch():
            _fill_dead(db, batch.dead, now)
        case SeenBatch():
            fingerprints = str(sorted(batch.fingerprints))
            query = "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT fp FROM recent)"
            db.execute(f"INSERT OR IGNORE INTO seen {query}", (fingerprints,))
        case ItemBatch():
            rows = [(each.position, each.fingerprint, each.number, each.json.decode()) for each in batch.items]
            db.executemany("INSERT OR REPLACE INTO outbox VALUES (?, ?, ?, ?)", rows)
        case HistoryBatch():
            _drop(db, "history", [each.fingerprint for each in batch.done])
            db.executemany(
                "INSERT INTO history (fp, at, status, size, links, items, note) VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(fp, now - ago, *what) for fp, ago, *what in map(astuple, batch.done)],
            )
        case FinalBatch():
            _fill_rest(db, batch, now)


def _fill_lanes(db: sqlite3.Connection, lanes: Sequence[MovedLane], now: float) -> None:
    db.executemany(
        "INSERT INTO lanes (name, due, delay, cap, total, held, reason, pinned, own_delay, own_cap)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET due = excluded.due, delay = excluded.delay, cap = excluded.cap,"
        " total = excluded.total, held = excluded.held, reason = excluded.reason, pinned = excluded.pinned,"
        " own_delay = excluded.own_delay, own_cap = excluded.own_cap",
        [
            (
                each.name,
                now + each.wait,
                each.delay,
                each.cap,
                each.total,
                now + each.held if each.held else 0.0,
                each.reason,
                each.pinned,
                each.own_delay,
                each.own_cap,
            )
            for each in lanes
        ],
    )


def _fill_requests(db: sqlite3.Connection, requests: Sequence[MovedRequest], now: float) -> None:
    lanes = _lane_ids(db, {each.lane for each in requests})
    pending = [each for each in requests if each.wait is None]
    delayed = [(each, each.wait) for each in requests if each.wait is not None]
    db.executemany(
        "INSERT OR REPLACE INTO queue (lane, rank, seq, fp, attempt, losses, record) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (lanes[each.lane], each.rank, each.seq, each.fingerprint, each.attempt, each.losses, each.record)
            for each in pending
        ],
    )
    # Their key contains the due time, which counts from now, so an earlier copy has another key.
    _drop(db, "delayed", [each.fingerprint for each, _ in delayed])
    db.executemany(
        "INSERT INTO delayed (due, fp, lane, rank, seq, attempt, losses, record, reason)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                now + wait,
                each.fingerprint,
                lanes[each.lane],
                each.rank,
                each.seq,
                each.attempt,
                each.losses,
                each.record,
                each.reason,
            )
            for each, wait in delayed
        ],
    )


def _fill_dead(db: sqlite3.Connection, dead: Sequence[MovedDead], now: float) -> None:
    lanes = _lane_ids(db, {each.lane for each in dead})
    groups = join_groups(db, [(each.kind, each.reason) for each in dead], weight=0)
    db.executemany(
        "INSERT OR REPLACE INTO dead (fp, lane, rank, seq, attempt, record, at, kind, reason, detail, status, grp)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (fp, lanes[lane], rank, seq, attempt, record, now - ago, *why, group)
            for (fp, lane, rank, seq, attempt, record, ago, *why), group in zip(map(astuple, dead), groups, strict=True)
        ],
    )


def _drop(db: sqlite3.Connection, table: str, fingerprints: list[int]) -> None:
    if fingerprints:
        db.execute(f"DELETE FROM {table} WHERE fp IN (SELECT value FROM json_each(?))", (str(fingerprints),))


def _lane_ids(db: sqlite3.Connection, names: set[str]) -> dict[str, int]:
    listed = msgspec.json.encode(sorted(names)).decode()
    query = "SELECT name, id FROM lanes WHERE name IN (SELECT value FROM json_each(?))"
    found: dict[str, int] = dict(db.execute(query, (listed,)).fetchall())
    if missing := names - found.keys():
        raise StoreError(f"requests came before their lanes: {', '.join(sorted(missing)[:3])}")
    return found


def _fill_rest(db: sqlite3.Connection, rest: FinalBatch, now: float) -> None:
    write_facts(db, rest.facts)
    db.executemany(
        "INSERT OR REPLACE INTO memo VALUES (?, ?, ?)",
        [(key, value, now + left) for key, (value, left) in rest.memo.items()],
    )
    db.executemany(
        "INSERT OR REPLACE INTO cursors VALUES (?, ?, ?)",
        [(sink, position, state) for sink, (position, state) in rest.cursors.items()],
    )
    for table, last in (("leases", rest.last_lease), ("outbox", rest.last_position)):
        last = max(last, read_last_id(db, table))
        db.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))
    db.execute(
        "UPDATE lanes SET pending = n FROM (SELECT lane, count(*) n FROM queue GROUP BY lane) filled"
        " WHERE lanes.id = filled.lane"
    )
    db.execute(
        "UPDATE tally SET pending = (SELECT count(*) FROM queue), delayed = (SELECT count(*) FROM delayed),"
        " dead = (SELECT count(*) FROM dead), done = ?, bytes = ?, items = ?, seq = max(seq, ?), trimmed = ?, cut = ?",
        (rest.done, rest.bytes, rest.items, rest.last_seq, *rest.trimmed),
    )
    recount_groups(db)
    # All moved items are cut together, once enough items have come after them.
    query = "SELECT ?, position FROM outbox ORDER BY position DESC LIMIT 1"
    db.execute(f"INSERT OR REPLACE INTO marks {query}", (rest.items,))


def read_last_id(db: sqlite3.Connection, table: str) -> int:
    """Return the highest id that a table has ever assigned."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return row[0] if row else 0


S = TypeVar("S", bound=msgspec.Struct)
Row = tuple[Any, ...]

# A dumped batch ends at this number of rows, or at this number of characters in their long column.
_ROWS = 5000
_CHARACTERS = 8_000_000
# Number of history entries that are dumped: other stores keep no more.
_HISTORY = 100_000
_LOWEST = float("-inf")


class _Walk(NamedTuple):
    """A query that reads one table along its key.

    The rows begin with the columns of the key. The bindings from ?3 on are the key of the last row.
    """

    query: str
    start: Row
    batch: Callable[[list[Row]], TransferBatch]
    text: int | None = None
    """Index of the column with long text, which limits the size of a batch."""


class SqliteTransfer:
    """See :class:`uttu.frontier.transfer.CrawlTransfer`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def dump(self) -> AsyncIterator[TransferBatch]:
        for walk in _WALKS:
            after: Row | None = walk.start
            while after is not None:
                rows = await self._database.read(_page, walk, after, self._clock.time())
                after = rows[-1][: len(walk.start)] if rows else None
                if rows:
                    yield walk.batch([row[len(walk.start) :] for row in rows])
        yield await self._database.read(_read_final, self._clock.time())

    async def fill(self, batch: TransferBatch) -> None:
        await self._database.write(load_batch, batch, self._clock.time())


def _page(db: sqlite3.Connection, walk: _Walk, after: Row, now: float) -> list[Row]:
    _check_nothing_leased(db)
    rows: list[Row] = []
    size = 0
    for row in db.execute(walk.query, (now, _ROWS, *after)):
        rows.append(row)
        size += len(row[walk.text]) if walk.text is not None else 0
        if size > _CHARACTERS:
            break
    return rows


def _check_nothing_leased(db: sqlite3.Connection) -> None:
    (leased,) = db.execute("SELECT leased FROM tally").fetchone()
    if leased:
        raise StoreError(
            f"{leased:,} of the crawl's pages are leased: it is at work, or its workers are gone and their leases have "
            "not ended yet. Stop it, and wait for that"
        )


def _struct_reader(kind: type[S]) -> Callable[[list[Row]], list[S]]:
    """Return a function that makes structs of rows with the columns of the struct, in its order."""
    names = kind.__struct_fields__
    return lambda rows: [kind(**dict(zip(names, row, strict=True))) for row in rows]


def _items(rows: list[Row]) -> TransferBatch:
    return ItemBatch([MovedItem(position, fp, number, json.encode()) for position, fp, number, json in rows])


_lanes, _requests = _struct_reader(MovedLane), _struct_reader(MovedRequest)
_dead, _history = _struct_reader(MovedDead), _struct_reader(MovedDone)

# Bindings: ?1 the time, ?2 the number of rows, from ?3 on the last key.
_WALKS = (
    _Walk(
        "SELECT id, name, max(0.0, due - ?1), delay, cap, total, max(0.0, held - ?1), iif(held > ?1, reason, ''),"
        " pinned <> 0, own_delay, own_cap FROM lanes WHERE id > ?3 ORDER BY id LIMIT ?2",
        (0,),
        lambda rows: LaneBatch(_lanes([(*row[:-3], bool(row[-3]), *row[-2:]) for row in rows])),
    ),
    _Walk(
        "SELECT q.lane, q.rank, q.seq, q.fp, l.name, q.rank, q.seq, q.attempt, q.losses, q.record, NULL, ''"
        # CROSS keeps the join in the order of the queue.
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
        "SELECT d.id, d.fp, l.name, d.rank, d.seq, d.attempt, d.record, ?1 - d.at, d.kind, d.reason, d.detail, d.status"
        " FROM dead d CROSS JOIN lanes l ON l.id = d.lane WHERE d.id > ?3 ORDER BY d.id LIMIT ?2",
        (0,),
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


def _read_final(db: sqlite3.Connection, now: float) -> FinalBatch:
    _check_nothing_leased(db)
    done, size, items, seq = db.execute("SELECT done, bytes, items, seq FROM tally").fetchone()
    memo = db.execute("SELECT key, value, until - ?1 FROM memo WHERE until > ?1", (now,))
    cursors = db.execute("SELECT sink, position, state FROM cursors")
    return FinalBatch(
        facts=read_facts(db),
        memo={key: (value, left) for key, value, left in memo},
        cursors={sink: (position, state) for sink, position, state in cursors},
        done=done,
        bytes=size,
        items=items,
        last_seq=seq,
        last_lease=read_last_id(db, "leases"),
        last_position=read_last_id(db, "outbox"),
        trimmed=astuple(outbox.read_trimmed(db)),
    )

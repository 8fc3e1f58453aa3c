"""Taking in a crawl that comes as plain records: see :mod:`weft.frontier.moving`.

Only rows are written; the counts that are kept beside them, of lanes and of the whole, are made from the rows when
``Rest`` comes. So a batch that is filled again needs no care but to leave no row twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec
from msgspec.structs import astuple

from weft.errors import StoreError
from weft.frontier.moving import (
    Batch,
    DeadBatch,
    HistoryBatch,
    ItemBatch,
    LaneBatch,
    MovedLane,
    MovedRequest,
    RequestBatch,
    Rest,
    SeenBatch,
)
from weft.frontier.sqlite.shelves import write_facts


def fill(db: sqlite3.Connection, batch: Batch, now: float) -> None:
    match batch:
        case LaneBatch():
            _fill_lanes(db, batch.lanes, now)
        case RequestBatch():
            _fill_requests(db, batch.requests, now)
        case DeadBatch():
            lanes = _lane_ids(db, {each.lane for each in batch.dead})
            db.executemany(
                "INSERT OR REPLACE INTO dead VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (fp, lanes[lane], rank, seq, attempt, record, now - ago, *why)
                    for fp, lane, rank, seq, attempt, record, ago, *why in map(astuple, batch.dead)
                ],
            )
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
        case Rest():
            _fill_rest(db, batch, now)


def _fill_lanes(db: sqlite3.Connection, lanes: Sequence[MovedLane], now: float) -> None:
    db.executemany(
        "INSERT INTO lanes (name, due, delay, cap, total, held, reason, pinned, own_delay, own_cap)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET due = excluded.due, delay = excluded.delay, cap = excluded.cap,"
        " total = excluded.total, held = excluded.held, reason = excluded.reason, pinned = excluded.pinned,"
        " own_delay = excluded.own_delay, own_cap = excluded.own_cap",
        [
            (each.name, now + each.wait, each.delay, each.cap, each.total, now + each.held if each.held else 0.0,
             each.reason, each.pinned, each.own_delay, each.own_cap)
            for each in lanes
        ],
    )  # fmt: skip


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
    # They are found by the time they are due, which counts from now.
    _drop(db, "delayed", [each.fingerprint for each, _ in delayed])
    db.executemany(
        "INSERT INTO delayed (due, fp, lane, rank, seq, attempt, losses, record, reason)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (now + wait, each.fingerprint, lanes[each.lane], each.rank, each.seq, each.attempt, each.losses,
             each.record, each.reason)
            for each, wait in delayed
        ],
    )  # fmt: skip


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


def _fill_rest(db: sqlite3.Connection, rest: Rest, now: float) -> None:
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
        last = max(last, last_given(db, table))
        db.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))
    db.execute(
        "UPDATE lanes SET pending = n FROM (SELECT lane, count(*) n FROM queue GROUP BY lane) filled"
        " WHERE lanes.id = filled.lane"
    )
    db.execute(
        "UPDATE tally SET pending = (SELECT count(*) FROM queue), delayed = (SELECT count(*) FROM delayed),"
        " dead = (SELECT count(*) FROM dead), done = ?, bytes = ?, items = ?, seq = max(seq, ?)",
        (rest.done, rest.bytes, rest.items, rest.last_seq),
    )


def last_given(db: sqlite3.Connection, table: str) -> int:
    """The highest id that a table has ever given out."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return row[0] if row else 0

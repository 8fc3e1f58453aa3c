"""The layout of a crawl's SQLite file: its tables, and how files of earlier versions are upgraded.

    seen     fp                           every request ever admitted: 64-bit fingerprints, clustered
    recent   fp                           the latest of them. Fingerprints are random, so each insert into
                                          ``seen`` would rewrite a different page; collected here and moved
                                          by ranges, several share a page
    lanes    id, name, due, pace, …       one row per host; only lanes that can give a request now are in
                                          the index ``lanes_ready``, so idle hosts cost nothing
    queue    (lane, rank, seq) → record   pending requests, clustered in the order they are leased
    delayed  (due, fp) → record           retries that are not due yet
    leases   id → record, worker          requests owned by workers; ids only grow (AUTOINCREMENT) and serve
                                          as fencing tokens
    dead     id → fp, record, reason, …   dead letters in the order of their deaths, so that lists read neighbours;
                                          indexes for lists by time, by kind and by group
    dead_groups  id → kind, message       dead letters with alike reasons, counted; see dead_letters
    history  seq → fp, status, note       results of done pages; append-only, never searched by the crawl
                                          itself, so it has no index
    samples  slot → at, sample            the numbers of the crawl over time, one per slot of ten seconds; thinned out
    events   position → kind, fields      what happened in the crawl: the latest 2,000
    outbox   position → item              items, in the order they were committed; fp and n make their id
    marks    total → position             the position of about every hundredth item, and the number of items
                                          at that time: the positions where the outbox may be cut
    cursors  sink → position, state       the progress of each output
    memo     key → value, until           robots.txt files and other shared values
    workers  id → last report             the last report of each worker
    claims   role → owner, until          exclusive roles, such as writing an output
    tally    one row                      the counts, updated by the transactions that change them; trimmed and
                                          cut: the number of removed items, and the position of the last one
    facts    key → value                  the crawl: spider, arguments, settings, state

A request is in exactly one of queue, delayed, leases and dead, or it is done. ``rank`` is 0, or minus the priority.
``seq`` grows, or falls in a last-in-first-out crawl. A request keeps both through leases and retries, so a request that
is given back returns to its place. A pinned lane uses the operator's ``delay`` and ``cap``; ``own_delay`` and
``own_cap`` are the pace it returns to, NULL if it was pinned before its first request.
"""

from __future__ import annotations

import sqlite3

from uttu.frontier.sqlite.dead_letters import copy_letters

VERSION = 4
APPLICATION = 0x55747475  # "Uttu": SQLite's mark of whose file it is

_TABLES = """
CREATE TABLE seen (fp INTEGER PRIMARY KEY);
CREATE TABLE recent (fp INTEGER PRIMARY KEY);
CREATE TABLE lanes (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    due REAL NOT NULL, delay REAL NOT NULL, cap INTEGER NOT NULL,
    pending INTEGER NOT NULL DEFAULT 0, active INTEGER NOT NULL DEFAULT 0, total INTEGER NOT NULL DEFAULT 0,
    held REAL NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '', pinned INTEGER NOT NULL DEFAULT 0,
    own_delay REAL, own_cap INTEGER
);
CREATE INDEX lanes_ready ON lanes (due) WHERE pending > 0 AND (cap = 0 OR active < cap);
CREATE TABLE queue (
    lane INTEGER NOT NULL, rank INTEGER NOT NULL, seq INTEGER NOT NULL, fp INTEGER NOT NULL,
    attempt INTEGER NOT NULL, losses INTEGER NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (lane, rank, seq)
) WITHOUT ROWID;
CREATE TABLE delayed (
    due REAL NOT NULL, fp INTEGER NOT NULL, lane INTEGER NOT NULL, rank INTEGER NOT NULL, seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL, losses INTEGER NOT NULL, record TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (due, fp)
) WITHOUT ROWID;
CREATE TABLE leases (
    id INTEGER PRIMARY KEY AUTOINCREMENT, fp INTEGER NOT NULL, lane INTEGER NOT NULL, rank INTEGER NOT NULL,
    seq INTEGER NOT NULL, attempt INTEGER NOT NULL, losses INTEGER NOT NULL, record TEXT NOT NULL,
    worker TEXT NOT NULL, deadline REAL NOT NULL
);
CREATE INDEX leases_deadline ON leases (deadline);
CREATE TABLE history (
    seq INTEGER PRIMARY KEY, fp INTEGER NOT NULL, at REAL NOT NULL, status INTEGER NOT NULL, size INTEGER NOT NULL,
    links INTEGER NOT NULL, items INTEGER NOT NULL, note TEXT NOT NULL
);
CREATE TABLE outbox (
    position INTEGER PRIMARY KEY AUTOINCREMENT, fp INTEGER NOT NULL, n INTEGER NOT NULL, json TEXT NOT NULL
);
CREATE TABLE marks (total INTEGER PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE cursors (sink TEXT PRIMARY KEY, position INTEGER NOT NULL, state BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE memo (key TEXT PRIMARY KEY, value BLOB NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE workers (id TEXT PRIMARY KEY, at REAL NOT NULL, report TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE claims (role TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE tally (
    pending INTEGER NOT NULL, leased INTEGER NOT NULL, delayed INTEGER NOT NULL, done INTEGER NOT NULL,
    dead INTEGER NOT NULL, items INTEGER NOT NULL, bytes INTEGER NOT NULL,
    seq INTEGER NOT NULL, recent INTEGER NOT NULL, window INTEGER NOT NULL,
    trimmed INTEGER NOT NULL DEFAULT 0, cut INTEGER NOT NULL DEFAULT 0
);
INSERT INTO tally VALUES (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
# The tables and indexes that layout 4 added.
_DEAD = """
CREATE TABLE dead (
    id INTEGER PRIMARY KEY, fp INTEGER NOT NULL UNIQUE, lane INTEGER NOT NULL, rank INTEGER NOT NULL,
    seq INTEGER NOT NULL, attempt INTEGER NOT NULL, record TEXT NOT NULL, at REAL NOT NULL, kind TEXT NOT NULL,
    reason TEXT NOT NULL, detail TEXT NOT NULL, status INTEGER NOT NULL, grp INTEGER NOT NULL
);
CREATE TABLE dead_groups (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, message TEXT NOT NULL, count INTEGER NOT NULL, UNIQUE (kind, message)
);
"""
# SQLite appends the key to each of them, so they order letters of the same moment as well.
_DEAD_INDEXES = """
CREATE INDEX dead_at ON dead (at);
CREATE INDEX dead_kind ON dead (kind, at);
CREATE INDEX dead_group ON dead (grp, at);
"""
_HISTORY = """
CREATE TABLE samples (slot INTEGER PRIMARY KEY, at REAL NOT NULL, sample TEXT NOT NULL);
CREATE INDEX samples_at ON samples (at);
CREATE TABLE events (position INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, fields TEXT NOT NULL);
"""
SCHEMA = _TABLES + _DEAD + _DEAD_INDEXES + _HISTORY

# The statements that upgrade each layout to the next.
_UPGRADES = {
    1: """
ALTER TABLE lanes ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN own_delay REAL;
ALTER TABLE lanes ADD COLUMN own_cap INTEGER;
CREATE TABLE claims (role TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
""",
    2: """
CREATE TABLE marks (total INTEGER PRIMARY KEY, position INTEGER NOT NULL);
ALTER TABLE tally ADD COLUMN trimmed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tally ADD COLUMN cut INTEGER NOT NULL DEFAULT 0;
""",
    3: f"ALTER TABLE dead RENAME TO dead_3;\n{_DEAD}{_HISTORY}",
}


def upgrade(connection: sqlite3.Connection, layout: int) -> None:
    """Upgrade a file from this layout to the next one, in one transaction."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        _run(connection, _UPGRADES[layout])
        if layout == 3:
            copy_letters(connection, "dead_3")
            _run(connection, f"DROP TABLE dead_3;\n{_DEAD_INDEXES}")
        connection.execute(f"PRAGMA user_version = {layout + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _run(connection: sqlite3.Connection, script: str) -> None:
    # Not executescript, which commits first.
    for statement in script.split(";\n"):
        connection.execute(statement)

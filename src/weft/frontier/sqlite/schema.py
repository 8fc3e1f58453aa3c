"""The layout of a crawl's file.

    seen     fp                           every request ever admitted: 64-bit fingerprints, clustered
    recent   fp                           the latest of them. Fingerprints fall all over the tree, so
                                          each one inserted rewrites a page of its own; gathered here
                                          and moved by ranges, several share a page
    lanes    id, name, due, pace, …       one row a host; only those that can give something now are
                                          in the index ``lanes_ready``, so idle hosts cost nothing
    queue    (lane, rank, seq) → record   pending requests, clustered in the order they are handed out
    delayed  (due, fp) → record           retries that wait for their time
    leases   id → record, worker          what workers own; ids grow for ever (AUTOINCREMENT): the fence
    dead     fp → record, reason          given up, kept for the operator
    history  seq → fp, status, note       what became of what was done; appended, never searched by
                                          the crawl itself, so it needs no index
    outbox   position → item              items, in the order they were committed; fp and n make their id
    cursors  sink → position, state       how far each output has come
    memo     key → value, until           robots.txt and the like
    workers  id → last report             what each process said of itself
    claims   role → owner, until          what one of them does alone, such as writing an output
    tally    one row                      the counts, kept by the same transactions that change them
    facts    key → value                  the crawl: spider, arguments, settings, state

A request is in exactly one of queue, delayed, leases and dead, or it is done. ``rank`` is 0, or
minus the priority; ``seq`` grows, or falls where the last in is to be the first out. A request keeps both
through leases and retries, so what is given back stands where it stood.

A pinned lane goes at the operator's ``delay`` and ``cap``; ``own_delay`` and ``own_cap`` are what it goes back to, null
until the first request comes if it was pinned before.
"""

from __future__ import annotations

VERSION = 2
APPLICATION = 0x57656674  # "Weft": SQLite's mark of whose file it is

SCHEMA = """
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
CREATE TABLE dead (
    fp INTEGER PRIMARY KEY, lane INTEGER NOT NULL, rank INTEGER NOT NULL, seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL, record TEXT NOT NULL, at REAL NOT NULL,
    kind TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL, status INTEGER NOT NULL
);
CREATE TABLE history (
    seq INTEGER PRIMARY KEY, fp INTEGER NOT NULL, at REAL NOT NULL, status INTEGER NOT NULL, size INTEGER NOT NULL,
    links INTEGER NOT NULL, items INTEGER NOT NULL, note TEXT NOT NULL
);
CREATE TABLE outbox (
    position INTEGER PRIMARY KEY AUTOINCREMENT, fp INTEGER NOT NULL, n INTEGER NOT NULL, json TEXT NOT NULL
);
CREATE TABLE cursors (sink TEXT PRIMARY KEY, position INTEGER NOT NULL, state BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE memo (key TEXT PRIMARY KEY, value BLOB NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE workers (id TEXT PRIMARY KEY, at REAL NOT NULL, report TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE claims (role TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE tally (
    pending INTEGER NOT NULL, leased INTEGER NOT NULL, delayed INTEGER NOT NULL, done INTEGER NOT NULL,
    dead INTEGER NOT NULL, items INTEGER NOT NULL, bytes INTEGER NOT NULL,
    seq INTEGER NOT NULL, recent INTEGER NOT NULL, window INTEGER NOT NULL
);
INSERT INTO tally VALUES (0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""

# From each layout to the next.
UPGRADES = {
    1: """
ALTER TABLE lanes ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN own_delay REAL;
ALTER TABLE lanes ADD COLUMN own_cap INTEGER;
CREATE TABLE claims (role TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
""",
}

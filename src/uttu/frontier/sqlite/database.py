"""The SQLite file of a crawl: its tables, and the connection to it.

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
    dead     fp → record, reason          dead letters, kept for the operator
    history  seq → fp, status, note       results of done pages; append-only, never searched by the crawl
                                          itself, so it has no index
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

Threads. Transactions run on the thread of the event loop. They are short, a few milliseconds for a batch, and commits
only append to the log, which the system buffers. Running them in another thread cost a third of the crawl's speed when
measured, because the two threads exchange the global interpreter lock at every row. Blocking work runs in helper
threads: waiting for another process's transaction, checkpoints (moving the log into the database), and rare long
transactions (``aside``: a page with tens of thousands of links). While a transaction runs aside, reads wait for it,
because they share its connection.

Locks. Writers of all processes queue up on a file lock beside the database. SQLite's own waiting polls with growing
sleeps, which starves some writers and idles others.

Durability. WAL with synchronous=NORMAL. A killed process loses nothing that was committed. A power cut may undo the
last moments, but consistently: pages, children, items and cursors go back together.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from uttu import __version__, former
from uttu.errors import RefusedData, StoreError, StoreTooNew

VERSION = 3
APPLICATION = 0x55747475  # "Uttu": SQLite's mark of whose file it is

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

# The statements that upgrade each layout to the next.
UPGRADES = {
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
}


T = TypeVar("T")
_log = logging.getLogger("uttu.frontier")
Work = Callable[..., T]

_PRAGMAS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 0;
PRAGMA cache_size = -65536;
PRAGMA temp_store = MEMORY;
PRAGMA busy_timeout = 30000;
"""
# The busy timeout in ms once the file is open. SQLite's own waiting blocks the event loop, so it is short.
_BUSY_PRAGMA = "PRAGMA busy_timeout = 10"
_BUSY_SECONDS = 30.0
_RETRY_SECONDS = 0.05
# Checkpoint when the log exceeds this size. A page that is rewritten many times is then written to the database once.
_LOG_BYTES = 128 * 1024 * 1024
# Check the size of the log once in this many transactions.
_LOOK_EVERY = 8


class Database:
    """The file of one crawl. Open it with :meth:`open`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock
        self._turn = asyncio.Lock()
        self._threads = ThreadPoolExecutor(3, thread_name_prefix="uttu-store")
        self._checkpoint: Future[None] | None = None
        self._aside: Future[Any] | None = None
        self._transactions = 0
        self._at_close: list[Callable[[], None]] = []

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> Database:
        """Open the file, creating it if needed and allowed.

        :raises StoreError: the file cannot be opened, is not a crawl of Uttu, or was made by a newer version.
        """
        if sqlite3.sqlite_version_info < (3, 38):
            raise StoreError(f"Uttu needs SQLite 3.38 or newer; this Python has {sqlite3.sqlite_version}")
        with _map_errors(path), contextlib.ExitStack() as undo:
            if not create and not path.exists():
                raise StoreError(f"There is no crawl at {path}")
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = _open_lock_file(path)
            undo.callback(os.close, lock)
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
            undo.callback(connection.close)
            database = cls(path, connection, lock)
            database._prepare()
            connection.execute(_BUSY_PRAGMA)
            undo.pop_all()
        return database

    def _prepare(self) -> None:
        # All of this holds the file lock: SQLite does not wait for its turn when it switches a new file to WAL.
        with _hold_lock(self._lock):
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            (owner,) = self._connection.execute("PRAGMA application_id").fetchone()
            (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if tables and owner == former.APPLICATION and version <= VERSION:
                self._mark_as_own()
            elif tables and owner != APPLICATION:
                raise StoreError(f"{self.path} is a database, but not a crawl of Uttu. Choose another file")
            if version > VERSION:
                raise StoreTooNew(
                    f"{self.path} was made by a newer Uttu (layout {version}; this is {__version__} with layout "
                    f"{VERSION}). Upgrade Uttu, or start again with --fresh"
                )
            if not tables:
                # Lets free pages be returned to the system; it only works before the first table is created.
                self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._connection.executescript(_PRAGMAS)
            if not tables:
                marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
                self._connection.executescript(f"BEGIN; {SCHEMA} {marks} COMMIT;")
                return
            for layout in range(version, VERSION):
                self._upgrade(layout)

    def _mark_as_own(self) -> None:
        """Take over a file that Weft made; the layouts are the same."""
        if ".uttu" not in self.path.absolute().parts:
            raise StoreError(
                f"{self.path} was made by Weft, as Uttu was called before. To keep using it, move it to .uttu/crawls/"
            )
        self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
        _log.info("%s was made by Weft; it is Uttu's now", self.path)

    def _upgrade(self, layout: int) -> None:
        try:
            self._connection.executescript(f"BEGIN; {UPGRADES[layout]} PRAGMA user_version = {layout + 1}; COMMIT;")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    async def write(
        self, work: Work[T], *arguments: Any, failed: Callable[[], None] | None = None, aside: bool = False
    ) -> T:
        """Run ``work(connection, *arguments)`` as one transaction. If it raises, everything is rolled back.

        :param failed: called after a rollback, to undo what ``work`` has cached outside of the database.
        :param aside: run in a helper thread, because it takes too long for the event loop.
        """
        with _map_errors(self.path):
            async with self._turn:
                if self.closed:
                    raise StoreError(f"{self.path}: the crawl's file is closed")
                await self._wait_for_lock()
                try:
                    await self._begin()
                except BaseException:
                    fcntl.flock(self._lock, fcntl.LOCK_UN)
                    raise
                if aside:
                    return await self._transact_aside(work, arguments, failed)
                try:
                    return self._transact(work, arguments, failed)
                finally:
                    fcntl.flock(self._lock, fcntl.LOCK_UN)

    async def _transact_aside(self, work: Work[T], arguments: tuple[Any, ...], failed: Callable[[], None] | None) -> T:
        """Run the transaction in a helper thread. It completes and unlocks even if the caller is cancelled."""
        running = self._aside = self._threads.submit(self._transact, work, arguments, failed)
        running.add_done_callback(lambda _: fcntl.flock(self._lock, fcntl.LOCK_UN))
        try:
            return await asyncio.shield(asyncio.wrap_future(running))
        except asyncio.CancelledError:
            await asyncio.wait([asyncio.wrap_future(running)])
            raise
        finally:
            self._aside = None

    async def read(self, work: Work[T], *arguments: Any) -> T:
        """Run ``work(connection, *arguments)`` on one consistent snapshot."""
        with _map_errors(self.path):
            patience = _Patience(self.path)
            while True:
                while self._aside is not None:
                    async with self._turn:
                        pass
                try:
                    return self._read(work, arguments)
                except sqlite3.OperationalError as error:
                    await patience.wait(error)

    def _read(self, work: Work[T], arguments: tuple[Any, ...]) -> T:
        self._connection.execute("BEGIN")
        try:
            return work(self._connection, *arguments)
        finally:
            # SQLite itself ends the transaction on some errors, such as a failing disk.
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")

    async def _begin(self) -> None:
        """Begin a write transaction, waiting while another program holds SQLite's lock."""
        patience = _Patience(self.path)
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                await patience.wait(error)

    async def _wait_for_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting = self._threads.submit(fcntl.flock, self._lock, fcntl.LOCK_EX)
            try:
                await asyncio.wrap_future(waiting)
            except asyncio.CancelledError:
                # The thread may still get the lock with no caller left to use it: release it then.
                waiting.add_done_callback(lambda _: fcntl.flock(self._lock, fcntl.LOCK_UN))
                raise

    def _transact(self, work: Work[T], arguments: tuple[Any, ...], failed: Callable[[], None] | None) -> T:
        try:
            result = work(self._connection, *arguments)
            self._connection.execute("COMMIT")
        except BaseException:
            if failed:
                failed()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._transactions += 1
        if self._transactions % _LOOK_EVERY == 0:
            self._shorten_log()
        return result

    def _shorten_log(self) -> None:
        if self._checkpoint is not None and not self._checkpoint.done():
            return
        with contextlib.suppress(FileNotFoundError):
            if os.path.getsize(f"{self.path}-wal") > _LOG_BYTES:
                self._checkpoint = self._threads.submit(_checkpoint, self.path)

    @property
    def closed(self) -> bool:
        return self._lock < 0

    def at_close(self, callback: Callable[[], None]) -> None:
        """Register a callback for :meth:`close`."""
        self._at_close.append(callback)

    def close(self) -> None:
        """Close the file. Calling it twice is safe."""
        while self._at_close:
            self._at_close.pop()()
        self._threads.shutdown(wait=True)
        self._connection.close()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


class _Patience:
    """Waits while another program holds SQLite's lock, for at most ``_BUSY_SECONDS``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._until = 0.0

    async def wait(self, error: sqlite3.OperationalError) -> None:
        """Sleep ``_RETRY_SECONDS``; raise ``error`` if it is not SQLITE_BUSY or the time is over."""
        now = time.monotonic()
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise error
        if not self._until:
            self._until = now + _BUSY_SECONDS
            _log.warning("%s is locked by another program: waiting", self._path)
        if now > self._until:
            raise error
        await asyncio.sleep(_RETRY_SECONDS)


def _open_lock_file(path: Path) -> int:
    return os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


@contextlib.contextmanager
def _hold_lock(lock: int) -> Iterator[None]:
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


def _checkpoint(path: Path) -> None:
    """Move the log into the database: first most of it beside the writers, then the rest while they wait.

    If it fails (a full disk), the log stays as it is, and the next transaction that needs the disk reports the error.
    """
    with contextlib.suppress(sqlite3.Error, OSError), contextlib.ExitStack() as stack:
        connection = stack.enter_context(contextlib.closing(sqlite3.connect(path, timeout=30)))
        lock = _open_lock_file(path)
        stack.callback(os.close, lock)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        with _hold_lock(lock):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextlib.contextmanager
def _map_errors(path: Path) -> Iterator[None]:
    """Map errors of SQLite and of the operating system to ``StoreError`` and ``RefusedData``."""
    try:
        yield
    except sqlite3.DataError as error:
        raise RefusedData(f"{path}: {error}") from error
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}{_advice(str(error))}") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error


def _advice(message: str) -> str:
    for words, advice in (
        (
            "disk I/O error",
            ". Is the disk full, or failing? Free space and run the same command again; nothing is lost",
        ),
        ("full", ". Free space and run the same command again; nothing is lost"),
        ("not a database", ". This is not a crawl of Uttu. Move the file away, or start again with --fresh"),
        ("malformed", ". The file is damaged; start again with --fresh, or restore it from a backup"),
        ("readonly", ". Uttu needs to write there"),
        ("unable to open", ". Check that the folder exists and can be written"),
        ("locked", ". Another program holds it"),
    ):
        if words in message:
            return advice
    return ""

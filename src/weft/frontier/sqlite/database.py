"""One connection to a crawl's file.

Transactions run on the event loop's own thread. They are short, a few milliseconds for a batch, and commits only
append to the log, which the system buffers; handing them to another thread was measured to cost a third of the
crawl's speed, because the two threads then pass Python's global lock to and fro at every row.

What does wait is kept off the loop: a turn behind another process's transaction, and moving the log into the
database (a checkpoint), which writes to the disk. Both are left to helper threads.

Writers of all processes queue up on a file lock beside the database. SQLite's own waiting is a
poll with growing sleeps, which starves some writers and idles the others.

Journal: WAL with synchronous=NORMAL. A killed process loses nothing that was committed. A power
cut may undo the last moments, consistently: pages, children, items and cursors go back together.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from weft.errors import StoreError, StoreTooNew
from weft.frontier.sqlite.schema import APPLICATION, SCHEMA, UPGRADES, VERSION
from weft.version import __version__

T = TypeVar("T")
Work = Callable[..., T]

_PRAGMAS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 0;
PRAGMA cache_size = -65536;
PRAGMA temp_store = MEMORY;
PRAGMA busy_timeout = 30000;
"""
# The log is moved into the database when it has so many bytes: pages that are written again and again until then
# are written to the database once.
_LOG_BYTES = 128 * 1024 * 1024
# How many transactions pass between two looks at it.
_LOOK_EVERY = 8


class Database:
    """A crawl's file. Open it with :meth:`open`; made if it is not there."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock
        self._turn = asyncio.Lock()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="weft-store")
        self._checkpoint: Future[None] | None = None
        self._transactions = 0
        self._at_close: list[Callable[[], None]] = []

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> Database:
        """:raises StoreError: it can't be opened, is no crawl, or was made by a newer Weft."""
        if sqlite3.sqlite_version_info < (3, 38):
            raise StoreError(f"Weft needs SQLite 3.38 or newer; this Python has {sqlite3.sqlite_version}")
        with _mapped(path), contextlib.ExitStack() as undo:
            if not create and not path.exists():
                raise StoreError(f"there is no crawl at {path}")
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = _open_lock(path)
            undo.callback(os.close, lock)
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
            undo.callback(connection.close)
            database = cls(path, connection, lock)
            database._prepare()
            undo.pop_all()
        return database

    def _prepare(self) -> None:
        # All of it alone: SQLite does not wait for its turn to switch a new file to the WAL.
        with _locked(self._lock):
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            (owner,) = self._connection.execute("PRAGMA application_id").fetchone()
            (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if tables and owner != APPLICATION:
                raise StoreError(f"{self.path} is a database, but no crawl of Weft's; name another file")
            if version > VERSION:
                raise StoreTooNew(
                    f"{self.path} was made by a newer Weft (layout {version}; this is {__version__} with layout "
                    f"{VERSION}). Upgrade Weft, or start again with --fresh"
                )
            self._connection.executescript(_PRAGMAS)
            if not tables:
                marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
                self._connection.executescript(f"BEGIN; {SCHEMA} {marks} COMMIT;")
                return
            for layout in range(version, VERSION):
                self._upgrade(layout)

    def _upgrade(self, layout: int) -> None:
        try:
            self._connection.executescript(f"BEGIN; {UPGRADES[layout]} PRAGMA user_version = {layout + 1}; COMMIT;")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    async def write(self, work: Work[T], *arguments: Any, failed: Callable[[], None] | None = None) -> T:
        """``work(connection, *arguments)`` as one transaction: all of it or, if it raises, nothing.

        ``failed`` is called when nothing of it was done: to forget what ``work`` remembered outside.
        """
        with _mapped(self.path):
            async with self._turn:
                await self._wait_for_lock()
                try:
                    return self._transact(work, arguments, failed)
                finally:
                    fcntl.flock(self._lock, fcntl.LOCK_UN)

    async def read(self, work: Work[T], *arguments: Any) -> T:
        """``work(connection, *arguments)`` on one consistent view."""
        with _mapped(self.path):
            self._connection.execute("BEGIN")
            try:
                return work(self._connection, *arguments)
            finally:
                self._connection.execute("COMMIT")

    async def _wait_for_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting = self._threads.submit(fcntl.flock, self._lock, fcntl.LOCK_EX)
            try:
                await asyncio.wrap_future(waiting)
            except asyncio.CancelledError:
                # The thread may get it after all, with nobody there to use it.
                waiting.add_done_callback(lambda _: fcntl.flock(self._lock, fcntl.LOCK_UN))
                raise

    def _transact(self, work: Work[T], arguments: tuple[Any, ...], failed: Callable[[], None] | None) -> T:
        self._connection.execute("BEGIN IMMEDIATE")
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
        """Call this when the file is let go of."""
        self._at_close.append(callback)

    def close(self) -> None:
        """Let go of the file; again does no harm."""
        while self._at_close:
            self._at_close.pop()()
        self._threads.shutdown(wait=True)
        self._connection.close()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def _open_lock(path: Path) -> int:
    return os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


@contextlib.contextmanager
def _locked(lock: int) -> Iterator[None]:
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


def _checkpoint(path: Path) -> None:
    """Move the log into the database: most of it beside the writers, the little that came meanwhile without them.

    If it fails (a full disk), the log stays as it is and the next transaction that needs the disk says so.
    """
    with contextlib.suppress(sqlite3.Error, OSError), contextlib.ExitStack() as stack:
        connection = stack.enter_context(contextlib.closing(sqlite3.connect(path, timeout=30)))
        lock = _open_lock(path)
        stack.callback(os.close, lock)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        with _locked(lock):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[None]:
    """SQLite's and the system's errors as ours."""
    try:
        yield
    except sqlite3.DatabaseError as error:
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
        ("not a database", ". This is no crawl of Weft's; move it away or start again with --fresh"),
        ("malformed", ". The file is damaged; start again with --fresh, or restore it from a backup"),
        ("readonly", ". Weft needs to write there"),
        ("unable to open", ". Check that the folder exists and can be written"),
        ("locked", ". Another program holds it"),
    ):
        if words in message:
            return advice
    return ""

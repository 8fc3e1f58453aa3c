"""The connection to the SQLite file of a crawl; :mod:`~uttu.frontier.sqlite.layout` draws its tables.

Threads. Transactions run on the thread of the event loop. They are short, a few milliseconds for a batch, and commits
only append to the log, which the system buffers. Running them in another thread cost a third of the crawl's speed when
measured, because the two threads exchange the global interpreter lock at every row. Blocking work runs in helper
threads: waiting for another process's transaction, checkpoints (moving the log into the database), and rare long
transactions (``aside``: a page with tens of thousands of links). While a transaction runs aside, reads wait for it,
because they share its connection. Reads for operators may look at a whole table: they run in a thread with a
separate connection (``inspect``), where SQLite lets go of the global interpreter lock, and wait for nobody.

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
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from uttu import __version__, former
from uttu.errors import RefusedData, StoreError, StoreTooNew
from uttu.frontier.sqlite.layout import APPLICATION, SCHEMA, VERSION, upgrade

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
        self._inspections = ThreadPoolExecutor(1, thread_name_prefix="uttu-inspect")
        self._inspector: sqlite3.Connection | None = None
        self._last_inspection: Future[Any] | None = None
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
                _log.info("%s: upgrading from layout %d to %d", self.path, layout, layout + 1)
                upgrade(self._connection, layout)

    def _mark_as_own(self) -> None:
        """Take over a file that Weft made; the layouts are the same."""
        if ".uttu" not in self.path.absolute().parts:
            raise StoreError(
                f"{self.path} was made by Weft, as Uttu was called before. To keep using it, move it to .uttu/crawls/"
            )
        self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
        _log.info("%s was made by Weft; it is Uttu's now", self.path)

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
                    return _read(self._connection, work, arguments)
                except sqlite3.OperationalError as error:
                    await patience.wait(error)

    async def inspect(self, work: Work[T], *arguments: Any) -> T:
        """As :meth:`read`, but in a helper thread, for reads of any length. They run one after the other."""
        with _map_errors(self.path):
            if self.closed:
                raise StoreError(f"{self.path}: the crawl's file is closed")
            self._last_inspection = self._inspections.submit(self._inspect, work, arguments)
            return await asyncio.wrap_future(self._last_inspection)

    def _inspect(self, work: Work[T], arguments: tuple[Any, ...]) -> T:
        if self.closed:
            raise StoreError(f"{self.path}: the crawl's file is closed")
        if self._inspector is None:
            self._inspector = _open_inspector(self.path)
        return _read(self._inspector, work, arguments)

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
        """Close the file. Calling it twice is safe. An inspection that is still running fails."""
        while self._at_close:
            self._at_close.pop()()
        self._threads.shutdown(wait=True)
        lock, self._lock = self._lock, -1
        self._end_inspections()
        self._connection.close()
        if lock >= 0:
            os.close(lock)

    def _end_inspections(self) -> None:
        # Repeated, because an interrupt between two statements of an inspection has no effect.
        while self._last_inspection is not None and not self._last_inspection.done():
            if self._inspector is not None:
                self._inspector.interrupt()
            wait([self._last_inspection], timeout=0.01)
        self._inspections.shutdown(wait=True)
        if self._inspector is not None:
            self._inspector.close()


def _read(connection: sqlite3.Connection, work: Work[T], arguments: tuple[Any, ...]) -> T:
    connection.execute("BEGIN")
    try:
        return work(connection, *arguments)
    finally:
        # SQLite itself ends the transaction on some errors, such as a failing disk.
        if connection.in_transaction:
            connection.execute("COMMIT")


def _open_inspector(path: Path) -> sqlite3.Connection:
    """Open a connection that only reads. A file that is gone is not created again (``mode=rw``)."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
    )
    connection.executescript("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY; PRAGMA busy_timeout = 30000")
    return connection


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
    except msgspec.DecodeError as error:
        raise StoreError(f"{path}: malformed record: {error}{_advice('malformed')}") from error
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

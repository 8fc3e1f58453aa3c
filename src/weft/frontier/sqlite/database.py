"""One connection to a crawl's file, used from a thread of its own.

Why a thread: a commit may wait for the disk or for another process, and the event loop must not.
Why statements over whole batches (arguments and results travel as one JSON document each): the
sqlite3 module gives up Python's global lock around every row it steps over, and a busy event
loop takes milliseconds to give it back. One long step per batch avoids that.

Writers of all processes queue up on a file lock beside the database. SQLite's own waiting is a
poll with growing sleeps, which starves some writers and idles the others.

Journal: WAL with synchronous=NORMAL. A killed process loses nothing that was committed. A power
cut may undo the last moments, consistently: pages, children, items and cursors go back together.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from weft.errors import StoreError, StoreTooNew
from weft.frontier.sqlite.schema import APPLICATION, SCHEMA, VERSION
from weft.version import __version__

T = TypeVar("T")
Rows = sqlite3.Connection

_PRAGMAS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 32000;
PRAGMA cache_size = -65536;
PRAGMA temp_store = MEMORY;
PRAGMA busy_timeout = 30000;
"""


class Database:
    """A crawl's file. Open it with :meth:`open`; made if it is not there."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock
        self._mutex = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weft-store")

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> Database:
        """:raises StoreError: it can't be opened, is no crawl, or was made by a newer Weft."""
        if sqlite3.sqlite_version_info < (3, 38):
            raise StoreError(f"Weft needs SQLite 3.38 or newer; this Python has {sqlite3.sqlite_version}")
        with _mapped(path), contextlib.ExitStack() as undo:
            if not create and not path.exists():
                raise StoreError(f"there is no crawl at {path}")
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            undo.callback(os.close, lock)
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
            undo.callback(connection.close)
            database = cls(path, connection, lock)
            database._prepare()
            undo.pop_all()
        return database

    def _prepare(self) -> None:
        # All of it alone: SQLite does not wait for its turn to switch a new file to the WAL.
        with self._exclusive():
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

    async def write(self, work: Callable[..., T], *arguments: Any, failed: Callable[[], None] | None = None) -> T:
        """``work(connection, *arguments)`` as one transaction: all of it or, if it raises, nothing.

        It runs on to its end even if the caller is cancelled. ``failed`` is called, in the same
        thread, when nothing of it was done: to forget what ``work`` remembered outside.
        """
        run = functools.partial(self.write_now, work, *arguments, failed=failed)
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    async def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """``work(connection, *arguments)`` on one consistent view."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.read_now, work, *arguments)

    def write_now(self, work: Callable[..., T], *arguments: Any, failed: Callable[[], None] | None = None) -> T:
        with _mapped(self.path), self._mutex, self._exclusive():
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
            return result

    def read_now(self, work: Callable[..., T], *arguments: Any) -> T:
        with _mapped(self.path), self._mutex:
            self._connection.execute("BEGIN")
            try:
                return work(self._connection, *arguments)
            finally:
                self._connection.execute("COMMIT")

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    @property
    def closed(self) -> bool:
        return self._lock < 0

    def close(self) -> None:
        """Let go of the file; again does no harm."""
        self._thread.shutdown(wait=True)
        self._connection.close()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


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

"""The crawls of one folder: a file for each, ``crawls/NAME.db``, and beside it

NAME.db-wal, NAME.db-shm    SQLite's log
NAME.db.lock                the writers' turn
NAME.db.workers/            a lock for each living worker
NAME.db.supervisor          the supervisor's lock
NAME.former                 the crawl that this one replaces, until it has begun
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from weft.clock import Clock
from weft.errors import StoreError, WeftError
from weft.frontier.base import Rules
from weft.frontier.depot import Store, check_name, is_name
from weft.frontier.sqlite.database import Database
from weft.frontier.sqlite.frontier import SqliteFrontier
from weft.frontier.sqlite.inspector import SqliteInspector
from weft.frontier.sqlite.locks import is_locked, lock
from weft.frontier.sqlite.mover import SqliteMover
from weft.frontier.sqlite.shelves import SqliteLedger, SqliteMemo, SqliteOutbox

_DATABASE = ("", "-wal", "-shm")
# Whoever asks whether a crawl is supervised has its lock for an instant.
_LOCK_TRIES, _LOCK_SECONDS = 5, 0.02


class SqliteDepot:
    """See :class:`weft.frontier.depot.Depot`."""

    shared = False

    def __init__(self, folder: Path, address: str = "", clock: Clock | None = None) -> None:
        self.address = address
        self._folder = folder / "crawls"
        self._clock = clock

    def path(self, crawl: str) -> Path:
        """Where a crawl is, or would be.

        :raises ConfigError: that is no crawl's name; with a slash in it, the file would be another's.
        """
        check_name(crawl)
        return self._folder / f"{crawl}.db"

    async def names(self) -> list[str]:
        return [path.stem for path in self._folder.glob("*.db") if is_name(path.stem)]

    async def open(self, crawl: str, rules: Rules) -> Store:
        return self._store(crawl, rules, create=False)

    async def create(self, crawl: str, rules: Rules) -> Store:
        path = self.path(crawl)
        with _mapped(path):
            if self._former(crawl).exists():
                # What it was put aside for never began.
                _remove(path)
            else:
                # A log that was left behind must not meet another database.
                _remove(self._former(crawl))
                _rename(path, self._former(crawl))
        return self._store(crawl, rules, create=True)

    async def keep(self, crawl: str) -> None:
        with _mapped(self._former(crawl)):
            _remove(self._former(crawl))

    async def restore(self, crawl: str) -> None:
        path, former = self.path(crawl), self._former(crawl)
        with _mapped(former):
            if former.exists():
                _remove(path)
                _rename(former, path)

    @contextlib.asynccontextmanager
    async def supervise(self, crawl: str) -> AsyncIterator[None]:
        file = await self._lock(crawl)
        try:
            yield
        finally:
            os.close(file)

    async def is_supervised(self, crawl: str) -> bool:
        try:
            return is_locked(self._supervisor(crawl))
        except OSError:
            return False

    async def close(self) -> None:
        pass

    def _store(self, crawl: str, rules: Rules, *, create: bool) -> Store:
        database = Database.open(self.path(crawl), create=create)
        return Store(
            frontier=SqliteFrontier(database, rules, self._clock),
            outbox=SqliteOutbox(database, self._clock),
            memo=SqliteMemo(database, self._clock),
            ledger=SqliteLedger(database, self._clock),
            inspector=SqliteInspector(database, self._clock),
            mover=SqliteMover(database, self._clock),
        )

    async def _lock(self, crawl: str) -> int:
        path = self._supervisor(crawl)
        for _ in range(_LOCK_TRIES):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                return lock(path)
            except BlockingIOError:
                await asyncio.sleep(_LOCK_SECONDS)
            except OSError as error:
                raise StoreError(f"{path}: {error.strerror}. Weft keeps the state of crawls there") from error
        raise WeftError(f"crawl {crawl!r} is running already, in another process. Add to it with: weft worker FILE")

    def _supervisor(self, crawl: str) -> Path:
        path = self.path(crawl)
        return path.with_name(path.name + ".supervisor")

    def _former(self, crawl: str) -> Path:
        return self.path(crawl).with_suffix(".former")


def _remove(path: Path) -> None:
    for suffix in _DATABASE:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _rename(path: Path, to: Path) -> None:
    # The log before the database: a database without its log is a little older, a log without its database is lost.
    for suffix in reversed(_DATABASE):
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.replace(to.with_name(to.name + suffix))


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error

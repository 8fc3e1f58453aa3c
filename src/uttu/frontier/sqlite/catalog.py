"""The crawls of one folder, each in a file ``crawls/NAME.db``.

Files beside it:

    NAME.db-wal, NAME.db-shm    SQLite's log
    NAME.db.lock                the lock that writers queue up on
    NAME.db.workers/            one lock file per live worker
    NAME.db.supervisor          the supervisor's lock
    NAME.former                 the crawl that this one replaces, until this one has begun
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from uttu import former
from uttu.clock import Clock
from uttu.errors import StoreError, UttuError
from uttu.file_locks import is_file_locked, lock_file, unlock
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.database import Database
from uttu.frontier.sqlite.frontier import SqliteFrontier
from uttu.frontier.sqlite.history import SqliteHistory
from uttu.frontier.sqlite.inspector import SqliteInspector
from uttu.frontier.sqlite.outbox import SqliteLedger, SqliteMemo, SqliteOutbox
from uttu.frontier.sqlite.transfer import SqliteTransfer
from uttu.model.crawl import check_crawl_name, is_crawl_name

_DATABASE = ("", "-wal", "-shm")
# A process that checks whether a crawl is supervised holds its lock for an instant, so taking the lock is retried.
_LOCK_TRIES, _LOCK_SECONDS = 5, 0.02


class SqliteCatalog:
    """See :class:`uttu.frontier.catalog.CrawlCatalog`."""

    shared = False

    def __init__(self, folder: Path, address: str = "", clock: Clock | None = None) -> None:
        self.address = address
        self._folder = folder / "crawls"
        self._clock = clock

    def path(self, crawl: str) -> Path:
        """Return the path of a crawl's file, which need not exist.

        :raises ConfigError: the name is invalid; with a slash in it, the file would be outside of the folder.
        """
        check_crawl_name(crawl)
        return self._folder / f"{crawl}.db"

    async def names(self) -> list[str]:
        return [path.stem for path in self._folder.glob("*.db") if is_crawl_name(path.stem)]

    async def open(self, crawl: str, rules: Rules) -> CrawlStore:
        return self._store(crawl, rules, create=False)

    async def identify(self, crawl: str) -> tuple[Path, int, int]:
        """See :class:`uttu.frontier.catalog.Identified`. The inode of a file that is open is not used again."""
        path = self.path(crawl)
        try:
            found = path.stat()
        except FileNotFoundError:
            raise StoreError(f"There is no crawl at {path}") from None
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror or error}") from error
        return path.absolute(), found.st_dev, found.st_ino

    async def create(self, crawl: str, rules: Rules) -> CrawlStore:
        path = self.path(crawl)
        with _map_errors(path):
            if self._former(crawl).exists():
                # The crawl that replaced the former one never began.
                _remove(path)
            else:
                # An old log must not be applied to another database.
                _remove(self._former(crawl))
                _rename(path, self._former(crawl))
        return self._store(crawl, rules, create=True)

    async def keep(self, crawl: str) -> None:
        with _map_errors(self._former(crawl)):
            _remove(self._former(crawl))

    async def restore(self, crawl: str) -> None:
        path, former = self.path(crawl), self._former(crawl)
        with _map_errors(former):
            if former.exists():
                _remove(path)
                _rename(former, path)

    async def discard(self, crawl: str) -> None:
        path = self.path(crawl)
        if self._former(crawl).exists():
            await self.restore(crawl)
            return
        with _map_errors(path):
            _remove(path)

    @contextlib.asynccontextmanager
    async def supervise(self, crawl: str) -> AsyncIterator[None]:
        file = await self._lock(crawl)
        try:
            yield
        finally:
            unlock(file)

    async def is_supervised(self, crawl: str) -> bool:
        try:
            return is_file_locked(self._supervisor(crawl))
        except OSError:
            return False

    async def close(self) -> None:
        pass

    def _store(self, crawl: str, rules: Rules, *, create: bool) -> CrawlStore:
        database = Database.open(self.path(crawl), create=create)
        return CrawlStore(
            frontier=SqliteFrontier(database, rules, self._clock),
            outbox=SqliteOutbox(database, self._clock),
            memo=SqliteMemo(database, self._clock),
            ledger=SqliteLedger(database, self._clock),
            inspector=SqliteInspector(database, self._clock),
            history=SqliteHistory(database, self._clock),
            transfer=SqliteTransfer(database, self._clock),
        )

    async def _lock(self, crawl: str) -> int:
        path = self._supervisor(crawl)
        for _ in range(_LOCK_TRIES):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                return lock_file(path)
            except BlockingIOError:
                await asyncio.sleep(_LOCK_SECONDS)
            except OSError as error:
                raise StoreError(f"{path}: {error.strerror}. Uttu keeps the state of crawls there") from error
        raise UttuError(f"Crawl {crawl!r} is running already. Add a worker to it with: uttu worker FILE")

    def _supervisor(self, crawl: str) -> Path:
        path = self.path(crawl)
        return path.with_name(path.name + ".supervisor")

    def _former(self, crawl: str) -> Path:
        return self.path(crawl).with_suffix(".former")


def open_catalog(url: str, folder: Path) -> SqliteCatalog:
    """The catalog of a frontier's URL: ``folder``, or with ``sqlite:OTHER`` the folder of this name inside OTHER."""
    other = url.partition(":")[2].removeprefix("//")
    # Check the text, not the Path: Path("./~root") becomes "~root", which expands to a home folder.
    place = Path(other).expanduser() if other.startswith("~") else Path(other)
    chosen = place / folder.name if other else folder
    former.check_folder(chosen)
    return SqliteCatalog(chosen, url)


def _remove(path: Path) -> None:
    for suffix in _DATABASE:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _rename(path: Path, to: Path) -> None:
    # The log first: a database without its log is a little older, but a log without its database is lost.
    for suffix in reversed(_DATABASE):
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.replace(to.with_name(to.name + suffix))


@contextlib.contextmanager
def _map_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error

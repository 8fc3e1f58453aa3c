"""What all requests share: the settings, the stores and brokers by name, accounts, the audit log, and a cache.

Many people look at the same pages. So results are kept for ``FRESH_SECONDS``, and while one request reads something, all
others that want the same wait for it (single flight). No call may hang: one that takes longer than ``CALL_SECONDS`` ends
with :class:`Unavailable`, and so do, for the same time, all others on the same server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from uttu.api.access import Access
from uttu.api.accounts import Accounts
from uttu.api.audit import AuditLog
from uttu.api.problems import NotFound, Unavailable
from uttu.api.settings import DashboardConfig
from uttu.operations.crawls import connect_configured_frontier

if TYPE_CHECKING:
    from celery import Celery

FRESH_SECONDS: Final = 1.0
CALL_SECONDS: Final = 1.8
# Changes may wait for a busy store; exports and moves take as long as they need.
CHANGE_SECONDS: Final = 10.0
LONG_SECONDS: Final = 3600.0
_MOST_ENTRIES: Final = 1000
T = TypeVar("T")


class _Entry(msgspec.Struct):
    task: asyncio.Task[Any]
    began: float


class SharedCache:
    """Results of calls by key. An error is kept as long as a value."""

    def __init__(self) -> None:
        self._entries: dict[Any, _Entry] = {}

    async def get(self, key: Any, call: Callable[[], Coroutine[Any, Any, T]], seconds: float = FRESH_SECONDS) -> T:
        """The result of a call that is running or ended at most ``seconds`` ago, else that of a new call."""
        now = time.monotonic()
        entry = self._entries.get(key)
        if entry is None or (entry.task.done() and now - entry.began > seconds) or entry.task.cancelled():
            if len(self._entries) >= _MOST_ENTRIES:
                self._prune(now)
            entry = _Entry(asyncio.create_task(_date(self._entries, key, call)), now)
            # An error that nobody awaits any more is no news.
            entry.task.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._entries[key] = entry
        found: T = await asyncio.shield(entry.task)
        return found

    def clear(self) -> None:
        """Forget all results, after a change. Calls that run now may have read the state before it."""
        self._entries.clear()

    def _prune(self, now: float) -> None:
        old = [key for key, each in self._entries.items() if each.task.done() and now - each.began > FRESH_SECONDS]
        for key in old:
            del self._entries[key]

    async def close(self) -> None:
        tasks = [entry.task for entry in self._entries.values() if not entry.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _date(entries: dict[Any, _Entry], key: Any, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a call, and count the age of its result from its end."""
    task = asyncio.current_task()
    try:
        return await call()
    finally:
        entry = entries.get(key)
        if entry is not None and entry.task is task:
            entry.began = time.monotonic()


class Context:
    """What all requests share. ``closing`` is set when the server is about to end, so that streams end, too."""

    def __init__(self, config: DashboardConfig) -> None:
        self.config = config
        self.folder: Path = config.folder
        self.stores = config.stores
        self.buses = config.buses
        self.accounts = Accounts(config.access_file)
        self.access = Access(config, self.accounts)
        self.audit = AuditLog(config.access_file.with_name("audit.jsonl"))
        self.cache = SharedCache()
        self.closing = asyncio.Event()
        self._app: Celery | None = None

    def store_url(self, store: str) -> str:
        """The URL of a store; empty for the frontier of the project's settings.

        :raises NotFound: no store has this name.
        """
        if store not in self.stores:
            raise NotFound(f"There is no store {store!r:.100}; there are: {', '.join(self.stores)}")
        return self.stores[store]

    def bus_url(self, bus: str) -> str:
        """The URL of a broker.

        :raises NotFound: no broker has this name.
        """
        if bus not in self.buses:
            there = f"there are: {', '.join(self.buses)}" if self.buses else "set bus in uttu.toml, or [dashboard] buses"
            raise NotFound(f"There is no broker {bus!r:.100}; {there}")
        return self.buses[bus]

    async def check_crawl(self, store: str, crawl: str) -> str:
        """Check that a store has a crawl of exactly this name. Returns the URL of the store.

        :raises NotFound: there is no such store or crawl.
        :raises Unavailable: the store is away.
        """
        url = self.store_url(store)

        async def read_names() -> list[str]:
            async with connect_configured_frontier(url, self.folder) as catalog:
                return await catalog.names()

        names = await self.read(("names", store), f"The store {store}", read_names)
        if crawl not in names:
            self.cache.clear()
            raise NotFound(f"There is no crawl {crawl!r:.100} in the store {store}")
        return url

    async def read(
        self,
        key: Any,
        what: str,
        call: Callable[[], Coroutine[Any, Any, T]],
        seconds: float = FRESH_SECONDS,
        timeout: float = CALL_SECONDS,
    ) -> T:
        """The result of a call, shared with other requests for the same.

        :param what: The name of the server that is asked, for the message.
        :raises Unavailable: it did not answer in time.
        """
        return await self.cache.get(key, lambda: limit_time(call(), what, timeout), seconds)

    async def change(self, what: str, call: Awaitable[T], timeout: float = CHANGE_SECONDS) -> T:
        """The result of a call that changes something. Cached results are forgotten.

        :raises Unavailable: it did not answer in time.
        """
        try:
            return await limit_time(call, what, timeout)
        finally:
            self.cache.clear()

    async def read_in_thread(
        self, key: Any, what: str, call: Callable[[], T], seconds: float = FRESH_SECONDS, timeout: float = CALL_SECONDS
    ) -> T:
        """As :meth:`read`, for a function that blocks."""
        return await self.read(key, what, lambda: asyncio.to_thread(call), seconds, timeout)

    @property
    def app(self) -> Celery:
        """The Celery app of the project's folder.

        :raises ConfigError: the settings are wrong, or the jobs extra is not installed.
        """
        if self._app is None:
            from uttu.jobs.app import App

            self._app = App.load(self.folder)
        return self._app

    async def close(self) -> None:
        self.closing.set()
        await self.cache.close()


async def limit_time(call: Awaitable[T], what: str, seconds: float) -> T:
    """:raises Unavailable: the call took longer."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await call
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise Unavailable(f"{what} does not answer: is the server running?") from error

"""What all requests share: the settings, the stores and brokers by name, accounts, the audit log, and a cache.

Many people look at the same pages. So results are kept for ``FRESH_SECONDS``, and while one request reads something,
all others that want the same wait for it (single flight). No call may hang: one that takes longer than ``CALL_SECONDS``
ends with :class:`Unavailable`. The error is shared like a value.

A page that is open shows within two seconds that a server was killed. These add up to less: ``FRESH_SECONDS``, the
pause of the live stream (:mod:`uttu.api.pages.live`), and the time until a call fails. A store fails after
``PATIENCE_SECONDS`` (:mod:`uttu.operations.connections`) at most; for a broker see :meth:`Context.ask_broker`.

A search may look at everything that a crawl knows. It goes on without those who asked, who get
:class:`StillSearching` instead, and ask again. Its result counts for ``_REST`` times as long as it took, so that an
open page does not search all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from uttu.api.access import Access
from uttu.api.accounts import Accounts
from uttu.api.audit import AuditLog
from uttu.api.problems import NotFound, StillSearching, Unavailable
from uttu.api.settings import DashboardConfig
from uttu.clients.reachability import find_refusal
from uttu.errors import UttuError
from uttu.operations.connections import KeptConnections, connect_configured_frontier

if TYPE_CHECKING:
    from celery import Celery

    from uttu.jobs.confinement import Confinement
    from uttu.operations.crawls import CrawlStatus
    from uttu.operations.jobs import JobWorker
    from uttu.operations.task_monitor import TaskMonitor

FRESH_SECONDS: Final = 0.5
CALL_SECONDS: Final = 1.8
# A call to a broker that takes longer is doubted: does its server still accept connections?
_DOUBT_SECONDS: Final = 0.25
_LONGEST_DOUBT_SECONDS: Final = 2.0
# Changes may wait for a busy store; exports and moves take as long as they need.
CHANGE_SECONDS: Final = 10.0
LONG_SECONDS: Final = 3600.0
SEARCH_SECONDS: Final = 120.0
_REST: Final = 20.0
_MOST_ENTRIES: Final = 1000
T = TypeVar("T")


class _Entry(msgspec.Struct):
    task: asyncio.Task[Any]
    began: float
    """When the call began; when it ended, from then on."""
    took: float = 0.0

    def is_over(self, now: float, seconds: float, rest: float) -> bool:
        if not self.task.done():
            return False
        if self.task.cancelled():
            return True
        return now - self.began > (seconds if self.task.exception() else max(seconds, rest * self.took))


class SharedCache:
    """Results of calls by key. An error is kept as long as a value. ``clock`` returns seconds; tests advance it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._entries: dict[Any, _Entry] = {}

    async def get(
        self, key: Any, call: Callable[[], Coroutine[Any, Any, T]], seconds: float = FRESH_SECONDS, rest: float = 0.0
    ) -> T:
        """The result of a call that is running or ended at most ``seconds`` ago, else that of a new call.

        :param rest: A value, but not an error, also counts for this many times as long as its call took.
        """
        now = self.clock()
        entry = self._entries.get(key)
        if entry is None or entry.is_over(now, seconds, rest):
            if len(self._entries) >= _MOST_ENTRIES:
                self._prune(now)
            entry = _Entry(asyncio.create_task(self._date(key, call)), now)
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

    async def _date(self, key: Any, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call, and count the age of its result from its end."""
        task = asyncio.current_task()
        try:
            return await call()
        finally:
            entry = self._entries.get(key)
            if entry is not None and entry.task is task:
                now = self.clock()
                entry.began, entry.took = now, now - entry.began

    async def close(self) -> None:
        tasks = [entry.task for entry in self._entries.values() if not entry.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
        self.exporting = asyncio.Lock()
        """One export at a time: file locks belong to the whole process, so two exports would not exclude each other."""
        self.kept: KeptConnections | None = None
        """The open connections to stores, while the server runs."""
        self.ended: dict[str, dict[str, tuple[float, CrawlStatus]]] = {}
        """Crawls that have ended, by store and name, and when each was read."""
        self.task_monitor: TaskMonitor | None = None
        self.job_workers: list[JobWorker] | None = None
        """The workers of jobs that answered last; None before the first answer."""
        self.lags: dict[str, deque[tuple[float, dict[str, int]]]] = {}
        """The lags of groups over time, by broker."""
        self._refusing: set[str] = set()
        """Brokers that refused a connection when they were last asked."""
        self._behind: set[asyncio.Task[Any]] = set()
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
            there = (
                f"there are: {', '.join(self.buses)}" if self.buses else "set bus in uttu.toml, or [dashboard] buses"
            )
            raise NotFound(f"There is no broker {bus!r:.100}; {there}")
        return self.buses[bus]

    async def read_names(self, store: str) -> list[str]:
        """The names of all crawls of a store.

        :raises NotFound: there is no such store.
        :raises Unavailable: the store is away.
        """
        url = self.store_url(store)

        async def read() -> list[str]:
            async with connect_configured_frontier(url, self.folder) as catalog:
                return await catalog.names()

        return await self.read(("names", store), f"The store {store}", read)

    async def check_crawl(self, store: str, crawl: str) -> str:
        """Check that a store has a crawl of exactly this name. Returns the URL of the store.

        :raises NotFound: there is no such store or crawl.
        :raises Unavailable: the store is away.
        """
        url = self.store_url(store)
        names = await self.read_names(store)
        if crawl not in names:
            raise NotFound(f"There is no crawl {crawl!r:.100} in the store {store}")
        return url

    async def read(
        self,
        key: Any,
        what: str,
        call: Callable[[], Coroutine[Any, Any, T]],
        seconds: float = FRESH_SECONDS,
        limit: float = CALL_SECONDS,
    ) -> T:
        """The result of a call, shared with other requests for the same.

        :param what: The name of the server that is asked, for the message.
        :raises Unavailable: it did not answer in time.
        """
        return await self.cache.get(key, lambda: self._call(call, what, limit), seconds)

    async def search(
        self,
        key: Any,
        what: str,
        call: Callable[[], Coroutine[Any, Any, T]],
        patience: float,
        limit: float = SEARCH_SECONDS,
        rest: float = _REST,
    ) -> T:
        """As :meth:`read`, for a call that may take long and goes on after ``patience``.

        :raises StillSearching: it takes longer.
        :raises Unavailable: it takes longer than ``limit``.
        """
        waiting = asyncio.timeout(patience)
        try:
            async with waiting:
                return await self.cache.get(key, lambda: self._call(call, what, limit), rest=rest)
        except TimeoutError as error:
            if not waiting.expired():
                raise
            raise StillSearching from error

    async def read_broker(self, key: Any, bus: str, call: Callable[[str], Coroutine[Any, Any, T]]) -> T:
        """As :meth:`read`, for a call that gets the URL of a broker.

        :raises NotFound: there is no such broker.
        """
        url = self.bus_url(bus)
        return await self.read((key, bus), f"The broker {bus}", lambda: self.ask_broker(bus, call(url)))

    async def change_broker(self, bus: str, call: Coroutine[Any, Any, T], limit: float = CHANGE_SECONDS) -> T:
        """As :meth:`change`, for a broker."""
        return await self.change(f"The broker {bus}", self.ask_broker(bus, call), limit)

    async def ask_broker(self, bus: str, call: Coroutine[Any, Any, T]) -> T:
        """The result of a call to a broker. It ends as soon as the broker refuses connections.

        Drivers would wait for the broker, some in threads that nobody can stop. So a broker that refused connections is
        not asked before it accepts one.

        :raises Unavailable: it refuses connections.
        """
        url = self.bus_url(bus)
        if bus in self._refusing:
            try:
                await self._check_broker(bus, url)
            except BaseException:
                call.close()
                raise
        asking = self.run_behind(call)
        # An error after its end was given up is no news.
        asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        pause = _DOUBT_SECONDS
        try:
            while not (await asyncio.wait([asking], timeout=pause))[0]:
                await self._check_broker(bus, url)
                pause = min(2 * pause, _LONGEST_DOUBT_SECONDS)
            return asking.result()
        finally:
            # Nobody waits for its end: closing a connection to a server that is away may take seconds.
            asking.cancel()

    async def _check_broker(self, bus: str, url: str) -> None:
        if reason := await find_refusal(url):
            self._refusing.add(bus)
            raise Unavailable(f"The broker {bus} can't be reached: {reason}. Is the server running?")
        self._refusing.discard(bus)

    async def _call(self, call: Callable[[], Awaitable[T]], what: str, limit: float) -> T:
        with self.kept.use() if self.kept is not None else contextlib.nullcontext():
            return await limit_time(call(), what, limit)

    async def change(self, what: str, call: Awaitable[T], limit: float = CHANGE_SECONDS) -> T:
        """The result of a call that changes something. Cached results are forgotten.

        :raises Unavailable: it did not answer in time.
        """
        try:
            return await self._call(lambda: call, what, limit)
        finally:
            self.forget()

    async def change_in_thread(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """As :meth:`change`, for a call that takes long and may block: it runs in a separate event loop."""
        try:
            return await asyncio.to_thread(lambda: asyncio.run(call()))
        finally:
            self.forget()

    def forget(self) -> None:
        """Forget all results, after a change."""
        self.cache.clear()
        self.ended.clear()

    async def import_celery(self) -> None:
        """Import Celery in a thread: that takes a second, in which the first page that needs it would answer nobody."""
        with contextlib.suppress(ImportError, UttuError):
            await asyncio.to_thread(import_module, "uttu.jobs.app")

    def run_behind(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a call that nobody has to wait for."""
        task = asyncio.create_task(call)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
        return task

    async def read_in_thread(
        self, key: Any, what: str, call: Callable[[], T], seconds: float = FRESH_SECONDS, limit: float = CALL_SECONDS
    ) -> T:
        """As :meth:`read`, for a function that blocks."""
        return await self.read(key, what, lambda: asyncio.to_thread(call), seconds, limit)

    @property
    def app(self) -> Celery:
        """The Celery app of the project's folder.

        :raises ConfigError: the settings are wrong, or the jobs extra is not installed.
        """
        if self._app is None:
            from uttu.jobs.app import App

            self._app = App.load(self.folder)
        return self._app

    @property
    def confinement(self) -> Confinement:
        """What requests may name: files of the project's folder, and servers of its settings.

        :raises ConfigError: the settings are wrong, or the jobs extra is not installed.
        """
        from uttu.jobs.confinement import Confinement

        return Confinement.of(self.app)

    async def close(self) -> None:
        self.closing.set()
        for task in self._behind:
            task.cancel()
        await asyncio.gather(*self._behind, return_exceptions=True)
        await self.cache.close()
        if self.task_monitor is not None:
            await asyncio.to_thread(self.task_monitor.stop)


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

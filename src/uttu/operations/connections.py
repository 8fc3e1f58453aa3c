"""Connect to frontiers: for one operation, or kept open by a long-running program such as the dashboard.

Without :func:`kept_connections` each operation opens its catalog and closes it. A command may wait for a server that is
away, as a crawl does. A program that many people look at must not: inside :func:`kept_connections` a server that does
not answer for ``PATIENCE_SECONDS`` fails every operation on it with :class:`StoreError`, at once if that is known
already. A pulse (one cheap command every ``_PULSE_SECONDS``) finds out, so an operation may take as long as it needs
while the server answers, and works again as soon as the server is back.

The SQLite file of a crawl is kept open, too: opening one takes its write lock, for which the crawl then waits. An
operation takes a store that no other one uses, or opens another. A store that nobody used for ``IDLE_SECONDS`` is
closed, and so is one whose file was replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Hashable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Final

import msgspec

from uttu import settings
from uttu.clients.addresses import mask_password
from uttu.errors import StoreError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlCatalog, CrawlStore, Identified
from uttu.runtime.registry import open_frontier
from uttu.settings import DATA_FOLDER

PATIENCE_SECONDS: Final = 1.5
IDLE_SECONDS: Final = 10.0
# Stores that are open although no operation uses them.
_MOST_IDLE: Final = 64
_PULSE_SECONDS: Final = 0.5
# The pulse asks whether this crawl is supervised. It needs not exist.
_PULSE_CRAWL: Final = "uttu"


@contextlib.asynccontextmanager
async def connect_configured_frontier(frontier: str, folder: Path = Path()) -> AsyncIterator[CrawlCatalog]:
    """Open the catalog at a URL, or the one in the settings if it is empty.

    :raises ConfigError: the address is invalid.
    :raises StoreError: the store can't be reached.
    """
    async with connect_frontier(frontier or settings.load_frontier(folder=folder), folder) as catalog:
        yield catalog


@contextlib.asynccontextmanager
async def connect_frontier(url: str, folder: Path = Path()) -> AsyncIterator[CrawlCatalog]:
    """Open the catalog at exactly this URL; empty for ``.uttu`` in the folder."""
    kept = _kept.get()
    if kept is not None:
        async with kept.connect(url, folder) as catalog:
            yield catalog
        return
    catalog = await _open(url, folder)
    try:
        yield catalog
    finally:
        await catalog.close()


@contextlib.asynccontextmanager
async def open_store(catalog: CrawlCatalog, name: str) -> AsyncIterator[CrawlStore]:
    """Open the store of a crawl with default rules, to read it.

    :raises StoreError: it can't be opened.
    """
    kept = _kept.get()
    if kept is not None and isinstance(catalog, Identified):
        async with kept.open_store(catalog, name) as store:
            yield store
        return
    store = await catalog.open(name, Rules())
    try:
        yield store
    finally:
        await store.frontier.close()


async def _open(url: str, folder: Path) -> CrawlCatalog:
    scheme, _, path = url.partition(":")
    if scheme.lower() == "sqlite" and folder != Path():
        url = f"sqlite:{folder / Path(path.removeprefix('//')).expanduser()}"
    return await open_frontier(url, folder / DATA_FOLDER)


class KeptConnections:
    """The open catalogs of a program. Made by :func:`kept_connections`."""

    def __init__(self) -> None:
        self._catalogs: dict[tuple[str, Path], _KeptCatalog] = {}
        self._idle: deque[_IdleStore] = deque()
        """Stores that no operation uses; the one that was used last is at the end."""
        self._closing: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Let operations in this context use these connections; for tasks that are not started inside the block."""
        token = _kept.set(self)
        try:
            yield
        finally:
            _kept.reset(token)

    @contextlib.asynccontextmanager
    async def connect(self, url: str, folder: Path) -> AsyncIterator[CrawlCatalog]:
        """The catalog at this URL, which stays open.

        :raises StoreError: its server can't be reached, or stops answering during the block.
        """
        key = (url, folder)
        if key not in self._catalogs:
            self._catalogs[key] = _KeptCatalog(url, folder)
        async with self._catalogs[key].use() as catalog:
            yield catalog

    @contextlib.asynccontextmanager
    async def open_store(self, catalog: CrawlCatalog, name: str) -> AsyncIterator[CrawlStore]:
        """The store of a crawl, for this block alone.

        :raises StoreError: it can't be opened.
        """
        assert isinstance(catalog, Identified)
        identity = (name, await catalog.identify(name))
        store = self._take(identity) or await catalog.open(name, Rules())
        is_well = False
        try:
            yield store
            is_well = True
        finally:
            # After an error or a cancellation, a call may still run in one of its threads.
            if is_well:
                await self._return(identity, store)
            else:
                await store.frontier.close()

    def _take(self, identity: Hashable) -> CrawlStore | None:
        for number in range(len(self._idle) - 1, -1, -1):
            if self._idle[number].identity == identity:
                store = self._idle[number].store
                del self._idle[number]
                return store
        return None

    async def _return(self, identity: Hashable, store: CrawlStore) -> None:
        self._idle.append(_IdleStore(identity, store, asyncio.get_running_loop().time()))
        if len(self._idle) > _MOST_IDLE:
            await self._idle.popleft().store.frontier.close()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close_idle(), name="idle stores")

    async def _close_idle(self) -> None:
        now = asyncio.get_running_loop().time
        while self._idle:
            await asyncio.sleep(max(0.0, self._idle[0].since + IDLE_SECONDS - now()))
            while self._idle and now() - self._idle[0].since >= IDLE_SECONDS:
                await self._idle.popleft().store.frontier.close()
        self._closing = None

    async def close(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            await asyncio.gather(self._closing, return_exceptions=True)
        while self._idle:
            await self._idle.popleft().store.frontier.close()
        for each in self._catalogs.values():
            await each.close()
        self._catalogs.clear()


class _IdleStore(msgspec.Struct, frozen=True):
    identity: Hashable
    store: CrawlStore
    since: float


class _KeptCatalog:
    """A catalog that stays open, and the pulse of its server."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._catalog: CrawlCatalog | None = None
        self._opening = asyncio.Lock()
        self._limits: set[asyncio.Timeout] = set()
        self._pulse: asyncio.Task[None] | None = None
        self._answered = 0.0

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[CrawlCatalog]:
        now = asyncio.get_running_loop().time
        if self._pulse is not None and now() - self._answered > PATIENCE_SECONDS:
            raise self._away()
        limit = asyncio.timeout(PATIENCE_SECONDS)
        try:
            async with limit:
                catalog = await self._open()
                if self._pulse is None:
                    limit.reschedule(None)
                else:
                    limit.reschedule(self._answered + PATIENCE_SECONDS)
                    self._limits.add(limit)
                try:
                    yield catalog
                finally:
                    self._limits.discard(limit)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self._away() from error

    async def _open(self) -> CrawlCatalog:
        async with self._opening:
            if self._catalog is None:
                self._catalog = await _open(self._url, self._folder)
                if self._catalog.shared:
                    self._answered = asyncio.get_running_loop().time()
                    self._pulse = asyncio.create_task(self._feel_pulse(self._catalog), name="pulse")
            return self._catalog

    async def _feel_pulse(self, catalog: CrawlCatalog) -> None:
        now = asyncio.get_running_loop().time
        while True:
            asked = now()
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await catalog.is_supervised(_PULSE_CRAWL)
                self._answered = now()
                for limit in self._limits:
                    limit.reschedule(self._answered + PATIENCE_SECONDS)
            await asyncio.sleep(max(0.0, _PULSE_SECONDS - (now() - asked)))

    def _away(self) -> StoreError:
        return StoreError(f"{mask_password(self._url) or 'the frontier'} does not answer: is the server running?")

    async def close(self) -> None:
        if self._pulse is not None:
            self._pulse.cancel()
            await asyncio.gather(self._pulse, return_exceptions=True)
        if self._catalog is not None:
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._catalog.close()


_kept: Final[ContextVar[KeptConnections | None]] = ContextVar("kept connections", default=None)


@contextlib.asynccontextmanager
async def kept_connections() -> AsyncIterator[KeptConnections]:
    """Keep catalogs open during the block. Operations inside it, and in tasks started there, use them."""
    kept = KeptConnections()
    try:
        with kept.use():
            yield kept
    finally:
        await kept.close()

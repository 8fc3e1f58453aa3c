"""Connect to frontiers: for one operation, or kept open by a long-running program such as the dashboard.

Without :func:`kept_connections` each operation opens its catalog and closes it. A command may wait for a server that is
away, as a crawl does. A program that many people look at must not: inside :func:`kept_connections` a server that does
not answer for ``PATIENCE_SECONDS`` fails every operation on it with :class:`StoreError`, at once if that is known
already. A pulse (one cheap command every ``_PULSE_SECONDS``) finds out, so an operation may take as long as it needs
while the server answers, and works again as soon as the server is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from uttu import settings
from uttu.clients.addresses import mask_password
from uttu.errors import StoreError
from uttu.frontier.catalog import CrawlCatalog
from uttu.runtime.registry import open_frontier
from uttu.settings import DATA_FOLDER

PATIENCE_SECONDS: Final = 1.5
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


async def _open(url: str, folder: Path) -> CrawlCatalog:
    scheme, _, path = url.partition(":")
    if scheme.lower() == "sqlite" and folder != Path():
        url = f"sqlite:{folder / Path(path.removeprefix('//')).expanduser()}"
    return await open_frontier(url, folder / DATA_FOLDER)


class KeptConnections:
    """The open catalogs of a program. Made by :func:`kept_connections`."""

    def __init__(self) -> None:
        self._catalogs: dict[tuple[str, Path], _KeptCatalog] = {}

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

    async def close(self) -> None:
        for each in self._catalogs.values():
            await each.close()
        self._catalogs.clear()


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

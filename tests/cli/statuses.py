"""How crawls that commands have changed stand now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.operations.crawls import CrawlStatus, open_store, read_status
from uttu.settings import DATA_FOLDER

T = TypeVar("T")


def in_store(work: Callable[[CrawlStore], Awaitable[T]], name: str = "shop", folder: Path = DATA_FOLDER) -> T:
    """Do something with the store of a crawl."""

    async def run() -> T:
        async with open_store(SqliteCatalog(folder), name) as store:
            return await work(store)

    return asyncio.run(run())


def standing(name: str = "shop", folder: Path = DATA_FOLDER) -> CrawlStatus:
    return in_store(lambda store: read_status(SqliteCatalog(folder), name, store), name, folder)

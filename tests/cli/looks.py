"""How crawls that commands have changed stand now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from weft import launch
from weft.cli.crawls import Standing, opened, standing_of
from weft.frontier.depot import Store
from weft.frontier.sqlite.depot import SqliteDepot

T = TypeVar("T")


def in_store(work: Callable[[Store], Awaitable[T]], name: str = "shop", folder: Path = launch.FOLDER) -> T:
    """Do something with the store of a crawl."""

    async def run() -> T:
        async with opened(SqliteDepot(folder), name) as store:
            return await work(store)

    return asyncio.run(run())


def standing(name: str = "shop", folder: Path = launch.FOLDER) -> Standing:
    return in_store(lambda store: standing_of(SqliteDepot(folder), name, store), name, folder)

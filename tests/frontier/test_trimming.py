"""Items that are removed make room: a crawl's file gets shorter, and so does the memory of a Redis server."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from tests.frontier.redis_crawls import crawl_at
from tests.harness.servers import RedisServer

from uttu.frontier.base import Cursor
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Done
from uttu.testing.contracts.store import EASY, page
from uttu.testing.contracts.trimming import trim

SINK, KEEP = "out.jsonl", 200
ITEM = b'"' + b"x" * 2000 + b'"'


class Crawl:
    """Pages with ten items each, and a sink that has them all."""

    def __init__(self, store: CrawlStore) -> None:
        self.store = store
        self._numbers = itertools.count(1000)

    async def make(self, items: int) -> None:
        frontier = self.store.frontier
        await frontier.put([page(next(self._numbers)) for _ in range(items // 10)])
        while leases := await frontier.lease(50, "w"):
            await frontier.settle([Done(lease=lease, items=(ITEM,) * 10) for lease in leases])

    async def drain(self) -> None:
        outbox = self.store.outbox
        assert await self.store.ledger.claim(f"drain {SINK}", "me", 60)
        last = (await outbox.cursor(SINK)).position
        while items := await outbox.items(last, 1000):
            last = items[-1].position
            assert await outbox.advance(SINK, Cursor(last, b"note"), "me")

    async def trim(self) -> int:
        return await trim(self.store.outbox, SINK, keep=KEEP)


async def test_a_file_gets_shorter(tmp_path: Path) -> None:
    catalog = SqliteCatalog(tmp_path)
    store = await catalog.create("shop", EASY)
    crawl, path = Crawl(store), catalog.path("shop")
    await crawl.make(20_000)
    await store.frontier.close()
    large = path.stat().st_size
    assert large > 20_000 * len(ITEM)

    store = await catalog.open("shop", EASY)
    crawl = Crawl(store)
    await crawl.drain()
    assert 19_000 <= await crawl.trim() <= 19_800
    await store.frontier.close()
    assert path.stat().st_size < large / 4
    assert not path.with_name("shop.db-wal").exists()


async def test_a_file_stays_small_while_items_come_and_go(tmp_path: Path) -> None:
    catalog = SqliteCatalog(tmp_path)
    store = await catalog.create("shop", EASY)
    crawl, sizes = Crawl(store), []
    for _ in range(20):
        await crawl.make(2000)
        await crawl.drain()
        await crawl.trim()
        counts = await store.frontier.counts()
        sizes.append(await _pages(store))
    await store.frontier.close()
    assert counts.items == 40_000
    assert max(sizes[5:]) <= sizes[4] * 1.1


async def _pages(store: CrawlStore) -> int:
    database = store.outbox._database  # type: ignore[attr-defined]
    return int(await database.read(lambda db: db.execute("PRAGMA page_count").fetchone()[0]))


async def test_the_memory_of_a_server_is_free_again() -> None:
    with RedisServer() as server:
        async with crawl_at(server.url) as store:
            crawl = Crawl(store)
            empty = int(server.info("memory")["used_memory"])
            await crawl.make(10_000)
            full = int(server.info("memory")["used_memory"])
            assert full - empty > 10_000 * len(ITEM)
            await crawl.drain()
            assert await crawl.trim() >= 9500
            assert int(server.info("memory")["used_memory"]) - empty < (full - empty) / 10


async def test_a_server_without_memory_is_relieved_by_its_outputs() -> None:
    """Pages wait while nothing fits; outputs go on, and what they have makes room for the pages."""
    with RedisServer(maxmemory="12mb") as server:
        async with crawl_at(server.url) as store:
            crawl = Crawl(store)
            making = asyncio.create_task(crawl.make(10_000))
            async with asyncio.timeout(60):
                while not making.done():
                    await crawl.drain()
                    await crawl.trim()
                    await asyncio.sleep(0.05)
                await making
            assert (await store.frontier.counts()).items >= 10_000
            assert (await store.outbox.trimmed()).count >= 5000

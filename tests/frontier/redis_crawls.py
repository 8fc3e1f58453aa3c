"""Small crawls on Redis, for tests of what can happen to its server."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.model import Done, Lease
from uttu.model.inspection import LaneQuery
from uttu.testing.contracts.store import EASY, numbers, page, pages

COUNT = 6


def new_name() -> str:
    return f"test-{secrets.token_hex(6)}"


@asynccontextmanager
async def depot_at(url: str) -> AsyncIterator[RedisCatalog]:
    catalog = await RedisCatalog.connect(url)
    try:
        yield catalog
    finally:
        await catalog.close()


@asynccontextmanager
async def crawl_at(url: str, rules: Rules = EASY) -> AsyncIterator[CrawlStore]:
    """A crawl of ``COUNT`` pages that is about to begin."""
    async with depot_at(url) as catalog:
        store = await catalog.create(new_name(), rules)
        await store.frontier.put(pages(COUNT))
        yield store


def done(lease: Lease) -> Done:
    """An outcome with a child and an item of its own."""
    (number,) = numbers([lease])
    return Done(lease=lease, children=(page(100 + number),), items=(b"%d" % number,), status=200, size=10)


async def crawl_on(store: CrawlStore) -> list[int]:
    """Take and finish one page after the other, to the end; their numbers in this order."""
    found = []
    while leases := await store.frontier.lease(1, "w"):
        found += numbers(leases)
        await store.frontier.settle([done(lease) if found[-1] < 100 else Done(lease=lease) for lease in leases])
    return found


async def check_whole(store: CrawlStore) -> None:
    """All pages and their children are done, each item is there once."""
    counts = await store.frontier.counts()
    assert (counts.pending, counts.leased, counts.delayed, counts.dead) == (0, 0, 0, 0)
    assert (counts.done, counts.items, counts.bytes) == (2 * COUNT, COUNT, 10 * COUNT)
    items = await store.outbox.items(0, 100)
    assert sorted(item.json for item in items) == [b"%d" % number for number in range(COUNT)]
    assert (await store.inspector.lanes(LaneQuery())).lanes == []


class LossyProxy:
    """Stands before a server and loses answers: :meth:`lose` the one to the next command with a certain word in it."""

    def __init__(self, port: int) -> None:
        self.lost = asyncio.Event()
        self._to = port
        self._word: bytes | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> LossyProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def lose(self, word: bytes) -> None:
        self._word = word
        self.lost.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        there, to = await asyncio.open_connection("127.0.0.1", self._to)
        losing = asyncio.Event()
        ways = [
            asyncio.create_task(self._ask(reader, to, losing)),
            asyncio.create_task(self._answer(there, writer, losing)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            to.close()
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        while asked := await reader.read(1 << 20):
            if self._word is not None and self._word in asked:
                self._word = None
                losing.set()
            to.write(asked)

    async def _answer(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        while answer := await there.read(1 << 20):
            if losing.is_set():
                self.lost.set()
                return
            writer.write(answer)

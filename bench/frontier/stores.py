"""Uttu's frontiers as stores of the benchmark.

Pages are leased from all lanes in turn and settled as done, without links or items. Lanes have no delay, because pages
of 2,000 hosts would soon have to wait. One page of a host is leased at a time, the default.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import uvloop
from bench.frontier.sampling import read_cpu_seconds
from bench.frontier.urls import HOSTS, url_of
from tests.harness.servers import RedisServer

from uttu.frontier.base import Frontier, Rules
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.frontier.sqlite import Database, SqliteFrontier
from uttu.model import Done, Pace, Request

_RULES = Rules(pace=Pace(0.0, 1))


class UttuStore:
    """See :class:`bench.frontier.sampling.Store`."""

    def __init__(
        self, frontier: Frontier, runner: asyncio.Runner, size: Callable[[], int], hosts: int, server: int | None = None
    ) -> None:
        self._frontier = frontier
        self._run = runner.get_loop().run_until_complete
        self._hosts = hosts
        self._server = server
        self.size = size

    def make(self, numbers: Iterable[int]) -> list[Request]:
        return [Request(url=url_of(number, self._hosts), depth=3) for number in numbers]

    def fill(self, requests: Sequence[Request]) -> None:
        self.put(requests)

    def put(self, requests: Sequence[Request]) -> int:
        return self._run(self._frontier.put(requests))

    def cpu(self) -> float:
        return read_cpu_seconds(self._server)

    def work(self, count: int) -> int:
        return self._run(self._work(count))

    async def _work(self, count: int) -> int:
        leases = await self._frontier.lease(count, "bench")
        now = time.monotonic()
        lost = await self._frontier.settle([Done(lease=each, touched=now, status=200, size=6000) for each in leases])
        return len(leases) - len(lost)


@contextlib.contextmanager
def sqlite_store(hosts: int = HOSTS) -> Iterator[UttuStore]:
    """Its size is that of the database without the write-ahead log, which has up to about 130 MB more."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        database = Database.open(Path(folder, "crawl.db"))

        def pages(name: str) -> int:
            return int(runner.run(database.read(lambda db: db.execute(f"PRAGMA {name}").fetchone()[0])))

        frontier = SqliteFrontier(database, _RULES)
        yield UttuStore(frontier, runner, lambda: pages("page_count") * pages("page_size"), hosts)
        runner.run(frontier.close())


@contextlib.contextmanager
def redis_store(server: RedisServer, hosts: int = HOSTS) -> Iterator[UttuStore]:
    """Its size is the memory that the server uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        catalog = runner.run(RedisCatalog.connect(server.url))
        frontier = runner.run(catalog.create("bench", _RULES)).frontier
        yield UttuStore(frontier, runner, lambda: int(server.info("memory")["used_memory"]), hosts, server.pid)
        runner.run(catalog.close())

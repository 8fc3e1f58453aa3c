"""The pages a second that one Redis server can feed to clients that only lease and settle them.

A page has 32 links, one in ten of them new. Of the engine only its cache of known links is used: each link's
fingerprint is looked up, and only new links are encoded and sent. The links are made before the clock starts, because
finding them on a page is not the frontier's work. New links lead to the page's host, as most links do, or with
``abroad`` to any host. The server uses one core and the clients share the machine with it, so its CPU time per page is
measured too.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import time
from collections.abc import Iterator
from typing import Any

import uvloop
from bench.common import table
from bench.frontier.sampling import fill
from bench.frontier.stores import redis_store
from bench.frontier.urls import HOSTS, article, host_of, url_of
from tests.harness.servers import RedisServer

from uttu.engine.link_filter import SeenCache
from uttu.frontier.base import Frontier, Rules
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.model import Done, Lease, Pace, Request

LINKS, NEW = 32, 0.1
BATCH, SEED = 256, 100_000
_RULES = Rules(pace=Pace(0.0, 0))
_OLD = 32_000
_GOAL = 10_000
# New links that a client has ready. If it needs more, it makes them while the clock runs.
_PREPARED_PER_SECOND = 25_000


def measure(kind: Any, clients: int, seconds: float, abroad: bool, rounds: int) -> dict[str, Any]:
    """Pages a second of several runs, and the server's CPU."""
    runs = [_run(kind, clients, seconds, abroad) for _ in range(rounds)]
    target = "any host" if abroad else "the page's host"
    title = f"{kind}: {clients} clients that lease and settle, new links to {target}"
    heads = ["pages/s", "server's share of a core", "server us a page", "clients us a page"]
    table(title, heads, [list(run.values()) for run in runs])
    print(f"the goal is {_GOAL:,} pages/s or more")
    return {"kind": kind, "clients": clients, "abroad": abroad, "runs": runs}


def _run(kind: Any, clients: int, seconds: float, abroad: bool) -> dict[str, Any]:
    with RedisServer(kind) as server:
        with redis_store(server) as store:
            fill(store, 0, SEED)
        results: Any = multiprocessing.Queue()
        ready = multiprocessing.Barrier(clients + 1)
        processes = [
            multiprocessing.Process(target=_client, args=(server.url, index, seconds, abroad, ready, results))
            for index in range(clients)
        ]
        for process in processes:
            process.start()
        ready.wait()
        before, began = _cpu(server.pid), time.monotonic()
        measured = [results.get() for _ in processes]
        elapsed, used = time.monotonic() - began, _cpu(server.pid) - before
        for process in processes:
            process.join()
    pages = sum(settled for settled, _ in measured)
    return {
        "pages_per_second": round(pages / elapsed),
        "server_cpu": round(used / elapsed, 2),
        "server_us_per_page": round(used / pages * 1e6, 1),
        "client_us_per_page": round(sum(spent for _, spent in measured) / pages * 1e6, 1),
    }


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _client(url: str, index: int, seconds: float, abroad: bool, ready: Any, results: Any) -> None:
    async def run() -> tuple[int, float]:
        catalog = await RedisCatalog.connect(url)
        frontier = (await catalog.open("bench", _RULES)).frontier
        client = _Client(frontier, index, int(seconds * _PREPARED_PER_SECOND), abroad)
        ready.wait()
        before = time.process_time()
        settled = await client.work(time.monotonic() + seconds)
        spent = time.process_time() - before
        await catalog.close()
        return settled, spent

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        results.put(runner.run(run()))


class _Client:
    def __init__(self, frontier: Frontier, index: int, prepared: int, abroad: bool) -> None:
        self._frontier = frontier
        self._name = f"client-{index}"
        self._known = SeenCache()
        self._owed = 0.0
        self._old = [Request(url=url_of(each), depth=3) for each in range(_OLD)]
        self._known.add(self._old)
        self._numbers = itertools.count((index + 1) * 1_000_000_000)
        fresh = (Request(url=url_of(next(self._numbers)), depth=3) for _ in range(prepared))
        self._fresh: dict[str, Iterator[Request]] = {}
        if abroad:
            everywhere = itertools.chain(list(fresh), self._more(""))
            self._fresh = {host_of(each): everywhere for each in range(HOSTS)}
        else:
            by_host: dict[str, list[Request]] = {host_of(each): [] for each in range(HOSTS)}
            for request in fresh:
                by_host[request.lane].append(request)
            self._fresh = {host: itertools.chain(ready, self._more(host)) for host, ready in by_host.items()}

    async def work(self, until: float) -> int:
        settled = 0
        while time.monotonic() < until:
            leases = await self._frontier.lease(BATCH, self._name)
            outcomes = [Done(lease=each, children=self._children(each), status=200, size=6000) for each in leases]
            await self._frontier.settle(outcomes)
            for outcome in outcomes:
                self._known.add(outcome.children)
            settled += len(leases)
        return settled

    def _children(self, lease: Lease) -> tuple[Request, ...]:
        self._owed += LINKS * NEW
        fresh = int(self._owed)
        self._owed -= fresh
        first = lease.id * LINKS % (_OLD - LINKS)
        links = [*itertools.islice(self._fresh[lease.lane], fresh), *self._old[first : first + LINKS - fresh]]
        return tuple(self._known.others(links))

    def _more(self, host: str) -> Iterator[Request]:
        for number in self._numbers:
            yield Request(url=article(number, host or host_of(number)), depth=3)

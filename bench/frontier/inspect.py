"""What operators wait for in a large crawl, and what the crawl itself notices of them.

Fills a store with ``--inspect-urls`` URLs over 100,000 lanes, a third of them dead letters, and times each call of the
inspector. Then it crawls on, first alone, then while an operator looks at all lists once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from bench.common import table
from bench.frontier.urls import url_of
from tests.harness.servers import RedisServer

from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Dead, Done, Pace, Request
from uttu.model.history import CrawlSample, EventKind
from uttu.model.inspection import DeadQuery, LaneFilter, LaneQuery

LANES = 100_000
RULES = Rules(pace=Pace(0.0, 0), lease_seconds=3600.0)
_BATCH = 5000
_REASONS = (
    ("http", "answered with status {status}"),
    ("timeout", "No answer within {n} s"),
    ("dns", "Cannot resolve host{n}.example"),
    ("handler", "KeyError: 'field{n}' in https://host{n}.example/"),
    ("robots", "robots.txt forbids it"),
)


def measure(stores: list[str], kind: Any, urls: int, rounds: int = 60) -> dict[str, Any]:
    """Milliseconds of each call, and pages a second of a crawl with and without an operator."""
    return {store: uvloop.run(_measure(store, kind, urls, rounds)) for store in stores if store in ("sqlite", "redis")}


async def _measure(name: str, kind: Any, urls: int, rounds: int) -> dict[str, Any]:
    async with _open(name, kind) as store:
        began = time.perf_counter()
        await fill(store, urls)
        print(f"{name}: filled with {await store.frontier.counts()} in {time.perf_counter() - began:.0f} s", flush=True)
        found: dict[str, Any] = {"urls": urls, "lanes": LANES}
        calls = await _list_calls(store)
        for call, work in calls.items():
            found[call] = await _time(work, 3 if call.startswith("trace, no lane") else rounds)
        rows = [[call, *found[call].values()] for call in calls]
        table(f"Milliseconds of a look at {urls:,} URLs in {name}", ["call", "p50", "p95", "lag"], rows)
        found["alone"] = await _crawl(store, urls)
        found["watched"] = await _crawl(store, urls + 1_000_000, watched=True)
        table(f"Pages a second in {name}", ["alone", "watched"], [[found["alone"], found["watched"]]])
        return found


@contextlib.asynccontextmanager
async def _open(name: str, kind: Any) -> AsyncIterator[CrawlStore]:
    if name == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            store = await SqliteCatalog(Path(folder)).create("bench", RULES)
            yield store
            await store.frontier.close()
        return
    with RedisServer(kind) as server:
        catalog = await RedisCatalog.connect(server.url)
        yield await catalog.create("bench", RULES)
        await catalog.close()


async def fill(store: CrawlStore, urls: int) -> None:
    """Put ``urls`` URLs on ``LANES`` lanes, make a third of them dead letters, and write samples and events."""
    for first in range(0, urls, _BATCH):
        # Some lanes have twice the URLs of others.
        hosts = [LANES if number % 3 else LANES // 2 for number in range(first, min(first + _BATCH, urls))]
        await store.frontier.put([Request(url=url_of(n, lanes)) for n, lanes in enumerate(hosts, first)])
    dead = 0
    while dead < urls // 3:
        leases = await store.frontier.lease(1000, "bench")
        outcomes: list[Dead] = []
        for number, lease in enumerate(leases, dead):
            cause, reason = _REASONS[number % 5 if number % 100 else number % 7 % 5]
            text = reason.format(n=number, status=(403, 404, 410, 429, 500, 503)[number % 6])
            outcomes.append(Dead(lease=lease, kind=cause, reason=text, status=404, items=(b'{"n":1}',)))
        await store.frontier.settle(outcomes)
        dead += len(leases)
    now = time.time()
    for number in range(7000):
        sample = CrawlSample(at=now - number * 10, done=number, latency=(1,) * 10, statuses={"200": 5})
        await store.history.record(sample)
    await store.history.add_events([(EventKind.WORKER, {"worker": f"w{n}", "what": "joined"}) for n in range(2000)])


async def _list_calls(store: CrawlStore) -> dict[str, Callable[[], Awaitable[Any]]]:
    inspector = store.inspector
    deep = await inspector.lanes(LaneQuery(limit=50_000))
    far = await inspector.dead(DeadQuery(limit=20_000))
    (waiting,) = await store.frontier.lease(1, "bench")
    await store.frontier.settle([Done(lease=waiting)])
    request = Request(url=url_of(7, LANES))
    return {
        "lanes": lambda: inspector.lanes(LaneQuery()),
        "lanes, page 1,001": lambda: inspector.lanes(LaneQuery(after=deep.next)),
        "lanes, match": lambda: inspector.lanes(LaneQuery(match="st1234")),
        "lanes, idle": lambda: inspector.lanes(LaneQuery(only=LaneFilter.IDLE)),
        "dead": lambda: inspector.dead(DeadQuery()),
        "dead, page 401": lambda: inspector.dead(DeadQuery(after=far.next)),
        "dead, kind": lambda: inspector.dead(DeadQuery(kind="handler")),
        "dead, group": lambda: inspector.dead(DeadQuery(kind="http", message="answered with status 404")),
        "dead, match": lambda: inspector.dead(DeadQuery(match="status 404")),
        "dead, no match": lambda: inspector.dead(DeadQuery(match="nothing of this kind")),
        "dead_groups": inspector.dead_groups,
        "trace, lane": lambda: inspector.trace(request.fingerprint, request.lane),
        "trace, no lane": lambda: inspector.trace(request.fingerprint),
        "latest": lambda: store.outbox.latest(50),
        "samples": lambda: store.history.samples(0.0),
        "record": lambda: store.history.record(CrawlSample(at=time.time())),
        "events": lambda: store.history.events(-1, 100),
        "add_events": lambda: store.history.add_events([(EventKind.STATE, {"state": "running"})]),
        "counts": store.frontier.counts,
    }


async def _time(work: Callable[[], Awaitable[Any]], rounds: int) -> dict[str, float]:
    """Milliseconds of the call, and the longest time that the event loop was held up by it."""
    times, lag = [], 0.0
    for _ in range(rounds):
        began = time.perf_counter()
        running = asyncio.ensure_future(work())
        while not running.done():
            turn = time.perf_counter()
            await asyncio.wait([running], timeout=0.001)
            lag = max(lag, time.perf_counter() - turn)
        times.append(time.perf_counter() - began)
        await running
    return {
        "p50": round(1000 * statistics.median(times), 2),
        "p95": round(1000 * sorted(times)[int(len(times) * 0.95)], 2),
        "lag": round(1000 * lag, 2),
    }


async def _crawl(store: CrawlStore, first: int, watched: bool = False, seconds: float = 6.0) -> float:
    """Pages a second of one client that leases and settles pages with three new links each."""
    watching = asyncio.create_task(_watch(store)) if watched else None
    began, pages, next_url = time.perf_counter(), 0, first
    while time.perf_counter() - began < seconds:
        leases = await store.frontier.lease(100, "bench")
        outcomes = []
        for lease in leases:
            children = tuple(Request(url=url_of(number, LANES)) for number in range(next_url, next_url + 3))
            next_url += 3
            outcomes.append(Done(lease=lease, children=children, items=(b'{"n":1}',), status=200, size=6000))
        await store.frontier.settle(outcomes)
        pages += len(leases)
        await asyncio.sleep(0)
    rate = pages / (time.perf_counter() - began)
    if watching is not None:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    return round(rate)


async def _watch(store: CrawlStore) -> None:
    """As a dashboard does with a viewer on each list: everything once a second."""
    while True:
        await store.inspector.lanes(LaneQuery())
        await store.inspector.dead(DeadQuery())
        await store.inspector.dead_groups()
        await store.outbox.latest(50)
        await store.history.samples(0.0)
        await asyncio.sleep(1)

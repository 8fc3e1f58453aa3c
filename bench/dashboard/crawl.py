"""A crawl that runs: one process that leases and settles as fast as it can, reports every second, and takes samples.

Each page has an item and one new link, so the number of pending pages stays the same. Nothing is fetched, so the store
is all that the crawl waits for: a real crawl is slower and notices less of a dashboard.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop
from bench.dashboard.stores import CRAWL, Project
from bench.frontier.inspect import LANES, RULES
from bench.frontier.urls import url_of

from uttu.clock import SystemClock
from uttu.engine.history import Sampler
from uttu.frontier.catalog import CrawlStore
from uttu.model import Done, Request
from uttu.model.crawl import WorkerReport
from uttu.model.history import LATENCY_BOUNDS

_BATCH: Final = 100
_WORKER: Final = "bench-1"
# Numbers of new URLs begin here.
_FIRST: Final = 1_000_000_000


class Running:
    """A crawl in another process."""

    def __init__(self, pages: Any, pids: list[int]) -> None:
        self._pages = pages
        self._pids = pids

    def measure(self, seconds: float) -> tuple[float, float]:
        """Pages a second of the next ``seconds``, and microseconds of CPU that a page takes of crawl and server.

        Other programs on the machine change the first, but hardly the second.
        """
        first, began, used = self._pages.value, time.perf_counter(), self._read_cpu()
        time.sleep(seconds)
        pages, elapsed = self._pages.value - first, time.perf_counter() - began
        return pages / elapsed, (self._read_cpu() - used) / max(pages, 1) * 1e6

    def _read_cpu(self) -> float:
        return sum(map(read_cpu_seconds, self._pids))


def read_cpu_seconds(pid: int) -> float:
    """CPU seconds that a process has used, with all its threads."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


@contextlib.contextmanager
def run_crawl(project: Project) -> Iterator[Running]:
    """Crawl during the block."""
    fork = multiprocessing.get_context("fork")
    pages, stop = fork.Value("q", 0, lock=False), fork.Event()
    process = fork.Process(target=lambda: uvloop.run(_crawl(project, pages, stop)))
    process.start()
    try:
        while not pages.value:
            if not process.is_alive():
                raise RuntimeError("The crawl has failed")
            time.sleep(0.05)
        assert process.pid is not None
        yield Running(pages, [process.pid, *([project.server.pid] if project.server is not None else [])])
    finally:
        stop.set()
        process.join(10)


async def _crawl(project: Project, pages: Any, stop: Any) -> None:
    async with project.connect() as catalog, catalog.supervise(CRAWL):
        store = await catalog.open(CRAWL, RULES)
        sampler = Sampler(store.history, store.frontier, store.ledger, SystemClock(), _WORKER)
        started, next_url, reported = time.time(), _FIRST, 0.0
        while not stop.is_set():
            now = time.monotonic()
            if now - reported >= 1.0:
                reported = now
                await _report(store, started, pages.value)
                await sampler.look()
            leases = await store.frontier.lease(_BATCH, _WORKER)
            outcomes = []
            for lease in leases:
                child = Request(url=url_of(next_url, LANES))
                next_url += 1
                outcomes.append(Done(lease=lease, children=(child,), items=(_ITEM,), status=200, size=6000))
            await store.frontier.settle(outcomes)
            pages.value += len(leases)
        await store.frontier.close()


_ITEM: Final = b'{"url":"https://host1.example/articles/1","title":"A title of some length","price":12.5}'


async def _report(store: CrawlStore, started: float, pages: int) -> None:
    latency = (pages // 10,) * (len(LATENCY_BOUNDS) + 1)
    report = WorkerReport(
        pid=os.getpid(),
        host="bench",
        started=started,
        fetched=pages,
        pages=pages,
        items=pages,
        bytes=6000 * pages,
        in_flight=_BATCH,
        held=_BATCH,
        concurrency=_BATCH,
        statuses={"200": pages},
        flying=[url_of(number, LANES) for number in range(20)],
        seconds=0.1 * pages,
        latency=latency,
    )
    await store.ledger.report(_WORKER, msgspec.json.encode(report))

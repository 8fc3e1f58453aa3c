"""Watch a crawl while it runs: snapshots of any crawl from its store, and the progress of the crawl of this process.

:class:`CrawlMonitor` takes snapshots for ``uttu top``. Rates are computed from the difference to a snapshot some
seconds ago; the first snapshot only has the average over each worker's life.

:class:`ProgressMonitor` belongs to the process that leads a crawl. It only looks at workers of this run: killed workers
of the run before left their reports, too.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from uttu.frontier.catalog import CrawlStore
from uttu.model import Counts
from uttu.model.crawl import CrawlState, WorkerReport
from uttu.model.inspection import DeadQuery, LaneQuery, count_kinds
from uttu.model.lease import DeadLetter, LaneState
from uttu.operations import Report
from uttu.operations.crawls import CrawlHandle, CrawlStatus, has_fetched_nothing, select_crawl
from uttu.spider import Spider
from uttu.spider.loader import is_bare

SNAPSHOT_SECONDS = 1.0
# Lanes in a snapshot: those with the most pending pages.
_TOP_LANES = 10
# The number of snapshots over which rates are computed.
_RATE_SNAPSHOTS = 6


class WorkerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A worker with a recent report."""

    name: str
    rate: float
    pages: int
    in_flight: int
    held: int
    age: float


class CrawlSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl at one moment."""

    standing: CrawlStatus
    rate: float
    workers: list[WorkerSnapshot]
    gone: int
    lanes: list[LaneState]


class CrawlMonitor:
    """Takes snapshots of a crawl and computes rates from them."""

    def __init__(self, crawl: CrawlHandle) -> None:
        self._crawl = crawl
        # For each snapshot: its time, the pages done, and by worker the time of its report and its pages.
        self._past: deque[tuple[float, int, dict[str, tuple[float, int]]]] = deque(maxlen=_RATE_SNAPSHOTS)

    async def look(self) -> CrawlSnapshot:
        standing = await self._crawl.status()
        lanes = (await self._crawl.store.inspector.lanes(LaneQuery(limit=_TOP_LANES))).lanes
        now = time.monotonic()
        reported = {name: (now - age, report.pages) for name, (age, report) in standing.workers.items()}
        self._past.append((now, standing.counts.done, reported))
        living = sorted(standing.living.items())
        workers = [
            WorkerSnapshot(
                name=name,
                rate=self._rate_of(name, age, report),
                pages=report.pages,
                in_flight=report.in_flight,
                held=report.held,
                age=age,
            )
            for name, (age, report) in living
        ]
        then, done, _ = self._past[0]
        rate = (standing.counts.done - done) / (now - then) if now > then else sum(each.rate for each in workers)
        gone = len(standing.workers) - len(living)
        return CrawlSnapshot(standing=standing, rate=rate, workers=workers, gone=gone, lanes=lanes)

    def _rate_of(self, name: str, age: float, report: WorkerReport) -> float:
        at, pages = self._past[-1][2][name]
        for _, _, reported in self._past:
            if name in reported and at - reported[name][0] > SNAPSHOT_SECONDS / 2:
                return max(0.0, (pages - reported[name][1]) / (at - reported[name][0]))
        worked = time.time() - age - report.started
        return pages / worked if worked > 0 else 0.0


@contextlib.asynccontextmanager
async def watch_crawl(crawl: str, frontier: str, report: Report, folder: Path = Path()) -> AsyncIterator[CrawlMonitor]:
    """Open a crawl to take snapshots of it.

    :raises StoreError: the store can't be reached, or has no such crawl.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        yield CrawlMonitor(found)


# A worker whose last report is older does not count as running.
_STALE_SECONDS = 5.0


class CrawlProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a crawl that this process leads, and the latest reports of its running workers."""

    counts: Counts
    rate: float = 0.0
    """Pages per second since the previous look."""
    reports: list[WorkerReport] = []
    stopping: bool = False

    @property
    def in_flight(self) -> int:
        return sum(report.in_flight for report in self.reports)

    @property
    def flying(self) -> list[str]:
        """URLs of some pages in flight."""
        return [url for report in self.reports for url in report.flying]

    @property
    def errors(self) -> int:
        return sum(count for report in self.reports for count in report.dead.values())

    @property
    def retries(self) -> int:
        return sum(report.retries for report in self.reports)


class CrawlResults(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to say when a crawl of this process has ended."""

    dead_kinds: dict[str, int]
    given_back: list[str]
    """URLs of pages that were in flight to the last; they are fetched again when the crawl is resumed."""
    last_dead: DeadLetter | None
    """The latest dead letter of a crawl that could not fetch any page; None for any other crawl."""


class ProgressMonitor:
    """Reads the progress of the crawl that this process leads.

    :param done: Pages that were done before this run.
    """

    def __init__(self, store: CrawlStore, done: int = 0) -> None:
        self._store = store
        self._began = time.monotonic()
        self._last = (self._began, done)

    @property
    def seconds(self) -> float:
        """Seconds since this run began."""
        return time.monotonic() - self._began

    async def look(self) -> CrawlProgress:
        counts, reports = await self._store.frontier.counts(), await self._reports(_STALE_SECONDS)
        stopping = (await self._store.ledger.facts()).state is CrawlState.STOPPING
        now = time.monotonic()
        then, done = self._last
        self._last = (now, counts.done)
        rate = (counts.done - done) / max(now - then, 1e-9)
        return CrawlProgress(counts=counts, rate=rate, reports=reports, stopping=stopping)

    async def all_reports(self) -> list[WorkerReport]:
        """The latest reports of all workers of this run, also of those that have ended."""
        return await self._reports(math.inf)

    async def _reports(self, oldest: float) -> list[WorkerReport]:
        """Reports of at most ``oldest`` seconds, and of this run."""
        oldest = min(oldest, self.seconds)
        reports = (await self._store.ledger.reports()).values()
        return [msgspec.json.decode(report, type=WorkerReport) for age, report in reports if age <= oldest]

    async def find_silent_handlers(self, spider: Spider) -> dict[str, int]:
        """Handlers that yielded nothing for any page of the crawl, and how many pages they got."""
        stored = (await self._store.ledger.reports()).values()
        reports = [msgspec.json.decode(report, type=WorkerReport) for _, report in stored]
        giving = {name for report in reports for name in report.giving}
        empty: Counter[str] = Counter()
        for report in reports:
            empty.update(report.empty)
        return {
            name: pages
            for name, pages in empty.items()
            if name not in giving and (handler := spider.handlers.get(name)) is not None and not is_bare(handler)
        }

    async def conclude(self) -> CrawlResults:
        """Read what the last lines about the crawl need. Call it when the crawl has ended."""
        dead = (await self._store.inspector.dead(DeadQuery(limit=1))).letters
        return CrawlResults(
            dead_kinds=count_kinds(await self._store.inspector.dead_groups()),
            given_back=[url for report in await self.all_reports() for url in report.given_back],
            last_dead=dead[0] if dead and await has_fetched_nothing(self._store) else None,
        )


_SLOWEST = 3


def find_slowest(reports: list[WorkerReport]) -> list[tuple[str, float]]:
    """The slowest hosts with their highest time over all workers, in seconds."""
    hosts: dict[str, float] = {}
    for host, seconds in (pair for report in reports for pair in report.slowest):
        hosts[host] = max(seconds, hosts.get(host, 0.0))
    return sorted(hosts.items(), key=lambda pair: -pair[1])[:_SLOWEST]

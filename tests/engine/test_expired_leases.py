"""A worker begins nothing under a lease that has run out, however it came to be late."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path

import pytest

from uttu.clock import SystemClock
from uttu.engine.link_filter import LinkFilter
from uttu.engine.page_processor import PageProcessor
from uttu.engine.robots import RobotsCache
from uttu.engine.stats import WorkerStats
from uttu.engine.worker import Worker
from uttu.frontier.base import Rules
from uttu.frontier.sqlite import Database, SqliteFrontier
from uttu.model import Done, Lease, Outcome, Pace, Request, Response, Retry
from uttu.policy import robots
from uttu.policy.scope import Scope
from uttu.policy.throttle import ConcurrencyController
from uttu.policy.traps import Traps
from uttu.settings import Settings
from uttu.spider import Spider
from uttu.testing.clock import FakeClock

LEASE_SECONDS = 60.0
GATE = LinkFilter(Scope(), Traps(datetime.date(2026, 1, 1)))


class LateFrontier(SqliteFrontier):
    """Its first answer is read when the leases in it have run out: the worker was stopped while it waited for it."""

    def __init__(self, database: Database, clock: FakeClock) -> None:
        super().__init__(database, Rules(pace=Pace(0, 0)))
        self._worker_clock = clock
        self.late: set[int] = set()

    async def lease(self, limit: int, worker: str) -> list[Lease]:
        leases = await super().lease(limit, worker)
        if not self.late:
            self._worker_clock.advance(LEASE_SECONDS)
            self.late = {lease.id for lease in leases}
        return leases


async def test_an_answer_that_is_read_late(tmp_path: Path) -> None:
    clock = FakeClock()
    frontier = LateFrontier(Database.open(tmp_path / "crawl.db"), clock)
    await frontier.put([Request(url=f"http://example.org/{number}") for number in range(8)])
    begun: set[int] = set()

    async def visit(lease: Lease) -> Outcome:
        begun.add(lease.id)
        return Done(lease=lease)

    async def is_over() -> bool:
        return (await frontier.counts()).finished

    worker = Worker(
        "w",
        frontier=frontier,
        visit=visit,
        link_filter=GATE,
        is_over=is_over,
        stats=WorkerStats(),
        controller=ConcurrencyController(16),
        lease_seconds=LEASE_SECONDS,
        clock=clock,
    )
    async with asyncio.timeout(10):
        await worker.run()
    assert len(frontier.late) == len(begun) == 8
    assert not begun & frontier.late
    await frontier.close()


class SlowMemo:
    """Knows all robots.txt files, or none, and takes longer than a lease to say so."""

    def __init__(self, clock: FakeClock, known: bool) -> None:
        self._clock = clock
        self._known = known

    async def recall(self, key: str) -> bytes | None:
        self._clock.advance(LEASE_SECONDS)
        return robots.dump(robots.ALLOW_ALL) if self._known else None

    async def remember(self, key: str, value: bytes, seconds: float) -> None:
        raise AssertionError("nothing was learnt")


class NoFetcher:
    """Must not be asked."""

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        raise AssertionError(f"{request.url} must not be asked for")

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("known", [True, False])
async def test_a_store_that_was_away_when_it_was_asked_for_the_rules(known: bool) -> None:
    clock, fetcher, settings = FakeClock(), NoFetcher(), Settings()
    until = clock.monotonic() + LEASE_SECONDS

    async def hold(lane: str, seconds: float, reason: str) -> None:
        raise AssertionError("no host was asked")

    keeper = RobotsCache(
        fetcher=fetcher,
        link_filter=GATE,
        names=None,
        memo=SlowMemo(clock, known),
        user_agent="Uttu",
        pace=Pace(0.5, 1),
        hold=hold,
        clock=clock,
    )
    processor = PageProcessor(
        spider=Spider("test"),
        fetcher=fetcher,
        link_filter=GATE,
        robots=keeper,
        names=None,
        hold=hold,
        is_held=lambda lease: clock.monotonic() < until,
        settings=settings,
        stats=WorkerStats(),
        clock=SystemClock(),
    )
    request = Request(url="http://example.org/")
    lease = Lease(
        id=1, fingerprint=request.fingerprint, lane=request.lane, request=request, attempt=1, wait=0.0, deadline=0.0
    )
    outcome = await processor.visit(lease)
    assert isinstance(outcome, Retry)
    assert (outcome.counted, outcome.touched) == (False, None)

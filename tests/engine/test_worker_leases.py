"""A worker keeps the leases of what it is at work on, however long that takes; and knows when it has lost one."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from pathlib import Path

from tests.engine.test_exporter import until
from uttu.engine.link_filter import LinkFilter
from uttu.engine.stats import WorkerStats
from uttu.engine.worker import Worker
from uttu.frontier.base import Rules
from uttu.frontier.sqlite import Database, SqliteFrontier
from uttu.model import Counts, Done, Lease, Outcome, Pace, Request
from uttu.policy.scope import Scope
from uttu.policy.throttle import ConcurrencyController
from uttu.policy.traps import Traps
from uttu.testing.clock import FakeClock

LEASE_SECONDS = 0.25
RULES = Rules(pace=Pace(0, 0), lease_seconds=LEASE_SECONDS)


class AgeingFrontier(SqliteFrontier):
    """So much time passes each time that leases were extended."""

    def __init__(self, path: Path, clock: FakeClock, after: float = 0.0) -> None:
        super().__init__(Database.open(path), RULES, clock)
        self._worker_clock = clock
        self._after = after
        self.extended: list[int] = []
        self.lost: set[int] = set()
        self.often = asyncio.Event()

    async def extend(self, leases: Sequence[Lease]) -> set[int]:
        lost = await super().extend(leases)
        self._worker_clock.advance(self._after)
        self.lost |= lost
        self.extended += [lease.id for lease in leases]
        if len(self.extended) >= 4:
            self.often.set()
        return lost


class Slow:
    """A page that takes until the test says so, and a worker on it."""

    def __init__(self, frontier: SqliteFrontier, clock: FakeClock) -> None:
        self.frontier = frontier
        self.begun: list[Lease] = []
        self.flying = asyncio.Event()
        self.answer = asyncio.Event()
        self.stats = WorkerStats()
        self.worker = Worker(
            "w",
            frontier=frontier,
            visit=self.visit,
            link_filter=LinkFilter(Scope(), Traps(datetime.date(2026, 1, 1))),
            is_over=self.is_over,
            stats=self.stats,
            controller=ConcurrencyController(8),
            lease_seconds=LEASE_SECONDS,
            clock=clock,
        )

    async def visit(self, lease: Lease) -> Outcome:
        self.begun.append(lease)
        self.flying.set()
        await self.answer.wait()
        return Done(lease=lease)

    async def is_over(self) -> bool:
        return (await self.frontier.counts()).finished


async def test_a_visit_longer_than_its_lease(tmp_path: Path) -> None:
    clock = FakeClock()
    frontier = AgeingFrontier(tmp_path / "crawl.db", clock, after=LEASE_SECONDS / 2)
    await frontier.put([Request(url="http://example.org/")])
    slow = Slow(frontier, clock)
    running = asyncio.create_task(slow.worker.run())
    async with asyncio.timeout(10):
        await slow.flying.wait()
        first = clock.monotonic()
        await frontier.often.wait()
        assert clock.monotonic() - first > LEASE_SECONDS
        assert slow.worker.is_held(slow.begun[0])
        slow.answer.set()
        await running
    assert len(slow.begun) == 1, "nobody else was given the page meanwhile"
    assert set(frontier.extended) == {slow.begun[0].id}
    assert await frontier.counts() == Counts(done=1)
    assert slow.stats.refused == 0
    await frontier.close()


async def test_a_lease_that_could_not_be_extended_in_time(tmp_path: Path) -> None:
    """Another has the page by then; its outcome is the one that counts. The worker's own clock knows nothing of it."""
    clock = FakeClock()
    frontier = AgeingFrontier(tmp_path / "crawl.db", clock)
    await frontier.put([Request(url="http://example.org/")])
    slow = Slow(frontier, FakeClock())
    running = asyncio.create_task(slow.worker.run())
    other = SqliteFrontier(Database.open(tmp_path / "crawl.db"), RULES, clock)
    async with asyncio.timeout(10):
        await slow.flying.wait()
        slow.worker.pause()  # or it would take the page itself
        again: list[Lease] = []
        while not again:  # the worker may just be asking for more, or for more time
            clock.advance(2 * LEASE_SECONDS)
            again = await other.lease(1, "other")
        await until(lambda: slow.begun[0].id in frontier.lost)
        assert not slow.worker.is_held(slow.begun[0])
        assert await other.settle([Done(lease=again[0])]) == set()
        slow.answer.set()
        await running
    assert slow.stats.refused == 1
    assert await frontier.counts() == Counts(done=1)
    await other.close()
    await frontier.close()

"""A worker tells its gauge how things go, and has as many fetches under way as that allows."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tests.engine.test_exporter import until
from uttu.engine.link_filter import LinkFilter
from uttu.engine.stats import WorkerStats
from uttu.engine.worker import Worker
from uttu.frontier.base import Rules
from uttu.frontier.sqlite import Database, SqliteFrontier
from uttu.model import Done, Lease, Outcome, Pace, Request
from uttu.policy.scope import Scope
from uttu.policy.throttle import FLOOR, START, ConcurrencyController
from uttu.policy.traps import Traps
from uttu.testing.clock import FakeClock


class TickingGauge(ConcurrencyController):
    """Everyone can wait until it is told something."""

    __slots__ = ("tick",)

    def __init__(self, ceiling: int) -> None:
        super().__init__(ceiling)
        self.tick = asyncio.Event()

    def observe(self, done: int, failed: int, busy: bool, lag: float) -> None:
        super().observe(done, failed, busy, lag)
        self.tick.set()
        self.tick = asyncio.Event()


class Slots:
    """A worker whose pages take as long as the gauge's patience, on a clock that only a test moves: no lag."""

    def __init__(
        self, frontier: SqliteFrontier, clock: FakeClock, ceiling: int, ended: Callable[[WorkerStats], None]
    ) -> None:
        self._ended = ended
        self.clock = clock
        self.stats = WorkerStats()
        self.controller = TickingGauge(ceiling)
        self.worker = Worker(
            "w",
            frontier=frontier,
            visit=self._visit,
            link_filter=LinkFilter(Scope(), Traps(datetime.date(2026, 1, 1))),
            is_over=self._is_over,
            stats=self.stats,
            controller=self.controller,
            lease_seconds=60,
            clock=clock,
        )

    async def _visit(self, lease: Lease) -> Outcome:
        await self.controller.tick.wait()
        self._ended(self.stats)
        return Done(lease=lease)

    async def _is_over(self) -> bool:
        return False


@contextlib.asynccontextmanager
async def at_work(folder: Path, ceiling: int, ended: Callable[[WorkerStats], None]) -> AsyncIterator[Slots]:
    clock = FakeClock()
    frontier = SqliteFrontier(Database.open(folder / "crawl.db"), Rules(pace=Pace(0, 0)), clock)
    await frontier.put([Request(url=f"http://example.org/{number}") for number in range(5000)])
    slots = Slots(frontier, clock, ceiling, ended)
    running = asyncio.create_task(slots.worker.run())
    try:
        await until(lambda: slots.worker.in_flight == START)
        yield slots
    finally:
        slots.worker.stop()
        async with asyncio.timeout(10):
            await running
        await frontier.close()


def fetched(stats: WorkerStats) -> None:
    stats.record_fetch("example.org", 200, 1000, 0.1)


def failed(stats: WorkerStats) -> None:
    stats.failed += 1


async def test_while_all_goes_well_and_more_waits_there_are_more_at_once(tmp_path: Path) -> None:
    async with at_work(tmp_path, 4 * START, fetched) as slots:
        await until(lambda: slots.worker.in_flight == slots.controller.limit == 4 * START)


async def test_when_fetches_break_off_there_are_fewer_at_once(tmp_path: Path) -> None:
    async with at_work(tmp_path, 4 * START, failed) as slots:
        await until(lambda: slots.worker.in_flight == slots.controller.limit == FLOOR)


async def test_when_the_loop_is_late_there_are_fewer_at_once(tmp_path: Path) -> None:
    async with at_work(tmp_path, START, fetched) as slots:
        slots.clock.advance(1.0)
        await until(lambda: slots.worker.in_flight == slots.controller.limit < START)

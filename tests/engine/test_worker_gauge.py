"""A worker tells its gauge how things go, and has as many fetches under way as that allows."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tests.engine.test_drain import until
from weft.engine.gate import Gate
from weft.engine.stats import Stats
from weft.engine.worker import Worker
from weft.frontier.base import Rules
from weft.frontier.sqlite import Database, SqliteFrontier
from weft.model import Done, Lease, Outcome, Pace, Request
from weft.policy.concurrency import FLOOR, START, Gauge
from weft.policy.scope import Scope
from weft.policy.traps import Traps
from weft.testing.clock import FakeClock


class TickingGauge(Gauge):
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
        self, frontier: SqliteFrontier, clock: FakeClock, ceiling: int, ended: Callable[[Stats], None]
    ) -> None:
        self._ended = ended
        self.clock = clock
        self.stats = Stats()
        self.gauge = TickingGauge(ceiling)
        self.worker = Worker(
            "w", frontier=frontier, visit=self._visit, gate=Gate(Scope(), Traps(datetime.date(2026, 1, 1))),
            is_over=self._is_over, stats=self.stats, gauge=self.gauge, lease_seconds=60, clock=clock,
        )  # fmt: skip

    async def _visit(self, lease: Lease) -> Outcome:
        await self.gauge.tick.wait()
        self._ended(self.stats)
        return Done(lease=lease)

    async def _is_over(self) -> bool:
        return False


@contextlib.asynccontextmanager
async def at_work(folder: Path, ceiling: int, ended: Callable[[Stats], None]) -> AsyncIterator[Slots]:
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


def fetched(stats: Stats) -> None:
    stats.fetched_one("example.org", 200, 1000, 0.1)


def failed(stats: Stats) -> None:
    stats.failed += 1


async def test_while_all_goes_well_and_more_waits_there_are_more_at_once(tmp_path: Path) -> None:
    async with at_work(tmp_path, 4 * START, fetched) as slots:
        await until(lambda: slots.worker.in_flight == slots.gauge.limit == 4 * START)


async def test_when_fetches_break_off_there_are_fewer_at_once(tmp_path: Path) -> None:
    async with at_work(tmp_path, 4 * START, failed) as slots:
        await until(lambda: slots.worker.in_flight == slots.gauge.limit == FLOOR)


async def test_when_the_loop_is_late_there_are_fewer_at_once(tmp_path: Path) -> None:
    async with at_work(tmp_path, START, fetched) as slots:
        slots.clock.advance(1.0)
        await until(lambda: slots.worker.in_flight == slots.gauge.limit < START)

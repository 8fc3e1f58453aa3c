"""The worker's own corners; what it does as a whole is tested in tests/crawl."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path

from weft.clock import SystemClock
from weft.engine.gate import Gate
from weft.engine.stats import Stats
from weft.engine.worker import Worker
from weft.frontier.base import Rules
from weft.frontier.sqlite import Database, SqliteFrontier
from weft.model import Lease, Outcome, Pace, Request
from weft.policy.concurrency import Gauge
from weft.policy.scope import Scope
from weft.policy.traps import Traps


async def test_stopped_before_a_visit_has_begun(tmp_path: Path) -> None:
    """Drain and stop in one pass of the loop, right after visits were launched: nothing stays held."""
    frontier = SqliteFrontier(Database.open(tmp_path / "crawl.db"), Rules(pace=Pace(0, 0)))
    await frontier.put([Request(url=f"http://example.org/{number}") for number in range(8)])
    begun: list[Lease] = []

    async def visit(lease: Lease) -> Outcome:
        begun.append(lease)
        await asyncio.sleep(60)
        raise AssertionError("it was to be cancelled")

    async def is_over() -> bool:
        return False

    worker = Worker(
        "w",
        frontier=frontier,
        visit=visit,
        gate=Gate(Scope(), Traps(datetime.date(2026, 1, 1))),
        is_over=is_over,
        stats=Stats(),
        gauge=Gauge(16),
        lease_seconds=60,
        clock=SystemClock(),
    )
    running = asyncio.create_task(worker.run())
    while not worker.in_flight:  # noqa: ASYNC110 (the very pass of the loop in which they are launched)
        await asyncio.sleep(0)
    worker.stop()
    async with asyncio.timeout(10):
        await running
    counts = await frontier.counts()
    assert (counts.pending, counts.leased) == (8, 0)
    await frontier.close()

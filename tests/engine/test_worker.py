"""The worker's own corners; what it does as a whole is tested in tests/crawl."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.engine.workers import worker_on
from uttu.frontier.base import Rules
from uttu.frontier.sqlite import Database, SqliteFrontier
from uttu.model import Lease, Outcome, Pace, Request


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

    worker = worker_on(frontier, visit, is_over, 16)
    running = asyncio.create_task(worker.run())
    while not worker.in_flight:  # noqa: ASYNC110 (the very pass of the loop in which they are launched)
        await asyncio.sleep(0)
    worker.stop()
    async with asyncio.timeout(10):
        await running
    counts = await frontier.counts()
    assert (counts.pending, counts.leased) == (8, 0)
    await frontier.close()

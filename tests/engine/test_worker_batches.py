"""How many outcomes the worker settles at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.engine.workers import worker_on
from uttu.clock import SystemClock
from uttu.frontier.base import Rules
from uttu.frontier.sqlite import Database, SqliteFrontier
from uttu.model import Done, Lease, Outcome, Pace, Request

AT_ONCE = 16
# As soon as there are 64; those that end in the same round of the loop come with them.
USUAL = 64 + AT_ONCE - 1
PAGES = 2_000
SLOW = "http://slow.example/"


class CountingFrontier(SqliteFrontier):
    """Knows how many outcomes came at once, and how many times they had when a lane first had to wait."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Database.open(folder / "crawl.db"), Rules(pace=Pace(0, 0)))
        self.batches: list[int] = []
        self.before_a_wait: int | None = None

    async def lease(self, limit: int, worker: str) -> list[Lease]:
        leases = await super().lease(limit, worker)
        if self.before_a_wait is None and any(lease.wait > 0 for lease in leases):
            self.before_a_wait = len(self.batches)
        return leases

    async def settle(self, outcomes: Sequence[Outcome]) -> set[int]:
        self.batches.append(len(outcomes))
        return await super().settle(outcomes)


async def crawled(frontier: CountingFrontier, items: tuple[bytes, ...] = ()) -> None:
    """Visit these pages of a host without a delay, and what there is beside them."""

    async def visit(lease: Lease) -> Outcome:
        await asyncio.sleep(0)
        return Done(lease=lease, items=items, touched=SystemClock().monotonic())

    async def is_over() -> bool:
        return (await frontier.counts()).finished

    await frontier.put([Request(url=f"http://example.org/{number}") for number in range(PAGES)])
    worker = worker_on(frontier, visit, is_over, AT_ONCE)
    async with asyncio.timeout(60):
        await worker.run()
    assert (await frontier.counts()).done == sum(frontier.batches)
    await frontier.close()


async def test_while_there_is_other_work_outcomes_gather(tmp_path: Path) -> None:
    frontier = CountingFrontier(tmp_path)
    await crawled(frontier)
    assert USUAL < max(frontier.batches) < 256 + AT_ONCE


async def test_large_items_do_not_gather(tmp_path: Path) -> None:
    frontier = CountingFrontier(tmp_path)
    await crawled(frontier, items=(b'"' + b"x" * 8_000 + b'"',))
    assert max(frontier.batches) <= USUAL


async def test_nor_does_anything_while_a_lane_waits_for_its_turn(tmp_path: Path) -> None:
    frontier = CountingFrontier(tmp_path)
    await frontier.put([Request(url=SLOW)])
    (lease,) = await frontier.lease(1, "another")
    await frontier.settle([Done(lease=lease, pace=Pace(0.05, 1), touched=SystemClock().monotonic())])
    await frontier.put([Request(url=f"{SLOW}{number}") for number in range(20)])
    await crawled(frontier)
    assert frontier.before_a_wait is not None
    # What had gathered until then is settled with the next that ends.
    assert max(frontier.batches[frontier.before_a_wait + 1 :]) <= USUAL

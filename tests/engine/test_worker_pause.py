"""A worker that pauses keeps nothing it has not begun, finishes the rest, and goes on where it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engine.test_exporter import until
from tests.engine.workers import worker_on
from uttu.frontier.base import Rules
from uttu.frontier.sqlite import Database, SqliteFrontier
from uttu.model import Counts, Done, Lease, Outcome, Pace, Request


class Site:
    """Pages that are answered when the test says so."""

    def __init__(self) -> None:
        self.begun: list[Lease] = []
        self.answer = asyncio.Event()
        self.over = False

    async def visit(self, lease: Lease) -> Outcome:
        self.begun.append(lease)
        await self.answer.wait()
        return Done(lease=lease)

    async def is_over(self) -> bool:
        return self.over


@pytest.fixture
async def frontier(tmp_path: Path) -> AsyncIterator[SqliteFrontier]:
    frontier = SqliteFrontier(Database.open(tmp_path / "crawl.db"), Rules(pace=Pace(0, 0)))
    yield frontier
    await frontier.close()


async def settled(frontier: SqliteFrontier, counts: Counts) -> None:
    async with asyncio.timeout(10):
        while await frontier.counts() != counts:  # noqa: ASYNC110 (stores have no events)
            await asyncio.sleep(0.001)


async def test_paused_it_gives_back_what_has_not_begun_and_finishes_the_rest(frontier: SqliteFrontier) -> None:
    site = Site()
    worker = worker_on(frontier, site.visit, site.is_over)
    await frontier.put([Request(url=f"http://example.org/{number}") for number in range(40)])
    running = asyncio.create_task(worker.run())
    await until(lambda: bool(site.begun) and worker.held > worker.in_flight)
    worker.pause()
    flying = worker.in_flight
    await settled(frontier, Counts(pending=40 - flying, leased=flying))
    site.answer.set()
    await settled(frontier, Counts(pending=40 - flying, done=flying))
    worker.pause()
    assert len(site.begun) == flying
    assert not running.done()
    worker.resume()
    await settled(frontier, Counts(done=40))
    assert {lease.attempt for lease in site.begun} == {1}
    worker.drain()
    async with asyncio.timeout(10):
        await running


async def test_leases_that_come_while_it_pauses_are_given_back(frontier: SqliteFrontier) -> None:
    site = Site()
    worker = worker_on(frontier, site.visit, site.is_over)
    await frontier.put([Request(url=f"http://example.org/{number}") for number in range(5)])
    lease, leased = frontier.lease, asyncio.Event()

    async def pausing_lease(limit: int, name: str) -> list[Lease]:
        leases = await lease(limit, name)
        worker.pause()
        leased.set()
        return leases

    frontier.lease = pausing_lease  # type: ignore[method-assign, assignment]
    running = asyncio.create_task(worker.run())
    await leased.wait()
    await settled(frontier, Counts(pending=5))
    assert worker.held == 0
    assert site.begun == []
    worker.drain()
    async with asyncio.timeout(10):
        await running


async def test_paused_it_ends_when_the_crawl_is_over(frontier: SqliteFrontier) -> None:
    site = Site()
    worker = worker_on(frontier, site.visit, site.is_over)
    worker.pause()
    running = asyncio.create_task(worker.run())
    site.over = True
    async with asyncio.timeout(10):
        await running

"""A supervisor that hands its crawl on, and the next one that goes on with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engine.test_exporter import MemorySink
from tests.engine.test_heartbeat import RULES, attentive, counted, member_of, requests
from tests.engine.test_supervisor import Start, ending_of, singly, stated, supervisor_of, watchful
from uttu.clock import SystemClock
from uttu.engine.exporter import Exporter
from uttu.engine.supervisor import HANDED_ON, Ending, Supervisor
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Counts
from uttu.model.crawl import CrawlLimits, CrawlState, Reason
from uttu.model.facts import CrawlFacts

__all__ = ["attentive", "watchful"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CrawlStore]:
    store = await SqliteCatalog(tmp_path).create("crawl", RULES)
    yield store
    await store.frontier.close()


async def test_the_crawl_stays_running(store: CrawlStore) -> None:
    """Its outputs are closed as for a crawl that goes on, its workers are done."""
    sink = MemorySink()
    supervisor = supervisor_of(store, Start(requests(3)), sink=sink, stay=True)
    await supervisor.open()
    running = asyncio.create_task(supervisor.run())
    await counted(store, Counts(done=3))
    supervisor.hand_on()
    assert await ending_of(running) == Ending(CrawlState.RUNNING, HANDED_ON)
    assert (await store.ledger.facts()).state == CrawlState.RUNNING
    assert sink.events == ["open", "closed"]


async def test_the_next_one_ends_it(store: CrawlStore) -> None:
    first = supervisor_of(store, Start(requests(3)), stay=True)
    running = asyncio.create_task(first.run())
    await counted(store, Counts(done=3))
    first.hand_on()
    await ending_of(running)
    await store.frontier.put(requests(2, first=3))
    assert await supervisor_of(store, Start([])).run(going_on=True) == Ending(CrawlState.FINISHED)
    assert await store.frontier.counts() == Counts(done=5)


async def test_nothing_is_left_to_hand_on(store: CrawlStore) -> None:
    supervisor = supervisor_of(store, Start(requests(3)), group=member_of(store, stay=True))
    running = asyncio.create_task(supervisor.run())
    await counted(store, Counts(done=3))
    supervisor.hand_on()
    assert await ending_of(running) == Ending(CrawlState.FINISHED)


@pytest.mark.parametrize("asked", [CrawlState.STOPPING, CrawlState.STOPPED])
async def test_it_was_stopped_in_between(store: CrawlStore, asked: CrawlState) -> None:
    await store.ledger.note(state=asked, reason=Reason("stopped by the operator"), seeded=True)
    await store.frontier.put(requests(2))
    ending = await supervisor_of(store, Start([])).run(going_on=True)
    assert ending == Ending(CrawlState.STOPPED, Reason("stopped by the operator"))
    assert (await store.frontier.counts()).done == 0


async def test_it_was_paused_in_between(store: CrawlStore) -> None:
    await store.ledger.note(state=CrawlState.PAUSED, seeded=True)
    await store.frontier.put(requests(2))
    supervisor = supervisor_of(store, Start([]))
    running = asyncio.create_task(supervisor.run(going_on=True))
    supervisor.hand_on()
    assert await ending_of(running) == Ending(CrawlState.RUNNING, HANDED_ON)
    assert (await store.ledger.facts()).state == CrawlState.PAUSED
    assert await store.frontier.counts() == Counts(pending=2)


async def test_crawl_is_paused_while_it_continues(store: CrawlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.ledger.note(state=CrawlState.RUNNING, seeded=True)
    await store.frontier.put(requests(2))
    facts = store.ledger.facts

    async def then_paused() -> CrawlFacts:
        found = await facts()
        monkeypatch.setattr(store.ledger, "facts", facts)
        await store.ledger.note(state=CrawlState.PAUSED)
        return found

    monkeypatch.setattr(store.ledger, "facts", then_paused)
    supervisor = supervisor_of(store, Start([]))
    running = asyncio.create_task(supervisor.run(going_on=True))
    supervisor.hand_on()
    await ending_of(running)
    assert (await store.ledger.facts()).state == CrawlState.PAUSED


async def test_operator_stops_a_crawl_between_slices(store: CrawlStore) -> None:
    supervisor = supervisor_of(store, Start(requests(1), then=requests(1, first=1)))
    running = asyncio.create_task(supervisor.run())
    await stated(store, CrawlState.RUNNING)
    await store.ledger.note(state=CrawlState.STOPPING, reason=Reason("stopped by the operator"))
    supervisor.hand_on()
    assert await ending_of(running) == Ending(CrawlState.STOPPED, Reason("stopped by the operator"))


async def test_the_time_that_others_had_counts(store: CrawlStore) -> None:
    await store.ledger.note(seeded=True)
    await store.frontier.put(requests(1))
    supervisor = Supervisor(
        start=singly(Start([]).stream()),
        group=member_of(store, stay=True),
        frontier=store.frontier,
        ledger=store.ledger,
        drain=Exporter(store.outbox, [], store.ledger, "supervisor"),
        limits=CrawlLimits(seconds=60),
        clock=SystemClock(),
        stay=True,
        spent=60,
    )
    assert await ending_of(asyncio.create_task(supervisor.run())) == Ending(
        CrawlState.LIMITED, Reason("limit of 60 seconds")
    )

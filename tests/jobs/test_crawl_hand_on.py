"""A supervisor that hands its crawl on, and the next one that goes on with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engine.test_drain import MemorySink
from tests.engine.test_member import RULES, attentive, counted, member_of, requests
from tests.engine.test_supervisor import Start, ending_of, singly, stated, supervisor_of, watchful
from weft.clock import SystemClock
from weft.engine.drain import Drain
from weft.engine.limits import Limits
from weft.engine.states import State
from weft.engine.supervisor import HANDED_ON, Ending, Supervisor
from weft.frontier.depot import Store
from weft.frontier.sqlite.depot import SqliteDepot
from weft.model import Counts

__all__ = ["attentive", "watchful"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteDepot(tmp_path).create("crawl", RULES)
    yield store
    await store.frontier.close()


async def test_the_crawl_stays_running(store: Store) -> None:
    """Its outputs are closed as for a crawl that goes on, its workers are done."""
    sink = MemorySink()
    supervisor = supervisor_of(store, Start(requests(3)), sink=sink, stay=True)
    await supervisor.open()
    running = asyncio.create_task(supervisor.run())
    await counted(store, Counts(done=3))
    supervisor.hand_on()
    assert await ending_of(running) == Ending(State.RUNNING, HANDED_ON)
    assert (await store.ledger.facts())["state"] == State.RUNNING
    assert sink.events == ["open", "closed"]


async def test_the_next_one_ends_it(store: Store) -> None:
    first = supervisor_of(store, Start(requests(3)), stay=True)
    running = asyncio.create_task(first.run())
    await counted(store, Counts(done=3))
    first.hand_on()
    await ending_of(running)
    await store.frontier.put(requests(2, first=3))
    assert await supervisor_of(store, Start([])).run(going_on=True) == Ending(State.FINISHED)
    assert await store.frontier.counts() == Counts(done=5)


async def test_nothing_is_left_to_hand_on(store: Store) -> None:
    supervisor = supervisor_of(store, Start(requests(3)), crew=member_of(store, stay=True))
    running = asyncio.create_task(supervisor.run())
    await counted(store, Counts(done=3))
    supervisor.hand_on()
    assert await ending_of(running) == Ending(State.FINISHED)


@pytest.mark.parametrize("asked", [State.STOPPING, State.STOPPED])
async def test_it_was_stopped_in_between(store: Store, asked: State) -> None:
    await store.ledger.note(state=asked, reason="stopped by the operator", seeded="yes")
    await store.frontier.put(requests(2))
    ending = await supervisor_of(store, Start([])).run(going_on=True)
    assert ending == Ending(State.STOPPED, "stopped by the operator")
    assert (await store.frontier.counts()).done == 0


async def test_it_was_paused_in_between(store: Store) -> None:
    await store.ledger.note(state=State.PAUSED, seeded="yes")
    await store.frontier.put(requests(2))
    supervisor = supervisor_of(store, Start([]))
    running = asyncio.create_task(supervisor.run(going_on=True))
    supervisor.hand_on()
    assert await ending_of(running) == Ending(State.RUNNING, HANDED_ON)
    assert (await store.ledger.facts())["state"] == State.PAUSED
    assert await store.frontier.counts() == Counts(pending=2)


async def test_it_is_paused_at_the_moment_it_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.ledger.note(state=State.RUNNING, seeded="yes")
    await store.frontier.put(requests(2))
    facts = store.ledger.facts

    async def then_paused() -> dict[str, str]:
        found = await facts()
        monkeypatch.setattr(store.ledger, "facts", facts)
        await store.ledger.note(state=State.PAUSED)
        return found

    monkeypatch.setattr(store.ledger, "facts", then_paused)
    supervisor = supervisor_of(store, Start([]))
    running = asyncio.create_task(supervisor.run(going_on=True))
    supervisor.hand_on()
    await ending_of(running)
    assert (await store.ledger.facts())["state"] == State.PAUSED


async def test_an_operator_stops_it_while_it_is_handed_on(store: Store) -> None:
    supervisor = supervisor_of(store, Start(requests(1), then=requests(1, first=1)))
    running = asyncio.create_task(supervisor.run())
    await stated(store, State.RUNNING)
    await store.ledger.note(state=State.STOPPING, reason="stopped by the operator")
    supervisor.hand_on()
    assert await ending_of(running) == Ending(State.STOPPED, "stopped by the operator")


async def test_the_time_that_others_had_counts(store: Store) -> None:
    await store.ledger.note(seeded="yes")
    await store.frontier.put(requests(1))
    supervisor = Supervisor(
        start=singly(Start([]).stream()),
        crew=member_of(store, stay=True),
        frontier=store.frontier,
        ledger=store.ledger,
        drain=Drain(store.outbox, [], store.ledger, "supervisor"),
        limits=Limits(seconds=60),
        clock=SystemClock(),
        stay=True,
        spent=60,
    )
    assert await ending_of(asyncio.create_task(supervisor.run())) == Ending(State.LIMITED, "limit of 60 seconds")

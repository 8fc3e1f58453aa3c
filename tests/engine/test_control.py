"""Word from the operator makes the processes of a crawl look at once."""

from __future__ import annotations

import asyncio

import pytest

from tests.engine.test_member import counted, member_of, over, requests
from tests.engine.test_member import store as store
from weft.bus.memory import MemoryBroker, MemoryBus
from weft.engine import control
from weft.engine import member as member_module
from weft.engine.states import State
from weft.frontier.depot import Store
from weft.model import Counts
from weft.testing.bus_broker import Inbox, eventually, interest


async def test_a_member_that_is_called_looks_into_the_ledger_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_module, "_ATTEND_SECONDS", 3600.0)
    broker = MemoryBroker()
    bus, operator = MemoryBus(broker), MemoryBus(broker)
    member = member_of(store, stay=True)
    await control.hear(bus, "shop.example", member.heed)
    running = asyncio.create_task(member.run())
    await store.frontier.put(requests(2))
    await counted(store, Counts(done=2))

    await store.ledger.note(state=State.PAUSED)
    await control.announce(operator, "other", "pause")
    await control.announce(operator, "shop.example", "pause")
    await eventually(lambda: member.worker._paused)
    await store.frontier.put(requests(2, first=2))

    await store.ledger.note(state=State.RUNNING)
    await control.announce(operator, "shop.example", "resume")
    await counted(store, Counts(done=4))

    await store.ledger.note(state=State.STOPPING)
    await control.announce(operator, "shop.example", "stop")
    await over(running)
    await bus.close()
    await operator.close()


async def test_a_flood_is_heard_ten_times_a_second_at_most() -> None:
    bus, heard = MemoryBus(), Inbox()
    times = 0

    def heed() -> None:
        nonlocal times
        times += 1

    await control.hear(bus, "shop", heed)
    await bus.subscribe(interest("control.*"), heard)
    began = asyncio.get_running_loop().time()
    for number in range(200):
        await control.announce(bus, "shop", "pause")
        await heard.count(number + 1)
    assert 1 <= times <= 2 + 10 * (asyncio.get_running_loop().time() - began)
    await bus.close()


async def test_what_is_announced_can_be_read() -> None:
    bus, inbox = MemoryBus(), Inbox()
    await bus.subscribe(interest("control.*"), inbox)
    await control.announce(bus, "shop", "pause")
    await inbox.count(1)
    assert (inbox.deliveries[0].topic, inbox.texts) == ("control.shop", ['{"crawl":"shop","action":"pause"}'])
    await bus.close()

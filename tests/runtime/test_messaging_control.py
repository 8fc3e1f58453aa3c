"""Word from the operator makes the processes of a crawl look at once."""

from __future__ import annotations

import asyncio

import pytest

from tests.engine.test_heartbeat import counted, member_of, over, requests
from tests.engine.test_heartbeat import store as store
from uttu.bus.memory import MemoryBroker, MemoryBus
from uttu.engine import heartbeat as member_module
from uttu.frontier.catalog import CrawlStore
from uttu.model import Counts
from uttu.model.crawl import CrawlState
from uttu.runtime.messaging import announce_control, listen_control
from uttu.testing.contracts.broker import Inbox, eventually, subscribe_to


async def test_a_member_that_is_called_looks_into_the_ledger_at_once(
    store: CrawlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_module, "_CHECK_SECONDS", 3600.0)
    broker = MemoryBroker()
    bus, operator = MemoryBus(broker), MemoryBus(broker)
    member = member_of(store, stay=True)
    await listen_control(bus, "shop.example", member.check_now)
    running = asyncio.create_task(member.run())
    await store.frontier.put(requests(2))
    await counted(store, Counts(done=2))

    await store.ledger.note(state=CrawlState.PAUSED)
    await announce_control(operator, "other", "pause")
    await announce_control(operator, "shop.example", "pause")
    await eventually(lambda: member.worker._paused)
    await store.frontier.put(requests(2, first=2))

    await store.ledger.note(state=CrawlState.RUNNING)
    await announce_control(operator, "shop.example", "resume")
    await counted(store, Counts(done=4))

    await store.ledger.note(state=CrawlState.STOPPING)
    await announce_control(operator, "shop.example", "stop")
    await over(running)
    await bus.close()
    await operator.close()


async def test_a_flood_is_heard_ten_times_a_second_at_most() -> None:
    bus, heard = MemoryBus(), Inbox()
    times = 0

    def check_now() -> None:
        nonlocal times
        times += 1

    await listen_control(bus, "shop", check_now)
    await bus.subscribe(subscribe_to("control.*"), heard)
    began = asyncio.get_running_loop().time()
    for number in range(200):
        await announce_control(bus, "shop", "pause")
        await heard.count(number + 1)
    assert 1 <= times <= 2 + 10 * (asyncio.get_running_loop().time() - began)
    await bus.close()


async def test_what_is_announced_can_be_read() -> None:
    bus, inbox = MemoryBus(), Inbox()
    await bus.subscribe(subscribe_to("control.*"), inbox)
    await announce_control(bus, "shop", "pause")
    await inbox.count(1)
    assert (inbox.deliveries[0].topic, inbox.texts) == ("control.shop", ['{"crawl":"shop","action":"pause"}'])
    await bus.close()

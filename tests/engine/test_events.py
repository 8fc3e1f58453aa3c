"""Events: told in order, in batches, and never at the crawl's cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from uttu.bus.base import Message
from uttu.bus.memory import MemoryBus
from uttu.clock import SystemClock
from uttu.engine import events as events_module
from uttu.engine.events import Events
from uttu.errors import BusUnavailable
from uttu.model.crawl import NO_REASON, CrawlState, Reason
from uttu.testing.contracts.broker import Inbox, subscribe_to


def told(inbox: Inbox) -> list[tuple[str, dict[str, Any]]]:
    return [(delivery.topic, json.loads(delivery.payload)) for delivery in inbox.deliveries]


async def test_events_come_by_their_topics_in_order() -> None:
    bus, inbox = MemoryBus(), Inbox()
    await bus.subscribe(subscribe_to("crawl.shop-example-310b53c3.#"), inbox)
    async with Events("shop.example", SystemClock(), bus) as events:
        events.state(CrawlState.RUNNING, NO_REASON)
        events.worker("w1", "joined", pid=7)
        events.page("http://shop.example/", 200, 512, 0.25, 1)
        events.items(3)
        events.lane("shop.example", 30.0, "answered with status 429")
        await inbox.count(5)
    assert [topic.removeprefix("crawl.shop-example-310b53c3.") for topic, _ in told(inbox)] == [
        "state",
        "worker",
        "page",
        "item",
        "lane",
    ]
    fields = [{name: value for name, value in what.items() if name != "at"} for _, what in told(inbox)]
    assert fields == [
        {"crawl": "shop.example", "state": "running", "reason": ""},
        {"crawl": "shop.example", "worker": "w1", "what": "joined", "pid": 7},
        {
            "crawl": "shop.example",
            "url": "http://shop.example/",
            "status": 200,
            "size": 512,
            "elapsed": 0.25,
            "depth": 1,
        },
        {"crawl": "shop.example", "count": 3},
        {"crawl": "shop.example", "lane": "shop.example", "seconds": 30.0, "reason": "answered with status 429"},
    ]
    assert events.dropped == 0
    await bus.close()


async def test_what_is_left_at_the_end_is_sent() -> None:
    bus, inbox = MemoryBus(), Inbox()
    await bus.subscribe(subscribe_to("crawl.c.item"), inbox)
    async with Events("c", SystemClock(), bus) as events:
        for number in range(1200):
            events.items(number)
    await inbox.count(1200)
    assert [what["count"] for _, what in told(inbox)] == list(range(1200))
    await bus.close()


async def test_what_came_before_the_bus_is_told_when_it_is_there() -> None:
    bus, inbox = MemoryBus(), Inbox()
    await bus.subscribe(subscribe_to("crawl.c.item"), inbox)
    async with Events("c", SystemClock()) as events:
        events.items(1)
        events.attach(bus)
        await inbox.count(1)
    assert events.dropped == 0
    async with Events("c", SystemClock()) as events:
        events.items(2)
    assert events.dropped == 1
    await bus.close()


class Away(MemoryBus):
    """A broker that fails, or does not answer."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self._hangs = hangs

    async def publish(self, messages: Sequence[Message]) -> None:
        self.asked.set()
        if self._hangs:
            await asyncio.get_running_loop().create_future()
        raise BusUnavailable("it is away")


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_broker_that_is_away_costs_events_and_nothing_else(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "_LAST_SECONDS", 0.05)
    monkeypatch.setattr(events_module, "_MOST_WAITING", 10)
    bus = Away(hangs=hangs)
    async with Events("c", SystemClock(), bus) as events:
        events.items(1)
        await bus.asked.wait()
        for _ in range(25):
            events.items(1)
    # Those that never found room, those that were refused, and what was left.
    assert events.dropped >= 25


async def test_passwords_in_urls_are_not_published() -> None:
    bus, inbox = MemoryBus(), Inbox()
    await bus.subscribe(subscribe_to("crawl.shop.#"), inbox)
    async with Events("shop", SystemClock(), bus) as events:
        events.page("http://me:secret@shop.example/", 200, 512, 0.25, 1)
        events.lane("shop.example", 30.0, "http://me:secret@shop.example/: refused")
        events.state(CrawlState.STOPPED, Reason("http://me:secret@shop.example/: refused"))
        await inbox.count(3)
    assert [what.get("url", what.get("reason")) for _, what in told(inbox)] == [
        "http://me:***@shop.example/",
        "http://me:***@shop.example/: refused",
        "http://me:***@shop.example/: refused",
    ]
    await bus.close()

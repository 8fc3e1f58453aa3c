"""Start URLs from a topic: what a message may be, what becomes of the others, and when it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from uttu.bus.base import REASON_HEADER, Delivery, Handler, Message, SubscribeOptions, Subscription
from uttu.bus.memory import MemoryBus
from uttu.clients import ConnectionListener, ConnectionState
from uttu.clock import SystemClock
from uttu.engine import seeds as intake_module
from uttu.engine.seeds import TopicSeeds, parse_requests
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Counts, Done, Pace, Request
from uttu.testing.contracts.broker import eventually

URL = "https://shop.example/"


def start(path: str, **fields: Any) -> Request:
    return Request.to(URL + path, start=True, **fields)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CrawlStore]:
    store = await SqliteCatalog(tmp_path).create("crawl", Rules(pace=Pace(0, 0)))
    yield store
    await store.frontier.close()


def intake_of(bus: MemoryBus, store: CrawlStore, idle: float = 0.0) -> TopicSeeds:
    return TopicSeeds(bus, "feed.crawl", "crawl", store.frontier, {"product"}, SystemClock(), idle)


def said(payload: str) -> Message:
    return Message(topic="feed.crawl", payload=payload.encode())


async def subscribed(bus: MemoryBus) -> None:
    async def there() -> bool:
        return [group.name for group in await bus.groups()] == ["crawl"]

    await eventually(there)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (f" {URL}a\n", [start("a")]),
        (json.dumps(f"{URL}a"), [start("a")]),
        (
            json.dumps([f"{URL}a", {"url": f"{URL}b", "handler": "product"}]),
            [start("a"), start("b", handler="product")],
        ),
        (json.dumps({"url": f"{URL}a", "meta": {"n": 1}}), [start("a", meta={"n": 1})]),
        ("[]", []),
    ],
)
def test_what_a_message_stands_for(payload: str, expected: list[Request]) -> None:
    assert parse_requests(payload.encode(), {"product"}) == expected


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "an empty line"),
        (b"rubbish", "not an absolute http"),
        (b"[1]", "1 is not a request"),
        (b"[[]]", "is not a request"),
        (b'["https://shop.example/", "x"]', "not an absolute http"),
        (b'"https://shop.example/', "neither a URL nor JSON"),
        (b'{"url": "https://shop.example/", "handler": "nope"}', "does not have: 'nope'"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_what_is_no_request_says_why(payload: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_requests(payload, {"product"})


async def test_messages_become_pages_and_the_others_dead_letters(store: CrawlStore) -> None:
    bus = MemoryBus()
    taking = asyncio.create_task(intake_of(bus, store).run())
    await subscribed(bus)
    await bus.publish([said(f"{URL}1"), said("rubbish"), said(json.dumps([f"{URL}2", f"{URL}1"])), said(f"{URL}1")])

    async def settled() -> bool:
        (group,) = await bus.groups("crawl")
        return group.lag == 0 and group.dead == 1

    await eventually(settled)
    assert await store.frontier.counts() == Counts(pending=2)
    (dead,) = await bus.peek("crawl", dead=True)
    assert dead.payload == b"rubbish"
    assert "not an absolute http or https URL" in dead.headers[REASON_HEADER]
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await bus.close()


async def test_a_message_that_names_a_private_proxy_is_a_dead_letter(store: CrawlStore) -> None:
    bus = MemoryBus()
    taking = asyncio.create_task(intake_of(bus, store).run())
    await subscribed(bus)
    await bus.publish([said(json.dumps({"url": f"{URL}1", "proxy": "http://127.0.0.1:9"})), said(f"{URL}2")])

    async def settled() -> bool:
        (group,) = await bus.groups("crawl")
        return group.lag == 0 and group.dead == 1

    await eventually(settled)
    assert await store.frontier.counts() == Counts(pending=1)
    (dead,) = await bus.peek("crawl", dead=True)
    assert "is in a private network" in dead.headers[REASON_HEADER]
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await bus.close()


async def test_while_paused_messages_wait_with_the_broker(store: CrawlStore) -> None:
    bus = MemoryBus()
    topic_seeds = intake_of(bus, store)
    topic_seeds.pause()
    taking = asyncio.create_task(topic_seeds.run())
    await subscribed(bus)
    await bus.publish([said(f"{URL}1")])
    await asyncio.sleep(0.1)
    assert (await bus.groups("crawl"))[0].lag == 1
    topic_seeds.resume()

    async def taken() -> bool:
        return (await bus.groups("crawl"))[0].lag == 0

    await eventually(taken)
    assert await store.frontier.counts() == Counts(pending=1)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await bus.close()


async def test_it_ends_when_nothing_was_to_do_and_nothing_came_for_a_while(store: CrawlStore) -> None:
    bus = MemoryBus()
    taking = asyncio.create_task(intake_of(bus, store, idle=0.5).run())
    await subscribed(bus)
    await bus.publish([said(f"{URL}1")])
    await asyncio.sleep(1.0)
    assert not taking.done(), "there is a page to do"
    (lease,) = await store.frontier.lease(5, "w")
    await store.frontier.settle([Done(lease=lease)])
    async with asyncio.timeout(5):
        await taking
    assert (await bus.groups("crawl"))[0].subscribers == 0
    await bus.close()


class FarBus(MemoryBus):
    """One whose broker comes late, and goes away."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: ConnectionListener = lambda state, what: None
        self.acknowledging = asyncio.Event()
        self._away = asyncio.Event()

    def listen(self, listener: ConnectionListener) -> None:
        self.tell = listener

    async def subscribe(self, options: SubscribeOptions, handler: Handler) -> Subscription:
        await asyncio.sleep(0.6)

        async def handle(deliveries: list[Delivery]) -> None:
            await handler(deliveries)
            self.acknowledging.set()
            await self._away.wait()

        return await super().subscribe(options, handle)

    async def close(self) -> None:
        self._away.set()
        await super().close()


async def still_waits(taking: asyncio.Task[None], seconds: float) -> bool:
    return not (await asyncio.wait([taking], timeout=seconds))[0]


async def test_it_is_not_idle_before_it_listens_nor_while_the_broker_is_away_or_seeds_come(store: CrawlStore) -> None:
    bus = FarBus()
    topic_seeds = intake_of(bus, store, idle=0.5)
    topic_seeds.seeding = True
    taking = asyncio.create_task(topic_seeds.run())
    await subscribed(bus)
    assert await still_waits(taking, 0.9), "start URLs come from elsewhere"
    bus.tell(ConnectionState.LOST, "gone")
    topic_seeds.seeding = False
    assert await still_waits(taking, 0.9), "the broker is away"
    bus.tell(ConnectionState.UP, "back")
    assert await still_waits(taking, 0.4), "it may send something now"
    async with asyncio.timeout(5):
        await taking
    await bus.close()


async def test_idle_counts_from_when_it_listens(store: CrawlStore) -> None:
    bus = FarBus()
    taking = asyncio.create_task(intake_of(bus, store, idle=0.5).run())
    await subscribed(bus)
    assert await still_waits(taking, 0.4)
    async with asyncio.timeout(5):
        await taking
    await bus.close()


async def test_a_broker_that_is_away_does_not_hold_up_the_end(
    store: CrawlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_module, "_LAST_SECONDS", 0.1)
    bus = FarBus()
    taking = asyncio.create_task(intake_of(bus, store).run())
    await subscribed(bus)
    await bus.publish([said(f"{URL}1")])
    async with asyncio.timeout(5):
        await bus.acknowledging.wait()
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
    assert (await bus.groups("crawl"))[0].lag == 1, "it comes again"
    await bus.close()

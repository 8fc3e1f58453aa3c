"""The buses of a crawl's process: there, there later, or not at all."""

from __future__ import annotations

import asyncio
import json

import pytest

from uttu.bus.base import Bus, Handler, SubscribeOptions, Subscription
from uttu.bus.memory import MemoryBroker, MemoryBus
from uttu.errors import BusRefused, BusUnavailable, ConfigError
from uttu.model.crawl import NO_REASON, CrawlState
from uttu.runtime import messaging, registry
from uttu.runtime.messaging import announce_control, connect_messaging
from uttu.settings import Settings
from uttu.testing.contracts.broker import Inbox, subscribe_to


class Places:
    """One broker, which can't be reached for the first calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refusals: int = 0) -> None:
        self.broker = MemoryBroker()
        self.asked: list[str] = []
        self._refusals = refusals
        monkeypatch.setattr(registry, "open_bus", self.open)
        monkeypatch.setattr(messaging, "_FIRST_RETRY_SECONDS", 0.01)

    async def open(self, url: str) -> Bus:
        self.asked.append(url)
        if len(self.asked) <= self._refusals:
            raise BusUnavailable(f"{url} is away")
        return MemoryBus(self.broker)


@pytest.mark.parametrize("refusals", [0, 2])
async def test_a_bus_now_or_later(monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
    places, heard, inbox = Places(monkeypatch, refusals), asyncio.Event(), Inbox()
    said: list[str] = []
    observer = MemoryBus(places.broker)
    await observer.subscribe(subscribe_to("crawl.shop.#"), inbox)
    async with connect_messaging(Settings(bus="x://"), "shop", said.append) as made:
        made.hear(heard.set)
        assert made.events is not None
        made.events.state(CrawlState.RUNNING, NO_REASON)
        await inbox.count(1)
        async with asyncio.timeout(5):
            while not heard.is_set():
                await announce_control(observer, "shop", "pause")
                await asyncio.sleep(0.01)
        made.events.state(CrawlState.FINISHED, NO_REASON)
    await inbox.count(2)
    assert [json.loads(text)["state"] for text in inbox.texts] == ["running", "finished"]
    assert len(said) == min(refusals, 1), "it is said once"
    assert all(text.startswith("x:// is away. The crawl runs without") for text in said)
    await observer.close()


async def test_one_that_never_comes_costs_events(monkeypatch: pytest.MonkeyPatch) -> None:
    Places(monkeypatch, 10_000)
    said: list[str] = []
    async with connect_messaging(Settings(bus="x://"), "shop", said.append) as made:
        assert made.events is not None
        made.events.items(1)
    assert said[1] == "1 events were dropped: the broker was away, or too slow"


async def test_without_settings_there_is_nothing() -> None:
    async with connect_messaging(Settings(), "shop", print, fed=True) as made:
        assert made.events is None
        assert made.topic_seeds(None, ()) is None  # type: ignore[arg-type]
        made.hear(lambda: None)


async def test_an_address_that_is_none_is_told_at_once() -> None:
    for settings in (
        Settings(bus="pigeon://loft"),
        Settings(feed="pigeon://loft"),
        Settings(feed="memory:?topic=a..b"),
    ):
        with pytest.raises(ConfigError):
            async with connect_messaging(settings, "shop", print, fed=True):
                raise AssertionError


async def test_a_feed_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(monkeypatch, 1)
    with pytest.raises(BusUnavailable):
        async with connect_messaging(Settings(feed="x://?topic=urls"), "shop", print, fed=True):
            raise AssertionError
    async with connect_messaging(Settings(feed="x://?topic=urls"), "shop", print, fed=True) as made:
        assert made.topic_seeds(None, ()) is not None  # type: ignore[arg-type]
    async with connect_messaging(Settings(feed="x://?topic=urls"), "shop", print) as made:
        assert made.topic_seeds(None, ()) is None  # type: ignore[arg-type]
    assert places.asked == ["x://", "x://"]


async def test_the_start_does_not_wait_long_for_events(monkeypatch: pytest.MonkeyPatch) -> None:
    arrival = asyncio.Event()

    async def open_slowly(url: str) -> Bus:
        await arrival.wait()
        return MemoryBus()

    monkeypatch.setattr(registry, "open_bus", open_slowly)
    async with asyncio.timeout(5), connect_messaging(Settings(bus="x://"), "shop", print):
        assert not arrival.is_set()


async def test_events_are_told_where_the_operator_can_not_be_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict(MemoryBus):
        async def subscribe(self, options: SubscribeOptions, handler: Handler) -> Subscription:
            raise BusRefused("control.shop may not be read")

    places, inbox = Places(monkeypatch), Inbox()
    said: list[str] = []
    observer = MemoryBus(places.broker)
    await observer.subscribe(subscribe_to("crawl.shop.#"), inbox)

    async def open_strict(url: str) -> Bus:
        return Strict(places.broker)

    monkeypatch.setattr(registry, "open_bus", open_strict)
    async with connect_messaging(Settings(bus="x://"), "shop", said.append) as made:
        assert made.events is not None
        made.events.state(CrawlState.RUNNING, NO_REASON)
        await inbox.count(1)
    assert [text.partition(". ")[0] for text in said] == ["control.shop may not be read"]
    await observer.close()


async def test_an_error_of_a_later_try_is_not_the_end_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    places, heard = Places(monkeypatch, 1), asyncio.Event()
    errors = [BusUnavailable("away"), ConfigError("no such file"), OSError("too many files")]

    async def open_badly(url: str) -> Bus:
        if errors:
            raise errors.pop(0)
        heard.set()
        return MemoryBus(places.broker)

    monkeypatch.setattr(registry, "open_bus", open_badly)
    async with asyncio.timeout(5), connect_messaging(Settings(bus="x://"), "shop", lambda text: None):
        await heard.wait()


async def test_a_broker_that_is_away_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(MemoryBus):
        async def close(self) -> None:
            await asyncio.get_running_loop().create_future()

    opened: list[Away] = []

    async def open_away(url: str) -> Bus:
        opened.append(Away())
        return opened[-1]

    monkeypatch.setattr(registry, "open_bus", open_away)
    monkeypatch.setattr(registry, "_CLOSE_SECONDS", 0.05)
    async with asyncio.timeout(5), connect_messaging(Settings(bus="x://", feed="x://"), "shop", print, fed=True):
        pass
    assert len(opened) == 2
    for bus in opened:
        await MemoryBus.close(bus)

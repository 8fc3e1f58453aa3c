"""Items as messages: at least once, with the item's own id, whatever is killed or away."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from uttu.bus.base import Bus, Delivery, Message
from uttu.bus.memory import MemoryBroker, MemoryBus
from uttu.errors import BusRefused, BusUnavailable, ConfigError, SinkError
from uttu.frontier.base import StoredItem
from uttu.runtime.registry import create_sink, mask_target, open_bus
from uttu.sinks import bus as bus_module
from uttu.sinks.base import Restart
from uttu.sinks.bus import BusSink
from uttu.testing.contracts.broker import subscribe_to


def items(*numbers: int) -> list[StoredItem]:
    return [StoredItem(number, f"{number:016x}-0", b'{"n":%d}' % number) for number in numbers]


class Shaky(MemoryBus):
    """A broker that is away for some calls, or says no."""

    def __init__(self, broker: MemoryBroker, errors: Sequence[Exception] = ()) -> None:
        super().__init__(broker)
        self.errors = list(errors)
        self.sent: list[Message] = []

    async def publish(self, messages: Sequence[Message]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.sent += messages
        await super().publish(messages)


@contextmanager
def sink_on(bus: Bus | None = None) -> Iterator[BusSink]:
    async def connect() -> Bus:
        return bus or MemoryBus()

    sink = BusSink("items.shop on a bus", "items.shop", "shop", connect)
    yield sink
    sink.close(finished=False)


def test_an_item_is_a_message_with_its_own_id() -> None:
    bus = Shaky(MemoryBroker())
    with sink_on(bus) as sink:
        sink.open(b"")
        note = sink.write(items(1, 2))
        sink.open(note)
        assert sink.write(items(3)) == note
        sink.close(finished=True)
    assert [message.id for message in bus.sent] == [f"{number:016x}-0" for number in (1, 2, 3)]
    first = bus.sent[0]
    assert (first.topic, first.payload, first.key, first.headers) == (
        "items.shop",
        b'{"n":1}',
        f"{1:016x}",
        {"crawl": "shop"},
    )


def test_foreign_state_restarts_the_sink() -> None:
    with sink_on() as sink, pytest.raises(Restart):
        sink.open(b"123")


def test_a_broker_that_is_away_is_waited_for() -> None:
    bus = Shaky(MemoryBroker(), [BusUnavailable("away"), BusUnavailable("away")])
    with sink_on(bus) as sink:
        sink.open(b"")
        sink.write(items(1))
    assert len(bus.sent) == 1


def test_unavailable_or_refusing_server_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "_RETRY_SECONDS", 0.2)
    for error in ([BusUnavailable("it is away")] * 10, [BusRefused("it is too large")]):
        bus = Shaky(MemoryBroker(), error)
        with sink_on(bus) as sink:
            sink.open(b"")
            with pytest.raises(SinkError, match=r"Cannot write to items\.shop on a bus: it is .*no item is lost"):
                sink.write(items(1))


def test_nothing_is_left_running() -> None:
    with sink_on() as sink:
        sink.open(b"")
        assert "uttu-bus-sink" in [thread.name for thread in threading.enumerate()]
        sink.close(finished=True)
        assert "uttu-bus-sink" not in [thread.name for thread in threading.enumerate()]
        sink.open(b"sent")
        sink.write(items(1))


def test_targets() -> None:
    sink = create_sink("redis://u:secret@h:1/0?topic=a.b", "shop")
    assert isinstance(sink, BusSink)
    assert sink.name == "a.b on redis://u:***@h:1/0"
    assert create_sink("kafka://h:1,h2:2", "shop.example").name == "items.shop-example-310b53c3 on kafka://h:1,h2:2"
    with pytest.raises(ConfigError, match="is not a topic"):
        create_sink("amqp://h?topic=a b", "shop")
    with pytest.raises(ConfigError, match="Uttu can't write to ftp: addresses"):
        create_sink("ftp://h/x", "shop")
    assert mask_target("redis://u:secret@h") == "redis://u:***@h"
    assert mask_target("a:b:c@d.csv") == "a:b:c@d.csv"


def test_no_item_is_missing_after_a_crash(redis_url: str) -> None:
    """A note that was not kept is as a kill between sending and keeping it."""
    topic = f"items.t{secrets.token_hex(6)}"
    joint = "&" if "?" in redis_url else "?"

    async def read(count: int) -> list[Delivery]:
        bus, found, enough = await open_bus(redis_url), [], asyncio.Event()

        async def take(deliveries: list[Delivery]) -> None:
            found.extend(deliveries)
            if len(found) >= count:
                enough.set()

        subscription = await bus.subscribe(subscribe_to(topic, group=topic), take)
        if count:
            async with asyncio.timeout(20):
                await enough.wait()
        await subscription.close()
        await bus.close()
        return found

    asyncio.run(read(0))
    note = b""
    for batch in ((1, 2), (3, 4)):
        sink = create_sink(f"{redis_url}{joint}topic={topic}", "shop")
        sink.open(note)
        note = sink.write(items(*batch))
        sink.write(items(batch[-1] + 1))
        sink.close(finished=False)
    ids = [delivery.id for delivery in asyncio.run(read(6))]
    assert ids == [item.id for item in items(1, 2, 3, 3, 4, 5)]

    async def forget() -> None:
        bus = await open_bus(redis_url)
        await bus.purge(topic, forget=True)
        await bus.close()

    asyncio.run(forget())

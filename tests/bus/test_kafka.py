"""The bus on Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import Producer
from tests.bus.kafka_buses import Buses, buses_at

from uttu.bus.base import HeaderFilter, SubscribeOptions
from uttu.bus.kafka.codec import dead_topic
from uttu.bus.kafka.consumer import KafkaConsumer
from uttu.errors import BusRefused
from uttu.testing.contracts.broker import Inbox, eventually, message, subscribe_to
from uttu.testing.contracts.bus import BusContract


@pytest.fixture
async def buses(kafka_url: str) -> AsyncIterator[Buses]:
    async with buses_at(kafka_url) as buses:
        yield buses


class TestKafka(BusContract):
    @pytest.fixture
    async def broker(self, buses: Buses) -> Buses:
        return buses


async def test_pattern_reads_a_later_topic_from_its_beginning(buses: Buses) -> None:
    bus, inbox, alone, group = await buses.connect(), Inbox(), Inbox(), f"{buses.prefix}.g"
    await bus.publish([message(f"{buses.prefix}.a", "before")])
    await bus.subscribe(subscribe_to(f"{buses.prefix}.*", group=group), inbox)
    await bus.subscribe(subscribe_to(f"{buses.prefix}.*"), alone)
    for name in "abc":
        await bus.publish([message(f"{buses.prefix}.{name}", name)])
    for box in (inbox, alone):
        await box.count(3)
        assert sorted(box.texts) == ["a", "b", "c"]


async def test_topic_created_without_subscribers_waits_for_its_group(buses: Buses) -> None:
    bus, inbox, group = await buses.connect(), Inbox(), f"{buses.prefix}.g"
    await (await bus.subscribe(subscribe_to(f"{buses.prefix}.new.*", group=group), Inbox())).close()
    await bus.publish([message(f"{buses.prefix}.new.a", "kept")])
    await bus.subscribe(subscribe_to(f"{buses.prefix}.new.*", group=group), inbox)
    await inbox.count(1)
    assert inbox.texts == ["kept"]


async def test_topic_new_to_a_group_is_read_from_its_end(buses: Buses) -> None:
    bus, inbox, group = await buses.connect(), Inbox(), f"{buses.prefix}.g"
    a, b = f"{buses.prefix}.a", f"{buses.prefix}.b"
    await (await bus.subscribe(subscribe_to(a, group=group), Inbox())).close()
    await bus.publish([message(a, "kept"), message(b, "old")])
    await bus.subscribe(subscribe_to(a, b, group=group), inbox)
    await bus.publish([message(b, "new")])
    await inbox.count(2)
    assert sorted(inbox.texts) == ["kept", "new"]


async def test_filtered_messages_are_done(buses: Buses) -> None:
    bus, inbox, topic, group = await buses.connect(), Inbox(), f"{buses.prefix}.t", f"{buses.prefix}.g"
    await bus.subscribe(subscribe_to(topic, group=group, where=HeaderFilter({"a": "b"})), inbox)
    await bus.publish([message(topic, "no", key=str(number)) for number in range(20)])

    async def is_done() -> bool:
        return (await bus.groups(group))[0].lag == 0

    await eventually(is_done)
    assert inbox.begun == []


async def test_broadcast_subscriber_creates_no_group(buses: Buses) -> None:
    bus, inbox, topic = await buses.connect(), Inbox(), f"{buses.prefix}.t"
    before = {group.name for group in await bus.groups()}
    subscription = await bus.subscribe(subscribe_to(topic), inbox)
    await bus.publish([message(topic, "one")])
    await inbox.count(1)
    assert {group.name for group in await bus.groups()} <= before
    await subscription.close()
    assert {group.name for group in await bus.groups()} <= before


async def test_failed_message_delays_only_its_partition(buses: Buses) -> None:
    bus, topic = await buses.connect(), f"{buses.prefix}.t"
    inbox = Inbox(lambda delivery: delivery.payload == b"k-5" and delivery.attempt < 4)
    await bus.subscribe(subscribe_to(topic, group=f"{buses.prefix}.g", batch=3, prefetch=10), inbox)
    texts = [f"{key}-{number}" for number in range(20) for key in ("k", "a", "b", "c", "d", "e")]
    await bus.publish([message(topic, text, key=text[0]) for text in texts])
    await inbox.count(len(texts))
    for key in "kabcde":
        assert [text for text in inbox.texts if text[0] == key] == [f"{key}-{number}" for number in range(20)]
    others = {text for text in inbox.texts[: inbox.texts.index("k-5")] if text[0] != "k"}
    assert len(others) > 20


async def test_no_pattern_matches_the_dead_letters(buses: Buses) -> None:
    bus, inbox, everything = await buses.connect(), Inbox(lambda delivery: True), Inbox()
    topic, group = f"{buses.prefix}.t", f"{buses.prefix}.g"
    await bus.subscribe(subscribe_to(topic, group=group, attempts=1), inbox)
    await bus.subscribe(subscribe_to("#", group=f"{buses.prefix}.all"), everything)
    await bus.publish([message(topic, "bad")])

    async def buried() -> bool:
        return (await bus.groups(group))[0].dead == 1

    await eventually(buried)
    await bus.publish([message(f"{buses.prefix}.end", "end")])
    await everything.until(lambda box: "end" in box.texts)
    assert {delivery.topic for delivery in everything.deliveries if delivery.topic.startswith(buses.prefix)} == {
        topic,
        f"{buses.prefix}.end",
    }
    assert dead_topic(group) == f"{group}..dead"


async def test_messages_of_other_producers_are_accepted(buses: Buses) -> None:
    bus, inbox, topic = await buses.connect(), Inbox(), f"{buses.prefix}.t"
    await bus.subscribe(subscribe_to(topic, group=f"{buses.prefix}.g"), inbox)
    producer = Producer({"bootstrap.servers": buses.url.partition("//")[2].partition("?")[0]})
    producer.produce(topic, None, b"\xff", headers=[("none", None), ("odd", b"\xff")], partition=0)
    await asyncio.to_thread(producer.flush, 10)
    await inbox.count(1)
    (got,) = inbox.deliveries
    assert (got.payload, got.key, got.headers, got.id) == (b"", "�", {"none": "", "odd": "�"}, f"{topic}/0/0")


async def test_group_with_subscribers_is_not_purged(buses: Buses) -> None:
    bus, inbox, topic, group = await buses.connect(), Inbox(), f"{buses.prefix}.t", f"{buses.prefix}.g"
    inbox.open.clear()
    await bus.subscribe(subscribe_to(topic, group=group), inbox)
    await bus.publish([message(topic)])
    for forget in (False, True):
        with pytest.raises(BusRefused, match="has subscribers"):
            await bus.purge(group, forget=forget)
    inbox.open.set()


async def test_slow_subscriber_holds_no_more_than_its_prefetch(buses: Buses) -> None:
    bus, slow, topic, group = await buses.connect(), Inbox(), f"{buses.prefix}.t", f"{buses.prefix}.g"
    slow.open.clear()
    subscription = await bus.subscribe(subscribe_to(topic, group=group, batch=10, prefetch=20), slow)
    await bus.publish([message(topic, str(number), key=str(number)) for number in range(500)])
    await slow.until(lambda box: bool(box.begun))
    (state,) = await bus.groups(group)
    assert (state.lag, state.subscribers, state.topics) == (500, 1, (topic,))
    consumer: KafkaConsumer = subscription._consumer  # type: ignore[attr-defined]
    await eventually(lambda: consumer.held >= 16)  # it reads again when a quarter is free
    await asyncio.sleep(0.5)  # it could read more now, if it did
    assert consumer.held <= 20
    slow.open.set()
    await slow.count(500)
    assert sorted(map(int, slow.texts)) == list(range(500))


async def test_group_may_start_at_the_latest_message(buses: Buses) -> None:
    bus, inbox, topic = await buses.connect(), Inbox(), f"{buses.prefix}.t"
    await bus.publish([message(topic, "old", key=str(number)) for number in range(20)])
    await bus.subscribe(SubscribeOptions(topics=(topic,), group=f"{buses.prefix}.g", start="latest"), inbox)
    await bus.publish([message(topic, "new")])
    await inbox.count(1)
    assert inbox.texts == ["new"]

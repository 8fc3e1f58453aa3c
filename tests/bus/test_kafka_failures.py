"""Subscribers and brokers of Kafka that fail."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.bus.kafka_buses import Buses, buses_at
from tests.bus.subscribers import child, handled, is_ready
from tests.harness.servers import KafkaCluster, KafkaServer

from uttu.bus.base import Delivery
from uttu.clients import ConnectionState
from uttu.errors import BusUnavailable
from uttu.testing.contracts.broker import Inbox, eventually, message, subscribe_to


@pytest.fixture
async def buses(kafka_url: str) -> AsyncIterator[Buses]:
    async with buses_at(kafka_url, partitions=6) as buses:
        yield buses


async def test_messages_of_a_killed_subscriber_go_to_another(buses: Buses, tmp_path: Path) -> None:
    bus, count, prefetch = await buses.connect(), 10_000, 200
    topic, group = f"{buses.prefix}.pages", f"{buses.prefix}.shared"
    files, others = [tmp_path / "one", tmp_path / "two"], Inbox()
    all_of_them = [f"k{number % 50}-{number}" for number in range(count)]
    await bus.subscribe(subscribe_to(topic, group=f"{buses.prefix}.others"), others)
    options = {"batch": 50, "prefetch": prefetch, "pause": 0.02}
    with child(buses.url, group, topic, files[0], **options) as victim:
        await eventually(lambda: is_ready(files[0]))
        with child(buses.url, group, topic, files[1], **options):
            await eventually(lambda: is_ready(files[1]))

            async def is_shared() -> bool:
                return (await bus.groups(group))[0].subscribers == 2

            await eventually(is_shared)
            for first in range(0, count, 500):
                ids = all_of_them[first : first + 500]
                await bus.publish([message(topic, id=each, key=each.partition("-")[0]) for each in ids])
            await eventually(lambda: min(len(handled(file)) for file in files) > 1_000)
            victim.kill()
            victim.wait()
            before = [each for each, _ in handled(files[0])]
            assert len(before) < count

            async def all_done() -> bool:
                return (await bus.groups(group))[0].lag == 0

            await eventually(all_done)
        after = [each for each, _ in handled(files[1])]
    assert set(before) | set(after) == set(all_of_them)
    twice = set(before) & set(after)
    assert len(before) + len(after) == count + len(twice)
    assert len(twice) <= 4 * prefetch
    # Each subscriber has its messages in order; repeated messages are those whose commit was not confirmed.
    for file in (before, after):
        order: dict[str, list[int]] = defaultdict(list)
        for each in file:
            key, _, number = each.partition("-")
            order[key].append(int(number))
        assert all(numbers == sorted(numbers) for numbers in order.values())
    assert twice <= set(before[-4 * prefetch :])
    await others.count(count)
    assert Counter(delivery.id for delivery in others.deliveries) == Counter(all_of_them)


async def test_confirmed_messages_survive_one_of_three_brokers() -> None:
    with KafkaCluster() as cluster:
        async with buses_at(cluster.url, timeout=60) as buses:
            publisher, consumer, inbox = await buses.connect(), await buses.connect(), Inbox()
            topic, group = f"{buses.prefix}.t", f"{buses.prefix}.g"
            await consumer.subscribe(subscribe_to(topic, group=group, batch=20, prefetch=100), inbox)
            confirmed: list[str] = []

            async def publish() -> None:
                for first in range(0, 6_000, 20):
                    texts = [str(number) for number in range(first, first + 20)]
                    await publisher.publish([message(topic, text, key=text) for text in texts])
                    confirmed.extend(texts)

            publishing = asyncio.create_task(publish())
            await inbox.count(1_000)
            cluster.nodes[0].kill()
            await asyncio.wait_for(publishing, 90)
            assert len(confirmed) == 6_000
            await inbox.until(lambda box: set(box.texts) >= set(confirmed))

            async def is_done() -> bool:
                return (await consumer.groups(group))[0].lag == 0

            await eventually(is_done)


async def test_broker_restarts() -> None:
    with KafkaServer() as server:
        async with buses_at(server.url, timeout=2) as buses:
            bus, inbox, states = await buses.connect(), Inbox(), []
            changed = asyncio.Event()

            def listener(state: ConnectionState, why: str) -> None:
                states.append((state, why))
                changed.set()

            bus.listen(listener)
            topic, group = f"{buses.prefix}.t", f"{buses.prefix}.g"
            await bus.subscribe(subscribe_to(topic, group=group), inbox)
            await bus.publish([message(topic, "before")])
            await inbox.count(1)
            server.kill()
            with pytest.raises(BusUnavailable, match=f"127.0.0.1:{server.port}"):
                await bus.publish([message(topic, "away")])
            await eventually(lambda: [state for state, _ in states] == [ConnectionState.LOST])
            with pytest.raises(BusUnavailable, match=f"127.0.0.1:{server.port}"):
                await buses.connect()
            await asyncio.to_thread(server.restart)
            await eventually(lambda: [state for state, _ in states] == [ConnectionState.LOST, ConnectionState.UP])
            await bus.publish([message(topic, "after")])
            await inbox.until(lambda box: "after" in box.texts)
            assert str(server.port) in states[0][1]


def partitions(deliveries: Sequence[Delivery]) -> set[str]:
    return {delivery.position.rpartition("/")[0] for delivery in deliveries}


async def test_partition_moves_after_its_handler_has_ended(buses: Buses) -> None:
    first, second = await buses.connect(), await buses.connect()
    topic, group = f"{buses.prefix}.t", f"{buses.prefix}.g"
    stuck, inbox = Inbox(), Inbox()
    stuck.open.clear()
    await first.subscribe(subscribe_to(topic, group=group, batch=60), stuck)
    await first.publish([message(topic, str(number), key=str(number)) for number in range(60)])
    await stuck.until(lambda box: bool(box.begun))
    await second.subscribe(subscribe_to(topic, group=group), inbox)
    await asyncio.sleep(1)  # Kafka wants half of the partitions back by now
    # The handler may have begun before messages of all partitions were there; those it has none of may move.
    assert partitions(stuck.begun).isdisjoint(partitions(inbox.begun))
    stuck.open.set()

    async def is_done() -> bool:
        return (await first.groups(group))[0].lag == 0

    await eventually(is_done)
    await first.publish([message(topic, str(number), key=str(number)) for number in range(60, 120)])
    await eventually(lambda: len(stuck.deliveries) + len(inbox.deliveries) >= 120)
    assert sorted(map(int, stuck.texts + inbox.texts)) == list(range(120))
    assert inbox.deliveries


async def test_partitions_of_a_busy_subscriber_move_in_order(buses: Buses) -> None:
    first, second = await buses.connect(), await buses.connect()
    topic, group, count = f"{buses.prefix}.t", f"{buses.prefix}.g", 30_000
    inbox, others = Inbox(), Inbox()
    texts = [f"{number % 40}-{number}" for number in range(count)]

    async def handler(deliveries: list[Delivery]) -> None:
        await asyncio.sleep(0.001)  # so that a rebalance begins before all messages are done
        await inbox(deliveries)

    taken = subscribe_to(topic, group=group, batch=20)
    await (await first.subscribe(taken, handler)).close()
    for begin in range(0, count, 1_000):
        part = texts[begin : begin + 1_000]
        await first.publish([message(topic, text, key=text.partition("-")[0]) for text in part])
    await first.subscribe(taken, handler)
    await inbox.count(100)
    await second.subscribe(taken, others)
    await eventually(lambda: len(inbox.texts) + len(others.texts) >= count)
    assert others.texts
    assert sorted(inbox.texts + others.texts) == sorted(texts)
    order: dict[str, list[int]] = defaultdict(list)
    for text in inbox.texts + others.texts:  # a partition moves once, from the one to the other
        key, _, number = text.partition("-")
        order[key].append(int(number))
    assert all(numbers == sorted(numbers) for numbers in order.values())

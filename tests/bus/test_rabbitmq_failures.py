"""Subscribers and brokers that are killed while messages flow."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.bus.subscribers import child, handled, is_ready
from tests.harness.servers import RabbitCluster, RabbitServer

from uttu.bus.base import Message
from uttu.bus.rabbitmq import RabbitBus
from uttu.clients import ConnectionState
from uttu.errors import BusRefused, BusUnavailable
from uttu.testing.contracts.broker import Inbox, eventually, message, subscribe_to

PATIENCE = 120.0


@pytest.fixture(scope="module")
def server() -> Iterator[RabbitServer]:
    """One that may be killed."""
    with RabbitServer() as server:
        yield server


@pytest.fixture
def word() -> str:
    return f"t{uuid4().hex[:8]}"


def numbered(topic: str, first: int, count: int) -> list[Message]:
    return [message(topic, str(number), id=str(number)) for number in range(first, first + count)]


async def test_a_killed_subscriber_loses_nothing(rabbitmq_url: str, word: str, tmp_path: Path) -> None:
    count, prefetch = 10_000, 100
    topic, group, other = f"{word}.t", f"{word}.g", f"{word}.o"
    bus, inbox = await RabbitBus.connect(rabbitmq_url), Inbox()
    await bus.subscribe(subscribe_to(topic, group=other), inbox)
    files, options = (tmp_path / "victim", tmp_path / "heir"), {"prefetch": prefetch, "batch": 10}
    everything = {str(number) for number in range(count)}
    with (
        child(rabbitmq_url, group, topic, files[0], **options) as victim,
        child(rabbitmq_url, group, topic, files[1], **options),
    ):
        await eventually(lambda: all(map(is_ready, files)))
        for first in range(0, count, 500):
            await bus.publish(numbered(topic, first, 500))
            if first == 2000:
                await eventually(lambda: len(handled(files[0])) > 100)
                victim.kill()
                victim.wait()
        await eventually(lambda: {name for file in files for name, _ in handled(file)} == everything)
    by_victim, by_heir = map(handled, files)
    twice = [name for name, times in Counter(name for name, _ in by_victim + by_heir).items() if times > 1]
    assert len(twice) <= prefetch
    attempts = dict(by_heir)
    assert all(attempts[name] == 2 for name in twice)
    assert all(attempt == 1 for _, attempt in by_victim)
    await inbox.count(count)
    assert Counter(inbox.texts) == Counter(everything)
    for name in (group, other):
        await bus.purge(name, forget=True)
    await bus.close()


@pytest.mark.parametrize("queues", ["quorum", "classic"])
async def test_confirmed_messages_survive_the_broker(server: RabbitServer, word: str, queues: str) -> None:
    topic, group = f"{word}.t", f"{word}.g"
    url = f"{server.url}&queues={queues}&timeout={PATIENCE}&delay=0.2"
    publisher, subscriber = [await RabbitBus.connect(url) for _ in range(2)]
    inbox, states = Inbox(), []
    subscriber.listen(lambda state, why: states.append(state))
    await subscriber.subscribe(subscribe_to(topic, group=group, prefetch=50, batch=10), inbox)
    confirmed: set[str] = set()

    async def publish() -> None:
        for first in range(0, 6_000, 50):
            batch = numbered(topic, first, 50)
            await publisher.publish(batch)
            confirmed.update(each.id for each in batch)

    publishing = asyncio.create_task(publish())
    await eventually(lambda: len(confirmed) > 500 and len(inbox.deliveries) > 200)
    server.kill()
    await asyncio.to_thread(server.restart)
    async with asyncio.timeout(PATIENCE):
        await publishing
    assert len(confirmed) == 6_000
    await inbox.until(lambda box: confirmed <= set(box.texts))
    assert states == [ConnectionState.LOST, ConnectionState.UP]
    await publisher.close()
    await subscriber.close()


async def test_broadcast_subscriber_continues_after_a_broker_restart(server: RabbitServer, word: str) -> None:
    bus, inbox, states = await RabbitBus.connect(f"{server.url}&delay=0.2"), Inbox(), []
    bus.listen(lambda state, why: states.append(state))
    await bus.subscribe(subscribe_to(word), inbox)
    server.kill()
    await asyncio.to_thread(server.restart)
    await eventually(lambda: ConnectionState.UP in states)

    async def heard() -> bool:
        await bus.publish([message(word, "again")])
        return bool(inbox.deliveries)

    await eventually(heard)
    await bus.close()


async def test_unavailable_broker_is_given_up(server: RabbitServer, word: str) -> None:
    bus, states = await RabbitBus.connect(f"{server.url}&attempts=2&delay=0.1&timeout=5"), []
    bus.listen(lambda state, why: states.append(state))
    subscription = await bus.subscribe(subscribe_to(word, group=word), Inbox())
    server.kill()
    try:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(BusUnavailable, match=f"after 2 attempts to reconnect.*{server.port}"):
                await subscription.wait()
        with pytest.raises(BusUnavailable, match=str(server.port)):
            await bus.publish([message(word)])
        assert states == [ConnectionState.LOST, ConnectionState.CLOSED]
        await bus.close()
    finally:
        await asyncio.to_thread(server.restart)


async def test_hanging_broker_confirms_nothing(server: RabbitServer, word: str) -> None:
    bus = await RabbitBus.connect(f"{server.url}&timeout=1")
    await bus.publish([message(word, "before")])
    server.pause()
    try:
        with pytest.raises(BusUnavailable, match="1 of 1 messages were not confirmed"):
            await bus.publish([message(word, "while")])
        with pytest.raises(BusUnavailable, match="within 1 s"):
            await bus.peek(word)
    finally:
        server.resume()
    await bus.publish([message(word, "after")])
    await bus.close()


async def test_slow_subscriber_holds_its_prefetch_only(rabbitmq_url: str, word: str) -> None:
    bus, inbox = await RabbitBus.connect(rabbitmq_url), Inbox()
    inbox.open.clear()
    await bus.subscribe(subscribe_to(word, group=word, prefetch=20, batch=5), inbox)
    await bus.publish(numbered(word, 0, 500))

    async def lagging() -> bool:
        (state,) = await bus.groups(word)
        return (state.ready, state.unacknowledged, state.lag) == (480, 20, 500)

    await eventually(lagging)
    inbox.open.set()
    await inbox.count(500)
    assert inbox.texts == [str(number) for number in range(500)]
    await bus.purge(word, forget=True)
    await bus.close()


async def test_deleted_group_ends_its_subscribers(rabbitmq_url: str, word: str) -> None:
    bus, other = await RabbitBus.connect(rabbitmq_url), await RabbitBus.connect(rabbitmq_url)
    subscription = await bus.subscribe(subscribe_to(word, group=word), Inbox())
    await other.purge(word, forget=True)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(BusRefused, match=f"The group {word} was deleted"):
            await subscription.wait()
    await bus.close()
    await other.close()


async def test_clients_continue_when_a_node_dies(word: str) -> None:
    topic, group = f"{word}.t", f"{word}.g"
    cluster = RabbitCluster()
    await asyncio.to_thread(cluster.__enter__)
    try:
        bus = await RabbitBus.connect(f"{cluster.url}&delay=0.2&timeout={PATIENCE}")
        other = await RabbitBus.connect(f"{cluster.nodes[1].url}&delay=0.2&timeout={PATIENCE}")
        inbox, states, others = Inbox(), [], []
        bus.listen(lambda state, why: states.append(state))
        other.listen(lambda state, why: others.append(state))
        await bus.subscribe(subscribe_to(topic, group=group, prefetch=50, batch=10), inbox)
        await bus.publish(numbered(topic, 0, 500))
        cluster.nodes[0].kill()  # where the queue was made, and so is led
        for first in range(500, 2_000, 100):
            await (bus if first % 200 else other).publish(numbered(topic, first, 100))
        await inbox.until(lambda box: {str(number) for number in range(2_000)} <= set(box.texts))
        assert states == [ConnectionState.LOST, ConnectionState.UP]
        assert others == []
        await bus.close()
        await other.close()
    finally:
        await asyncio.to_thread(cluster.__exit__, None, None, None)

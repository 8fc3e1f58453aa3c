"""What RabbitMQ says no to, and how the bus says it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import aiormq
import pytest
from tests.fetch.certificates import Authority
from tests.harness.servers import RabbitServer
from tests.harness.servers.ports import Port

from uttu.bus.base import REASON_HEADER, Capability, Delivery, HeaderFilter, Message
from uttu.bus.rabbitmq import RabbitBus
from uttu.clients.amqp.address import parse_address
from uttu.errors import BusError, BusRefused, BusUnavailable, ConfigError
from uttu.testing.contracts.broker import Inbox, eventually, message, subscribe_to


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[RabbitServer]:
    certificate = authority.file.parent / "127.0.0.130.pem"
    with RabbitServer(certificate=certificate, settings={"max_message_size": "1000000"}) as server:
        yield server


@pytest.fixture
async def bus(server: RabbitServer) -> AsyncIterator[RabbitBus]:
    bus = await RabbitBus.connect(server.url)
    yield bus
    await bus.close()


@pytest.fixture
def word() -> str:
    return f"t{uuid4().hex[:8]}"


async def raw(server: RabbitServer) -> aiormq.abc.AbstractConnection:
    return await aiormq.connect(f"amqp://guest:guest@127.0.0.1:{server.port}/")


async def test_error_names_all_nodes_and_no_password() -> None:
    ports = [Port(), Port()]
    places = ",".join(f"127.0.0.1:{port.number}" for port in ports)
    with pytest.raises(BusUnavailable) as caught:
        await RabbitBus.connect(f"amqp://me:secret@{places}/")
    assert all(f"127.0.0.1:{port.number}" in str(caught.value) for port in ports)
    assert "secret" not in str(caught.value)
    for port in ports:
        port.release()


async def test_node_that_is_down_is_skipped(server: RabbitServer) -> None:
    port = Port()
    url = server.url.replace("@", f"@127.0.0.1:{port.number},", 1)
    await (await RabbitBus.connect(url)).close()
    port.release()


async def test_a_wrong_password(server: RabbitServer) -> None:
    with pytest.raises(BusRefused, match="login of guest") as caught:
        await RabbitBus.connect(server.url.replace("guest:guest", "guest:wrong", 1))
    assert "wrong" not in str(caught.value)


async def test_a_vhost_that_is_not_there(server: RabbitServer) -> None:
    with pytest.raises(BusRefused, match="vhost nowhere"):
        await RabbitBus.connect(server.url.replace("/?", "/nowhere?", 1))


async def test_vhosts_and_rights(server: RabbitServer, word: str) -> None:
    server.add_vhost("a/b")
    server.add_user("reader", "p@ss:w/rd?")
    server.allow("reader", "a/b", configure="^$", write="^$")
    login = server.url.replace("guest:guest", "reader:p%40ss%3Aw%2Frd%3F", 1)
    with pytest.raises(BusRefused, match="reader"):
        await RabbitBus.connect(login)
    with pytest.raises(BusRefused, match="RabbitMQ denies access"):
        await RabbitBus.connect(login.replace("/?", "/a%2Fb?", 1))
    enough = r"^(uttu|amq\.gen|amq\.default)"
    server.allow("reader", "a/b", configure=enough, write=enough, read=enough)
    bus, alone = await RabbitBus.connect(login.replace("/?", "/a%2Fb?", 1)), Inbox()
    inbox = Inbox(lambda delivery: delivery.attempt == 1)
    await bus.subscribe(subscribe_to(word, group=word, where=HeaderFilter({"h": "1"})), inbox)
    await bus.subscribe(subscribe_to(word, where=HeaderFilter({"h": "1"})), alone)
    await bus.publish([message(word, "in", headers={"h": "1"})])
    await inbox.count(1)
    await alone.count(1)
    await bus.close()


async def test_an_exchange_of_another_type(server: RabbitServer, word: str) -> None:
    connection = await raw(server)
    channel = await connection.channel()
    await channel.exchange_declare(word, exchange_type="fanout", durable=True)
    with pytest.raises(BusRefused, match=f"The exchange {word} exists with type=fanout, not topic"):
        await RabbitBus.connect(f"{server.url}&exchange={word}")
    await connection.close()


async def test_a_queue_of_another_type(bus: RabbitBus, server: RabbitServer, word: str) -> None:
    await (await bus.subscribe(subscribe_to(word, group=word), Inbox())).close()
    other = await RabbitBus.connect(f"{server.url}&queues=classic")
    with pytest.raises(BusRefused, match=f"queue uttu.{word} .* has the type quorum, not classic"):
        await other.subscribe(subscribe_to(word, group=word), Inbox())
    await other.close()


async def test_a_group_says_what_it_takes(bus: RabbitBus, word: str) -> None:
    where = HeaderFilter({"b": "1", "a": "2"}, any=True)
    await bus.subscribe(subscribe_to(f"{word}.b", f"{word}.a.#", group=word, where=where), Inbox())
    takes = f"The group {word} takes {word}.a.# {word}.b where any of .*, not {word}.a"
    with pytest.raises(BusRefused, match=takes):
        await bus.subscribe(subscribe_to(f"{word}.a", group=word), Inbox())
    long = [f"{word}.{'x' * 150}.{number}" for number in range(9)]
    await bus.subscribe(subscribe_to(*long, group=f"{word}.long"), Inbox())
    with pytest.raises(BusRefused, match=word):
        await bus.subscribe(subscribe_to(*long[:-1], group=f"{word}.long"), Inbox())
    (group,) = await bus.groups(f"{word}.long")
    assert group.topics == tuple(long)


async def test_a_message_that_is_too_large(bus: RabbitBus, word: str) -> None:
    with pytest.raises(BusRefused, match=f"The message to {word} has 1000001 bytes, and RabbitMQ accepts at most"):
        await bus.publish([Message(topic=word, payload=bytes(1_000_001))])
    await bus.publish([Message(topic=word, payload=bytes(1_000_000))])


async def test_names_too_long_for_amqp(bus: RabbitBus, word: str) -> None:
    for bad in (message(word, id="i" * 256), message(word, headers={"n" * 129: ""})):
        with pytest.raises(ValueError, match="bytes"):
            await bus.publish([bad])


async def test_group_without_the_management_api(server: RabbitServer, word: str) -> None:
    port = Port()
    bus = await RabbitBus.connect(server.url.replace(str(server.management_port), str(port.number)))
    await bus.subscribe(subscribe_to(word, group=word), Inbox())
    (group,) = await bus.groups(word)
    assert (group.unacknowledged, group.subscribers, group.topics) == (None, 1, None)
    with pytest.raises(BusRefused, match=r"rabbitmq_management.*\?management="):
        await bus.groups()
    await bus.close()
    port.release()


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("amqp://h/?colour=red", "colour"),
        ("amqp://h/?queues=stream", "queues"),
        ("amqp://h/?exchange=a.b", "exchange"),
        ("amqp://u:secret@h:port/", "HOST:PORT"),
        ("amqps://h/?cafile=/nowhere.pem", "nowhere"),
    ],
)
async def test_malformed_address(url: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        await RabbitBus.connect(url)
    assert "secret" not in str(caught.value)


def test_an_address_in_full() -> None:
    address = parse_address("amqps://us%40er:p%2F@one,[::1]:99/a%2Fb?queues=classic&attempts=3&delay=0.5&verify=no")
    assert address.nodes == (("one", 5671), ("::1", 99))
    assert (address.user, address.password, address.vhost) == ("us@er", "p/", "a/b")
    assert (address.options.queues, address.options.attempts, address.options.delay) == ("classic", 3, 0.5)
    assert parse_address("amqp://").nodes == (("localhost", 5672),)


async def test_tls(server: RabbitServer, authority: Authority, word: str) -> None:
    base = f"amqps://guest:guest@127.0.0.1:{server.tls_port}/"
    with pytest.raises(BusUnavailable, match=r"(?i)certificate"):
        await RabbitBus.connect(base)
    for option in (f"cafile={authority.file}", "verify=no"):
        bus = await RabbitBus.connect(f"{base}?{option}")
        await bus.publish([message(word, "in")])
        await bus.close()


async def test_message_that_kills_subscribers_becomes_a_dead_letter(
    bus: RabbitBus, server: RabbitServer, word: str
) -> None:
    await (await bus.subscribe(subscribe_to(f"{word}.#", group=word), Inbox())).close()
    await bus.publish([message(f"{word}.bad", "bad", key="k")])

    async def die() -> bool:
        connection = await raw(server)
        await (await connection.channel()).basic_get(f"uttu.{word}")
        await connection.close()
        return (await bus.groups(word))[0].dead == 1

    await eventually(die)
    (dead,) = await bus.peek(word, dead=True)
    assert (dead.topic, dead.key, dead.payload) == (f"{word}.bad", "k", b"bad")
    assert "delivery_limit" in dead.headers[REASON_HEADER]


async def test_message_that_kills_subscribers_spares_other_messages(
    bus: RabbitBus, server: RabbitServer, word: str
) -> None:
    await (await bus.subscribe(subscribe_to(word, group=word), Inbox())).close()
    good = {str(number) for number in range(30)}
    await bus.publish([message(word, text) for text in ("bad", *sorted(good))])
    handled: set[str] = set()
    lives = 0

    async def is_buried() -> bool:
        return (await bus.groups(word))[0].dead > 0

    while not await is_buried():
        assert (lives := lives + 1) < 30
        subscriber, dying, dead = await RabbitBus.connect(server.url), asyncio.Event(), asyncio.Event()

        async def handler(deliveries: list[Delivery], dying: asyncio.Event = dying, dead: asyncio.Event = dead) -> None:
            texts = {delivery.payload.decode() for delivery in deliveries}
            if "bad" in texts:
                dying.set()
                await dead.wait()
                raise RuntimeError("what comes after death does not count")
            handled.update(texts)

        subscription = await subscriber.subscribe(subscribe_to(word, group=word, batch=10), handler)

        async def is_over(dying: asyncio.Event = dying) -> bool:
            return dying.is_set() or await is_buried()

        await eventually(is_over)
        await subscriber._connection.close()
        closing = asyncio.create_task(subscriber.close())
        await asyncio.sleep(0)
        dead.set()
        await closing
        with contextlib.suppress(BusError):
            await subscription.wait()
    (buried,) = await bus.peek(word, dead=True)
    assert buried.payload == b"bad"
    assert handled == good


async def test_repeated_peek_consumes_nothing(bus: RabbitBus, word: str) -> None:
    await (await bus.subscribe(subscribe_to(word, group=word), Inbox())).close()
    await bus.publish([message(word, str(number), key="k", headers={"h": "1"}) for number in range(3)])
    for _ in range(30):
        seen = await bus.peek(word)
        assert {delivery.payload for delivery in seen} == {b"0", b"1", b"2"}
        assert {(delivery.topic, delivery.key, delivery.headers["h"]) for delivery in seen} == {(word, "k", "1")}
    (group,) = await bus.groups(word)
    assert (group.ready, group.dead) == (3, 0)
    assert max(delivery.attempt for delivery in await bus.peek(word)) == 2


async def test_deleted_exchange_is_declared_again(bus: RabbitBus, server: RabbitServer, word: str) -> None:
    await bus.publish([message(word)])
    connection = await raw(server)
    await (await connection.channel()).exchange_delete("uttu")
    await connection.close()
    await bus.publish([message(word)])


async def test_messages_of_other_programs(bus: RabbitBus, server: RabbitServer, word: str) -> None:
    inbox = Inbox()
    await bus.subscribe(subscribe_to(f"{word}.#", group=word), inbox)
    connection = await raw(server)
    channel = await connection.channel()
    properties = aiormq.spec.Basic.Properties(headers={"number": 7, "text": "x"})
    await channel.basic_publish(b"hello", exchange="uttu", routing_key=f"{word}.a", properties=properties)
    await connection.close()
    await inbox.count(1)
    (got,) = inbox.deliveries
    assert (got.topic, got.payload, got.headers, got.attempt) == (
        f"{word}.a",
        b"hello",
        {"number": "7", "text": "x"},
        1,
    )


async def test_classic_queues_have_priorities(server: RabbitServer, bus: RabbitBus) -> None:
    classic = await RabbitBus.connect(f"{server.url}&queues=classic")
    assert classic.capabilities - bus.capabilities == {Capability.PRIORITY}
    await classic.close()

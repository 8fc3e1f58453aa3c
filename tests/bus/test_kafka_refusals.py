"""Addresses, logins and messages that Kafka refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.bus.kafka_buses import buses_at
from tests.fetch.certificates import Authority
from tests.harness.servers import KafkaServer
from tests.harness.servers.ports import Port

from uttu.bus.kafka import KafkaBus
from uttu.clients.kafka import parse_address
from uttu.errors import BusRefused, BusUnavailable, ConfigError
from uttu.runtime.registry import open_bus
from uttu.testing.contracts.broker import Inbox, message, subscribe_to


def test_address_with_all_options() -> None:
    address = parse_address(
        "kafkas://me:p%40ss@b1,b2:9093,[::1]:9094?partitions=3&replication=2&compression=zstd&timeout=5&session=6"
        "&mechanism=SCRAM-SHA-512&cafile=/ca.pem&certfile=/c.pem&keyfile=/k.pem"
    )
    assert address.brokers == "b1:9092,b2:9093,[::1]:9094"
    assert (address.options.partitions, address.options.replication, address.options.session) == (3, 2, 6.0)
    settings = address.client()
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["sasl.username"] == "me"
    assert settings["sasl.password"] == "p@ss"
    assert settings["sasl.mechanism"] == "SCRAM-SHA-512"
    assert settings["ssl.ca.location"] == "/ca.pem"


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("kafka://b?colour=red", "colour"),
        ("kafka://b?partitions=0", "partitions"),
        ("kafka://b?partitions=many", "partitions"),
        ("kafka://b?compression=rar", "compression"),
        ("kafka://b?timeout=", "timeout"),
        ("kafka://b?partitions", "partitions"),
        ("kafka://b:port", "b:port"),
        ("kafka://me:secret@b:port", "b:port"),
        ("kafka://b/topic", "topic"),
        ("kafka://a,,b", "HOST"),
    ],
)
async def test_malformed_address(url: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word) as caught:
        await open_bus(url)
    assert "secret" not in str(caught.value)


async def test_unreachable_broker() -> None:
    port = Port()
    with pytest.raises(BusUnavailable, match=f"127.0.0.1:{port.number}") as caught:
        await KafkaBus.connect(f"kafka://me:secret@127.0.0.1:{port.number}?timeout=1")
    assert "secret" not in str(caught.value)
    port.release()


async def test_missing_ca_file() -> None:
    with pytest.raises(ConfigError, match=r"ca\.location"):
        await KafkaBus.connect("kafkas://127.0.0.1:1?cafile=/nowhere/ca.pem")


async def test_message_is_too_large(kafka_url: str) -> None:
    async with buses_at(kafka_url) as buses:
        bus, topic = await buses.connect(), f"{buses.prefix}.t"
        with pytest.raises(BusRefused, match="too large"):
            await bus.publish([message(topic, "x" * 3_000_000)])
        await bus.publish([message(topic, "small")])


async def test_more_replicas_than_brokers(kafka_url: str) -> None:
    async with buses_at(kafka_url, replication=3) as buses:
        bus = await buses.connect()
        with pytest.raises(BusRefused, match=r"Cannot create the topic"):
            await bus.publish([message(f"{buses.prefix}.t")])


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[KafkaServer]:
    """One that asks for a login."""
    certificate = authority.file.parent / "127.0.0.130.pem"
    with KafkaServer(users={"uttu": "s3cret:@/", "guest": "guest"}, certificate=certificate) as server:
        yield server


async def test_tls(server: KafkaServer, authority: Authority) -> None:
    url = f"kafkas://{server.login}127.0.0.1:{server.tls_port}"
    with pytest.raises(BusUnavailable, match=r"(?i)certificate"):
        await KafkaBus.connect(f"{url}?timeout=1")
    async with buses_at(url, cafile=authority.file) as buses:
        bus, inbox, topic = await buses.connect(), Inbox(), f"{buses.prefix}.t"
        await bus.subscribe(subscribe_to(topic, group=f"{buses.prefix}.g"), inbox)
        await bus.publish([message(topic, "one")])
        await inbox.count(1)


async def test_right_password(server: KafkaServer) -> None:
    async with buses_at(server.url) as buses:
        bus, inbox, topic = await buses.connect(), Inbox(), f"{buses.prefix}.t"
        await bus.subscribe(subscribe_to(topic, group=f"{buses.prefix}.g"), inbox)
        await bus.publish([message(topic, "one")])
        await inbox.count(1)


async def test_wrong_password(server: KafkaServer) -> None:
    with pytest.raises(BusRefused, match="uttu") as caught:
        await KafkaBus.connect(f"kafka://uttu:wr0ng@127.0.0.1:{server.port}")
    assert "wr0ng" not in str(caught.value)


async def test_user_without_permissions(server: KafkaServer) -> None:
    async with buses_at(server.url.replace("uttu:s3cret%3A%40%2F", "guest:guest")) as buses:
        bus, topic = await buses.connect(), f"{buses.prefix}.t"
        with pytest.raises(BusRefused, match=f"The topic {topic} does not exist, and this user may not create it"):
            await bus.publish([message(topic)])
        with pytest.raises(BusRefused, match=f"The topic {topic} does not exist, and this user may not create it"):
            await bus.subscribe(subscribe_to(topic, group=f"{buses.prefix}.g"), Inbox())

"""The bus on Redis, on Valkey, on a cluster, and where there are no functions."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.bus.redis_buses import Buses, buses_at
from tests.harness.servers import RedisSentinel, RedisServer

from uttu.bus.base import SubscribeOptions
from uttu.bus.redis import RedisBus
from uttu.bus.topics import matches
from uttu.errors import ConfigError
from uttu.testing.contracts.broker import Inbox, eventually, message, subscribe_to
from uttu.testing.contracts.bus import BusContract


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One where a user may not use functions."""
    with RedisServer() as server:
        server.ask("ACL", "SETUSER", "old", "on", ">pw", "~uttu:*", "allchannels", "+@all", "-function", "-fcall")
        yield server


class TestRedis(BusContract):
    """On Redis, on Valkey and on a cluster."""

    @pytest.fixture(params=["redis_url", "valkey_url", "redis_cluster_url"])
    async def broker(self, request: pytest.FixtureRequest) -> AsyncIterator[Buses]:
        async with buses_at(request.getfixturevalue(request.param)) as buses:
            yield buses
            await buses.forget()


class TestScripts(BusContract):
    """As on Redis 6.2, which has no functions."""

    @pytest.fixture
    async def broker(self, server: RedisServer) -> AsyncIterator[Buses]:
        async with buses_at(f"redis://old:pw@127.0.0.1:{server.port}/0") as buses:
            yield buses
        assert server.ask("FUNCTION", "LIST") == []


async def arrives(buses: Buses) -> None:
    """A message does, at one of a group and at one without."""
    bus, inbox, alone = await buses.connect(), Inbox(), Inbox()
    await bus.subscribe(subscribe_to("a.#", group="g"), inbox)
    await bus.subscribe(subscribe_to("a.#"), alone)
    await bus.publish([message("a.b", "text")])
    await inbox.count(1)
    await alone.count(1)


async def test_a_socket_and_a_password() -> None:
    with RedisServer(unix=True, password="p@ss") as server:
        async with buses_at(server.url) as buses:
            await arrives(buses)


async def test_user_with_minimal_permissions() -> None:
    rights = ("~uttu:*", "allchannels", "+@all", "-@admin", "-@dangerous", "+info")
    with RedisServer() as server:
        server.ask("ACL", "SETUSER", "me", "on", ">pw", *rights)
        async with buses_at(f"redis://me:pw@127.0.0.1:{server.port}/0") as buses:
            await arrives(buses)


async def test_sentinels_name_the_primary_and_its_successor() -> None:
    with RedisSentinel(appendonly=True) as group:
        async with buses_at(group.url) as buses:
            await arrives(buses)
            bus, inbox = await buses.connect(), Inbox()
            await bus.subscribe(subscribe_to("b", group="other"), inbox)
            former, replica = group.servers
            former.process.wait_until(
                lambda: (
                    former.info("replication")["master_repl_offset"] == replica.info("replication")["slave_repl_offset"]
                ),
                "be copied",
            )
            former.kill()
            await bus.publish([message("b", "later")])
            await inbox.count(1)
            assert group.primary is replica


async def test_two_buses_on_one_server_are_apart(redis_url: str) -> None:
    async with buses_at(redis_url) as one, buses_at(redis_url) as other:
        bus, inbox = await one.connect(), Inbox()
        await bus.subscribe(subscribe_to("a", group="g"), inbox)
        await (await other.connect()).publish([message("a", "not here")])
        await bus.publish([message("a", "here")])
        await inbox.count(1)
        assert inbox.texts == ["here"]
        assert await (await other.connect()).groups() == []
        await one.forget()


async def test_the_server_matches_topics_as_everyone_does(redis_url: str) -> None:
    some = random.Random(1)
    patterns = [".".join(some.choices("abc*##", k=some.randint(1, 5))) for _ in range(150)]
    topics = [".".join(some.choices("abc", k=some.randint(1, 5))) for _ in range(150)]
    async with buses_at(redis_url) as buses:
        bus = await buses.connect()
        for number, pattern in enumerate(patterns):
            await (await bus.subscribe(SubscribeOptions(topics=(pattern,), group=f"g{number}"), Inbox())).close()
        await bus.publish([message(topic) for topic in topics])
        for number, pattern in enumerate(patterns):
            taken = [delivery.topic for delivery in await bus.peek(f"g{number}", 1000)]
            assert taken == [topic for topic in topics if matches((pattern,), topic)], pattern
        await buses.forget()


async def test_message_that_matches_several_patterns_comes_once(redis_url: str) -> None:
    async with buses_at(redis_url) as buses:
        bus, inbox = await buses.connect(), Inbox()
        await bus.subscribe(subscribe_to("a.*", "a.b", "#", "a.#", "a.c", "ab"), inbox)
        await bus.publish([message(topic, topic) for topic in ("a.b", "a", "abc", "a.c", "ab", "end")])
        await inbox.until(lambda box: "end" in box.texts)
        assert inbox.texts == ["a.b", "a", "abc", "a.c", "ab", "end"]


async def test_delayed_messages_reach_broadcast_subscribers(redis_url: str) -> None:
    async with buses_at(redis_url) as buses:
        bus, inbox = await buses.connect(), Inbox()
        await bus.subscribe(subscribe_to("a"), inbox)
        await bus.publish([message("a", "later", delay=0.3), message("a", "now")])
        await inbox.count(2)
        assert inbox.texts == ["now", "later"]


async def test_closed_subscribers_are_not_counted(redis_url: str) -> None:
    async with buses_at(redis_url) as buses:
        bus = await buses.connect()
        subscriptions = [await bus.subscribe(subscribe_to("a", group="g"), Inbox()) for _ in range(3)]

        async def subscribers(count: int) -> bool:
            return (await bus.groups("g"))[0].subscribers == count

        await eventually(lambda: subscribers(3))
        await subscriptions[0].close()
        assert (await bus.groups("g"))[0].subscribers == 2
        await buses.forget()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("colour=blue", "unknown option 'colour'; the options are bus, client_name"),
        ("bus=a/b", "'bus'"),
        ("timeout=soon", "'timeout'"),
        ("takeover=0", "'takeover'.*from 1"),
        ("timeout=nan", "'timeout'"),
    ],
)
async def test_unknown_option_is_refused(option: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        await RedisBus.connect(f"redis://127.0.0.1:1?{option}")

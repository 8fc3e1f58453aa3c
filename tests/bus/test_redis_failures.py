"""What happens to a bus on Redis when subscribers, connections and the server fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.bus.redis_buses import Buses, buses_at
from tests.bus.subscribers import child, handled, is_ready
from tests.frontier.redis_crawls import LossyProxy
from tests.harness.servers import RedisServer

from uttu.bus.base import REASON_HEADER, Capability
from uttu.bus.redis import RedisBus
from uttu.clients import ConnectionState
from uttu.errors import BusError, BusRefused, BusUnavailable
from uttu.testing.contracts.broker import Inbox, eventually, message, subscribe_to


@pytest.fixture
async def buses(redis_url: str) -> AsyncIterator[Buses]:
    """On the shared server; a subscriber is taken for dead soon."""
    async with buses_at(redis_url, "&takeover=1") as buses:
        yield buses
        await buses.forget()


async def test_messages_of_a_killed_subscriber_go_to_another(buses: Buses, tmp_path: Path) -> None:
    bus, count, batch = await buses.connect(), 10_000, 50
    files = [tmp_path / "one", tmp_path / "two"]
    all_of_them, others = [f"id-{number}" for number in range(count)], Inbox()
    await bus.subscribe(subscribe_to("pages", group="others"), others)
    options = {"batch": batch, "prefetch": 200, "pause": 0.005}
    with child(buses.url, "shared", "pages", files[0], **options) as victim:
        with child(buses.url, "shared", "pages", files[1], **options):
            await eventually(lambda: all(map(is_ready, files)))
            for first in range(0, count, 500):
                await bus.publish([message("pages", id=each) for each in all_of_them[first : first + 500]])
            await eventually(lambda: len(handled(files[0])) > 1_000)
            victim.kill()
            victim.wait()
            before = {each for each, _ in handled(files[0])}
            assert len(before) < count
            await eventually(lambda: before | {each for each, _ in handled(files[1])} == set(all_of_them))

            async def all_done() -> bool:
                return (await bus.groups("shared"))[0].lag == 0

            await eventually(all_done)
        again = dict(handled(files[1]))
        twice = before & again.keys()
        assert len(twice) <= batch  # one batch was handled and not acknowledged
        assert len(handled(files[0])) + len(handled(files[1])) == count + len(twice)
        assert all(again[each] == 2 for each in twice)
        assert 0 < sum(attempt == 2 for attempt in again.values()) <= 200
        await others.count(count)
        assert Counter(delivery.id for delivery in others.deliveries) == Counter(all_of_them)


async def test_message_that_kills_subscribers_becomes_a_dead_letter(buses: Buses, tmp_path: Path) -> None:
    bus = await buses.connect()

    async def is_held() -> bool:
        (state,) = await bus.groups("g")
        return (state.unacknowledged, state.subscribers) == (1, 1)

    for number in range(2):
        file = tmp_path / str(number)
        with child(buses.url, "g", "a", file, attempts=2, pause=60):
            await eventually(lambda file=file: is_ready(file))  # type: ignore[misc]
            if number == 0:
                await bus.publish([message("a", "poison"), message("b")])
            await eventually(is_held)
    inbox = Inbox()
    await bus.subscribe(subscribe_to("a", group="g", attempts=2), inbox)

    async def is_dead() -> bool:
        return (await bus.groups("g"))[0].dead == 1

    await eventually(is_dead)
    (dead,) = await bus.peek("g", dead=True)
    assert (dead.payload, dead.attempt) == (b"poison", 2)
    assert "its subscriber died during the last attempt" in dead.headers[REASON_HEADER]
    (state,) = await bus.groups("g")
    assert (state.lag, state.subscribers) == (0, 1)
    assert not inbox.begun


async def test_confirmed_messages_survive_a_killed_server() -> None:
    with RedisServer("redis", appendonly=True) as server:
        async with buses_at(server.url) as buses:
            publisher, consumer, inbox = await buses.connect(), await buses.connect(), Inbox()
            assert Capability.DURABLE in publisher.capabilities
            await consumer.subscribe(subscribe_to("a", group="g", batch=10, prefetch=50), inbox)
            confirmed: list[str] = []

            async def publish() -> None:
                for first in range(0, 4_000, 20):
                    texts = [str(number) for number in range(first, first + 20)]
                    await publisher.publish([message("a", text) for text in texts])
                    confirmed.extend(texts)

            publishing = asyncio.create_task(publish())
            for wanted in (500, 1_500, 2_500):
                await inbox.count(wanted)
                server.kill()
                await asyncio.to_thread(server.restart)
            await asyncio.wait_for(publishing, 60)
            await inbox.until(lambda box: set(box.texts) >= set(confirmed))
            assert len(confirmed) == 4_000

            async def is_done() -> bool:
                return (await consumer.groups("g"))[0].lag == 0

            await eventually(is_done)


async def test_server_without_durability_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer() as server:
        async with buses_at(server.url) as buses:
            assert Capability.DURABLE not in (await buses.connect()).capabilities
            assert "appendonly no" in caplog.text


async def test_listeners_are_called_and_subscriptions_continue(redis_url: str) -> None:
    with RedisServer(appendonly=True) as server:
        async with buses_at(server.url) as buses:
            bus, inbox, alone = await buses.connect(), Inbox(), Inbox()
            states: list[ConnectionState] = []
            changed = asyncio.Event()

            def listener(state: ConnectionState, what: str) -> None:
                assert what
                states.append(state)
                changed.set()

            async def told(*expected: ConnectionState) -> None:
                async with asyncio.timeout(30):
                    while states != list(expected):
                        changed.clear()
                        await changed.wait()

            bus.listen(listener)
            await bus.subscribe(subscribe_to("a", group="g"), inbox)
            await bus.subscribe(subscribe_to("a"), alone)
            server.kill()
            await told(ConnectionState.LOST)
            server.restart()
            await told(ConnectionState.LOST, ConnectionState.UP)
            await bus.publish([message("a", "after")])
            await inbox.count(1)
            await alone.count(1)
            await bus.close()
            assert states == [ConnectionState.LOST, ConnectionState.UP, ConnectionState.CLOSED]


async def test_an_idle_bus_notices_too() -> None:
    with RedisServer() as server:
        async with buses_at(server.url) as buses:
            bus, lost = await buses.connect(), asyncio.Event()
            bus.listen(lambda state, what: lost.set() if state is ConnectionState.LOST else None)
            server.kill()
            await asyncio.wait_for(lost.wait(), 30)


async def test_publish_waits_for_a_server_until_its_timeout() -> None:
    with RedisServer() as server:
        async with buses_at(server.url, "&timeout=1") as buses:
            bus = await buses.connect()
            server.kill()
            with pytest.raises(BusUnavailable, match=f"127.0.0.1:{server.port}.*Check whether the server runs there"):
                await bus.publish([message("a")])
            with pytest.raises(BusUnavailable):
                await bus.subscribe(subscribe_to("a"), Inbox())


async def test_hanging_server_counts_as_unavailable() -> None:
    with RedisServer() as server:
        async with buses_at(server.url, "&timeout=1") as buses:
            bus, inbox, states = await buses.connect(), Inbox(), []
            await bus.subscribe(subscribe_to("a", group="g"), inbox)
            bus.listen(lambda state, what: states.append(state))
            server.pause()
            try:
                async with asyncio.timeout(10):
                    with pytest.raises(
                        BusUnavailable, match=r"the server does not answer\. Check whether the server runs there"
                    ):
                        await bus.publish([message("a", "lost or not")])
            finally:
                server.resume()
            assert states == [ConnectionState.LOST]
            await bus.publish([message("a", "after")])
            await inbox.until(lambda box: "after" in box.texts)
            await eventually(lambda: states == [ConnectionState.LOST, ConnectionState.UP])


async def test_bus_closes_without_its_server() -> None:
    with RedisServer() as server:
        async with buses_at(server.url) as buses:
            bus, inbox = await buses.connect(), Inbox()
            inbox.open.clear()
            await bus.subscribe(subscribe_to("a", group="g"), inbox)
            await bus.publish([message("a")])
            await inbox.until(lambda box: bool(box.begun))
            server.kill()
            closing = asyncio.create_task(bus.close())
            inbox.open.set()
            await asyncio.wait_for(closing, 20)


@pytest.mark.parametrize(
    "place",
    ["redis://:s3cret@127.0.0.1:1/0", "redis+cluster://:s3cret@127.0.0.1:1", "redis+sentinel://:s3cret@127.0.0.1:1/x"],
)
async def test_nobody_listens(place: str) -> None:
    with pytest.raises(BusUnavailable, match=r"127\.0\.0\.1:1") as refusal:
        await RedisBus.connect(place)
    assert "s3cret" not in str(refusal.value)


async def test_logins_that_are_refused() -> None:
    with RedisServer(password="s3cret") as server:
        with pytest.raises(BusRefused, match="Check the user and the password") as refusal:
            await RedisBus.connect(f"redis://:wr0ng@127.0.0.1:{server.port}/0")
        assert "wr0ng" not in str(refusal.value)
        with pytest.raises(BusRefused, match="needs a password"):
            await RedisBus.connect(f"redis://127.0.0.1:{server.port}/0")
        server.ask("ACL", "SETUSER", "guest", "on", ">pw", "~uttu:*", "+info", "+ping")
        with pytest.raises(BusRefused, match="The user needs INFO, EVAL"):
            await RedisBus.connect(f"redis://guest:pw@127.0.0.1:{server.port}/0")
        server.ask("ACL", "SETUSER", "deaf", "on", ">pw", "~uttu:*", "+@all")
        async with buses_at(f"redis://deaf:pw@127.0.0.1:{server.port}/0") as buses:
            bus = await buses.connect()
            await bus.subscribe(subscribe_to("a", group="g"), Inbox())
            await bus.publish([message("a")])
            with pytest.raises(BusRefused, match="needs access to channels"):
                await bus.subscribe(subscribe_to("a"), Inbox())


async def test_messages_that_are_too_large() -> None:
    with RedisServer(settings={"proto-max-bulk-len": "1mb"}) as server:
        async with buses_at(server.url) as buses:
            bus, inbox = await buses.connect(), Inbox()
            await bus.subscribe(subscribe_to("a", group="g"), inbox)
            with pytest.raises(BusRefused, match="accepts at most 1048576"):
                await bus.publish([message("a", "x" * 1_100_000)])
            await bus.publish([message("a", "x" * 1_000_000) for _ in range(10)])
            await inbox.count(10)


@pytest.mark.parametrize("functions", [True, False])
async def test_server_out_of_memory_refuses_publish(functions: bool) -> None:
    with RedisServer() as server:
        rights = ("~uttu:*", "allchannels", "+@all") + (() if functions else ("-fcall",))
        server.ask("ACL", "SETUSER", "me", "on", ">pw", *rights)
        async with buses_at(f"redis://me:pw@127.0.0.1:{server.port}/0") as buses:
            bus, inbox = await buses.connect(), Inbox()
            inbox.open.clear()
            await bus.subscribe(subscribe_to("a", group="g", batch=1, prefetch=1), inbox)
            await bus.publish([message("a", str(number)) for number in range(20)])
            await inbox.until(lambda box: bool(box.begun))
            server.ask("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(BusRefused, match="Redis is out of memory"):
                await bus.publish([message("a", "too much")])
            inbox.open.set()
            await inbox.count(20)
            server.ask("CONFIG", "SET", "maxmemory", "0")
            await bus.publish([message("a", "fits")])
            await inbox.count(21)
            assert "too much" not in inbox.texts


async def test_slow_subscriber_holds_no_more_than_its_prefetch(buses: Buses) -> None:
    bus, inbox = await buses.connect(), Inbox()
    inbox.open.clear()
    await bus.subscribe(subscribe_to("a", group="g", batch=5, prefetch=20), inbox)
    for _ in range(10):
        await bus.publish([message("a", "x" * 100) for _ in range(100)])

    async def stands() -> bool:
        (state,) = await bus.groups("g")
        return (state.lag, state.unacknowledged, state.ready) == (1_000, 20, 980)

    await eventually(stands)
    inbox.open.set()
    await inbox.count(100)
    (state,) = await bus.groups("g")
    assert (state.unacknowledged or 0) <= 20
    await inbox.count(1_000)


async def test_subscriber_rejoins_a_server_that_lost_its_data() -> None:
    with RedisServer() as server:
        async with buses_at(server.url) as buses:
            bus, inboxes = await buses.connect(), [Inbox(), Inbox()]
            for number, inbox in enumerate(inboxes):
                await bus.subscribe(subscribe_to("a", group=f"g{number}"), inbox)
            server.ask("FLUSHALL")

            async def are_back() -> bool:
                return [group.subscribers for group in await bus.groups()] == [1, 1]

            await eventually(are_back)
            await bus.publish([message("a", "after")])
            for inbox in inboxes:
                await inbox.count(1)


async def test_deleted_group_ends_its_subscriptions(buses: Buses) -> None:
    bus = await buses.connect()
    subscription = await bus.subscribe(subscribe_to("a", group="g"), Inbox())
    await bus.purge("g", forget=True)
    with pytest.raises(BusRefused, match="The group g was deleted"):
        await asyncio.wait_for(subscription.wait(), 20)
    assert await bus.groups() == []


async def test_messages_arrive_after_cut_connections(redis_url: str) -> None:
    port = int(redis_url.rpartition(":")[2].partition("/")[0])
    async with LossyProxy(port) as proxy, buses_at(proxy.url) as buses:
        bus, inbox = await buses.connect(), Inbox()
        subscription = await bus.subscribe(subscribe_to("a", group="g"), inbox)
        for number in range(5):
            proxy.lose(b"XREADGROUP")
            await asyncio.wait_for(proxy.lost.wait(), 20)
            proxy.lose(b"XREADGROUP")
            await bus.publish([message("a", str(number), id=str(number))])
        await inbox.until(lambda box: {delivery.id for delivery in box.deliveries} == set("01234"))
        assert all(delivery.attempt == 1 for delivery in inbox.deliveries)
        await subscription.close()
        await buses.forget()


async def test_connections_that_are_cut_lose_nothing() -> None:
    with RedisServer() as server:
        async with buses_at(server.url) as buses:
            bus, inbox = await buses.connect(), Inbox()
            await bus.subscribe(subscribe_to("a", group="g", batch=7), inbox)

            async def cut() -> None:
                while True:
                    server.ask("CLIENT", "KILL", "TYPE", "normal")
                    await asyncio.sleep(0.01)

            cutting = asyncio.create_task(cut())
            texts = [str(number) for number in range(1_000)]
            for first in range(0, 1_000, 20):
                await bus.publish([message("a", text) for text in texts[first : first + 20]])
            await inbox.until(lambda box: set(box.texts) == set(texts))
            cutting.cancel()
            with suppress(asyncio.CancelledError):
                await cutting


async def test_failed_subscription_raises_its_error() -> None:
    with RedisServer(password="old") as server:
        async with buses_at(server.url) as buses:
            bus = await buses.connect()
            subscription = await bus.subscribe(subscribe_to("a", group="g"), Inbox())
            server.ask("CONFIG", "SET", "requirepass", "new")
            server.password = "new"
            server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            with pytest.raises(BusError, match="Check the user and the password"):
                await asyncio.wait_for(subscription.wait(), 20)

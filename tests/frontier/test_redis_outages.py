"""What happens to the server in the middle of a crawl: calls wait, say so and go on, or end with a clear error.

Nothing is lost, nothing is done twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from tests.frontier.redis_crawls import COUNT, LossyProxy, check_whole, crawl_at, crawl_on, depot_at, done, new_name
from tests.harness.servers import RedisCluster, RedisServer

from uttu.errors import StoreError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.model import Done, Lease, Pace
from uttu.model.crawl import CrawlState
from uttu.testing.contracts.store import EASY, numbers, page, pages

T = TypeVar("T")


@pytest.fixture(scope="module")
def shared() -> Iterator[RedisServer]:
    """A server that nothing lasting is done to."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(appendonly=True) as server:
        yield server


class Listener(logging.Handler):
    """What is said of the store; a test can wait for it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        self._more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        self._more.set()

    async def hears(self, words: str) -> None:
        async with asyncio.timeout(30):
            while not any(words in message for message in self.messages):
                self._more.clear()
                await self._more.wait()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    logger = logging.getLogger("uttu.frontier")
    logger.addHandler(listener)
    yield listener
    logger.removeHandler(listener)


async def in_time(work: Awaitable[T]) -> T:
    return await asyncio.wait_for(work, 60)


@pytest.mark.parametrize("call", ["put", "lease", "extend", "settle", "hold", "counts"])
async def test_a_call_waits_for_a_server_that_was_killed(server: RedisServer, listener: Listener, call: str) -> None:
    async with crawl_at(server.url) as store:
        leases = await store.frontier.lease(2, "w")
        server.kill()
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "put": lambda: store.frontier.put([page(COUNT)]),
            "lease": lambda: store.frontier.lease(1, "w"),
            "extend": lambda: store.frontier.extend(leases),
            "settle": lambda: store.frontier.settle([done(lease) for lease in leases]),
            "hold": lambda: store.frontier.hold("b.example", 1, "a test"),
            "counts": store.frontier.counts,
        }
        listener.messages.clear()
        waiting = asyncio.ensure_future(calls[call]())
        await listener.hears("Waiting for it; nothing is lost")
        assert not waiting.done()
        server.restart()
        result = await in_time(waiting)
        assert len(listener.messages) == 2
        assert "is back after" in listener.messages[1]
        counts = await store.frontier.counts()
        expected = {"put": (COUNT - 1, 2, 0), "lease": (COUNT - 3, 3, 0), "settle": (COUNT, 0, 2)}
        assert (counts.pending, counts.leased, counts.done) == expected.get(call, (COUNT - 2, 2, 0))
        if call in ("extend", "settle"):
            assert result == set()


async def test_what_was_settled_before_the_server_was_killed_stays_so(server: RedisServer) -> None:
    async with crawl_at(server.url) as store:
        for _ in range(3):
            (lease,) = await store.frontier.lease(1, "w")
            assert await store.frontier.settle([done(lease)]) == set()
            server.kill()
            server.restart()
        assert numbers([lease]) == [2]
        rest = await in_time(crawl_on(store))
        assert rest[: COUNT - 3] == [3, 4, 5]
        await check_whole(store)


async def test_many_calls_that_wait_say_it_once(server: RedisServer, listener: Listener) -> None:
    async with crawl_at(server.url) as store:
        server.kill()
        listener.messages.clear()
        waiting = [asyncio.ensure_future(store.frontier.put(pages(COUNT + number))) for number in range(5)]
        await listener.hears("Waiting for it")
        server.restart()
        assert sum(await in_time(asyncio.gather(*waiting))) == 4
        assert ["is back" in message for message in listener.messages] == [False, True]


async def test_leases_that_ended_while_the_server_was_away_are_refused(server: RedisServer) -> None:
    rules = Rules(pace=Pace(0.0, 0), ahead=0.0, lease_seconds=0.05)
    async with crawl_at(server.url, rules) as store:
        first = await store.frontier.lease(COUNT, "w")
        server.kill()
        server.restart()
        again: list[Lease] = []
        async with asyncio.timeout(30):
            while len(again) < COUNT:
                again += await store.frontier.lease(COUNT, "other")
        ids = {lease.id for lease in first}
        assert await store.frontier.extend(first) == ids
        assert await store.frontier.settle([done(lease) for lease in first]) == ids
        counts = await store.frontier.counts()
        assert (counts.done, counts.items, counts.leased) == (0, 0, COUNT)


async def test_a_lease_whose_answer_was_lost_is_not_lost(shared: RedisServer) -> None:
    async with LossyProxy(shared.port) as proxy, crawl_at(proxy.url) as store:
        proxy.lose(b"lease")
        first = await in_time(store.frontier.lease(2, "w"))
        assert proxy.lost.is_set()
        assert numbers(first) == [0, 1]
        assert (await store.frontier.counts()).leased == 2
        assert numbers(await store.frontier.lease(2, "w")) == [2, 3]


async def test_a_lease_that_is_answered_again_lasts_as_long_as_the_answer_says(shared: RedisServer) -> None:
    rules = Rules(pace=Pace(0.0, 0), ahead=0.0, lease_seconds=5.0)
    async with LossyProxy(shared.port) as proxy, crawl_at(proxy.url, rules) as store:
        proxy.lose(b"lease")
        (lease,) = await in_time(store.frontier.lease(1, "w"))
        trace = await store.inspector.trace(lease.fingerprint)
        assert trace.state == "leased"
        assert trace.due == pytest.approx(lease.deadline, abs=1e-4)


async def test_outcomes_whose_answer_was_lost_count_once(shared: RedisServer) -> None:
    async with LossyProxy(shared.port) as proxy, crawl_at(proxy.url) as store:
        leases = await store.frontier.lease(2, "w")
        proxy.lose(b"settle")
        await in_time(store.frontier.settle([done(lease) for lease in leases]))
        assert proxy.lost.is_set()
        counts = await store.frontier.counts()
        assert (counts.pending, counts.leased, counts.done, counts.items) == (COUNT, 0, 2, 2)
        assert [item.json for item in await store.outbox.items(0, 10)] == [b"0", b"1"]
        await crawl_on(store)
        await check_whole(store)


async def test_requests_whose_answer_was_lost_are_admitted_once(shared: RedisServer) -> None:
    async with LossyProxy(shared.port) as proxy, crawl_at(proxy.url) as store:
        proxy.lose(b"put")
        await in_time(store.frontier.put(pages(COUNT + 2)))
        assert proxy.lost.is_set()
        assert (await store.frontier.counts()).pending == COUNT + 2


@pytest.mark.parametrize("functions", [True, False])
async def test_a_server_that_forgot_its_scripts_is_told_again(shared: RedisServer, functions: bool) -> None:
    denied = ("-@dangerous", "+info") if functions else ("-function", "-fcall")
    shared.ask("ACL", "SETUSER", "me", "reset", "on", ">pw", "~uttu:*", "+@all", *denied)
    if functions:
        shared.ask("ACL", "SETUSER", "me", "+function")
    async with crawl_at(f"redis://me:pw@127.0.0.1:{shared.port}/0") as store:
        for _ in range(COUNT):
            forget(shared)
            (lease,) = await store.frontier.lease(1, "w")
            forget(shared)
            await store.frontier.settle([done(lease)])
        forget(shared)
        await crawl_on(store)
        await check_whole(store)


def forget(server: RedisServer) -> None:
    server.ask("SCRIPT", "FLUSH")
    server.ask("FUNCTION", "FLUSH")


@pytest.mark.parametrize("functions", [True, False])
async def test_a_server_out_of_memory_is_waited_for_and_nothing_is_half_done(
    listener: Listener, functions: bool
) -> None:
    with RedisServer() as server:
        server.ask("ACL", "SETUSER", "me", "on", ">pw", "~uttu:*", "+@all", *(() if functions else ("-fcall",)))
        async with crawl_at(f"redis://me:pw@127.0.0.1:{server.port}/0") as store:
            leases = await store.frontier.lease(COUNT, "w")
            before = await store.frontier.counts()
            server.ask("CONFIG", "SET", "maxmemory", "1")
            listener.messages.clear()
            waiting = [
                asyncio.ensure_future(store.frontier.settle([done(lease) for lease in leases])),
                asyncio.ensure_future(store.frontier.put(pages(1000, "b.example"))),
            ]
            await listener.hears("Waiting for it")
            # Reading goes on meanwhile, and is no sign that all is well.
            assert await store.frontier.counts() == before
            assert await store.outbox.items(0, 10) == []
            assert not any(task.done() for task in waiting)
            assert len(listener.messages) == 1
            assert "memory" in listener.messages[0]
            server.ask("CONFIG", "SET", "maxmemory", "0")
            assert await in_time(asyncio.gather(*waiting)) == [set(), 1000]
            assert len(listener.messages) == 2
            counts = await store.frontier.counts()
            assert (counts.pending, counts.leased, counts.done, counts.items) == (COUNT + 1000, 0, COUNT, COUNT)


async def test_a_server_that_lost_its_data_is_an_error(server: RedisServer) -> None:
    async with crawl_at(server.url) as store:
        leases = await store.frontier.lease(2, "w")
        server.ask("FLUSHALL")
        await check_gone(store, [done(lease) for lease in leases])
        # Not a trace of the crawl comes back.
        assert server.ask("KEYS", "*") == []


async def check_gone(store: CrawlStore, outcomes: list[Done]) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.frontier.put(pages(1)),
        lambda: store.frontier.lease(1, "w"),
        lambda: store.frontier.extend([outcome.lease for outcome in outcomes]),
        lambda: store.frontier.settle(outcomes),
        lambda: store.frontier.hold("a.example", 1, "a test"),
        store.frontier.counts,
        lambda: store.memo.remember("a", b"", 1),
        lambda: store.ledger.report("w", b""),
        lambda: store.ledger.claim("drain", "w", 1),
        lambda: store.ledger.note(state=CrawlState.RUNNING),
        lambda: store.inspector.trace(1),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="it was started again or moved, or the server lost its data"):
            await in_time(call())


@pytest.mark.parametrize(
    ("trouble", "mended"),
    [
        (("REPLICAOF", "127.0.0.1", 1), ("REPLICAOF", "NO", "ONE")),
        (("CONFIG", "SET", "min-replicas-to-write", 1), ("CONFIG", "SET", "min-replicas-to-write", 0)),
    ],
)
async def test_a_server_that_can_not_be_written_for_a_moment(
    server: RedisServer, listener: Listener, trouble: tuple[str | int, ...], mended: tuple[str | int, ...]
) -> None:
    async with crawl_at(server.url) as store:
        (lease,) = await store.frontier.lease(1, "w")
        server.ask(*trouble)
        waiting = asyncio.ensure_future(store.frontier.settle([done(lease)]))
        await listener.hears("Waiting for it")
        server.ask(*mended)
        assert await in_time(waiting) == set()
        await crawl_on(store)
        await check_whole(store)


async def test_a_server_that_hangs_is_asked_again(listener: Listener) -> None:
    with RedisServer() as server:
        async with crawl_at(f"{server.url}?socket_timeout=0.2&socket_connect_timeout=0.2") as store:
            (lease,) = await store.frontier.lease(1, "w")
            server.pause()
            waiting = [
                asyncio.ensure_future(store.frontier.settle([done(lease)])),
                asyncio.ensure_future(store.frontier.lease(1, "w")),
            ]
            await listener.hears("Waiting for it")
            server.resume()
            _, leases = await in_time(asyncio.gather(*waiting))
            assert isinstance(leases, list)
            assert numbers(leases) == [1]
            counts = await store.frontier.counts()
            assert (counts.leased, counts.done, counts.items) == (1, 1, 1)


async def test_a_server_that_pauses_its_clients_for_less_than_that(shared: RedisServer, listener: Listener) -> None:
    async with crawl_at(shared.url) as store:
        listener.messages.clear()
        shared.ask("CLIENT", "PAUSE", 300, "ALL")
        await in_time(crawl_on(store))
        await check_whole(store)
        assert not listener.messages


async def test_connections_that_are_cut_are_nothing_to_speak_of(shared: RedisServer, listener: Listener) -> None:
    async with crawl_at(shared.url) as store:
        listener.messages.clear()
        for _ in range(COUNT):
            shared.ask("CLIENT", "KILL", "TYPE", "normal")
            (lease,) = await in_time(store.frontier.lease(1, "w"))
            shared.ask("CLIENT", "KILL", "TYPE", "normal")
            assert await in_time(store.frontier.settle([done(lease)])) == set()
        await crawl_on(store)
        await check_whole(store)
        assert not listener.messages


async def test_a_password_that_was_changed_is_an_error(listener: Listener) -> None:
    with RedisServer(password="old") as server:
        async with crawl_at(server.url) as store:
            server.ask("CONFIG", "SET", "requirepass", "new")
            server.password = "new"
            server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            with pytest.raises(StoreError, match="Check the user and the password"):
                await in_time(store.frontier.put(pages(1)))


async def test_a_call_that_waits_can_be_cancelled(server: RedisServer, listener: Listener) -> None:
    async with crawl_at(server.url) as store:
        server.kill()
        waiting = asyncio.ensure_future(store.frontier.lease(1, "w"))
        await listener.hears("Waiting for it")
        waiting.cancel()
        await asyncio.wait([waiting], timeout=1)
        assert waiting.cancelled()
        server.restart()
        await in_time(crawl_on(store))
        await check_whole(store)


async def test_a_call_to_a_server_that_hangs_can_be_cancelled(shared: RedisServer) -> None:
    async with crawl_at(shared.url) as store:
        shared.pause()
        try:
            waiting = [asyncio.ensure_future(store.frontier.counts()) for _ in range(3)]
            await asyncio.sleep(0)
            done_, _ = await asyncio.wait(waiting, timeout=0.1)
            assert not done_
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting, timeout=1)
            assert all(task.cancelled() for task in waiting)
        finally:
            shared.resume()
        # No later call gets the answer to another.
        await in_time(crawl_on(store))
        await check_whole(store)


async def test_a_node_of_a_cluster_that_was_killed(listener: Listener) -> None:
    with RedisCluster(appendonly=True, node_timeout_ms=1_000) as cluster:
        async with depot_at(cluster.url) as catalog:
            # Enough crawls that each node has one.
            names = {new_name() for _ in range(30)}
            stores = [await catalog.create(name, EASY) for name in sorted(names)]
            for store in stores:
                await store.frontier.put(pages(COUNT))
            for node in cluster.nodes:
                node.kill()
                working = [asyncio.ensure_future(store.frontier.lease(1, "w")) for store in stores]
                await listener.hears("Waiting for it")
                assert not all(task.done() for task in working)
                node.restart()
                cluster.wait()
                for store, (lease,) in zip(stores, await in_time(asyncio.gather(*working)), strict=True):
                    assert await store.frontier.settle([done(lease)]) == set()
                listener.messages.clear()
            for store in stores:
                await in_time(crawl_on(store))
                await check_whole(store)


async def test_a_crawl_whose_slot_moves_to_another_node_goes_on() -> None:
    with RedisCluster() as cluster:
        async with depot_at(cluster.url) as catalog:
            name = new_name()
            store = await catalog.create(name, EASY)
            await store.frontier.put(pages(COUNT))
            slot = int(str(cluster.nodes[0].ask("CLUSTER", "KEYSLOT", f"uttu:{{{name}}}")))
            leases = await store.frontier.lease(2, "w")
            source = next(node for node in cluster.nodes if node.ask("CLUSTER", "COUNTKEYSINSLOT", slot))
            target = next(node for node in cluster.nodes if node is not source)
            there, here = str(target.ask("CLUSTER", "MYID")), str(source.ask("CLUSTER", "MYID"))
            target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", here)
            source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", there)
            keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000)
            assert isinstance(keys, list)
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *map(str, keys))
            for node in (target, source):
                node.ask("CLUSTER", "SETSLOT", slot, "NODE", there)
            assert await in_time(store.frontier.settle([done(lease) for lease in leases])) == set()
            await in_time(crawl_on(store))
            await check_whole(store)

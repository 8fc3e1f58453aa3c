"""Crawls on a Redis server: kept apart, put aside, dropped without a trace, and supervised by one process.

What every depot promises is in ``test_depot``.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.frontier.redis_crawls import LossyProxy, check_whole, crawl_on, depot_at, done, new_name
from tests.harness.servers import RedisServer

from uttu.errors import ConfigError, StoreError, UttuError
from uttu.frontier.base import Cursor
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.model import Dead, Lease, Retry
from uttu.model.crawl import CrawlState
from uttu.model.history import CrawlSample, EventKind
from uttu.model.inspection import DeadQuery, LaneQuery
from uttu.testing.contracts.store import EASY, page, pages


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
async def catalog(server: RedisServer) -> AsyncIterator[RedisCatalog]:
    async with depot_at(server.url) as catalog:
        yield catalog


@pytest.fixture
def name() -> str:
    return new_name()


def keys_of(server: RedisServer, name: str) -> set[str]:
    keys = server.ask("KEYS", "*")
    assert isinstance(keys, list)
    return {str(key) for key in keys if name in str(key)}


async def use_all(store: CrawlStore) -> Lease:
    """Leave something in every key that a crawl has; a page that is leased."""
    frontier, ledger = store.frontier, store.ledger
    await frontier.put([*pages(600), page(0, "b.example", priority=1), page(0, "ü.example")])
    one, two, three, four = await frontier.lease(4, "w")
    await frontier.settle([done(one), Retry(lease=two, after=60), Dead(lease=three, kind="test", reason="a test")])
    await frontier.settle([Retry(lease=lease, counted=False) for lease in await frontier.lease(1, "w")])
    await frontier.hold("c.example", 60, "a test")
    await store.memo.remember("a", b"1", 60)
    await store.history.record(CrawlSample(at=time.time()))
    await store.history.add_events([(EventKind.STATE, {"state": "running"})])
    await ledger.note(state=CrawlState.RUNNING)
    await ledger.report("w", b"1")
    await ledger.claim("drain a", "w", 60)
    assert await store.outbox.advance("a", Cursor(1), "w")
    return four


async def test_a_crawl_that_is_removed_leaves_nothing(server: RedisServer, catalog: RedisCatalog, name: str) -> None:
    await use_all(await catalog.create(name, EASY))
    await use_all(await catalog.create(name, EASY))
    server.ask("RPUSH", f"uttu:{{{name}}}:start", "https://a.example/")
    assert len(keys_of(server, name)) > 30
    await catalog.remove(name)
    assert keys_of(server, name) == set()
    assert name not in await catalog.names()


async def test_a_crawl_that_was_moved_here_leaves_nothing_either(
    server: RedisServer, catalog: RedisCatalog, name: str
) -> None:
    former = new_name()
    source, target = await catalog.create(former, EASY), await catalog.create(name, EASY)
    await source.frontier.settle([done(await use_all(source))])
    async for batch in source.transfer.dump():
        await target.transfer.fill(batch)
    assert f"uttu:{{{name}}}:1:filled" in keys_of(server, name)
    await catalog.remove(name)
    await catalog.remove(former)
    assert keys_of(server, name) == keys_of(server, former) == set()


async def test_a_crawl_that_was_replaced_leaves_nothing(server: RedisServer, catalog: RedisCatalog, name: str) -> None:
    await use_all(await catalog.create(name, EASY))
    await catalog.create(name, EASY)
    await catalog.keep(name)
    assert keys_of(server, name) == {f"uttu:{{{name}}}", f"uttu:{{{name}}}:2:tally"}


async def test_a_crawl_that_could_not_begin_leaves_nothing(
    server: RedisServer, catalog: RedisCatalog, name: str
) -> None:
    await catalog.create(name, EASY)
    await use_all(await catalog.create(name, EASY))
    await catalog.restore(name)
    assert keys_of(server, name) == {f"uttu:{{{name}}}", f"uttu:{{{name}}}:1:tally"}


async def test_the_former_crawl_outlives_several_that_never_began(
    server: RedisServer, catalog: RedisCatalog, name: str
) -> None:
    await (await catalog.create(name, EASY)).frontier.put(pages(3))
    for _ in range(3):
        await use_all(await catalog.create(name, EASY))
    await catalog.restore(name)
    assert (await (await catalog.open(name, EASY)).frontier.counts()).pending == 3
    assert not any(f":{number}:" in key for key in keys_of(server, name) for number in (2, 3, 4))


@pytest.mark.parametrize("ended", ["keep", "restore", "create", "remove"])
async def test_what_a_kill_left_half_dropped_is_completed(
    server: RedisServer, catalog: RedisCatalog, name: str, ended: str
) -> None:
    await use_all(await catalog.create(name, EASY))
    await catalog.create(name, EASY)
    # The steps of `keep`, cut short after the crawl has lost its tally.
    server.ask("HSET", f"uttu:{{{name}}}", "former", 0, "dropped", 1)
    server.ask("RENAME", f"uttu:{{{name}}}:1:tally", f"uttu:{{{name}}}:1:dropped")
    if ended == "create":
        await catalog.create(name, EASY)
    else:
        await getattr(catalog, ended)(name)
    assert not any(":1:" in key for key in keys_of(server, name))


async def test_a_crawl_that_was_killed_while_it_was_made_leaves_nothing(
    server: RedisServer, catalog: RedisCatalog, name: str
) -> None:
    first = await catalog.create(name, EASY)
    await first.frontier.put(pages(3))
    # The steps of `create`, cut short before the last.
    server.ask("HSET", f"uttu:{{{name}}}", "last", 2, "dropped", 2)
    server.ask("COPY", f"uttu:{{{name}}}:1:tally", f"uttu:{{{name}}}:2:tally")
    assert (await (await catalog.open(name, EASY)).frontier.counts()).pending == 3
    await catalog.keep(name)
    assert (await first.frontier.counts()).pending == 3
    assert not any(":2:" in key for key in keys_of(server, name))


@pytest.mark.parametrize("word", [b"HINCRBY", b"HSET", b"SADD", b"EVAL", b"UNLINK", b"RENAME"])
async def test_an_answer_that_was_lost_does_no_harm(server: RedisServer, name: str, word: bytes) -> None:
    async with LossyProxy(server.port) as proxy, depot_at(proxy.url) as catalog:
        await use_all(await catalog.create(name, EASY))
        proxy.lose(word)
        store = await catalog.create(name, EASY)
        await store.frontier.put(pages(6))
        await catalog.keep(name)
        assert proxy.lost.is_set()
        assert not any(":1:" in key for key in keys_of(server, name))
        await crawl_on(await catalog.open(name, EASY))
        await check_whole(store)


async def test_who_works_on_a_dropped_crawl_is_told(server: RedisServer, catalog: RedisCatalog, name: str) -> None:
    store = await catalog.create(name, EASY)
    await store.frontier.put(pages(3))
    (lease,) = await store.frontier.lease(1, "w")
    await catalog.create(name, EASY)
    await catalog.keep(name)
    before = keys_of(server, name)
    for call in (
        store.frontier.lease(1, "w"),
        store.frontier.settle([done(lease)]),
        store.frontier.extend([lease]),
        store.frontier.put(pages(5)),
        store.frontier.counts(),
        store.ledger.report("w", b""),
        store.ledger.note(state=CrawlState.STOPPED),
        store.memo.remember("a", b"", 1),
        store.inspector.pin("a.example", 1.0),
        store.inspector.lanes(LaneQuery()),
        store.inspector.dead(DeadQuery()),
        store.inspector.dead_groups(),
        store.inspector.revive(),
        store.outbox.latest(1),
        store.history.record(CrawlSample(at=1.0)),
        store.history.samples(0.0),
        store.history.add_events([(EventKind.STATE, {})]),
        store.history.events(0, 1),
    ):
        with pytest.raises(StoreError, match=f"Crawl '{name}' is no longer on redis://"):
            await call
    assert keys_of(server, name) == before


@pytest.mark.parametrize("name", ["ünï-çødé-爬虫", "a.b_c-1", "-", "uttu", "x" * 500])
async def test_odd_names(catalog: RedisCatalog, name: str) -> None:
    store = await catalog.create(name, EASY)
    await store.frontier.put(pages(6))
    assert name in await catalog.names()
    await crawl_on(await catalog.open(name, EASY))
    await check_whole(store)
    async with catalog.supervise(name):
        assert await catalog.is_supervised(name)
    await catalog.remove(name)
    assert name not in await catalog.names()


@pytest.mark.parametrize("name", ["{", "}", "a{b}c", "}a", "{}", "with space", "a:b:1", "a*b?[c]", "CR\r\nLF", "."])
async def test_names_with_other_signs_are_refused(server: RedisServer, catalog: RedisCatalog, name: str) -> None:
    before = server.ask("DBSIZE")
    with pytest.raises(ConfigError, match="Invalid crawl name"):
        await catalog.create(name, EASY)
    with pytest.raises(StoreError, match="There is no crawl"):
        await catalog.open(name, EASY)
    assert server.ask("DBSIZE") == before


async def test_two_crawls_do_not_touch_one_another(catalog: RedisCatalog) -> None:
    # One name begins with the other.
    first = new_name()
    second = first + "1"
    stores = [await catalog.create(each, EASY) for each in (first, second)]
    for store in stores:
        await store.frontier.put(pages(6))
    await crawl_on(stores[0])
    assert (await stores[1].frontier.counts()).pending == 6
    await catalog.remove(first)
    await crawl_on(stores[1])
    await check_whole(stores[1])


SUPERVISE = """
import asyncio, sys
from uttu.frontier.redis.catalog import RedisCatalog
async def hold():
    catalog = await RedisCatalog.connect(sys.argv[1])
    async with catalog.supervise(sys.argv[2]):
        print("held", flush=True)
        await asyncio.Event().wait()
asyncio.run(hold())
"""


async def test_a_supervisor_that_was_killed_is_succeeded(server: RedisServer, catalog: RedisCatalog, name: str) -> None:
    command = (sys.executable, "-c", SUPERVISE, server.url, name)
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout
        assert await process.stdout.readline() == b"held\n"
        assert await catalog.is_supervised(name)
    finally:
        process.kill()
        await process.wait()
    async with catalog.supervise(name):
        assert await catalog.is_supervised(name)
    assert not await catalog.is_supervised(name)


async def test_a_supervisor_whose_claim_was_answered_to_nobody_has_it(
    server: RedisServer, catalog: RedisCatalog, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with LossyProxy(server.port) as proxy, depot_at(proxy.url) as other:
        proxy.lose(b"NX")
        async with other.supervise(name):
            assert proxy.lost.is_set()
            assert await catalog.is_supervised(name)
        assert not await catalog.is_supervised(name)
    assert "Checking whether that process is alive" not in caplog.text


async def test_a_supervisor_stays_one_when_the_server_was_killed(name: str) -> None:
    with RedisServer(appendonly=True) as server:
        async with depot_at(server.url) as catalog, depot_at(server.url) as other:
            async with catalog.supervise(name):
                server.kill()
                server.restart()
                # As if it had been away for longer than the claim lasts.
                server.ask("DEL", f"uttu:{{{name}}}:supervisor")
                async with asyncio.timeout(30):
                    while not await other.is_supervised(name):  # noqa: ASYNC110, the server can't call
                        await asyncio.sleep(0.05)
                with pytest.raises(UttuError, match="running already"):
                    async with other.supervise(name):
                        pass
            assert not await other.is_supervised(name)


async def test_a_supervisor_can_end_while_the_server_is_away(name: str) -> None:
    with RedisServer(appendonly=True) as server:
        async with depot_at(server.url) as catalog:
            async with asyncio.timeout(30):
                async with catalog.supervise(name):
                    server.kill()
            server.restart()
            assert await catalog.names() == []

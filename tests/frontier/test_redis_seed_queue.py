"""Start URLs that other programs push into the list of a crawl on Redis."""

from __future__ import annotations

import json

import pytest
import redis
from tests.frontier.redis_crawls import depot_at, new_name

from uttu.engine.seeds import PushedSeeds
from uttu.frontier.base import SeedQueue
from uttu.frontier.catalog import CrawlStore
from uttu.testing.contracts.store import EASY, numbers, page


@pytest.fixture(params=["redis_url", "redis_cluster_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


class Outsider:
    """A program that knows the address of the server and the name of the list."""

    def __init__(self, url: str, crawl: str) -> None:
        self._list, self._refused = f"uttu:{{{crawl}}}:start", f"uttu:{{{crawl}}}:refused"
        self._cluster = url.startswith("redis+cluster://")
        self._url = url.replace("redis+cluster://", "redis://").partition(",")[0]

    def push(self, *entries: str | bytes) -> None:
        with self._client() as client:
            client.rpush(self._list, *entries)

    def refused(self) -> list[bytes]:
        with self._client() as client:
            found: list[bytes] = client.lrange(self._refused, 0, -1)
            return found

    def _client(self) -> redis.Redis | redis.RedisCluster:
        return redis.RedisCluster.from_url(self._url) if self._cluster else redis.Redis.from_url(self._url)


async def test_what_is_pushed_is_admitted_once_and_leaves_the_list(url: str) -> None:
    name = new_name()
    outsider = Outsider(url, name)
    # Before the crawl is there.
    outsider.push(page(1).url, json.dumps({"url": page(2).url, "handler": "each", "meta": {"n": 2}}))
    async with depot_at(url) as catalog:
        store = await catalog.create(name, EASY)
        pushed_seeds = PushedSeeds(_feed(store), {"each"})
        assert await pushed_seeds.waiting() == 2
        assert await pushed_seeds.take() == 2
        outsider.push(page(1).url, page(3).url, page(3).url)
        assert await pushed_seeds.take() == 1
        assert await pushed_seeds.waiting() == 0
        leases = await store.frontier.lease(10, "w")
        assert numbers(leases) == [1, 2, 3]
        assert [lease.request.handler for lease in leases] == ["", "each", ""]
        assert leases[1].request.meta == {"n": 2}
        assert outsider.refused() == []
        await catalog.remove(name)


async def test_what_is_no_request_is_kept_aside_and_holds_nothing_up(url: str) -> None:
    name = new_name()
    outsider = Outsider(url, name)
    bad = [b"rubbish", b"\xff\xfe", b'{"url": "http://a.example/1", "handler": "nobody"}']
    async with depot_at(url) as catalog:
        store = await catalog.create(name, EASY)
        outsider.push(*bad, page(1).url)
        assert await PushedSeeds(_feed(store), {"each"}).take() == 1
        assert await _feed(store).length() == 0
        assert outsider.refused() == bad
        await catalog.remove(name)


async def test_of_two_workers_that_take_the_same_entries_one_admits_them(url: str) -> None:
    name = new_name()
    outsider = Outsider(url, name)
    async with depot_at(url) as catalog:
        store = await catalog.create(name, EASY)
        outsider.push(page(1).url, "rubbish")
        feed = _feed(store)
        entries = await feed.peek(10)
        assert entries == [page(1).url.encode(), b"rubbish"]
        assert await feed.accept([page(1)], entries[:1], entries[1:]) == 1
        outsider.push(page(2).url)
        assert await feed.accept([page(1)], entries[:1], entries[1:]) == 0
        assert await feed.peek(10) == [page(2).url.encode()]
        assert outsider.refused() == [b"rubbish"]
        await catalog.remove(name)


def _feed(store: CrawlStore) -> SeedQueue:
    assert store.feed is not None
    return store.feed

"""A server that has forgotten what it confirmed: a power cut, or a replica that was behind took over."""

from __future__ import annotations

from tests.frontier.redis_crawls import crawl_at, done
from tests.harness.servers import RedisServer

from uttu.testing.contracts.store import numbers


async def test_numbers_are_not_given_out_twice() -> None:
    with RedisServer("redis", appendonly=False) as server:
        async with crawl_at(server.url) as store:
            (early,) = await store.frontier.lease(1, "first")
            await store.frontier.settle([done(early)])
            server.ask("SAVE")
            (forgotten,) = await store.frontier.lease(1, "first")
            await store.frontier.settle([done(forgotten)])
            (out, *_) = await store.frontier.lease(1, "first")
            positions = [item.position for item in await store.outbox.items(0, 9)]
            server.kill()
            server.restart()
            again = await store.frontier.lease(2, "second")
            assert numbers(again) == numbers([forgotten, out])
            assert min(lease.id for lease in again) > out.id
            assert await store.frontier.settle([done(out)]) == {out.id}, "its lease is another's now, under a new id"
            await store.frontier.settle([done(lease) for lease in again])
            assert len(await store.outbox.items(positions[-1], 9)) == 2, "new items are behind all that were read"

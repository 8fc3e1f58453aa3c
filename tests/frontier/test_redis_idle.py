"""What an idle crawl costs its server: nothing is written."""

from __future__ import annotations

from tests.frontier.redis_crawls import crawl_at, crawl_on
from tests.harness.servers import RedisServer


async def test_asking_in_vain_writes_nothing() -> None:
    with RedisServer() as server:
        async with crawl_at(server.url) as store:
            await crawl_on(store)
            before = server.info("persistence")["rdb_changes_since_last_save"]
            for _ in range(5):
                assert await store.frontier.lease(10, "w") == []
                await store.frontier.extend([])
                await store.frontier.counts()
            assert server.info("persistence")["rdb_changes_since_last_save"] == before

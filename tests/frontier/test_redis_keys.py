"""What the keys of a crawl take on Redis."""

from __future__ import annotations

from uttu.frontier.redis.catalog import RedisCatalog
from uttu.model import Request
from uttu.model.crawl import Rules


async def test_kinds_of_keys_with_their_sizes(redis_url: str) -> None:
    catalog = await RedisCatalog.connect(redis_url)
    name = "sizes-of-keys"
    try:
        store = await catalog.create(name, Rules())
        await store.frontier.put(
            [Request(f"https://h{host}.example/{number}") for host in range(100) for number in range(20)]
        )
        sizes = {each.kind: each for each in await catalog.key_sizes(name)}
        assert sizes["queue"].keys == 100
        assert 100 * 20 * 10 < sizes["queue"].bytes < 100 * 20 * 200
        assert sizes["seen"].bytes > 2000 * 8
        assert sizes["lanes"].keys == 1
        assert "outbox" not in sizes
        assert list(sizes) == sorted(sizes, key=lambda kind: -sizes[kind].bytes)
    finally:
        await catalog.remove(name)
        await catalog.close()

"""What the keys of a crawl take on a Redis server, by kind. See ``crawl`` for the keys.

A crawl has millions of ``seen`` sets and queues, so the sizes of these are estimated from ``_SAMPLED`` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from uttu.frontier.catalog import KeySize
from uttu.frontier.redis.crawl import RedisCrawl

_SAMPLED: Final = 30
# Entries of a key that the server looks at to estimate its size.
_ENTRIES: Final = 20


async def read_key_sizes(crawl: RedisCrawl, single: Sequence[str]) -> list[KeySize]:
    """Return the kinds of keys, the largest first.

    :param single: the kinds with one key each.
    """
    tally = await crawl.tally()
    found = [KeySize("tally", 1, await _size(crawl, crawl.key("tally")))]
    for kind in single:
        size = await _size(crawl, crawl.key(kind))
        if size:
            found.append(KeySize(kind, 1, size))
    step = max(1, tally.buckets // _SAMPLED)
    sampled = [crawl.key(f"seen:{number}") for number in range(0, tally.buckets, step)]
    found.append(await _estimate(crawl, "seen", sampled, tally.buckets))
    lanes = await crawl.read("ZCARD", crawl.key("ready"))
    names = await crawl.read("ZRANDMEMBER", crawl.key("ready"), _SAMPLED) or []
    queues = [f"{crawl.key('queue:')}{name.decode()}" for name in names]
    found.append(await _estimate(crawl, "queue", queues, lanes))
    backs = [f"{crawl.key('back:')}{name.decode()}" for name in names]
    found.append(await _estimate(crawl, "back", backs, lanes))
    return sorted((each for each in found if each.bytes), key=lambda each: -each.bytes)


async def _estimate(crawl: RedisCrawl, kind: str, sampled: Sequence[str], count: int) -> KeySize:
    sizes = [size for key in sampled if (size := await _size(crawl, key))]
    if not sizes:
        return KeySize(kind, 0, 0)
    keys = round(count * len(sizes) / len(sampled))
    return KeySize(kind, keys, round(keys * sum(sizes) / len(sizes)))


async def _size(crawl: RedisCrawl, key: str) -> int:
    return int(await crawl.read("MEMORY", "USAGE", key, "SAMPLES", _ENTRIES) or 0)

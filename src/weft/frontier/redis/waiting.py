"""The requests that wait in a lane, in its order, in little memory however many they are.

They stand in two keys, each in order: a list of those that were never out, and a sorted set of the others. Both are
walked by index, so nobody may change them meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from weft.frontier.redis.contents import Queued, seq_of
from weft.frontier.redis.crawl import RedisCrawl
from weft.frontier.redis.scan import listed, ranked


async def walk_waiting(crawl: RedisCrawl, lane: str, direction: int) -> AsyncIterator[Queued]:
    """``direction`` is -1 if the last in is the first out, else 1."""

    def place(each: Queued) -> tuple[int, int]:
        return each.rank, direction * seq_of(each.entry)

    async for each in _merged(_fresh(crawl, lane), _back(crawl, lane), place):
        yield each


async def _fresh(crawl: RedisCrawl, lane: str) -> AsyncIterator[Queued]:
    async for entries in listed(crawl.server, crawl.key(f"queue:{lane}")):
        for entry in entries:
            yield Queued(0, 0, 0, entry.decode())


async def _back(crawl: RedisCrawl, lane: str) -> AsyncIterator[Queued]:
    async for found in ranked(crawl.server, crawl.key(f"back:{lane}")):
        for member, rank in found:
            _, attempt, losses, entry = member.decode().split(" ", 3)
            yield Queued(int(rank), int(attempt), int(losses), entry)


async def _merged(
    one: AsyncIterator[Queued], other: AsyncIterator[Queued], place: Callable[[Queued], Any]
) -> AsyncIterator[Queued]:
    ahead = await anext(other, None)
    async for each in one:
        while ahead is not None and place(ahead) < place(each):
            yield ahead
            ahead = await anext(other, None)
        yield each
    while ahead is not None:
        yield ahead
        ahead = await anext(other, None)

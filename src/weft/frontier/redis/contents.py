"""What a crawl's keys hold, read a piece at a time. The keys are drawn in ``crawl``."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from weft.frontier.redis.crawl import RedisCrawl, texts
from weft.frontier.redis.scan import listed, scanned, streamed


class Lane(msgspec.Struct, frozen=True, array_like=True):
    """A lane, as the server keeps it."""

    due: float
    delay: float
    cap: int
    pending: int
    active: int
    total: int
    held: float
    reason: str
    pinned: int
    back: int
    own_delay: float | None = None
    """What a pinned lane goes back to; None if that is not known yet."""
    own_cap: int | None = None


class Leased(msgspec.Struct, frozen=True, array_like=True):
    lane: str
    rank: int
    attempt: int
    losses: int
    entry: str
    worker: str
    start: float


class Delayed(msgspec.Struct, frozen=True, array_like=True):
    lane: str
    rank: int
    attempt: int
    losses: int
    entry: str
    reason: str


class Buried(msgspec.Struct, frozen=True, array_like=True):
    lane: str
    rank: int
    attempt: int
    entry: str
    at: float
    kind: str
    reason: str
    detail: str
    status: int


class Ended(msgspec.Struct, frozen=True):
    """What is remembered of a page that was done."""

    at: float
    fingerprint: str
    status: int
    size: int
    links: int
    items: int
    note: str


class Queued(msgspec.Struct, frozen=True):
    """A request that waits in its lane."""

    rank: int
    attempt: int
    losses: int
    entry: str


def seq_of(entry: str) -> int:
    """The number of a request, by its entry."""
    return int(entry.partition(" ")[0])


async def walk_lanes(crawl: RedisCrawl) -> AsyncIterator[tuple[str, Lane]]:
    seen: set[str] = set()
    async for found in scanned(crawl.server, "HSCAN", crawl.key("lanes")):
        for name, kept in found:
            if name not in seen:
                seen.add(name)
                yield name.decode(), msgspec.msgpack.decode(kept, type=Lane)


async def walk_queue(crawl: RedisCrawl, lane: str) -> AsyncIterator[Queued]:
    """The requests that wait in a lane, in no order."""
    async for found in scanned(crawl.server, "ZSCAN", crawl.key(f"back:{lane}")):
        for member, rank in found:
            _, attempt, losses, entry = member.decode().split(" ", 3)
            yield Queued(int(float(rank)), int(attempt), int(losses), entry)
    async for entries in listed(crawl.server, crawl.key(f"queue:{lane}")):
        for fresh in entries:
            yield Queued(0, 0, 0, fresh.decode())


async def walk_delayed(crawl: RedisCrawl) -> AsyncIterator[tuple[Delayed, float]]:
    """The retries that wait for their time, each with that."""
    async for found in scanned(crawl.server, "ZSCAN", crawl.key("delayed")):
        for member, due in found:
            yield msgspec.msgpack.decode(member, type=Delayed), float(due)


async def walk_dead(crawl: RedisCrawl) -> AsyncIterator[tuple[int, Buried]]:
    """The dead letters by their seq, each once."""
    seen: set[int] = set()
    async for found in scanned(crawl.server, "HSCAN", crawl.key("dead")):
        for seq, kept in found:
            if int(seq) not in seen:
                seen.add(int(seq))
                yield int(seq), msgspec.msgpack.decode(kept, type=Buried)


async def walk_history(crawl: RedisCrawl) -> AsyncIterator[list[Ended]]:
    """How pages were done, by the batches in which they were settled."""
    async for found in streamed(crawl.server, crawl.key("history")):
        for _, fields in found:
            kept = texts(fields)
            at, pages = float(kept["at"]), msgspec.msgpack.decode(kept["pages"])
            yield [Ended(at, *pages[first : first + 6]) for first in range(0, len(pages), 6)]


async def walk_items(crawl: RedisCrawl) -> AsyncIterator[tuple[int, int, int, bytes]]:
    """Position, fingerprint of the page, number on it, and the item."""
    async for found in streamed(crawl.server, crawl.key("outbox")):
        for name, fields in found:
            kept = texts(fields)
            yield int(name.partition(b"-")[0]), int(kept["f"]), int(kept["n"]), kept["j"]


async def walk_memo(crawl: RedisCrawl) -> AsyncIterator[tuple[str, bytes, float]]:
    """Key, value, until when."""
    async for found in scanned(crawl.server, "HSCAN", crawl.key("memo")):
        for name, kept in found:
            until, _, value = kept.partition(b" ")
            yield name.decode(), value, float(until)

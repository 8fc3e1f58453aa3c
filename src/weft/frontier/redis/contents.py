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


class Leased(msgspec.Struct, frozen=True, array_like=True):
    lane: str
    rank: int
    seq: int
    attempt: int
    losses: int
    record: str
    worker: str
    start: float


class Delayed(msgspec.Struct, frozen=True, array_like=True):
    lane: str
    rank: int
    seq: int
    attempt: int
    losses: int
    record: str
    reason: str


class Buried(msgspec.Struct, frozen=True, array_like=True):
    lane: str
    rank: int
    attempt: int
    record: str
    at: float
    kind: str
    reason: str
    detail: str
    status: int


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of a page that was done."""

    fingerprint: str
    at: float
    status: int
    size: int
    links: int
    items: int
    note: str


class Queued(msgspec.Struct, frozen=True):
    """A request that waits in its lane."""

    rank: int
    seq: int
    attempt: int
    losses: int
    record: str


async def walk_lanes(crawl: RedisCrawl) -> AsyncIterator[tuple[str, Lane]]:
    seen: set[str] = set()
    async for found in scanned(crawl.server, "HSCAN", crawl.key("lanes")):
        for name, kept in found:
            if name not in seen:
                seen.add(name)
                yield name.decode(), msgspec.msgpack.decode(kept, type=Lane)


async def walk_queue(crawl: RedisCrawl, lane: str, lifo: bool) -> AsyncIterator[Queued]:
    """The requests that wait in a lane, in no order."""
    async for found in scanned(crawl.server, "ZSCAN", crawl.key(f"back:{lane}")):
        for member, rank in found:
            place, attempt, losses, record = member.decode().split(" ", 3)
            seq = 10**15 - int(place) if lifo else int(place)
            yield Queued(int(float(rank)), seq, int(attempt), int(losses), record)
    async for entries in listed(crawl.server, crawl.key(f"queue:{lane}")):
        for entry in entries:
            number, _, record = entry.decode().partition(" ")
            yield Queued(0, int(number), 0, 0, record)


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


async def walk_history(crawl: RedisCrawl) -> AsyncIterator[Ended]:
    async for found in streamed(crawl.server, crawl.key("history")):
        for _, fields in found:
            (kept,) = fields.values() if isinstance(fields, dict) else fields[1::2]
            for ended in msgspec.msgpack.decode(kept, type=list[Ended]):
                yield ended


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

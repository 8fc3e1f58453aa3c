"""The records in the keys of a crawl, and iterators that read them in chunks. See ``crawl`` for the keys.

Large keys are read in chunks of at most ``_AT_ONCE`` entries and about ``_BYTES`` bytes, so that the server is never
busy with one for long. The size of each chunk decides how many entries the next one asks for.

The pending requests of a lane are in two keys, each in order: a list of requests that were never leased, and a sorted
set of the others. :func:`walk_waiting` merges them by index in constant memory; the keys must not change meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from uttu.frontier.redis.connection import StoreConnection
from uttu.frontier.redis.crawl import RedisCrawl, decode_names

# Maximum number of entries and of bytes in one chunk.
_AT_ONCE = 1000
_BYTES = 16_000_000
# The first chunk of a key whose entries may be large, and the maximum growth from one chunk to the next.
_FIRST = 16
_GROWTH = 4


async def scan(server: StoreConnection, command: str, key: str) -> AsyncIterator[list[Any]]:
    """Yield the entries of HSCAN and ZSCAN (pairs) or SSCAN (members).

    A chunk may be empty, and an entry may come twice.
    """
    cursor, count = 0, _FIRST
    while True:
        answer, found = await server.command(command, key, cursor, "COUNT", count)
        entries = list(found.items()) if isinstance(found, Mapping) else found
        yield entries
        cursor, count = int(answer), _next_count(count, entries)
        if cursor == 0:
            return


async def scan_list(server: StoreConnection, key: str) -> AsyncIterator[list[bytes]]:
    """Yield the entries of a list in chunks."""
    first, count = 0, _AT_ONCE
    while found := await server.command("LRANGE", key, first, first + count - 1):
        yield found
        first, count = first + len(found), _next_count(count, found)


async def scan_sorted_set(server: StoreConnection, key: str) -> AsyncIterator[list[tuple[bytes, float]]]:
    """Yield the members of a sorted set with their scores, in order, in chunks. The set must not change meanwhile."""
    first, count = 0, _AT_ONCE
    while found := await server.command("ZRANGE", key, first, first + count - 1, "WITHSCORES"):
        # The reply is a list of pairs if the driver has parsed it, and flat otherwise.
        pairs = found if isinstance(found[0], tuple | list) else list(zip(found[::2], found[1::2], strict=True))
        yield [(member, float(score)) for member, score in pairs]
        first, count = first + len(pairs), _next_count(count, pairs)


async def scan_stream(server: StoreConnection, key: str) -> AsyncIterator[list[Any]]:
    """Yield the entries of a stream in chunks: ids with their fields."""
    start, count = "-", _FIRST
    while found := await server.command("XRANGE", key, start, "+", "COUNT", count):
        yield found
        start, count = "(" + found[-1][0].decode(), _next_count(count, found)


def _next_count(count: int, found: list[Any]) -> int:
    size = _size(found)
    fitting = len(found) * _BYTES // size if size else _AT_ONCE
    return max(1, min(fitting, count * _GROWTH, _AT_ONCE))


def _size(found: Any) -> int:
    if isinstance(found, bytes | str):
        return len(found)
    if isinstance(found, Mapping):
        return _size(list(found.items()))
    return sum(map(_size, found)) if isinstance(found, list | tuple) else 0


class LaneRecord(msgspec.Struct, frozen=True, array_like=True):
    """A lane, in the layout of ``lua/1_crawl.lua``."""

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
    """The pace that a pinned lane returns to; None if it is not known yet."""
    own_cap: int | None = None


class LeaseRecord(msgspec.Struct, frozen=True, array_like=True):
    """A lease, in the layout of ``lua/4_leasing.lua``."""

    lane: str
    rank: int
    attempt: int
    losses: int
    entry: str
    worker: str
    start: float


class DelayedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A retry that is not due yet."""

    lane: str
    rank: int
    attempt: int
    losses: int
    entry: str
    reason: str


class DeadRecord(msgspec.Struct, frozen=True, array_like=True):
    """A dead letter."""

    lane: str
    rank: int
    attempt: int
    entry: str
    at: float
    kind: str
    reason: str
    detail: str
    status: int


class DoneRecord(msgspec.Struct, frozen=True):
    """The history entry of a page that was done."""

    at: float
    fingerprint: str
    status: int
    size: int
    links: int
    items: int
    note: str


class QueuedRecord(msgspec.Struct, frozen=True):
    """A pending request in its lane."""

    rank: int
    attempt: int
    losses: int
    entry: str


_decode_lane = msgspec.msgpack.Decoder(LaneRecord).decode
_decode_delayed = msgspec.msgpack.Decoder(DelayedRecord).decode
_decode_dead = msgspec.msgpack.Decoder(DeadRecord).decode


def get_sequence(entry: str) -> int:
    """Return the sequence number of a request from its entry ("seq record")."""
    return int(entry.partition(" ")[0])


def decode_queued(member: bytes, rank: float | bytes) -> QueuedRecord:
    """Return the request of a member of a lane's ``back`` set."""
    _, attempt, losses, entry = member.decode().split(" ", 3)
    return QueuedRecord(int(float(rank)), int(attempt), int(losses), entry)


async def walk_lanes(crawl: RedisCrawl) -> AsyncIterator[tuple[str, LaneRecord]]:
    """Yield each lane once, with its name."""
    seen: set[str] = set()
    async for found in scan(crawl.server, "HSCAN", crawl.key("lanes")):
        for name, kept in found:
            if name not in seen:
                seen.add(name)
                yield name.decode(), _decode_lane(kept)


async def walk_delayed(crawl: RedisCrawl) -> AsyncIterator[tuple[DelayedRecord, float]]:
    """Yield the retries, each with the time it is due."""
    async for found in scan(crawl.server, "ZSCAN", crawl.key("delayed")):
        for member, due in found:
            yield _decode_delayed(member), float(due)


async def walk_dead(crawl: RedisCrawl) -> AsyncIterator[tuple[int, DeadRecord]]:
    """Yield each dead letter once, with its sequence number."""
    seen: set[int] = set()
    async for found in scan(crawl.server, "HSCAN", crawl.key("dead")):
        for seq, kept in found:
            if int(seq) not in seen:
                seen.add(int(seq))
                yield int(seq), _decode_dead(kept)


async def walk_history(crawl: RedisCrawl) -> AsyncIterator[list[DoneRecord]]:
    """Yield the history of done pages, one list per settle batch."""
    async for found in scan_stream(crawl.server, crawl.key("history")):
        for _, fields in found:
            kept = decode_names(fields)
            at, pages = float(kept["at"]), msgspec.msgpack.decode(kept["pages"])
            yield [DoneRecord(at, *pages[first : first + 6]) for first in range(0, len(pages), 6)]


async def walk_items(crawl: RedisCrawl) -> AsyncIterator[tuple[int, int, int, bytes]]:
    """Yield position, page fingerprint, number on the page, and JSON of each item."""
    async for found in scan_stream(crawl.server, crawl.key("outbox")):
        for name, fields in found:
            kept = decode_names(fields)
            yield int(name.partition(b"-")[0]), int(kept["f"]), int(kept["n"]), kept["j"]


async def walk_memo(crawl: RedisCrawl) -> AsyncIterator[tuple[str, bytes, float]]:
    """Yield key, value and expiry time."""
    async for found in scan(crawl.server, "HSCAN", crawl.key("memo")):
        for name, kept in found:
            until, _, value = kept.partition(b" ")
            yield name.decode(), value, float(until)


async def walk_waiting(crawl: RedisCrawl, lane: str, direction: int) -> AsyncIterator[QueuedRecord]:
    """Yield the pending requests of a lane in order. ``direction`` is -1 in a last-in-first-out crawl, else 1."""

    def place(each: QueuedRecord) -> tuple[int, int]:
        return each.rank, direction * get_sequence(each.entry)

    async for each in _merge(_fresh(crawl, lane), _back(crawl, lane), place):
        yield each


async def _fresh(crawl: RedisCrawl, lane: str) -> AsyncIterator[QueuedRecord]:
    async for entries in scan_list(crawl.server, crawl.key(f"queue:{lane}")):
        for entry in entries:
            yield QueuedRecord(0, 0, 0, entry.decode())


async def _back(crawl: RedisCrawl, lane: str) -> AsyncIterator[QueuedRecord]:
    async for found in scan_sorted_set(crawl.server, crawl.key(f"back:{lane}")):
        for member, rank in found:
            yield decode_queued(member, rank)


async def _merge(
    one: AsyncIterator[QueuedRecord], other: AsyncIterator[QueuedRecord], place: Callable[[QueuedRecord], Any]
) -> AsyncIterator[QueuedRecord]:
    ahead = await anext(other, None)
    async for each in one:
        while ahead is not None and place(ahead) < place(each):
            yield ahead
            ahead = await anext(other, None)
        yield each
    while ahead is not None:
        yield ahead
        ahead = await anext(other, None)

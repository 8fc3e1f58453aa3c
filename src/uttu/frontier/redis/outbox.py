"""The smaller contracts of the store on Redis: Outbox, Memo, Ledger and SeedQueue.

Changes are operations of the Lua library, so each is atomic; reads are plain commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import msgspec

from uttu.errors import ItemsTrimmed
from uttu.frontier.base import Cursor, StoredItem, Trimmed
from uttu.frontier.redis.crawl import RedisCrawl, decode_names, encode_requests
from uttu.model import Request
from uttu.model.facts import CrawlFacts, FactChanges, decode_facts, encode_facts


class RedisOutbox:
    """See :class:`uttu.frontier.base.Outbox`."""

    def __init__(self, crawl: RedisCrawl) -> None:
        self._crawl = crawl

    async def items(self, after: int, limit: int) -> list[StoredItem]:
        start = f"({after}-0" if after else "-"
        # In this order: an item that was trimmed before the second reply may be missing in the first.
        found, kept = await self._crawl.read_both(
            ("XRANGE", self._crawl.key("outbox"), start, "+", "COUNT", limit), ("GET", self._crawl.key("tally"))
        )
        tally = self._crawl.tally_of(kept)  # raises if the crawl is gone, which is not the same as no more items
        gone = Trimmed(tally.trimmed, tally.cut)
        if after < gone.position:
            raise ItemsTrimmed(f"{gone.count:,} items have been removed from the crawl's store")
        return [stored_item(*each) for each in found]

    async def latest(self, limit: int, before: int = 0) -> list[StoredItem]:
        if limit <= 0:
            return []
        start = f"({before}-0" if before else "+"
        found, kept = await self._crawl.read_both(
            ("XREVRANGE", self._crawl.key("outbox"), start, "-", "COUNT", limit), ("GET", self._crawl.key("tally"))
        )
        self._crawl.tally_of(kept)
        return [stored_item(*each) for each in found]

    async def cursor(self, sink: str) -> Cursor:
        kept = await self._crawl.read("HGET", self._crawl.key("cursors"), sink)
        if kept is None:
            return Cursor()
        position, _, state = kept.partition(b" ")
        return Cursor(int(position), state)

    async def advance(self, sink: str, cursor: Cursor, owner: str) -> bool:
        return await self._crawl.operate("advance", [sink, cursor.position, owner], bool, cursor.state)

    async def trim(self, sinks: Sequence[str], keep: int) -> bool:
        return await self._crawl.operate("trim", [list(sinks), keep], bool)

    async def trimmed(self) -> Trimmed:
        tally = await self._crawl.tally()
        return Trimmed(tally.trimmed, tally.cut)


class RedisMemo:
    """See :class:`uttu.frontier.base.Memo`."""

    def __init__(self, crawl: RedisCrawl) -> None:
        self._crawl = crawl

    async def recall(self, key: str) -> bytes | None:
        kept = await self._crawl.read("HGET", self._crawl.key("memo"), key)
        if kept is None:
            return None
        until, _, value = bytes(kept).partition(b" ")
        return value if float(until) > await self._crawl.now() else None

    async def remember(self, key: str, value: bytes, seconds: float) -> None:
        await self._crawl.operate("remember", [key, seconds], bool, value)


class RedisLedger:
    """See :class:`uttu.frontier.base.Ledger`."""

    def __init__(self, crawl: RedisCrawl) -> None:
        self._crawl = crawl

    async def facts(self) -> CrawlFacts:
        return decode_facts(await read_facts(self._crawl))

    async def note(self, **changes: Unpack[FactChanges]) -> None:
        await self._crawl.operate("note", encode_facts(changes), bool)

    async def report(self, worker: str, report: bytes) -> None:
        await self._crawl.operate("report", [worker], bool, report)

    async def reports(self) -> dict[str, tuple[float, bytes]]:
        found = decode_names(await self._crawl.read("HGETALL", self._crawl.key("workers")))
        now = await self._crawl.now() if found else 0.0
        split = {worker: kept.partition(b" ") for worker, kept in found.items()}
        return {worker: (now - float(at), report) for worker, (at, _, report) in split.items()}

    async def claim(self, role: str, owner: str, seconds: float) -> bool:
        return await self._crawl.operate("claim", [role, owner, seconds], bool)

    async def release(self, role: str, owner: str) -> None:
        await self._crawl.operate("release", [role, owner], bool)

    async def claimed(self) -> dict[str, str]:
        found = decode_names(await self._crawl.read("HGETALL", self._crawl.key("claims")))
        now = await self._crawl.now() if found else 0.0
        claims = {role: msgspec.msgpack.decode(kept, type=tuple[str, float]) for role, kept in found.items()}
        return {role: owner for role, (owner, until) in claims.items() if until > now}


class RedisSeedQueue:
    """See :class:`uttu.frontier.base.SeedQueue`."""

    def __init__(self, crawl: RedisCrawl) -> None:
        self._crawl = crawl
        self._key = f"uttu:{{{crawl.name}}}:start"
        self._refused = f"uttu:{{{crawl.name}}}:refused"

    async def peek(self, limit: int) -> list[bytes]:
        found: list[bytes] = await self._crawl.read("LRANGE", self._key, 0, limit - 1)
        return found

    async def accept(self, requests: Sequence[Request], entries: Sequence[bytes], refused: Sequence[bytes]) -> int:
        admitted = encode_requests(requests, self._crawl.ranked)
        asked = [self._key, self._refused, admitted, len(entries)]
        return await self._crawl.operate("feed", asked, int, *entries, *refused)

    async def length(self) -> int:
        return int(await self._crawl.read("LLEN", self._key))


async def read_facts(crawl: RedisCrawl) -> dict[str, str]:
    """Return the encoded facts; see :mod:`uttu.model.facts`."""
    found = decode_names(await crawl.read("HGETALL", crawl.key("facts")))
    return {name: value.decode() for name, value in found.items()}


def stored_item(position: bytes, fields: Any) -> StoredItem:
    """Return the item of one entry of the outbox stream."""
    kept = decode_names(fields)
    number = int(kept["n"])
    name = f"{int(kept['f']) & 0xFFFFFFFFFFFFFFFF:016x}-{number if number >= 0 else f'e{-number}'}"
    return StoredItem(int(position.partition(b"-")[0]), name, kept["j"])

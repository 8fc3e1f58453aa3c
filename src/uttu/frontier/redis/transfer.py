"""Dump a crawl on Redis as plain records, or load one; see :mod:`uttu.frontier.transfer`.

Both directions work in batches limited by count and by bytes, so neither side holds the whole crawl in memory. A load
is idempotent: ``lua/8_moving.lua`` remembers what it has already taken in.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec
import xxhash

from uttu.errors import StoreError
from uttu.frontier.redis import connection
from uttu.frontier.redis.crawl import RedisCrawl, decode_entry, decode_names, encode_record
from uttu.frontier.redis.outbox import read_facts
from uttu.frontier.redis.records import (
    LaneRecord,
    QueuedRecord,
    get_sequence,
    walk_dead,
    walk_delayed,
    walk_history,
    walk_items,
    walk_lanes,
    walk_memo,
    walk_waiting,
)
from uttu.frontier.transfer import (
    DeadBatch,
    FinalBatch,
    HistoryBatch,
    ItemBatch,
    LaneBatch,
    MovedDead,
    MovedDone,
    MovedItem,
    MovedLane,
    MovedRequest,
    RequestBatch,
    SeenBatch,
    TransferBatch,
)
from uttu.model import Request
from uttu.model.inspection import group_reason

T = TypeVar("T")

# A dumped batch ends at this number of records, or of bytes.
_AT_ONCE = 1000
_BYTES = 8_000_000
# Pages of history in a batch: a store without an index on them scans all of them for each batch.
_HISTORY = 5000


class RedisTransfer:
    """See :class:`uttu.frontier.transfer.CrawlTransfer`."""

    def __init__(self, crawl: RedisCrawl) -> None:
        self._crawl = crawl

    async def dump(self) -> AsyncIterator[TransferBatch]:
        crawl, tally = self._crawl, await self._crawl.tally()
        if tally.leased:
            raise StoreError(f"crawl {crawl.name!r} has {tally.leased} pages leased; pause it and wait for them")
        now, direction = await crawl.now(), -1 if tally.lifo == 1 else 1
        for bucket in range(tally.buckets):
            found = await crawl.read("SMEMBERS", crawl.key(f"seen:{bucket}"))
            if found:
                yield SeenBatch([int(each) for each in found])
        lanes = [each async for each in walk_lanes(crawl)]
        for batch in _split([_to_moved_lane(name, lane, now) for name, lane in lanes]):
            yield LaneBatch(batch)
        for name, lane in lanes:
            if lane.pending:
                async for requests in _batch(self._waiting(name, direction), _record_size):
                    yield RequestBatch(requests)
        async for delayed in _batch(self._delayed(now, direction), _record_size):
            yield RequestBatch(delayed)
        async for dead in _batch(self._dead(now, direction), _record_size):
            yield DeadBatch(dead)
        async for items in _batch(self._items(), lambda each: len(each.json)):
            yield ItemBatch(items)
        # Pages that were settled together stay together: they become one entry again.
        async for moments in connection.batch_by_size(self._moments(now), len, _AT_ONCE, _HISTORY):
            yield HistoryBatch([each for moment in moments for each in moment])
        cursors = decode_names(await crawl.read("HGETALL", crawl.key("cursors")))
        yield FinalBatch(
            facts=await read_facts(crawl),
            memo={key: (value, until - now) async for key, value, until in walk_memo(crawl) if until > now},
            cursors={
                sink: (int(position), state)
                for sink, (position, _, state) in ((sink, kept.partition(b" ")) for sink, kept in cursors.items())
            },
            done=tally.done,
            bytes=tally.bytes,
            items=tally.items,
            last_seq=tally.seq,
            last_lease=tally.lease,
            last_position=tally.position,
            trimmed=(tally.trimmed, tally.cut),
        )

    async def fill(self, batch: TransferBatch) -> None:
        match batch:
            case SeenBatch():
                await self._fill("seen", [str(each) for each in batch.fingerprints])
            case LaneBatch():
                await self._fill("lanes", [list(msgspec.structs.astuple(each)) for each in batch.lanes])
            case RequestBatch():
                lifo = any(each.seq < 0 for each in batch.requests)
                for requests in _split_for_server("a request", map(_encode_request, batch.requests)):
                    await self._fill("requests", [lifo, requests])
            case DeadBatch():
                for dead in _split_for_server("a dead letter", map(_encode_dead, batch.dead)):
                    await self._fill("dead", dead)
            case ItemBatch():
                for items in _split_for_server("an item", map(_encode_item, batch.items)):
                    await self._fill("items", items)
            case HistoryBatch():
                for moment in _group_by_settle(batch.done):
                    digest = xxhash.xxh3_128_hexdigest(str([each.fingerprint for each in moment]).encode())
                    await self._fill("history", [digest, moment[0].ago, _encode_history(moment)])
            case FinalBatch():
                await self._fill_rest(batch)

    async def _fill(self, what: str, moved: Any) -> None:
        await self._crawl.operate("fill", [what, moved], bool)

    async def _fill_rest(self, rest: FinalBatch) -> None:
        crawl = self._crawl
        if rest.facts:
            await crawl.read("HSET", crawl.key("facts"), *(word for pair in rest.facts.items() for word in pair))
        for key, (value, seconds) in rest.memo.items():
            await crawl.operate("remember", [key, seconds], bool, value)
        for sink, (position, state) in rest.cursors.items():
            await crawl.read("HSET", crawl.key("cursors"), sink, b"%d " % position + state)
        sums = {"done": rest.done, "bytes": rest.bytes, "items": rest.items, "seq": rest.last_seq}
        sums |= {"lease": rest.last_lease, "position": rest.last_position}
        sums["trimmed"], sums["cut"] = rest.trimmed
        await self._fill("rest", sums)

    async def _waiting(self, lane: str, direction: int) -> AsyncIterator[MovedRequest]:
        """Yield the pending requests of a lane, in order."""
        async for each in walk_waiting(self._crawl, lane, direction):
            yield _to_moved_request(each, lane, direction)

    async def _delayed(self, now: float, direction: int) -> AsyncIterator[MovedRequest]:
        seen: set[int] = set()
        async for each, due in walk_delayed(self._crawl):
            seq = get_sequence(each.entry)
            if seq not in seen:
                seen.add(seq)
                request = decode_entry(each.entry, each.lane)
                yield MovedRequest(
                    fingerprint=request.fingerprint,
                    lane=each.lane,
                    rank=each.rank,
                    seq=direction * seq,
                    attempt=each.attempt,
                    losses=each.losses,
                    record=request.record().decode(),
                    wait=max(0.0, due - now),
                    reason=each.reason,
                )

    async def _dead(self, now: float, direction: int) -> AsyncIterator[MovedDead]:
        async for seq, each in walk_dead(self._crawl):
            request = decode_entry(each.entry, each.lane)
            yield MovedDead(
                fingerprint=request.fingerprint,
                lane=each.lane,
                rank=each.rank,
                seq=direction * seq,
                attempt=each.attempt,
                record=request.record().decode(),
                ago=now - each.at,
                kind=each.kind,
                reason=each.reason,
                detail=each.detail,
                status=each.status,
            )

    async def _items(self) -> AsyncIterator[MovedItem]:
        async for each in walk_items(self._crawl):
            yield MovedItem(*each)

    async def _moments(self, now: float) -> AsyncIterator[list[MovedDone]]:
        async for ended in walk_history(self._crawl):
            yield [
                MovedDone(
                    fingerprint=int(each.fingerprint),
                    ago=now - each.at,
                    status=each.status,
                    size=each.size,
                    links=each.links,
                    items=each.items,
                    note=each.note,
                )
                for each in ended
            ]


def _to_moved_lane(name: str, lane: LaneRecord, now: float) -> MovedLane:
    return MovedLane(
        name=name,
        wait=max(0.0, lane.due - now),
        delay=lane.delay,
        cap=lane.cap,
        total=lane.total,
        held=max(0.0, lane.held - now),
        reason=lane.reason,
        pinned=bool(lane.pinned),
        own_delay=lane.own_delay,
        own_cap=lane.own_cap,
    )


def _to_moved_request(queued: QueuedRecord, lane: str, direction: int) -> MovedRequest:
    request = decode_entry(queued.entry, lane)
    return MovedRequest(
        fingerprint=request.fingerprint,
        lane=lane,
        rank=queued.rank,
        seq=direction * get_sequence(queued.entry),
        attempt=queued.attempt,
        losses=queued.losses,
        record=request.record().decode(),
    )


def _encode_request(moved: MovedRequest) -> list[Any]:
    wait = False if moved.wait is None else moved.wait
    return [moved.lane, moved.rank, moved.attempt, moved.losses, _entry(moved), moved.reason, wait]


def _encode_dead(moved: MovedDead) -> list[Any]:
    return [
        moved.lane,
        moved.rank,
        moved.attempt,
        _entry(moved),
        moved.ago,
        moved.kind,
        moved.reason,
        moved.detail,
        moved.status,
        group_reason(moved.reason),
    ]


def _entry(moved: MovedRequest | MovedDead) -> str:
    return f"{abs(moved.seq)} {encode_record(Request.from_record(moved.record), moved.lane)}"


def _group_by_settle(done: list[MovedDone]) -> list[list[MovedDone]]:
    """Group pages that were settled together: they have the same time."""
    return [list(moment) for _, moment in itertools.groupby(done, key=lambda each: each.ago)]


def _encode_history(moment: list[MovedDone]) -> list[Any]:
    told: list[Any] = []
    for each in moment:
        told += (str(each.fingerprint), each.status, each.size, each.links, each.items, each.note)
    return told


def _encode_item(moved: MovedItem) -> list[Any]:
    return [moved.position, str(moved.fingerprint), str(moved.number), moved.json.decode()]


def _split(entries: list[T]) -> list[list[T]]:
    return [entries[first : first + _AT_ONCE] for first in range(0, len(entries), _AT_ONCE)]


def _batch(entries: AsyncIterator[T], size: Callable[[T], int]) -> AsyncIterator[list[T]]:
    return connection.batch_by_size(entries, size, _AT_ONCE, _BYTES)


def _record_size(moved: MovedRequest | MovedDead) -> int:
    return len(moved.record) + (len(moved.detail) if isinstance(moved, MovedDead) else 0)


def _split_for_server(what: str, told: Iterable[list[Any]]) -> Iterator[list[msgspec.Raw]]:
    """Pack the records, and split them into lists of at most ``OPERATION_BYTES``."""
    return connection.split_by_size(
        (_pack_checked(what, each) for each in told), connection.size_of, connection.OPERATION_BYTES
    )


def _pack_checked(what: str, told: list[Any]) -> msgspec.Raw:
    raw = connection.pack(told)
    if connection.size_of(raw) > connection.LARGEST_BYTES:
        raise StoreError(
            f"{what} of the crawl has {connection.format_megabytes(connection.size_of(raw))}, and Redis is given "
            f"{connection.format_megabytes(connection.LARGEST_BYTES)} at most: the crawl can't be moved there"
        )
    return raw

"""A crawl on Redis, poured out and filled in."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec
import xxhash

from weft.errors import StoreError
from weft.frontier.moving import (
    Batch,
    DeadBatch,
    HistoryBatch,
    ItemBatch,
    LaneBatch,
    MovedDead,
    MovedDone,
    MovedItem,
    MovedLane,
    MovedRequest,
    RequestBatch,
    Rest,
    SeenBatch,
)
from weft.frontier.redis.contents import (
    Lane,
    seq_of,
    walk_dead,
    walk_delayed,
    walk_history,
    walk_items,
    walk_lanes,
    walk_memo,
    walk_queue,
)
from weft.frontier.redis.crawl import RedisCrawl, restored, shortened, texts
from weft.model import Request

T = TypeVar("T")
_AT_ONCE = 1000


class RedisMover:
    """See :class:`weft.frontier.moving.Mover`."""

    def __init__(self, crawl: RedisCrawl) -> None:
        self._crawl = crawl

    async def pour(self) -> AsyncIterator[Batch]:
        crawl, tally = self._crawl, await self._crawl.tally()
        if tally.leased:
            raise StoreError(f"crawl {crawl.name!r} has {tally.leased} pages leased; pause it and wait for them")
        now, direction = await crawl.now(), -1 if tally.lifo == 1 else 1
        for bucket in range(tally.buckets):
            found = await crawl.read("SMEMBERS", crawl.key(f"seen:{bucket}"))
            if found:
                yield SeenBatch([int(each) for each in found])
        lanes = [each async for each in walk_lanes(crawl)]
        for batch in _batches([_moved_lane(name, lane, now) for name, lane in lanes]):
            yield LaneBatch(batch)
        for name, lane in lanes:
            if lane.pending:
                for requests in _batches(await self._waiting(name, direction)):
                    yield RequestBatch(requests)
        async for delayed in _gathered(self._delayed(now, direction)):
            yield RequestBatch(delayed)
        async for dead in _gathered(self._dead(now, direction)):
            yield DeadBatch(dead)
        async for items in _gathered(walk_items(crawl)):
            yield ItemBatch([MovedItem(*each) for each in items])
        async for ended in walk_history(crawl):
            yield HistoryBatch(
                [
                    MovedDone(
                        fingerprint=int(each.fingerprint), ago=now - each.at, status=each.status, size=each.size,
                        links=each.links, items=each.items, note=each.note,
                    )
                    for each in ended
                ]
            )  # fmt: skip
        facts = texts(await crawl.read("HGETALL", crawl.key("facts")))
        cursors = texts(await crawl.read("HGETALL", crawl.key("cursors")))
        yield Rest(
            facts={name: value.decode() for name, value in facts.items()},
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
        )

    async def fill(self, batch: Batch) -> None:
        match batch:
            case SeenBatch():
                await self._fill("seen", [str(each) for each in batch.fingerprints])
            case LaneBatch():
                await self._fill("lanes", [list(msgspec.structs.astuple(each)) for each in batch.lanes])
            case RequestBatch():
                lifo = any(each.seq < 0 for each in batch.requests)
                await self._fill("requests", [lifo, [_filled_request(each) for each in batch.requests]])
            case DeadBatch():
                await self._fill("dead", [_filled_dead(each) for each in batch.dead])
            case ItemBatch():
                await self._fill("items", [_filled_item(each) for each in batch.items])
            case HistoryBatch():
                for moment in _moments(batch.done):
                    digest = xxhash.xxh3_128_hexdigest(str([each.fingerprint for each in moment]).encode())
                    await self._fill("history", [digest, moment[0].ago, _filled_history(moment)])
            case Rest():
                await self._fill_rest(batch)

    async def _fill(self, what: str, moved: Any) -> None:
        await self._crawl.operate("fill", [what, moved], bool)

    async def _fill_rest(self, rest: Rest) -> None:
        crawl = self._crawl
        if rest.facts:
            await crawl.read("HSET", crawl.key("facts"), *(word for pair in rest.facts.items() for word in pair))
        for key, (value, seconds) in rest.memo.items():
            await crawl.operate("remember", [key, seconds], bool, value)
        for sink, (position, state) in rest.cursors.items():
            await crawl.read("HSET", crawl.key("cursors"), sink, b"%d " % position + state)
        sums = {"done": rest.done, "bytes": rest.bytes, "items": rest.items, "seq": rest.last_seq}
        await self._fill("rest", sums | {"lease": rest.last_lease, "position": rest.last_position})

    async def _waiting(self, lane: str, direction: int) -> list[MovedRequest]:
        """The requests of a lane, in its order."""
        found = {seq_of(each.entry): each async for each in walk_queue(self._crawl, lane)}
        moved = [
            MovedRequest(
                fingerprint=restored(each.entry, lane).fingerprint, lane=lane, rank=each.rank,
                seq=direction * seq, attempt=each.attempt, losses=each.losses,
                record=restored(each.entry, lane).record().decode(),
            )
            for seq, each in found.items()
        ]  # fmt: skip
        return sorted(moved, key=lambda each: (each.rank, each.seq))

    async def _delayed(self, now: float, direction: int) -> AsyncIterator[MovedRequest]:
        seen: set[int] = set()
        async for each, due in walk_delayed(self._crawl):
            seq = seq_of(each.entry)
            if seq not in seen:
                seen.add(seq)
                request = restored(each.entry, each.lane)
                yield MovedRequest(
                    fingerprint=request.fingerprint, lane=each.lane, rank=each.rank, seq=direction * seq,
                    attempt=each.attempt, losses=each.losses, record=request.record().decode(),
                    wait=max(0.0, due - now), reason=each.reason,
                )  # fmt: skip

    async def _dead(self, now: float, direction: int) -> AsyncIterator[MovedDead]:
        async for seq, each in walk_dead(self._crawl):
            request = restored(each.entry, each.lane)
            yield MovedDead(
                fingerprint=request.fingerprint, lane=each.lane, rank=each.rank, seq=direction * seq,
                attempt=each.attempt, record=request.record().decode(), ago=now - each.at, kind=each.kind,
                reason=each.reason, detail=each.detail, status=each.status,
            )  # fmt: skip


def _moved_lane(name: str, lane: Lane, now: float) -> MovedLane:
    return MovedLane(
        name=name, wait=max(0.0, lane.due - now), delay=lane.delay, cap=lane.cap, total=lane.total,
        held=max(0.0, lane.held - now), reason=lane.reason, pinned=bool(lane.pinned),
    )  # fmt: skip


def _filled_request(moved: MovedRequest) -> list[Any]:
    wait = False if moved.wait is None else moved.wait
    return [moved.lane, moved.rank, moved.attempt, moved.losses, _entry(moved), moved.reason, wait]


def _filled_dead(moved: MovedDead) -> list[Any]:
    return [
        moved.lane, moved.rank, moved.attempt, _entry(moved), moved.ago, moved.kind, moved.reason, moved.detail,
        moved.status,
    ]  # fmt: skip


def _entry(moved: MovedRequest | MovedDead) -> str:
    return f"{abs(moved.seq)} {shortened(Request.from_record(moved.record), moved.lane)}"


def _moments(done: list[MovedDone]) -> list[list[MovedDone]]:
    """Pages that were settled together."""
    return [list(moment) for _, moment in itertools.groupby(done, key=lambda each: each.ago)]


def _filled_history(moment: list[MovedDone]) -> list[Any]:
    told: list[Any] = []
    for each in moment:
        told += (str(each.fingerprint), each.status, each.size, each.links, each.items, each.note)
    return told


def _filled_item(moved: MovedItem) -> list[Any]:
    return [moved.position, str(moved.fingerprint), str(moved.number), moved.json.decode()]


def _batches(entries: list[T]) -> list[list[T]]:
    return [entries[first : first + _AT_ONCE] for first in range(0, len(entries), _AT_ONCE)]


async def _gathered(entries: AsyncIterator[T]) -> AsyncIterator[list[T]]:
    batch: list[T] = []
    async for entry in entries:
        batch.append(entry)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch

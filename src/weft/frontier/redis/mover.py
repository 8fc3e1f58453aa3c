"""A crawl on Redis, poured out and filled in."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
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
from weft.frontier.redis import pieces
from weft.frontier.redis.contents import (
    Lane,
    Queued,
    seq_of,
    walk_dead,
    walk_delayed,
    walk_history,
    walk_items,
    walk_lanes,
    walk_memo,
)
from weft.frontier.redis.crawl import RedisCrawl, restored, shortened, texts
from weft.frontier.redis.waiting import walk_waiting
from weft.model import Request

T = TypeVar("T")

# A batch that is poured ends at so many records, or at so many bytes.
_AT_ONCE = 1000
_BYTES = 8_000_000
# Pages of the history in a batch: a store that has no index of them looks through all for each batch.
_HISTORY = 5000


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
                async for requests in _gathered(self._waiting(name, direction), _weight):
                    yield RequestBatch(requests)
        async for delayed in _gathered(self._delayed(now, direction), _weight):
            yield RequestBatch(delayed)
        async for dead in _gathered(self._dead(now, direction), _weight):
            yield DeadBatch(dead)
        async for items in _gathered(self._items(), lambda each: len(each.json)):
            yield ItemBatch(items)
        # What was settled together stays together: it is filled in as one.
        async for moments in pieces.gathered(self._moments(now), len, _AT_ONCE, _HISTORY):
            yield HistoryBatch([each for moment in moments for each in moment])
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
                for requests in _cut("a request", map(_filled_request, batch.requests)):
                    await self._fill("requests", [lifo, requests])
            case DeadBatch():
                for dead in _cut("a dead letter", map(_filled_dead, batch.dead)):
                    await self._fill("dead", dead)
            case ItemBatch():
                for items in _cut("an item", map(_filled_item, batch.items)):
                    await self._fill("items", items)
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

    async def _waiting(self, lane: str, direction: int) -> AsyncIterator[MovedRequest]:
        """The requests of a lane, in its order."""
        async for each in walk_waiting(self._crawl, lane, direction):
            yield _moved_request(each, lane, direction)

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

    async def _items(self) -> AsyncIterator[MovedItem]:
        async for each in walk_items(self._crawl):
            yield MovedItem(*each)

    async def _moments(self, now: float) -> AsyncIterator[list[MovedDone]]:
        async for ended in walk_history(self._crawl):
            yield [
                MovedDone(
                    fingerprint=int(each.fingerprint), ago=now - each.at, status=each.status, size=each.size,
                    links=each.links, items=each.items, note=each.note,
                )
                for each in ended
            ]  # fmt: skip


def _moved_lane(name: str, lane: Lane, now: float) -> MovedLane:
    return MovedLane(
        name=name, wait=max(0.0, lane.due - now), delay=lane.delay, cap=lane.cap, total=lane.total,
        held=max(0.0, lane.held - now), reason=lane.reason, pinned=bool(lane.pinned),
        own_delay=lane.own_delay, own_cap=lane.own_cap,
    )  # fmt: skip


def _moved_request(queued: Queued, lane: str, direction: int) -> MovedRequest:
    request = restored(queued.entry, lane)
    return MovedRequest(
        fingerprint=request.fingerprint, lane=lane, rank=queued.rank, seq=direction * seq_of(queued.entry),
        attempt=queued.attempt, losses=queued.losses, record=request.record().decode(),
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


def _gathered(entries: AsyncIterator[T], size: Callable[[T], int]) -> AsyncIterator[list[T]]:
    return pieces.gathered(entries, size, _AT_ONCE, _BYTES)


def _weight(moved: MovedRequest | MovedDead) -> int:
    return len(moved.record) + (len(moved.detail) if isinstance(moved, MovedDead) else 0)


def _cut(what: str, told: Iterable[list[Any]]) -> Iterator[list[msgspec.Raw]]:
    """As the server takes them, an operation's worth at a time."""
    return pieces.cut((_sendable(what, each) for each in told), pieces.size_of, pieces.OPERATION_BYTES)


def _sendable(what: str, told: list[Any]) -> msgspec.Raw:
    raw = pieces.packed(told)
    if pieces.size_of(raw) > pieces.LARGEST_BYTES:
        raise StoreError(
            f"{what} of the crawl has {pieces.megabytes(pieces.size_of(raw))}, and Redis is given "
            f"{pieces.megabytes(pieces.LARGEST_BYTES)} at most: the crawl can't be moved there"
        )
    return raw

"""The Inspector on Redis: inspection and manual changes of a crawl.

A request is found by reading keys in chunks: no index is kept for this. If its lane is known, the server searches the
dead letters, in steps of ``_LETTERS_AT_ONCE``. Pages of lanes are in ``lanes``, dead letters in ``dead_letters``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from uttu.frontier.redis.cache import CrawlCache
from uttu.frontier.redis.crawl import RedisCrawl, decode_entry
from uttu.frontier.redis.dead_letters import RedisDeadLetters
from uttu.frontier.redis.lanes import read_lane_page
from uttu.frontier.redis.records import (
    DeadRecord,
    LaneRecord,
    LeaseRecord,
    QueuedRecord,
    decode_queued,
    get_sequence,
    scan,
    walk_dead,
    walk_delayed,
    walk_history,
    walk_lanes,
)
from uttu.model import Pace, Request
from uttu.model.inspection import DeadGroup, DeadPage, DeadQuery, LanePage, LaneQuery
from uttu.model.lease import RequestState, Trace, decode_note

_AT_ONCE = 500
_LETTERS_AT_ONCE = 1000


class RedisInspector:
    """See :class:`uttu.frontier.base.Inspector`."""

    def __init__(self, crawl: RedisCrawl, cache: CrawlCache) -> None:
        self._crawl = crawl
        self._cache = cache
        self._dead = RedisDeadLetters(crawl, cache)

    async def trace(self, fingerprint: int, lane: str = "") -> Trace:
        tally = await self._crawl.tally()
        bucket = seen_bucket(fingerprint, tally.buckets)
        if not await self._crawl.read("SISMEMBER", self._crawl.key(f"seen:{bucket}"), str(fingerprint)):
            return Trace(state=RequestState.UNKNOWN)
        search = _Search(self._crawl, fingerprint, lane, -1 if tally.lifo == 1 else 1)
        # One lane is searched faster than all dead letters, but all lanes are not.
        first, last = (search.pending, search.dead) if lane else (search.dead, search.pending)
        for step in (first, search.leased, search.delayed, search.done, last):
            if found := await step():
                return found
        return Trace(state=RequestState.DONE)

    async def lanes(self, query: LaneQuery) -> LanePage:
        return await read_lane_page(self._crawl, self._cache.lanes, query)

    async def dead(self, query: DeadQuery) -> DeadPage:
        return await self._dead.page(query)

    async def dead_groups(self) -> list[DeadGroup]:
        return await self._dead.groups()

    async def repace(self, old: Pace, new: Pace) -> int:
        names = [name async for name, _ in walk_lanes(self._crawl)]
        changed = 0
        for first in range(0, len(names), _AT_ONCE):
            asked = [names[first : first + _AT_ONCE], old.delay, old.limit, new.delay, new.limit]
            changed += await self._crawl.operate("repace", asked, int)
        return changed

    async def pin(self, lane: str, delay: float | None) -> None:
        await self._crawl.operate("pin", [lane, False if delay is None else delay], bool)

    async def revive(self, kind: str = "", url: str = "", message: str = "") -> int:
        return await self._dead.revive(kind, url, message)


class _Search:
    """The search for one request: a method for each state that it can be in.

    :param lane: the lane of the request; empty if it is not known.
    :param direction: -1 in a last-in-first-out crawl, else 1.
    """

    def __init__(self, crawl: RedisCrawl, fingerprint: int, lane: str, direction: int) -> None:
        self._crawl = crawl
        self._fingerprint = fingerprint
        self._lane = lane
        self._direction = direction

    async def _letters(self) -> AsyncIterator[DeadRecord]:
        if not self._lane:
            async for _, each in walk_dead(self._crawl):
                yield each
            return
        cursor = "0"
        while True:
            asked = [cursor, _LETTERS_AT_ONCE, self._lane]
            cursor, found = await self._crawl.operate("find_letters", asked, tuple[str, list[DeadRecord]])
            for each in found:
                yield each
            if cursor == "0":
                return

    async def dead(self) -> Trace | None:
        async for each in self._letters():
            if request := self._match(each.entry, each.lane):
                return Trace(
                    state=RequestState.DEAD,
                    request=request,
                    attempt=each.attempt,
                    lane=each.lane,
                    at=each.at,
                    status=each.status,
                    kind=each.kind,
                    reason=each.reason,
                    detail=each.detail,
                )
        return None

    async def leased(self) -> Trace | None:
        async for found in scan(self._crawl.server, "HSCAN", self._crawl.key("leases")):
            for number, kept in found:
                each = msgspec.msgpack.decode(kept, type=LeaseRecord)
                if request := self._match(each.entry, each.lane):
                    deadline = await self._crawl.read("ZSCORE", self._crawl.key("deadlines"), number)
                    return Trace(
                        state=RequestState.LEASED,
                        request=request,
                        attempt=each.attempt,
                        lane=each.lane,
                        worker=each.worker,
                        due=float(deadline or 0.0),
                    )
        return None

    async def delayed(self) -> Trace | None:
        async for each, due in walk_delayed(self._crawl):
            if request := self._match(each.entry, each.lane):
                return Trace(
                    state=RequestState.DELAYED,
                    request=request,
                    attempt=each.attempt,
                    lane=each.lane,
                    due=due,
                    reason=each.reason,
                )
        return None

    async def done(self) -> Trace | None:
        wanted = str(self._fingerprint)
        async for ended in walk_history(self._crawl):
            for each in ended:
                if each.fingerprint == wanted:
                    note, redirect = decode_note(each.note)
                    return Trace(
                        state=RequestState.DONE,
                        at=each.at,
                        status=each.status,
                        size=each.size,
                        links=each.links,
                        items=each.items,
                        reason=note,
                        redirect=redirect,
                    )
        return None

    async def pending(self) -> Trace | None:
        if not self._lane:
            async for name, lane in walk_lanes(self._crawl):
                if lane.pending and (found := await self._pending_in(name, lane)):
                    return found
            return None
        kept = await self._crawl.read("HGET", self._crawl.key("lanes"), self._lane)
        return kept and await self._pending_in(self._lane, msgspec.msgpack.decode(kept, type=LaneRecord))

    async def _pending_in(self, name: str, lane: LaneRecord) -> Trace | None:
        found = await self._find_back(name) or await self._find_queued(name)
        if found is None:
            return None
        return Trace(
            state=RequestState.PENDING,
            request=decode_entry(found.entry, name),
            attempt=found.attempt,
            lane=name,
            due=lane.due,
            reason=lane.reason if lane.held > await self._crawl.now() else "",
            ahead=await self._count_ahead(name, found),
        )

    async def _find_back(self, name: str) -> QueuedRecord | None:
        async for found in scan(self._crawl.server, "ZSCAN", self._crawl.key(f"back:{name}")):
            for member, rank in found:
                each = decode_queued(member, rank)
                if self._match(each.entry, name):
                    return each
        return None

    async def _find_queued(self, name: str) -> QueuedRecord | None:
        """Search the queue of a lane from its end.

        Requests leave it at its front while this reads, which doesn't move those at the end. Those that are added at
        the end move the others away from it, so some are read twice, but none is missed.
        """
        end = -1
        key = self._crawl.key(f"queue:{name}")
        while found := await self._crawl.read("LRANGE", key, end - _AT_ONCE + 1, end):
            for entry in found:
                each = QueuedRecord(0, 0, 0, entry.decode())
                if self._match(each.entry, name):
                    return each
            end -= _AT_ONCE
        return None

    async def _count_ahead(self, name: str, found: QueuedRecord) -> int:
        """Count the requests before this one. Both keys of a lane are in order, so this is two binary searches."""
        back, queue = self._crawl.key(f"back:{name}"), self._crawl.key(f"queue:{name}")

        async def read_back(index: int) -> QueuedRecord | None:
            members = await self._crawl.read("ZRANGE", back, index, index)
            return decode_queued(members[0], await self._crawl.read("ZSCORE", back, members[0])) if members else None

        async def read_queued(index: int) -> QueuedRecord | None:
            entry = await self._crawl.read("LINDEX", queue, index)
            return None if entry is None else QueuedRecord(0, 0, 0, entry.decode())

        ahead = 0
        for size, read in (("ZCARD", back), read_back), (("LLEN", queue), read_queued):
            ahead += await self._count_before(found, int(await self._crawl.read(*size)), read)
        return ahead

    async def _count_before(
        self, found: QueuedRecord, size: int, read: Callable[[int], Awaitable[QueuedRecord | None]]
    ) -> int:
        low, high, place = 0, size, self._place(found)
        while low < high:
            middle = (low + high) // 2
            each = await read(middle)
            if each is not None and self._place(each) < place:
                low = middle + 1
            else:
                high = middle
        return low

    def _place(self, queued: QueuedRecord) -> tuple[int, int]:
        return queued.rank, self._direction * get_sequence(queued.entry)

    def _match(self, entry: str, lane: str) -> Request | None:
        if self._lane not in ("", lane):
            return None
        request = decode_entry(entry, lane)
        return request if request.fingerprint == self._fingerprint else None


def seen_bucket(fingerprint: int, buckets: int) -> int:
    """Return the number of the ``seen`` set of a fingerprint; the same rule as in ``lua/2_admission.lua``."""
    level = 1 << (buckets.bit_length() - 1)
    bucket = int(str(fingerprint)[-9:]) % (2 * level)
    return bucket if bucket < buckets else bucket - level

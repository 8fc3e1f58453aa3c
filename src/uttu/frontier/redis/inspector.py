"""The Inspector on Redis: inspection and manual changes of a crawl.

A request is found by reading keys in chunks: no index is kept for this.
"""

from __future__ import annotations

import heapq
from collections import Counter

import msgspec

from uttu.frontier.redis.crawl import RedisCrawl, decode_entry
from uttu.frontier.redis.records import (
    LeaseRecord,
    get_sequence,
    scan,
    walk_dead,
    walk_delayed,
    walk_history,
    walk_lanes,
    walk_queue,
)
from uttu.model import Pace, Request
from uttu.model.lease import DeadLetter, LaneState, RequestState, Trace, decode_note

_AT_ONCE = 500


class RedisInspector:
    """See :class:`uttu.frontier.base.Inspector`."""

    def __init__(self, crawl: RedisCrawl) -> None:
        self._crawl = crawl

    async def trace(self, fingerprint: int) -> Trace:
        tally = await self._crawl.tally()
        bucket = seen_bucket(fingerprint, tally.buckets)
        if not await self._crawl.read("SISMEMBER", self._crawl.key(f"seen:{bucket}"), str(fingerprint)):
            return Trace(state=RequestState.UNKNOWN)
        return (
            await self._trace_dead(fingerprint)
            or await self._trace_leased(fingerprint)
            or await self._trace_delayed(fingerprint)
            or await self._trace_done(fingerprint)
            or await self._trace_pending(fingerprint, tally.lifo == 1)
            or Trace(state=RequestState.DONE)
        )

    async def lanes(self, limit: int) -> list[LaneState]:
        now = await self._crawl.now()
        found = [(name, lane) async for name, lane in walk_lanes(self._crawl) if lane.pending or lane.active]
        return [
            LaneState(
                name=name,
                pending=lane.pending,
                active=lane.active,
                total=lane.total,
                pace=Pace(lane.delay, lane.cap),
                wait=max(0.0, lane.due - now),
                reason=lane.reason if lane.held > now else "",
                pinned=bool(lane.pinned),
            )
            for name, lane in heapq.nlargest(limit, found, key=lambda each: (each[1].pending, each[1].active))
        ]

    async def dead(self, limit: int, kind: str = "") -> list[DeadLetter]:
        found = [(seq, each) async for seq, each in walk_dead(self._crawl) if kind in ("", each.kind)]
        found.sort(key=lambda pair: (-pair[1].at, -pair[0]))
        return [
            DeadLetter(
                request=decode_entry(each.entry, each.lane),
                kind=each.kind,
                reason=each.reason,
                detail=each.detail,
                status=each.status,
                attempt=each.attempt,
                at=each.at,
            )
            for _, each in found[:limit]
        ]

    async def dead_kinds(self) -> dict[str, int]:
        return dict(Counter([each.kind async for _, each in walk_dead(self._crawl)]))

    async def repace(self, old: Pace, new: Pace) -> int:
        names = [name async for name, _ in walk_lanes(self._crawl)]
        changed = 0
        for first in range(0, len(names), _AT_ONCE):
            asked = [names[first : first + _AT_ONCE], old.delay, old.limit, new.delay, new.limit]
            changed += await self._crawl.operate("repace", asked, int)
        return changed

    async def pin(self, lane: str, delay: float | None) -> None:
        await self._crawl.operate("pin", [lane, False if delay is None else delay], bool)

    async def revive(self, kind: str = "", url: str = "") -> int:
        chosen = [
            str(seq)
            async for seq, each in walk_dead(self._crawl)
            if kind in ("", each.kind) and url in ("", decode_entry(each.entry, each.lane).url)
        ]
        revived = 0
        for first in range(0, len(chosen), _AT_ONCE):
            revived += await self._crawl.operate("revive", chosen[first : first + _AT_ONCE], int)
        return revived

    async def _trace_dead(self, fingerprint: int) -> Trace | None:
        async for _, each in walk_dead(self._crawl):
            request = _match_fingerprint(each.entry, each.lane, fingerprint)
            if request:
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

    async def _trace_leased(self, fingerprint: int) -> Trace | None:
        async for found in scan(self._crawl.server, "HSCAN", self._crawl.key("leases")):
            for number, kept in found:
                each = msgspec.msgpack.decode(kept, type=LeaseRecord)
                request = _match_fingerprint(each.entry, each.lane, fingerprint)
                if request:
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

    async def _trace_delayed(self, fingerprint: int) -> Trace | None:
        async for each, due in walk_delayed(self._crawl):
            request = _match_fingerprint(each.entry, each.lane, fingerprint)
            if request:
                return Trace(
                    state=RequestState.DELAYED,
                    request=request,
                    attempt=each.attempt,
                    lane=each.lane,
                    due=due,
                    reason=each.reason,
                )
        return None

    async def _trace_done(self, fingerprint: int) -> Trace | None:
        async for ended in walk_history(self._crawl):
            for each in ended:
                if each.fingerprint == str(fingerprint):
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

    async def _trace_pending(self, fingerprint: int, lifo: bool) -> Trace | None:
        now = await self._crawl.now()
        async for name, lane in walk_lanes(self._crawl):
            if not lane.pending:
                continue
            waiting = [each async for each in walk_queue(self._crawl, name)]
            found = next((each for each in waiting if _match_fingerprint(each.entry, name, fingerprint)), None)
            if found is not None:
                direction = -1 if lifo else 1
                place = (found.rank, direction * get_sequence(found.entry))
                return Trace(
                    state=RequestState.PENDING,
                    request=decode_entry(found.entry, name),
                    attempt=found.attempt,
                    lane=name,
                    due=lane.due,
                    reason=lane.reason if lane.held > now else "",
                    ahead=sum((each.rank, direction * get_sequence(each.entry)) < place for each in waiting),
                )
        return None


def seen_bucket(fingerprint: int, buckets: int) -> int:
    """Return the number of the ``seen`` set of a fingerprint; the same rule as in ``lua/2_admission.lua``."""
    level = 1 << (buckets.bit_length() - 1)
    bucket = int(str(fingerprint)[-9:]) % (2 * level)
    return bucket if bucket < buckets else bucket - level


def _match_fingerprint(entry: str, lane: str, fingerprint: int) -> Request | None:
    request = decode_entry(entry, lane)
    return request if request.fingerprint == fingerprint else None

"""The Frontier on Redis. The keys are drawn in ``crawl``, the operations are the Lua library in ``lua``.

Every method is one round trip over its whole batch, atomic on the server, by the server's clock. Only outcomes that
are very large together are settled in several.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from weft.clock import Clock, SystemClock
from weft.frontier.redis import pieces
from weft.frontier.redis.crawl import RedisCrawl, admissible, restored
from weft.model import Counts, Dead, Done, Lease, Outcome, Request, Retry

_FIELDS = 5  # of a lease as the server tells it: id, lane, attempt, wait, entry


class _Told(NamedTuple):
    """An outcome as the server takes it, when its host was touched, and how many bytes it has, about."""

    fields: list[Any]
    touched: float | None
    size: int


class RedisFrontier:
    """See :class:`weft.frontier.base.Frontier`."""

    def __init__(self, crawl: RedisCrawl, clock: Clock | None = None) -> None:
        self._crawl = crawl
        self._clock = clock or SystemClock()
        # Questions are numbered: one that is asked again, because its answer got lost, is answered the same.
        self._questions = (f"{secrets.token_hex(4)}{number:x}" for number in itertools.count())

    async def put(self, requests: Sequence[Request]) -> int:
        return await self._crawl.operate("put", admissible(requests, self._crawl.ranked), int)

    async def lease(self, limit: int, worker: str) -> list[Lease]:
        told = await self._crawl.operate("lease", [limit, worker, next(self._questions)], list[Any])
        return [_lease(told[0], *told[first : first + _FIELDS]) for first in range(1, len(told), _FIELDS)]

    async def extend(self, leases: Sequence[Lease]) -> set[int]:
        lost = await self._crawl.operate("extend", [str(lease.id) for lease in leases], set[str])
        return {int(number) for number in lost}

    async def settle(self, outcomes: Sequence[Outcome]) -> set[int]:
        # Of several outcomes of one lease the first counts, wherever they are cut.
        first: dict[int, Outcome] = {}
        for outcome in outcomes:
            first.setdefault(outcome.lease.id, outcome)
        told = (_told(outcome, self._crawl.ranked) for outcome in first.values())
        lost: set[str] = set()
        for piece in pieces.cut(told, lambda each: each.size, pieces.OPERATION_BYTES):
            lost |= await self._crawl.operate("settle", self._now(piece), set[str])
        return {int(number) for number in lost}

    async def hold(self, lane: str, seconds: float, reason: str) -> None:
        await self._crawl.operate("hold", [lane, seconds, reason], bool)

    async def counts(self) -> Counts:
        return (await self._crawl.tally()).counts()

    async def close(self) -> None:
        """The connection is the depot's; nothing else is held on this side."""

    def _now(self, told: Sequence[_Told]) -> Callable[[], Any]:
        """The outcomes as the server takes them. When the host was touched is told as seconds ago, which grow
        from one try to the next."""

        def now() -> list[list[Any]]:
            moment = self._clock.monotonic()
            for each in told:
                each.fields[2] = False if each.touched is None else moment - each.touched
            return [each.fields for each in told]

        return now


def _lease(deadline: float, number: str, lane: str, attempt: int, wait: float, entry: str) -> Lease:
    request = restored(entry, lane)
    return Lease(
        id=int(number), fingerprint=request.fingerprint, lane=lane, request=request, attempt=attempt, wait=wait,
        deadline=deadline,
    )  # fmt: skip


def _told(outcome: Outcome, ranked: bool) -> _Told:
    """See ``lua/4_settling.lua``; the moment of the touch is still to be filled in."""
    delay, cap = (outcome.pace.delay, outcome.pace.limit) if outcome.pace else (False, False)
    head: list[Any] = [str(outcome.lease.id), "", False, delay, cap]
    if isinstance(outcome, Retry):
        head[1] = "retry"
        return _Told([*head, outcome.after, outcome.counted, outcome.reason], outcome.touched, len(outcome.reason))
    children = pieces.packed(admissible(outcome.children, ranked))
    items = pieces.packed([item.decode() for item in outcome.items])
    size = pieces.size_of(children) + pieces.size_of(items)
    if size > pieces.LARGEST_BYTES:
        return _told(_too_large(outcome, size), ranked)
    body: list[Any] = [str(outcome.lease.fingerprint), children, items, outcome.status]
    if isinstance(outcome, Done):
        head[1] = "done"
        body += (outcome.size, outcome.note)
    else:
        head[1] = "dead"
        body += (outcome.kind, outcome.reason, outcome.detail)
        size += len(outcome.detail)
    return _Told([*head, *body], outcome.touched, size)


def _too_large(outcome: Done | Dead, size: int) -> Dead:
    """What becomes of a page that gave more than a server takes: it is dead, without its items and links."""
    reason = (
        f"its {len(outcome.items):,} items and {len(outcome.children):,} links are {pieces.megabytes(size)} and were "
        f"dropped; of one page the store takes {pieces.megabytes(pieces.LARGEST_BYTES)}"
    )
    if isinstance(outcome, Dead):
        return msgspec.structs.replace(outcome, reason=f"{outcome.reason}; {reason}", children=(), items=())
    return Dead(
        lease=outcome.lease, touched=outcome.touched, pace=outcome.pace, kind="handler", reason=reason,
        status=outcome.status,
    )  # fmt: skip

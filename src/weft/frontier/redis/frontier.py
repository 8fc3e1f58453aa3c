"""The Frontier on Redis. The keys are drawn in ``crawl``, the operations are the Lua library in ``lua``.

Every method is one round trip over its whole batch, atomic on the server, by the server's clock.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from weft.clock import Clock, SystemClock
from weft.frontier.redis.crawl import RedisCrawl, admissible, restored
from weft.model import Counts, Dead, Done, Lease, Outcome, Request

_FIELDS = 5  # of a lease as the server tells it: id, lane, attempt, wait, entry


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
        lost = await self._crawl.operate("settle", self._told(outcomes), set[str])
        return {int(number) for number in lost}

    async def hold(self, lane: str, seconds: float, reason: str) -> None:
        await self._crawl.operate("hold", [lane, seconds, reason], bool)

    async def counts(self) -> Counts:
        return (await self._crawl.tally()).counts()

    async def close(self) -> None:
        """The connection is the depot's; nothing else is held on this side."""

    def _told(self, outcomes: Sequence[Outcome]) -> Callable[[], Any]:
        """The outcomes as the server takes them. When the host was touched is told as seconds ago, which grow
        from one try to the next."""
        told = [_told(outcome, self._crawl.ranked) for outcome in outcomes]

        def now() -> list[list[Any]]:
            moment = self._clock.monotonic()
            for outcome, fields in zip(outcomes, told, strict=True):
                fields[2] = False if outcome.touched is None else moment - outcome.touched
            return told

        return now


def _lease(deadline: float, number: str, lane: str, attempt: int, wait: float, entry: str) -> Lease:
    request = restored(entry, lane)
    return Lease(
        id=int(number), fingerprint=request.fingerprint, lane=lane, request=request, attempt=attempt, wait=wait,
        deadline=deadline,
    )  # fmt: skip


def _told(outcome: Outcome, ranked: bool) -> list[Any]:
    """See ``lua/4_settling.lua``; the moment of the touch is still to be filled in."""
    delay, cap = (outcome.pace.delay, outcome.pace.limit) if outcome.pace else (False, False)
    head: list[Any] = [str(outcome.lease.id), "", False, delay, cap]
    if isinstance(outcome, Done | Dead):
        children = admissible(outcome.children, ranked)
        items = [item.decode() for item in outcome.items]
        body: list[Any] = [str(outcome.lease.fingerprint), children, items, outcome.status]
        if isinstance(outcome, Done):
            head[1] = "done"
            return [*head, *body, outcome.size, outcome.note]
        head[1] = "dead"
        return [*head, *body, outcome.kind, outcome.reason, outcome.detail]
    head[1] = "retry"
    return [*head, outcome.after, outcome.counted, outcome.reason]

"""The Frontier on Redis. See ``crawl`` for the keys and ``lua/`` for the operations.

Each method is one round trip for its whole batch, atomic on the server, by the server's clock. ``settle`` alone splits
a batch if its outcomes exceed ``OPERATION_BYTES``.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from uttu.clock import Clock, SystemClock
from uttu.frontier.redis import connection
from uttu.frontier.redis.crawl import RedisCrawl, decode_entry, encode_requests
from uttu.model import Counts, Dead, Done, Lease, Outcome, Request, Retry
from uttu.model.inspection import group_reason
from uttu.model.lease import DeadKind, encode_redirect

_FIELDS = 5  # fields of a lease in the reply: id, lane, attempt, wait, entry


class _EncodedOutcome(NamedTuple):
    """An outcome in the format of ``lua/5_settling.lua``, the time its host was touched, and its approximate size."""

    fields: list[Any]
    touched: float | None
    size: int


class RedisFrontier:
    """See :class:`uttu.frontier.base.Frontier`."""

    def __init__(self, crawl: RedisCrawl, clock: Clock | None = None) -> None:
        self._crawl = crawl
        self._clock = clock or SystemClock()
        # Each lease call has an id. A call that is repeated because its reply was lost gets the same leases again.
        self._questions = (f"{secrets.token_hex(4)}{number:x}" for number in itertools.count())

    async def put(self, requests: Sequence[Request]) -> int:
        return await self._crawl.operate("put", encode_requests(requests, self._crawl.ranked), int)

    async def lease(self, limit: int, worker: str) -> list[Lease]:
        told = await self._crawl.operate("lease", [limit, worker, next(self._questions)], list[Any])
        return [_to_lease(told[0], *told[first : first + _FIELDS]) for first in range(1, len(told), _FIELDS)]

    async def extend(self, leases: Sequence[Lease]) -> set[int]:
        lost = await self._crawl.operate("extend", [str(lease.id) for lease in leases], set[str])
        return {int(number) for number in lost}

    async def settle(self, outcomes: Sequence[Outcome]) -> set[int]:
        # If one lease has several outcomes, the first counts, even if the batch is split between them.
        first: dict[int, Outcome] = {}
        for outcome in outcomes:
            first.setdefault(outcome.lease.id, outcome)
        told = (_encode_outcome(outcome, self._crawl.ranked) for outcome in first.values())
        lost: set[str] = set()
        for piece in connection.split_by_size(told, lambda each: each.size, connection.OPERATION_BYTES):
            lost |= await self._crawl.operate("settle", self._now(piece), set[str])
        return {int(number) for number in lost}

    async def hold(self, lane: str, seconds: float, reason: str) -> None:
        await self._crawl.operate("hold", [lane, seconds, reason], bool)

    async def counts(self) -> Counts:
        return (await self._crawl.tally()).counts()

    async def close(self) -> None:
        """Does nothing: the connection belongs to the catalog."""

    def _now(self, told: Sequence[_EncodedOutcome]) -> Callable[[], Any]:
        """Build the arguments of one try. The touch is sent as seconds ago, which grow from one try to the next."""

        def now() -> list[list[Any]]:
            moment = self._clock.monotonic()
            for each in told:
                each.fields[2] = False if each.touched is None else moment - each.touched
            return [each.fields for each in told]

        return now


def _to_lease(deadline: float, number: str, lane: str, attempt: int, wait: float, entry: str) -> Lease:
    request = decode_entry(entry, lane)
    return Lease(
        id=int(number),
        fingerprint=request.fingerprint,
        lane=lane,
        request=request,
        attempt=attempt,
        wait=wait,
        deadline=deadline,
    )


def _encode_outcome(outcome: Outcome, ranked: bool) -> _EncodedOutcome:
    """Encode an outcome as ``lua/5_settling.lua`` expects it; :meth:`RedisFrontier._now` fills in the touch."""
    delay, cap = (outcome.pace.delay, outcome.pace.limit) if outcome.pace else (False, False)
    head: list[Any] = [str(outcome.lease.id), "", False, delay, cap]
    if isinstance(outcome, Retry):
        head[1] = "retry"
        return _EncodedOutcome(
            [*head, outcome.after, outcome.counted, outcome.reason], outcome.touched, len(outcome.reason)
        )
    children = connection.pack(encode_requests(outcome.children, ranked))
    items = connection.pack([item.decode() for item in outcome.items])
    size = connection.size_of(children) + connection.size_of(items)
    if size > connection.LARGEST_BYTES:
        return _encode_outcome(_too_large(outcome, size), ranked)
    body: list[Any] = [str(outcome.lease.fingerprint), children, items, outcome.status]
    if isinstance(outcome, Done):
        head[1] = "done"
        body += (outcome.size, outcome.note if outcome.redirect is None else encode_redirect(outcome.redirect))
    else:
        head[1] = "dead"
        body += (outcome.kind, outcome.reason, outcome.detail, group_reason(outcome.reason))
        size += len(outcome.detail)
    return _EncodedOutcome([*head, *body], outcome.touched, size)


def _too_large(outcome: Done | Dead, size: int) -> Dead:
    """Replace the outcome of a page that exceeds ``LARGEST_BYTES``: it becomes dead, without its items and links."""
    reason = (
        f"its {len(outcome.items):,} items and {len(outcome.children):,} links are "
        f"{connection.format_megabytes(size)} and were dropped; of one page the store takes "
        f"{connection.format_megabytes(connection.LARGEST_BYTES)}"
    )
    if isinstance(outcome, Dead):
        return msgspec.structs.replace(outcome, reason=f"{outcome.reason}; {reason}", children=(), items=())
    return Dead(
        lease=outcome.lease,
        touched=outcome.touched,
        pace=outcome.pace,
        kind=DeadKind.HANDLER,
        reason=reason,
        status=outcome.status,
    )

"""A crawl as plain records, to carry it from one store to another.

A store *pours* what it holds as a stream of batches, and *fills* itself with such a stream; it need not know where
the records come from. Nothing may be leased meanwhile, so the crawl is paused first. Filling with a batch again does
no harm, so a move that was cut short is simply done again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec


class SeenBatch(msgspec.Struct, frozen=True, tag="seen"):
    """Fingerprints of requests ever admitted."""

    fingerprints: list[int]


class MovedLane(msgspec.Struct, frozen=True, kw_only=True):
    """A lane without its requests. Times are seconds from now; 0 if past. ``own_delay`` and ``own_cap`` are the pace
    that a pinned lane goes back to; None if it is not pinned, or nothing ever came into it."""

    name: str
    wait: float
    delay: float
    cap: int
    total: int
    held: float
    reason: str
    pinned: bool
    own_delay: float | None = None
    own_cap: int | None = None


class LaneBatch(msgspec.Struct, frozen=True, tag="lanes"):
    lanes: list[MovedLane]


class MovedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is pending, or delayed if ``wait`` is not None. ``rank`` and ``seq`` are its place in its lane:
    smaller comes first."""

    fingerprint: int
    lane: str
    rank: int
    seq: int
    attempt: int
    losses: int
    record: str
    wait: float | None = None
    reason: str = ""


class RequestBatch(msgspec.Struct, frozen=True, tag="requests"):
    requests: list[MovedRequest]


class MovedDead(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter; ``ago`` is how many seconds ago it died."""

    fingerprint: int
    lane: str
    rank: int
    seq: int
    attempt: int
    record: str
    ago: float
    kind: str
    reason: str
    detail: str
    status: int


class DeadBatch(msgspec.Struct, frozen=True, tag="dead"):
    dead: list[MovedDead]


class MovedItem(msgspec.Struct, frozen=True):
    """``number`` is the item's number on its page; below zero for items of dead pages (see ``StoredItem``)."""

    position: int
    fingerprint: int
    number: int
    json: bytes


class ItemBatch(msgspec.Struct, frozen=True, tag="items"):
    """Items by position. Positions are kept, so cursors stay right."""

    items: list[MovedItem]


class MovedDone(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a page that was done."""

    fingerprint: int
    ago: float
    status: int
    size: int
    links: int
    items: int
    note: str


class HistoryBatch(msgspec.Struct, frozen=True, tag="history"):
    done: list[MovedDone]


class Rest(msgspec.Struct, frozen=True, kw_only=True, tag="rest"):
    """The small things, and the sums. Always the last batch: with it the crawl is whole.

    ``memo``: key → (value, seconds left). ``cursors``: sink → (position, state). ``last_seq``,
    ``last_lease`` and ``last_position`` are the highest ever given out.
    """

    facts: dict[str, str]
    memo: dict[str, tuple[bytes, float]]
    cursors: dict[str, tuple[int, bytes]]
    done: int
    bytes: int
    items: int
    last_seq: int
    last_lease: int
    last_position: int


Batch = SeenBatch | LaneBatch | RequestBatch | DeadBatch | ItemBatch | HistoryBatch | Rest


class Mover(Protocol):
    """Pours and fills."""

    def pour(self) -> AsyncIterator[Batch]:
        """Everything, in batches of a few thousand: lanes before requests, ``Rest`` last.

        :raises StoreError: something is leased, so the crawl is not at rest.
        """

    async def fill(self, batch: Batch) -> None:
        """Take in a batch, in the order in which it was poured."""

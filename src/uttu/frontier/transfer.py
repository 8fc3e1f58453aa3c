"""A crawl as plain records, to move it from one store to another.

``dump`` yields the contents of a crawl as a stream of batches; ``fill`` loads such a stream. A store does not know
where the records come from. No request may be leased during a dump, so the crawl is paused first. Loading a batch twice
has the same effect as loading it once, so an interrupted move is simply repeated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec


class SeenBatch(msgspec.Struct, frozen=True, tag="seen"):
    """Fingerprints of admitted requests, including those that are done."""

    fingerprints: list[int]


class MovedLane(msgspec.Struct, frozen=True, kw_only=True):
    """A lane without its requests.

    ``wait`` and ``held`` are seconds from now; 0 if they are past. ``own_delay`` and ``own_cap`` are the pace that a
    pinned lane returns to; None if the lane is not pinned, or if no request has entered it yet.
    """

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
    """Lanes; they come before their requests."""

    lanes: list[MovedLane]


class MovedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pending request, or a delayed one if ``wait`` (seconds from now) is set.

    ``rank`` and ``seq`` are its place in the lane: smaller comes first.
    """

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
    """Pending requests in the order of their lanes, or delayed requests."""

    requests: list[MovedRequest]


class MovedDead(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter that died ``ago`` seconds ago."""

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
    """Dead letters."""

    dead: list[MovedDead]


class MovedItem(msgspec.Struct, frozen=True):
    """An item of the outbox. ``number`` is its number on the page, negative for dead pages (see ``StoredItem``)."""

    position: int
    fingerprint: int
    number: int
    json: bytes


class ItemBatch(msgspec.Struct, frozen=True, tag="items"):
    """Items by position. Positions are preserved, so cursors stay valid."""

    items: list[MovedItem]


class MovedDone(msgspec.Struct, frozen=True, kw_only=True):
    """The history entry of a page that was done ``ago`` seconds ago.

    ``note`` is encoded: see :func:`uttu.model.lease.decode_note`.
    """

    fingerprint: int
    ago: float
    status: int
    size: int
    links: int
    items: int
    note: str


class HistoryBatch(msgspec.Struct, frozen=True, tag="history"):
    """History entries, oldest first."""

    done: list[MovedDone]


class FinalBatch(msgspec.Struct, frozen=True, kw_only=True, tag="rest"):
    """The small values and the counters. Always the last batch: it completes the crawl.

    :param facts: the encoded facts (see :mod:`uttu.model.facts`), also those that this version does not know.
    :param memo: key → (value, seconds until it expires).
    :param cursors: sink → (position, state).
    :param items: the number of items ever stored, including removed ones.
    :param last_seq: the highest sequence number ever assigned; ``last_lease`` and ``last_position`` likewise.
    :param trimmed: the number of removed items, and the position up to which they were removed.
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
    trimmed: tuple[int, int] = (0, 0)


TransferBatch = SeenBatch | LaneBatch | RequestBatch | DeadBatch | ItemBatch | HistoryBatch | FinalBatch


class CrawlTransfer(Protocol):
    """Dumps one crawl, or loads one."""

    def dump(self) -> AsyncIterator[TransferBatch]:
        """Yield everything in batches of a few thousand records: lanes before requests, ``FinalBatch`` last.

        :raises StoreError: a request is leased, so the crawl is not at rest.
        """

    async def fill(self, batch: TransferBatch) -> None:
        """Load a batch. Batches must come in the order of the dump."""

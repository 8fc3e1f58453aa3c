"""The Frontier's contract, and the smaller ones beside it that a crawl's store also keeps.

A request is *pending* (in its lane, ready), *delayed* (to be tried again later), *leased* (owned
by a worker), *done* or *dead*; always exactly one of these. It enters by ``put`` or as the child
of a settled page, is known by its fingerprint from then on, and is never admitted twice.

Lanes. Requests wait in the lane of their host. A lane hands out its requests in the crawl's
order (first in first out, last in first out, or by priority, highest first and first in first
out among equals); what comes back stands where it stood. Among lanes, the one that has been due
longest comes first; between lanes due since the same moment a store is free.

Politeness. A lane has a pace: a delay between two requests and a number that may be out at once.
It belongs to the store, so it holds over all workers. The delay counts from ``touched``, the
last moment at which the host may have seen the previous request: no host ever sees a shorter
gap. Where several may be out at once, it counts from the moment the previous one could start.
An outcome without ``touched`` used no turn: one at a time, the lane is as due as before. After a
lost lease the delay counts from its loss. A new pace counts from the touch of the outcome that
brings it (the latest, of a batch); where several may be out, a wait begun is not cut short by it.
A frontier built with ``probe`` hands out one request of each new lane until an outcome brings the
lane's pace (that is how robots.txt is fetched once, and before anything else).

Time is the store's own (for SQLite the machine's). Deadlines, delays and holds are in it.

After a crash every operation has happened wholly or not at all. A lease whose worker is gone
ends by its deadline, or sooner where the store can tell; the request goes back to its lane with
the attempt counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from weft.model import Counts, Lease, Outcome, Pace, Request

Order = Literal["fifo", "lifo", "priority"]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a frontier is told when it is opened; the same for all workers of a crawl.

    ``ahead``: a lane that becomes due within so many seconds may be leased already, its
    lease's ``wait`` says how long to hold back. Without it every request would start late by
    one round trip. ``max_losses``: a request whose leases ended without an outcome so often is
    dead, it probably takes its worker down with it. ``max_pages`` of the crawl and ``max_per_lane``,
    of one host: 0 for no limit.
    """

    order: Order = "fifo"
    pace: Pace = Pace(0.5, 1)
    probe: bool = False
    lease_seconds: float = 60.0
    ahead: float = 0.2
    max_losses: int = 8
    max_pages: int = 0
    max_per_lane: int = 0


class Frontier(Protocol):
    """Pending requests, durable. All methods take batches; all may raise ``StoreError``."""

    async def put(self, requests: Sequence[Request]) -> int:
        """Admit those not seen before; returns how many. Idempotent."""

    async def lease(self, limit: int, worker: str) -> list[Lease]:
        """Up to ``limit`` requests of due lanes, now owned by ``worker``.

        Never more of a lane than its pace allows, counting all workers. Each lane due gives one
        before any gives a second, and only a lane without delay gives several. Fewer than
        ``limit`` only if no more is due; none is not the same as finished.

        First ends the leases that ran out and wakes the retries whose time has come. Until that
        happens a lease past its deadline can still be extended and settled. No other living
        worker of the crawl has the name ``worker``.
        """

    async def extend(self, leases: Sequence[Lease]) -> set[int]:
        """Move the deadlines to a full lease from now; returns the ids of leases already lost."""

    async def settle(self, outcomes: Sequence[Outcome]) -> set[int]:
        """End leases. Returns the ids of those that were lost before.

        Per outcome all or nothing: children admitted, items stored, lease ended. An outcome
        whose lease was lost is refused whole; its work will be done again by another. Of two
        outcomes under one lease the first counts.
        """

    async def hold(self, lane: str, seconds: float, reason: str) -> None:
        """Hand out nothing of this lane, known or not, for so long; a longer hold in force stays."""

    async def counts(self) -> Counts:
        """All counts at one moment."""

    async def close(self) -> None:
        """Release what is held on this side. Leases stay; they are settled or given back first.

        A store that can tell which workers are gone ends what they left. Again does no harm.
        """


class StoredItem(msgspec.Struct, frozen=True):
    """An item in the outbox. ``position`` only grows; ``id`` is the same on every run of the page:
    its fingerprint as 16 hexadecimal digits, a dash, and the item's number on the page. An item that came with
    a dead page, which may be revived and die again, has an ``e`` and 1000 times its lease's id before its number."""

    position: int
    id: str
    json: bytes


class Cursor(msgspec.Struct, frozen=True):
    """How far a sink has come: everything up to ``position`` is in it; ``state`` is its own note."""

    position: int = 0
    state: bytes = b""


class Outbox(Protocol):
    """Items that were stored with their page and wait for the sinks.

    They stay after they were taken, so an output can be made again from the start at any time.
    """

    async def items(self, after: int, limit: int) -> list[StoredItem]:
        """The next items by position."""

    async def cursor(self, sink: str) -> Cursor:
        """Where the sink of this name stands; position 0 if it never ran."""

    async def advance(self, sink: str, cursor: Cursor, owner: str) -> bool:
        """Remember that the sink has come to ``cursor``; False, and nothing is done, unless ``owner`` has claimed it
        (:meth:`Ledger.claim` of ``"drain <sink>"``): of two that write to one place, one must not go on."""


class Memo(Protocol):
    """Small facts that all workers of a crawl share, such as robots.txt files."""

    async def recall(self, key: str) -> bytes | None:
        """The value, unless it is absent or past its time."""

    async def remember(self, key: str, value: bytes, seconds: float) -> None:
        """Keep a value for so long; replaces an older one."""


class Ledger(Protocol):
    """What is known of the crawl as a whole: facts about it, and what its workers say of themselves."""

    async def facts(self) -> dict[str, str]:
        """All facts: spider, state, arguments …"""

    async def note(self, **facts: str) -> None:
        """Set facts; others stay."""

    async def report(self, worker: str, report: bytes) -> None:
        """A worker says how it stands; replaces what it said before."""

    async def reports(self) -> dict[str, tuple[float, bytes]]:
        """The last report of each worker, and how many seconds ago it came."""

    async def claim(self, role: str, owner: str, seconds: float) -> bool:
        """Be the only one in a role for so long; again by the owner: for so long from now. False: another is."""

    async def release(self, role: str, owner: str) -> None:
        """Give a role up, if it is still the owner's."""

    async def claimed(self) -> dict[str, str]:
        """The roles that are taken, and by whom."""


class Feed(Protocol):
    """Start URLs that other programs push into the store, without knowing Weft.

    An entry is a URL, or a JSON object with the fields of a request (``url``, ``handler``, ``meta`` …).
    """

    async def peek(self, limit: int) -> list[bytes]:
        """The first entries; they stay."""

    async def accept(self, requests: Sequence[Request], entries: Sequence[bytes], refused: Sequence[bytes]) -> int:
        """Put the requests and drop the ``entries`` they came from, in one step; returns how many were new.

        Entries that are no requests are ``refused``: dropped too, but kept for someone to look at. An entry that
        another worker has accepted meanwhile does no harm.
        """

    async def length(self) -> int:
        """How many entries wait."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request. ``state`` is ``unknown`` if it was never admitted."""

    state: Literal["unknown", "pending", "delayed", "leased", "done", "dead"]
    request: Request | None = None
    attempt: int = 0
    lane: str = ""
    worker: str = ""
    due: float = 0.0
    """When it may start, or be tried again, or when its lease ends; the store's time."""
    at: float = 0.0
    """When it was done or given up."""
    status: int = 0
    size: int = 0
    links: int = 0
    items: int = 0
    kind: str = ""
    reason: str = ""
    """Why it is dead, delayed, or its lane is held."""
    detail: str = ""
    ahead: int = 0
    """How many stand before it in its lane."""


class LaneState(msgspec.Struct, frozen=True, kw_only=True):
    """A lane, and what it waits for."""

    name: str
    pending: int
    active: int
    total: int
    pace: Pace
    wait: float
    """Seconds until it is due; 0 if it is."""
    reason: str = ""
    """Why it is held, if it is."""
    pinned: bool = False
    """Its pace is the operator's."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was given up."""

    request: Request
    kind: str
    reason: str
    detail: str
    status: int
    attempt: int
    at: float


class Inspector(Protocol):
    """Looking into a crawl, for people. Its cost may grow with the crawl."""

    async def trace(self, fingerprint: int) -> Trace:
        """What became of the request with this fingerprint."""

    async def lanes(self, limit: int) -> list[LaneState]:
        """The lanes with the most pending requests."""

    async def dead(self, limit: int, kind: str = "") -> list[DeadLetter]:
        """Dead letters, the latest first; of one kind, or all."""

    async def dead_kinds(self) -> dict[str, int]:
        """How many dead letters there are of each kind."""

    async def repace(self, old: Pace, new: Pace) -> int:
        """Let all lanes that go at the pace ``old`` go at ``new``; returns how many."""

    async def pin(self, lane: str, delay: float | None) -> None:
        """Let a lane, known or not, go at the operator's delay, one at a time, whatever outcomes bring; None: no more.

        A wait that has begun becomes as long as the new delay. Meanwhile the lane's own pace is remembered, with what
        outcomes and ``repace`` make of it; unpinned, the lane goes at that again.
        """

    async def revive(self, kind: str = "", url: str = "") -> int:
        """Put dead letters back into their lanes as if never tried: of one kind, one URL, or all."""

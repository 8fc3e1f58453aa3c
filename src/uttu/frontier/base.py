"""The Frontier contract, and the smaller contracts that the store of a crawl also implements.

A request is in exactly one state: *pending* (ready in its lane), *delayed* (waiting for a retry), *leased* (owned by a
worker), *done* or *dead*. It enters through ``put`` or as the child of a settled page. From then on its fingerprint is
known, and it is never admitted twice.

Lanes. Each request waits in the lane of its host. A lane hands out its requests in the order of the crawl: first in
first out, last in first out, or by priority (highest first, first in first out among equals). A request that is given
back returns to its former place. Among lanes, the one that has been due longest comes first; a store may choose freely
between lanes with equal due times.

Politeness. A lane has a pace: a delay between two requests, and the number of requests in flight at once. The store
enforces it, so it holds across all workers. The delay counts from ``touched``, the last moment at which the host may
have seen the previous request: no host ever sees a shorter gap. If several requests may be in flight, the delay counts
from the earliest start of the previous one. An outcome without ``touched`` used no turn: in a lane with a limit of 1,
the due time does not change. After a lost lease the delay counts from the loss. A new pace counts from ``touched`` of
the outcome that brings it (the latest in a batch). If several requests may be in flight, a new pace does not shorten a
wait that has begun. A frontier opened with ``probe`` hands out one request of each new lane until an outcome brings the
lane's pace, so robots.txt is fetched once and before anything else.

Time is the store's clock (for SQLite, the clock of the machine). Deadlines, delays and holds use it.

Crashes. Every operation is atomic: after a crash it has happened completely or not at all. The lease of a dead worker
ends at its deadline, or sooner if the store can detect the death. The request then returns to its lane with the attempt
counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, Unpack

import msgspec

from uttu.model import Counts, Lease, Outcome, Pace, Request
from uttu.model.crawl import Order as Order
from uttu.model.crawl import Rules as Rules
from uttu.model.facts import CrawlFacts, FactChanges
from uttu.model.history import CrawlEvent, CrawlSample, EventKind
from uttu.model.inspection import DeadGroup, DeadPage, DeadQuery, LanePage, LaneQuery
from uttu.model.lease import Trace


class Frontier(Protocol):
    """Pending requests, durable. All methods take batches; all may raise ``StoreError``."""

    async def put(self, requests: Sequence[Request]) -> int:
        """Admit the requests that were not seen before; return their number. Idempotent."""

    async def lease(self, limit: int, worker: str) -> list[Lease]:
        """Lease up to ``limit`` requests of due lanes to ``worker``.

        A lane never has more requests in flight than its pace allows, counting all workers. Every due lane gives one
        request before any lane gives a second, and only a lane without a delay gives several. The result is shorter
        than ``limit`` only if nothing else is due. An empty result does not mean that the crawl is finished.

        The call first ends expired leases and moves retries that are due back to their lanes. Until that happens, a
        lease past its deadline can still be extended and settled. No other live worker of the crawl may use the same
        ``worker`` name.
        """

    async def extend(self, leases: Sequence[Lease]) -> set[int]:
        """Move the deadlines to a full lease from now; return the ids of leases that were already lost."""

    async def settle(self, outcomes: Sequence[Outcome]) -> set[int]:
        """End leases. Return the ids of leases that were already lost.

        Each outcome is atomic: its children are admitted, its items stored and its lease ended, or none of that
        happens. An outcome whose lease was lost is refused as a whole; another worker repeats the work. If a batch has
        two outcomes for one lease, the first one counts.

        At most ``max_items`` items are stored. The outcome that reaches the limit keeps as many of its items as fit.
        Later outcomes with items are refused, and their ids are returned too: their requests go back to their lanes
        with the attempt not counted, so a crawl with a higher limit processes them again.

        :raises RefusedData, ValueError, TypeError, OverflowError: the store cannot hold a value of one of the outcomes.
            That outcome was not settled. Others of the batch may have been; they are reported as lost when settled
            again.
        """

    async def hold(self, lane: str, seconds: float, reason: str) -> None:
        """Lease nothing of this lane, known or unknown, for ``seconds``. A longer hold in force stays."""

    async def counts(self) -> Counts:
        """Return all counts, taken at one moment."""

    async def close(self) -> None:
        """Release the resources of this process. Leases stay: settle them or give them back first.

        A store that can detect dead workers ends their leases. Calling it twice is safe.
        """


class StoredItem(msgspec.Struct, frozen=True):
    """An item in the outbox.

    ``position`` only grows. ``id`` is the same on every run of the page: its fingerprint as 16 hexadecimal digits, a
    dash, and the number of the item on the page. A dead page may be revived and die again, so items of dead pages have
    ``e`` and ``1000 * lease id + number`` in place of the number.
    """

    position: int
    id: str
    json: bytes


TRIM_STEP = 100
"""Minimum number of items that one trim removes."""


class Cursor(msgspec.Struct, frozen=True):
    """The progress of a sink: it has every item up to ``position``. ``state`` is opaque data of the sink."""

    position: int = 0
    state: bytes = b""


class Trimmed(msgspec.Struct, frozen=True):
    """The trimmed part of an outbox: ``count`` items were removed, all up to ``position``."""

    count: int = 0
    position: int = 0


class Outbox(Protocol):
    """Items that were stored with their page, for the sinks to read.

    Items stay after the sinks have them, so that an output can be rebuilt from the start, until :meth:`trim` removes
    the oldest. Only the supervisor of the crawl trims. Item counts include removed items.
    """

    async def items(self, after: int, limit: int) -> list[StoredItem]:
        """Return up to ``limit`` items after position ``after``, in order.

        :raises ItemsTrimmed: some of them were removed: ``after`` is before :attr:`Trimmed.position`.
        """

    async def latest(self, limit: int, before: int = 0) -> list[StoredItem]:
        """Return up to ``limit`` items, the latest first; only those before position ``before`` if it is given."""

    async def cursor(self, sink: str) -> Cursor:
        """Return the cursor of a sink; position 0 if the sink never ran."""

    async def advance(self, sink: str, cursor: Cursor, owner: str) -> bool:
        """Store the cursor of a sink.

        Return False and change nothing unless ``owner`` holds the claim ``"drain <sink>"`` (see :meth:`Ledger.claim`).
        This stops one of two processes that write to the same output.
        """

    async def trim(self, sinks: Sequence[str], keep: int) -> bool:
        """Remove the oldest items, as many as one short step allows.

        Return True if another call may have more to do right away, such as returning free space to the file system.

        An item is removed only if every relevant sink has it according to its stored cursor. Relevant are ``sinks``,
        and every sink with a claim ``"drain <sink>"`` in force. A sink without a cursor, or with an empty ``state``,
        has no items. Nothing is removed if no sink is relevant, or while any claim ``"whole <anything>"`` is in force:
        its owner needs all items.

        The latest ``keep`` items stay, plus up to ``TRIM_STEP`` more or one settle batch. The cursors are read in the
        same atomic step, so a cursor that is set back at the same time loses nothing.
        """

    async def trimmed(self) -> Trimmed:
        """Return what was removed so far."""


class Memo(Protocol):
    """Small values that all workers of a crawl share, such as robots.txt files."""

    async def recall(self, key: str) -> bytes | None:
        """Return the value; None if it is absent or has expired."""

    async def remember(self, key: str, value: bytes, seconds: float) -> None:
        """Store a value for ``seconds``, replacing an older one."""


class Ledger(Protocol):
    """Facts about the crawl as a whole, reports of its workers, and claims on roles."""

    async def facts(self) -> CrawlFacts:
        """Return all facts: spider, state, arguments …

        :raises StoreError: also if a fact can't be decoded; see :mod:`uttu.model.facts`.
        """

    async def note(self, **changes: Unpack[FactChanges]) -> None:
        """Set these facts, all at once, and keep all others."""

    async def report(self, worker: str, report: bytes) -> None:
        """Store the latest report of a worker, replacing the previous one."""

    async def reports(self) -> dict[str, tuple[float, bytes]]:
        """Return for each worker the age of its latest report in seconds, and the report."""

    async def claim(self, role: str, owner: str, seconds: float) -> bool:
        """Claim a role exclusively for ``seconds`` from now. The owner renews it with another call. False if another
        owner has it.
        """

    async def release(self, role: str, owner: str) -> None:
        """Release a role if ``owner`` still has it."""

    async def claimed(self) -> dict[str, str]:
        """Return the claimed roles and their owners."""


class SeedQueue(Protocol):
    """Start URLs that other programs push into the store without using Uttu.

    An entry is a URL, or a JSON object with the fields of a request (``url``, ``handler``, ``meta`` …).
    """

    async def peek(self, limit: int) -> list[bytes]:
        """Return the first entries without removing them."""

    async def accept(self, requests: Sequence[Request], entries: Sequence[bytes], refused: Sequence[bytes]) -> int:
        """Put the requests and remove the ``entries`` they came from, in one atomic step; return how many were new.

        Entries that are not requests are passed as ``refused``: they are removed too, but kept for inspection. Entries
        that another worker has accepted meanwhile are ignored.
        """

    async def length(self) -> int:
        """Return the number of waiting entries."""


class History(Protocol):
    """The numbers of a crawl over time, and what happened in it. Both are bounded; see :mod:`uttu.model.history`.

    A history is lost when its crawl is moved or started anew. Samples and events come from any worker, so a store must
    accept them in any order.
    """

    async def record(self, sample: CrawlSample) -> None:
        """Store a sample, unless there is one in the same slot of ``SAMPLE_SECONDS``. Its slot is that of ``at``.

        Drop what :func:`~uttu.model.history.thin_out` names at the present time, in the same atomic step. A store may
        thin out a minute late.
        """

    async def samples(self, since: float, until: float = math.inf) -> list[CrawlSample]:
        """Return the samples taken from ``since`` to ``until``, both included, the oldest first."""

    async def add_events(self, events: Sequence[tuple[EventKind, dict[str, str | int | float]]]) -> None:
        """Append events at the present time, in this order, and drop the oldest beyond ``MOST_EVENTS``."""

    async def events(self, after: int, limit: int, before: int = 0) -> list[CrawlEvent]:
        """Return up to ``limit`` events after position ``after``, the oldest first; the latest ones if it is -1.

        Position 0 is before all events. With ``after`` -1, ``before`` leaves out events at this position and later.
        """


class Inspector(Protocol):
    """Inspection and manual changes of a crawl.

    A crawl with 100,000 lanes and a million dead letters is still listed quickly, and without delaying its workers.
    Only ``trace`` and ``revive`` may take a time that grows with the crawl.

    A cursor (``after``) that no page gave raises ``StoreError``.
    """

    async def trace(self, fingerprint: int, lane: str = "") -> Trace:
        """Return the state of the request with this fingerprint. ``lane``, if known, shortens the search."""

    async def lanes(self, query: LaneQuery) -> LanePage:
        """Return a page of lanes. A store may order them by numbers that are some seconds old."""

    async def dead(self, query: DeadQuery) -> DeadPage:
        """Return a page of dead letters."""

    async def dead_groups(self) -> list[DeadGroup]:
        """Return the groups of dead letters, the largest first, then by kind and message."""

    async def repace(self, old: Pace, new: Pace) -> int:
        """Give the pace ``new`` to all lanes whose pace is ``old``; return how many."""

    async def pin(self, lane: str, delay: float | None) -> None:
        """Pin a lane, known or unknown, to the operator's delay with one request at a time; None removes the pin.

        A wait that has begun is changed to the new delay. While the lane is pinned, outcomes and ``repace`` update its
        own pace in the background; the lane returns to that pace when it is unpinned.
        """

    async def revive(self, kind: str = "", url: str = "", message: str = "") -> int:
        """Return dead letters to their lanes with attempts reset: all, or those with this kind, URL and message."""

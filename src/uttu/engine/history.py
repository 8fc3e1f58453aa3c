"""Write the history of a crawl: a sample of its numbers every ``SAMPLE_SECONDS``, and what happened in it.

All workers could take samples; the one that holds the claim ``history`` does. A sample adds up the reports of all
workers, also of those that have ended: each process has its own name, and its last report stays in the ledger.

Events are best effort, as on the bus. They collect in memory and are stored every ``_PAUSE_SECONDS``. Of the lanes that
are held, ``_LANE_BURST`` are stored one by one, and then one every ``_LANE_SECONDS``; the others are stored together,
as one event with their number. So ten thousand hosts that are held don't push all other events out of the history.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

import msgspec

from uttu.clients.addresses import mask_logins
from uttu.clock import Clock
from uttu.engine.aio import wait_for_event
from uttu.engine.events import Events
from uttu.errors import StoreError
from uttu.frontier.base import Frontier, History, Ledger
from uttu.model import Counts
from uttu.model.crawl import CrawlState, Reason, WorkerReport
from uttu.model.history import LATENCY_BOUNDS, SAMPLE_SECONDS, CrawlSample, EventKind

# A worker whose last report is older than this is not counted in a sample.
_SILENT_SECONDS: Final = 5.0
_ROLE: Final = "history"
_PAUSE_SECONDS: Final = 0.5
_LAST_SECONDS: Final = 2.0
_MOST_WAITING: Final = 1000
_LANE_BURST: Final = 10
_LANE_SECONDS: Final = 60.0

EventFields = dict[str, str | int | float]


def make_sample(at: float, counts: Counts, reports: Iterable[tuple[float, WorkerReport]]) -> CrawlSample:
    """Add up the numbers of a crawl.

    :param reports: The latest reports of all workers, and the age of each in seconds.
    """
    fetched = retries = workers = 0
    seconds = 0.0
    latency = [0] * (len(LATENCY_BOUNDS) + 1)
    statuses: Counter[str] = Counter()
    for age, report in reports:
        fetched += report.fetched
        retries += report.retries
        seconds += report.seconds
        workers += age < _SILENT_SECONDS
        statuses.update(report.statuses)
        statuses["0"] += report.failed
        for slot, count in enumerate(report.latency[: len(latency)]):
            latency[slot] += count
    return CrawlSample(
        at=at,
        pending=counts.pending,
        leased=counts.leased,
        delayed=counts.delayed,
        workers=workers,
        done=counts.done,
        dead=counts.dead,
        items=counts.items,
        bytes=counts.bytes,
        fetched=fetched,
        retries=retries,
        seconds=round(seconds, 3),
        latency=tuple(latency),
        statuses={status: count for status, count in statuses.items() if count},
    )


async def take_sample(at: float, frontier: Frontier, ledger: Ledger) -> CrawlSample:
    """Read the numbers of a crawl from its store."""
    reports = (await ledger.reports()).values()
    read = [(age, msgspec.json.decode(report, type=WorkerReport)) for age, report in reports]
    return make_sample(at, await frontier.counts(), read)


class Sampler:
    """Records samples of a crawl, one in each slot of ``SAMPLE_SECONDS``, as long as it holds the claim.

    :param owner: The name of the worker.
    """

    def __init__(self, history: History, frontier: Frontier, ledger: Ledger, clock: Clock, owner: str) -> None:
        self._history = history
        self._frontier = frontier
        self._ledger = ledger
        self._clock = clock
        self._owner = owner
        self._slot = -1

    async def look(self) -> None:
        """Record a sample if a new slot has begun and no other worker records them. Call it every second.

        :raises StoreError: the store can't be read or written.
        """
        now = self._clock.time()
        slot = int(now // SAMPLE_SECONDS)
        if slot == self._slot:
            return
        self._slot = slot
        # The claim outlasts a slot, so a worker keeps it; after a death another takes over within two slots.
        if await self._ledger.claim(_ROLE, self._owner, 1.5 * SAMPLE_SECONDS):
            await self._history.record(await take_sample(now, self._frontier, self._ledger))

    async def leave(self) -> None:
        """Let another worker record samples from now on."""
        await self._ledger.release(_ROLE, self._owner)


async def record_last(history: History, frontier: Frontier, ledger: Ledger, clock: Clock) -> None:
    """Record the numbers at the end of a crawl, in the next slot: the present one may have its sample already.

    :raises StoreError: the store can't be read or written.
    """
    at = (clock.time() // SAMPLE_SECONDS + 1) * SAMPLE_SECONDS
    await history.record(await take_sample(at, frontier, ledger))


class EventRecorder:
    """Writes the events of one process of a crawl to its history, while its ``async with`` block runs.

    :param events: Publishes them on the bus as well; None without a bus.
    """

    def __init__(self, history: History, clock: Clock, events: Events | None = None) -> None:
        self._history = history
        self._clock = clock
        self._events = events
        self._waiting: list[tuple[EventKind, EventFields]] = []
        self._lanes = _HeldLanes()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def worker(self, name: str, what: str, **more: int) -> None:
        self._add(EventKind.WORKER, {"worker": name, "what": what, **more})
        if self._events is not None:
            self._events.worker(name, what, **more)

    def lane(self, lane: str, seconds: float, reason: str) -> None:
        fields: EventFields = {"lane": lane, "seconds": round(seconds, 3), "reason": mask_logins(reason)}
        if self._lanes.admit(self._clock.monotonic(), fields):
            self._add(EventKind.LANE, fields)
        if self._events is not None:
            self._events.lane(lane, seconds, reason)

    def state(self, state: CrawlState, reason: Reason) -> None:
        self._add(EventKind.STATE, {"state": state.value, "reason": mask_logins(str(reason))})
        if self._events is not None:
            self._events.state(state, reason)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="history")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._over.set()
        await asyncio.wait([self._task], timeout=_LAST_SECONDS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _add(self, kind: EventKind, fields: EventFields) -> None:
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.append((kind, fields))

    async def _run(self) -> None:
        over = False
        while not over:
            await wait_for_event(self._over, _PAUSE_SECONDS)
            over = self._over.is_set()
            if summary := self._lanes.summarize(self._clock.monotonic(), last=over):
                self._add(EventKind.LANE, summary)
            batch, self._waiting = self._waiting, []
            if batch:
                with contextlib.suppress(StoreError):  # best effort: the worker itself finds out that the store fails
                    await self._history.add_events(batch)


class _HeldLanes:
    """Decides which held lanes become single events, and counts the others."""

    def __init__(self) -> None:
        self._tokens = float(_LANE_BURST)
        self._filled = 0.0
        self._since: float | None = None
        self._others = 0
        self._longest = 0.0
        self._reasons: Counter[str] = Counter()
        self._example = ""

    def admit(self, now: float, fields: EventFields) -> bool:
        self._tokens = min(_LANE_BURST, self._tokens + (now - self._filled) / _LANE_SECONDS)
        self._filled = now
        if self._tokens >= 1:
            self._tokens -= 1
            return True
        if self._since is None:
            self._since = now
        self._others += 1
        self._longest = max(self._longest, float(fields["seconds"]))
        self._example = str(fields["lane"])
        if len(self._reasons) < _MOST_WAITING:
            self._reasons[str(fields["reason"])] += 1
        return False

    def summarize(self, now: float, *, last: bool) -> EventFields | None:
        """The lanes that were counted, as one event; None if there are none, or it is too early."""
        if self._since is None or (not last and now - self._since < _LANE_SECONDS):
            return None
        fields: EventFields = {
            "lane": self._example,
            "lanes": self._others,
            "seconds": self._longest,
            "reason": self._reasons.most_common(1)[0][0],
        }
        self._since, self._others, self._longest = None, 0, 0.0
        self._reasons.clear()
        return fields

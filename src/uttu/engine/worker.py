"""The Worker: leases in batches, fetches many at once, settles in batches.

    frontier.lease ─► waiting ─(its lane is due)─► ready ─(a place is free)─► in flight ─► outcomes ─► settle

*Waiting* holds leases that were handed out a little before their lane is due. They are checked by a timer and, since
the loop's timers only have millisecond resolution, also whenever a page ends.

*Ready* is the buffer and the only place for backpressure: leasing stops while it is full.

*In flight* are pages that are being processed, one task each, up to the limit of the concurrency controller.

Outcomes collect while the previous batch is being settled, so batches grow with the load. They collect longer while
there is other work to do and no lane waits for its outcome.

    pause    lease nothing more, give back leases that have not started, wait for resume
    drain    lease nothing more, give back leases that have not started, end when the rest is settled
    stop     drain, and cancel and give back the pages in flight as well

The leases of a worker that was killed expire in the frontier.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import inspect
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

from uttu.clients.addresses import mask_logins
from uttu.clock import Clock
from uttu.engine.aio import task_group
from uttu.engine.events import Events
from uttu.engine.handler_output import describe_error
from uttu.engine.handler_steps import HandlerBlocked
from uttu.engine.link_filter import LinkFilter
from uttu.engine.stats import WorkerStats
from uttu.errors import RefusedData, StoreError
from uttu.frontier.base import Frontier
from uttu.model import Dead, Lease, Outcome, Retry
from uttu.model.lease import DeadKind
from uttu.policy.throttle import ConcurrencyController

# The most leases per request to the frontier, and the most leases held until their lane is due.
_BATCH = 256
_MOST_WAITING = 4096
# Flush a settle batch after _LINGER_SECONDS or at _BATCH_OUTCOMES outcomes, whichever comes first. If no lane waits for
# the outcomes, flush after _MAX_LINGERS times that, or at _LARGE_BATCH_OUTCOMES outcomes or _LARGE_BATCH_BYTES of
# items and links: each transaction costs half a millisecond on top of its content.
_LINGER_SECONDS = 0.01
_BATCH_OUTCOMES = 64
_MAX_LINGERS = 5
_LARGE_BATCH_OUTCOMES = 256
_LARGE_BATCH_BYTES = 256 * 1024
_LINK_BYTES = 256
# If a lease had to wait for its lane in the last _URGENT_SECONDS, settle soon: the next one will wait for it, too.
_URGENT_SECONDS = 5.0
# How often a worker asks for requests that others added; shorter than the time that leases are handed out ahead.
_POLL_SECONDS = 0.05
# How often a paused worker checks whether the crawl is over.
_PAUSED_SECONDS = 1.0
_GAUGE_SECONDS = 0.25
# The resolution of the event loop's timers.
_TICK_SECONDS = 0.001

# Errors for an outcome with a value that the store can't take. Any other StoreError ends the worker.
_REFUSED = (RefusedData, ValueError, TypeError, OverflowError)

_log = logging.getLogger("uttu.worker")

ProcessPage = Callable[[Lease], Awaitable[Outcome]]
IsOver = Callable[[], Awaitable[bool]]


class Worker:
    """Processes requests until the crawl is over or :meth:`drain` or :meth:`stop` is called.

    :param visit: Processes one lease and returns its outcome; :meth:`uttu.engine.page_processor.PageProcessor.visit`.
    :param is_over: Asked when this worker holds nothing and gets no lease; True ends :meth:`run`.
    :param lease_seconds: How long a lease lasts. Leases are extended three times in that time.
    """

    def __init__(
        self,
        name: str,
        *,
        frontier: Frontier,
        visit: ProcessPage,
        link_filter: LinkFilter,
        is_over: IsOver,
        stats: WorkerStats,
        controller: ConcurrencyController,
        lease_seconds: float,
        clock: Clock,
        events: Events | None = None,
    ) -> None:
        self.name = name
        self.controller = controller
        self._frontier = frontier
        self._visit = visit
        self._link_filter = link_filter
        self.is_over = is_over
        self._stats = stats
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._events = events
        self._held: dict[int, Lease] = {}
        self._expires: dict[int, float] = {}
        self._waiting: list[tuple[float, int]] = []  # a heap of (monotonic time when due, lease id)
        self._alarm: tuple[float, asyncio.TimerHandle] | None = None
        self._ready: deque[Lease] = deque()
        self._in_flight: dict[int, asyncio.Task[None]] = {}
        self._resting: dict[str, float] = {}
        self._error: StoreError | None = None
        self._outcomes: list[Outcome] = []
        self._outcome_bytes = 0
        self._urgent_until = 0.0
        self._lease_wanted = asyncio.Event()
        self._more = False
        self._settleable = asyncio.Event()
        self._batch_full = asyncio.Event()
        self._start_scheduled = False
        self._condemned: dict[int, str] = {}
        self._draining = False
        self._paused = False
        self.is_stopping = False
        """Whether :meth:`stop` was called: pages in flight are cancelled and given back."""

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def flying(self, most: int) -> list[str]:
        """URLs of at most ``most`` pages in flight, the oldest first."""
        return [self._held[lease_id].request.url for lease_id in itertools.islice(self._in_flight, most)]

    @property
    def held(self) -> int:
        return len(self._held)

    async def run(self) -> None:
        """Work until the crawl is over or the worker is drained.

        :raises StoreError: the frontier can't be read or written.
        """
        # Kept in an attribute: before Python 3.12 get_running_loop() costs a system call.
        self._loop = asyncio.get_running_loop()
        async with task_group() as group:
            helpers = [group.create_task(each()) for each in (self._settle_loop, self._extend_loop, self._gauge_loop)]
            await self._feed()
            while self._held:
                self._settleable.set()
                await asyncio.sleep(_LINGER_SECONDS)
            for helper in helpers:
                helper.cancel()

    def condemn(self, pages: Mapping[int, str]) -> None:
        """Settle these pages as dead as soon as they are leased; maps fingerprints to reasons."""
        self._condemned |= pages

    def drain(self) -> None:
        """Start no more pages; :meth:`run` returns when the pages in flight are settled."""
        if not self._draining:
            _log.info("Worker %s drains: %d pages are in flight", self.name, len(self._in_flight))
        self._draining = True
        self._give_back()
        self._lease_wanted.set()

    def pause(self) -> None:
        """Start no more pages until :meth:`resume`; pages in flight continue."""
        if not self._paused:
            _log.info("Worker %s pauses: %d pages are in flight", self.name, len(self._in_flight))
            self._paused = True
            self._give_back()

    def resume(self) -> None:
        """End a pause, if there is one, and ask the frontier for work at once."""
        if self._paused:
            _log.info("Worker %s resumes", self.name)
        self._paused = False
        self._lease_wanted.set()

    def stop(self) -> None:
        """Drain, and cancel and give back the pages in flight."""
        _log.info("Worker %s stops: %d pages in flight are given back", self.name, len(self._in_flight))
        self.is_stopping = True
        self.drain()
        for lease_id, task in list(self._in_flight.items()):
            self._stats.record_given_back(self._held[lease_id].request.url)
            task.cancel()
            # A task that is cancelled before its first step never runs, so it can't give its page back itself.
            visit = task.get_coro()
            if inspect.iscoroutine(visit) and inspect.getcoroutinestate(visit) == inspect.CORO_CREATED:
                del self._in_flight[lease_id]
                self._ended(Retry(lease=self._held[lease_id], counted=False))

    def _give_back(self) -> None:
        """Give back the leases whose pages have not started."""
        for lease in (*(self._held[lease_id] for _, lease_id in self._waiting), *self._ready):
            self._ended(Retry(lease=lease, counted=False))
        self._waiting.clear()
        self._ready.clear()

    async def _feed(self) -> None:
        while not self._draining:
            if self._error is not None:
                raise self._error
            self._lease_wanted.clear()
            room = min(_BATCH, 2 * self.controller.limit - len(self._ready), _MOST_WAITING - len(self._waiting))
            if self._paused:
                room = 0
            asked = self._clock.monotonic()
            leases = await self._frontier.lease(room, self.name) if room > 0 else []
            # A full batch means that more requests are due. A short one means that none is due until an outcome is
            # settled or time has passed.
            self._more = len(leases) == room > 0
            for lease in leases:
                self._accept(lease, asked)
            if self._waiting:
                self._urgent_until = asked + _URGENT_SECONDS
            self._start_ready()
            self._set_alarm()
            if not leases and not self._held and await self.is_over():
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSED_SECONDS if self._paused else _POLL_SECONDS):
                    await self._lease_wanted.wait()

    def _accept(self, lease: Lease, asked: float) -> None:
        self._held[lease.id] = lease
        # Counted from the request: this process may have been stopped before it read the answer.
        self._expires[lease.id] = asked + self._lease_seconds
        if self._condemned and lease.fingerprint in self._condemned:
            self._stats.dead[DeadKind.LOST] += 1
            self._ended(Dead(lease=lease, kind=DeadKind.LOST, reason=self._condemned[lease.fingerprint]))
        elif self._draining or self._paused:
            self._ended(Retry(lease=lease, counted=False))
        elif lease.wait > 0:
            heapq.heappush(self._waiting, (self._clock.monotonic() + lease.wait, lease.id))
        else:
            self._ready.append(lease)

    def _set_alarm(self) -> None:
        """Set a timer for the next waiting lease that becomes due."""
        if self._waiting and (self._alarm is None or self._waiting[0][0] < self._alarm[0]):
            if self._alarm is not None:
                self._alarm[1].cancel()
            due = self._waiting[0][0]
            # Half a tick later: the loop rounds, and a timer that fires early would have to be set again repeatedly.
            late = due - self._clock.monotonic() + _TICK_SECONDS / 2
            self._alarm = (due, self._loop.call_later(late, self._on_alarm))

    def _on_alarm(self) -> None:
        self._alarm = None
        self._start_ready()
        self._set_alarm()

    def _start_ready(self) -> None:
        self._start_scheduled = False
        now = self._clock.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(self._held[heapq.heappop(self._waiting)[1]])
        while self._ready and len(self._in_flight) < self.controller.limit:
            lease = self._ready.popleft()
            # Give it back if the lease expired while this process was stopped (another worker may have the page), or
            # if the lane was held after the lease was handed out.
            if not self.is_held(lease) or self._resting.get(lease.lane, 0.0) > now:
                self._ended(Retry(lease=lease, counted=False))
                continue
            self._in_flight[lease.id] = self._loop.create_task(self._run_page(lease))
        if self._more and len(self._ready) <= self.controller.limit // 2:
            self._lease_wanted.set()

    async def _run_page(self, lease: Lease) -> None:
        try:
            outcome = await self._visit(lease)
        except asyncio.CancelledError as error:
            if self.is_stopping or isinstance(error.__cause__, HandlerBlocked):
                outcome = Retry(lease=lease, counted=False, touched=self._clock.monotonic())
            else:
                outcome = self._dead(lease, error)
        except StoreError as error:
            self._error = error
            self._lease_wanted.set()
            outcome = Retry(lease=lease, counted=False, touched=self._clock.monotonic())
        except BaseException as error:
            # Any other exception makes the page dead: a crawl with an unsettled page never finishes.
            outcome = self._dead(lease, error)
            if isinstance(error, KeyboardInterrupt):
                raise
        finally:
            del self._in_flight[lease.id]
        self._ended(outcome)
        if not self._start_scheduled:  # once for all pages that end in this round of the loop
            self._start_scheduled = True
            self._loop.call_soon(self._start_ready)

    def _dead(self, lease: Lease, error: BaseException) -> Dead:
        reason, detail = describe_error(error)
        _log.info("Given up (internal): %s: %s", mask_logins(lease.request.url), mask_logins(reason))
        return Dead(lease=lease, kind=DeadKind.INTERNAL, reason=reason, detail=detail, touched=self._clock.monotonic())

    def is_held(self, lease: Lease) -> bool:
        """Whether a lease is still held, as far as this worker knows."""
        return self._expires.get(lease.id, 0.0) > self._clock.monotonic()

    def rest(self, lane: str, seconds: float) -> None:
        """Start no page of this lane for this many seconds; leases of it that have not started are given back."""
        now = self._clock.monotonic()
        self._resting = {name: until for name, until in self._resting.items() if until > now}
        self._resting[lane] = now + seconds

    def _ended(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._settleable.set()
        if not isinstance(outcome, Retry):
            self._outcome_bytes += len(outcome.children) * _LINK_BYTES + sum(map(len, outcome.items))
        if len(self._outcomes) >= _BATCH_OUTCOMES and (self._is_urgent or self._has_large_batch):
            self._batch_full.set()

    @property
    def _is_urgent(self) -> bool:
        """Whether outcomes should be settled soon: there is nothing left to start, or lanes wait for their outcomes."""
        return not (self._ready or self._more) or self._clock.monotonic() < self._urgent_until

    @property
    def _has_large_batch(self) -> bool:
        return len(self._outcomes) >= _LARGE_BATCH_OUTCOMES or self._outcome_bytes >= _LARGE_BATCH_BYTES

    async def _settle_loop(self) -> None:
        while True:
            await self._settleable.wait()
            await self._gather()
            self._settleable.clear()
            self._batch_full.clear()
            outcomes, self._outcomes, self._outcome_bytes = self._outcomes, [], 0
            if outcomes:
                await self._settle(outcomes)
                self._lease_wanted.set()

    async def _gather(self) -> None:
        for _ in range(_MAX_LINGERS):
            if self._batch_full.is_set() or not (self._in_flight or self._ready):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LINGER_SECONDS):
                    await self._batch_full.wait()
            if self._is_urgent:
                return

    async def _settle(self, outcomes: list[Outcome]) -> None:
        outcomes, lost = await self._settled(outcomes)
        if lost:
            _log.info("Worker %s lost %d leases: the outcomes of these pages are dropped", self.name, len(lost))
        self._stats.refused += len(lost)
        for outcome in outcomes:
            del self._held[outcome.lease.id], self._expires[outcome.lease.id]
            if not isinstance(outcome, Retry) and outcome.lease.id not in lost:
                self._link_filter.committed(outcome.children)
        if self._events is not None and (stored := _count_stored(outcomes, lost)):
            self._events.items(stored)

    async def _settled(self, outcomes: list[Outcome]) -> tuple[list[Outcome], set[int]]:
        """Settle a batch; returns the outcomes that were settled, and the ids of leases that were lost.

        If the store refuses a value in the batch, settle the outcomes one by one. The page with that value is dead.
        """
        try:
            return outcomes, await self._frontier.settle(outcomes)
        except _REFUSED as error:
            if len(outcomes) == 1:
                dead = _make_dead(outcomes[0], error)
                return [dead], await self._frontier.settle([dead])
        settled: list[Outcome] = []
        lost: set[int] = set()
        for outcome in outcomes:
            one, gone = await self._settled([outcome])
            settled += one
            lost |= gone
        return settled, lost

    async def _extend_loop(self) -> None:
        """Extend all held leases, three times in ``lease_seconds``."""
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            leases, expires = list(self._held.values()), self._clock.monotonic() + self._lease_seconds
            lost = await self._frontier.extend(leases) if leases else set()
            self._expires |= dict.fromkeys(lost & self._held.keys(), 0.0)
            self._expires |= {lease.id: expires for lease in leases if lease.id in self._held and lease.id not in lost}

    async def _gauge_loop(self) -> None:
        fetched, failed = self._stats.fetched, self._stats.failed
        while True:
            asked = self._clock.monotonic()
            await asyncio.sleep(_GAUGE_SECONDS)
            lag = self._clock.monotonic() - asked - _GAUGE_SECONDS
            new_failed = self._stats.failed - failed
            done = self._stats.fetched - fetched + new_failed
            fetched, failed = self._stats.fetched, self._stats.failed
            self.controller.observe(done, new_failed, bool(self._ready), lag)
            self._start_ready()


def _make_dead(outcome: Outcome, error: Exception) -> Dead:
    """The outcome of a page whose own outcome the store refuses."""
    reason, detail = describe_error(error)
    return Dead(
        lease=outcome.lease,
        touched=outcome.touched,
        kind=DeadKind.HANDLER,
        reason=f"can't be stored: {reason}",
        detail=detail,
    )


def _count_stored(outcomes: list[Outcome], lost: set[int]) -> int:
    """How many items were stored with these outcomes; those under lost leases were not."""
    return sum(
        len(outcome.items) for outcome in outcomes if not isinstance(outcome, Retry) and outcome.lease.id not in lost
    )

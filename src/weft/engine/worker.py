"""The Worker: leases in batches, fetches many at once, settles in batches.

    frontier.lease ─► waiting ─(its lane is due)─► ready ─(a place is free)─► in flight ─► outcomes ─► settle

*Waiting* are leases handed out a little ahead of their lane's time; since the loop's timers know only
milliseconds, they are looked at whenever a visit ends as well. *Ready* is the buffer, and the one
place for backpressure: leasing stops while it is full. *In flight* are visits, each a task, as many
as the gauge allows. Outcomes gather while the previous batch is being settled, so batches grow with
the load; they gather longer while there is other work at hand, and no lane has to wait for its turn.

A worker that is told to pause leases nothing more, gives back what it has not begun, and waits to be told
to resume. One that is told to drain leases nothing more, gives back what it has not begun, and ends when
the rest is settled; told to stop, it gives back what is in flight as well. Whatever it can't say
any more, because it was killed, the frontier finds out.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import inspect
import itertools
from collections import deque
from collections.abc import Awaitable, Callable

from weft.clock import Clock
from weft.engine.events import Events
from weft.engine.gate import Gate
from weft.engine.handling import described
from weft.engine.stats import Stats
from weft.engine.tasks import task_group
from weft.errors import StoreError
from weft.frontier.base import Frontier
from weft.model import Dead, Lease, Outcome, Retry
from weft.policy.concurrency import Gauge

# Leases asked for at once, and held until they are due at most.
_BATCH = 256
_MOST_WAITING = 4096
# Outcomes linger this long for company, unless there are enough. Where nothing waits for them they linger so many
# times, unless there are plenty, or they bring so much: a transaction takes half a millisecond beside what is in it.
_LINGER_SECONDS = 0.01
_ENOUGH = 64
_LINGERS = 5
_PLENTY = 256
_PLENTY_BYTES = 256 * 1024
_LINK_BYTES = 256
# A lane that had to wait in the last few seconds will again.
_HURRIED_SECONDS = 5.0
# How often a worker looks for work that others made; shorter than the time leases are handed out ahead.
_POLL_SECONDS = 0.05
# How often it looks whether the crawl is over while it is paused.
_PAUSED_SECONDS = 1.0
_GAUGE_SECONDS = 0.25
# What the loop's timers are rounded to.
_TICK_SECONDS = 0.001

Visit = Callable[[Lease], Awaitable[Outcome]]
IsOver = Callable[[], Awaitable[bool]]


class Worker:
    """Runs until the crawl is over, or it is told to stop. Raises what the frontier raises."""

    def __init__(
        self,
        name: str,
        *,
        frontier: Frontier,
        visit: Visit,
        gate: Gate,
        is_over: IsOver,
        stats: Stats,
        gauge: Gauge,
        lease_seconds: float,
        clock: Clock,
        events: Events | None = None,
    ) -> None:
        self.name = name
        self.gauge = gauge
        self._frontier = frontier
        self._visit = visit
        self._gate = gate
        self.is_over = is_over
        self._stats = stats
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._events = events
        self._held: dict[int, Lease] = {}
        self._expires: dict[int, float] = {}
        self._waiting: list[tuple[float, int]] = []  # a heap of when each is due
        self._alarm: tuple[float, asyncio.TimerHandle] | None = None
        self._ready: deque[Lease] = deque()
        self._flying: dict[int, asyncio.Task[None]] = {}
        self._resting: dict[str, float] = {}
        self._error: StoreError | None = None
        self._outcomes: list[Outcome] = []
        self._outcome_bytes = 0
        self._hurried_until = 0.0
        self._hungry = asyncio.Event()
        self._more = False
        self._settleable = asyncio.Event()
        self._enough = asyncio.Event()
        self._launching = False
        self._draining = False
        self._paused = False

    @property
    def in_flight(self) -> int:
        return len(self._flying)

    def flying(self, most: int) -> list[str]:
        """URLs of what is in flight, the oldest first."""
        return [self._held[lease_id].request.url for lease_id in itertools.islice(self._flying, most)]

    @property
    def held(self) -> int:
        return len(self._held)

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()  # kept, as before Python 3.12 each look for it is a system call
        async with task_group() as group:
            helpers = [group.create_task(each()) for each in (self._settle_loop, self._extend_loop, self._gauge_loop)]
            await self._feed()
            while self._held:
                self._settleable.set()
                await asyncio.sleep(_LINGER_SECONDS)
            for helper in helpers:
                helper.cancel()

    def drain(self) -> None:
        """Begin nothing more; :meth:`run` returns when what is in flight is settled."""
        self._draining = True
        self._give_back()
        self._hungry.set()

    def pause(self) -> None:
        """Begin nothing more until :meth:`resume`; what is in flight goes on."""
        if not self._paused:
            self._paused = True
            self._give_back()

    def resume(self) -> None:
        """Go on, after :meth:`pause` or as before; in any case look for work that others made."""
        self._paused = False
        self._hungry.set()

    def stop(self) -> None:
        """Drain, and give back what is in flight."""
        self.drain()
        for lease_id, task in list(self._flying.items()):
            self._stats.gave_back(self._held[lease_id].request.url)
            task.cancel()
            # A task that is cancelled before it has begun never runs, so it can't give its page back itself.
            visit = task.get_coro()
            if inspect.iscoroutine(visit) and inspect.getcoroutinestate(visit) == inspect.CORO_CREATED:
                del self._flying[lease_id]
                self._ended(Retry(lease=self._held[lease_id], counted=False))

    def _give_back(self) -> None:
        """What has not begun."""
        for lease in (*(self._held[lease_id] for _, lease_id in self._waiting), *self._ready):
            self._ended(Retry(lease=lease, counted=False))
        self._waiting.clear()
        self._ready.clear()

    async def _feed(self) -> None:
        while not self._draining:
            if self._error is not None:
                raise self._error
            self._hungry.clear()
            room = min(_BATCH, 2 * self.gauge.limit - len(self._ready), _MOST_WAITING - len(self._waiting))
            if self._paused:
                room = 0
            asked = self._clock.monotonic()
            leases = await self._frontier.lease(room, self.name) if room > 0 else []
            # A full batch means that more is due; a short one, that there is nothing until something is
            # settled or time has passed.
            self._more = len(leases) == room > 0
            for lease in leases:
                self._accept(lease, asked)
            if self._waiting:
                self._hurried_until = asked + _HURRIED_SECONDS
            self._launch()
            self._set_alarm()
            if not leases and not self._held and await self.is_over():
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSED_SECONDS if self._paused else _POLL_SECONDS):
                    await self._hungry.wait()

    def _accept(self, lease: Lease, asked: float) -> None:
        self._held[lease.id] = lease
        # From when it was asked for: this process may have been stopped before it could read the answer.
        self._expires[lease.id] = asked + self._lease_seconds
        if self._draining or self._paused:
            self._ended(Retry(lease=lease, counted=False))
        elif lease.wait > 0:
            heapq.heappush(self._waiting, (self._clock.monotonic() + lease.wait, lease.id))
        else:
            self._ready.append(lease)

    def _set_alarm(self) -> None:
        """Wake up when the next of the waiting is due."""
        if self._waiting and (self._alarm is None or self._waiting[0][0] < self._alarm[0]):
            if self._alarm is not None:
                self._alarm[1].cancel()
            due = self._waiting[0][0]
            # Half a millisecond later: the loop rounds, and an alarm that rings early has to ring again and again.
            late = due - self._clock.monotonic() + _TICK_SECONDS / 2
            self._alarm = (due, self._loop.call_later(late, self._ring))

    def _ring(self) -> None:
        self._alarm = None
        self._launch()
        self._set_alarm()

    def _launch(self) -> None:
        self._launching = False
        now = self._clock.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(self._held[heapq.heappop(self._waiting)[1]])
        while self._ready and len(self._flying) < self.gauge.limit:
            lease = self._ready.popleft()
            # A lease that ran out because this process was stopped for so long: another has the page by now. A
            # lane that was held after the lease was handed out: its host is not to be asked.
            if not self.is_held(lease) or self._resting.get(lease.lane, 0.0) > now:
                self._ended(Retry(lease=lease, counted=False))
                continue
            self._flying[lease.id] = self._loop.create_task(self._fly(lease))
        if self._more and len(self._ready) <= self.gauge.limit // 2:
            self._hungry.set()

    async def _fly(self, lease: Lease) -> None:
        try:
            outcome = await self._visit(lease)
        except asyncio.CancelledError:
            outcome = Retry(lease=lease, counted=False, touched=self._clock.monotonic())
        except StoreError as error:
            self._error = error
            self._hungry.set()
            outcome = Retry(lease=lease, counted=False, touched=self._clock.monotonic())
        except Exception as error:
            reason, detail = described(error)
            outcome = Dead(lease=lease, kind="internal", reason=reason, detail=detail, touched=self._clock.monotonic())
        del self._flying[lease.id]
        self._ended(outcome)
        if not self._launching:  # once for all visits that end in this round of the loop
            self._launching = True
            self._loop.call_soon(self._launch)

    def is_held(self, lease: Lease) -> bool:
        """Whether a lease is still this worker's, as far as can be known here."""
        return self._expires.get(lease.id, 0.0) > self._clock.monotonic()

    def rest(self, lane: str, seconds: float) -> None:
        """Begin nothing of this lane for so long; what was leased of it is given back."""
        now = self._clock.monotonic()
        self._resting = {name: until for name, until in self._resting.items() if until > now}
        self._resting[lane] = now + seconds

    def _ended(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._settleable.set()
        if not isinstance(outcome, Retry):
            self._outcome_bytes += len(outcome.children) * _LINK_BYTES + sum(map(len, outcome.items))
        if len(self._outcomes) >= _ENOUGH and (self._is_hurried or self._has_plenty):
            self._enough.set()

    @property
    def _is_hurried(self) -> bool:
        """Whether what has ended should be settled soon: nothing is left to begin, or its lane waits for it."""
        return not (self._ready or self._more) or self._clock.monotonic() < self._hurried_until

    @property
    def _has_plenty(self) -> bool:
        return len(self._outcomes) >= _PLENTY or self._outcome_bytes >= _PLENTY_BYTES

    async def _settle_loop(self) -> None:
        while True:
            await self._settleable.wait()
            await self._gather()
            self._settleable.clear()
            self._enough.clear()
            outcomes, self._outcomes, self._outcome_bytes = self._outcomes, [], 0
            if outcomes:
                await self._settle(outcomes)
                self._hungry.set()

    async def _gather(self) -> None:
        for _ in range(_LINGERS):
            if self._enough.is_set() or not (self._flying or self._ready):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LINGER_SECONDS):
                    await self._enough.wait()
            if self._is_hurried:
                return

    async def _settle(self, outcomes: list[Outcome]) -> None:
        lost = await self._frontier.settle(outcomes)
        self._stats.refused += len(lost)
        for outcome in outcomes:
            del self._held[outcome.lease.id], self._expires[outcome.lease.id]
            if not isinstance(outcome, Retry) and outcome.lease.id not in lost:
                self._gate.committed(outcome.children)
        if self._events is not None and (stored := _stored(outcomes, lost)):
            self._events.items(stored)

    async def _extend_loop(self) -> None:
        """Keep what is held; three chances before a lease runs out."""
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
            self.gauge.observe(done, new_failed, bool(self._ready), lag)
            self._launch()


def _stored(outcomes: list[Outcome], lost: set[int]) -> int:
    """How many items were stored with these outcomes."""
    return sum(
        len(outcome.items) for outcome in outcomes if not isinstance(outcome, Retry) and outcome.lease.id not in lost
    )

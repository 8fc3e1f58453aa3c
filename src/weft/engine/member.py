"""A worker's membership in a crawl: it says how it stands, and hears what is asked of all.

Every second a member reports, looks what state the crawl is in, and takes start URLs from the feed. So a pause or a
stop reaches all workers, on whatever machine, within a second or two; at once, if the member is called.

A crawl ends on all of its workers, each of which finds out for itself that nothing is left. Its supervisor then
completes the outputs and notes the end. Where that is gone, the workers have the last word, and watch the limits; the
crawl is noted as unattended, so that the same command, run again, completes the outputs instead of starting anew. The
limit of time is the supervisor's alone: it counts from the start of its command.

A crawl that is to end does not wait for a handler that never returns: what is in flight has a time of grace, and is
given back then, as if the member had been told to stop. Only where a signal asked for the end it waits on, for another.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import msgspec

from weft.clock import Clock
from weft.engine.events import Events
from weft.engine.feeding import Feeding
from weft.engine.limits import Limits
from weft.engine.states import INTERRUPTED, State
from weft.engine.stats import Report, Stats
from weft.engine.tasks import called
from weft.engine.worker import Worker
from weft.frontier.base import Feed, Frontier, Ledger

_ATTEND_SECONDS = 1.0
# A worker that has not reported for so long is gone.
_SILENT_SECONDS = 5.0
# So much longer than a fetch may take, what is in flight has when the crawl is to end: for its handler.
GRACE_SECONDS = 5.0
# Of so many pages in flight it tells which.
_MOST_TOLD = 3


class Member:
    """A :class:`Worker` that attends to its crawl's ledger while it runs.

    ``feeding`` is None where there is no feed. ``is_supervised`` says whether someone else will note the end of
    the crawl, and watches its ``limits``; None: someone will. ``grace``: so many seconds what is in flight has when
    the crawl is to end.
    """

    def __init__(
        self,
        worker: Worker,
        frontier: Frontier,
        ledger: Ledger,
        stats: Stats,
        clock: Clock,
        *,
        feeding: Feeding | None = None,
        is_supervised: Callable[[], Awaitable[bool]] | None = None,
        limits: Limits | None = None,
        events: Events | None = None,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self.worker = worker
        self._frontier = frontier
        self._ledger = ledger
        self._stats = stats
        self._clock = clock
        self._feeding = feeding
        self._is_supervised = is_supervised
        self._limits = limits or Limits()
        self._started = clock.time()
        self._events = events
        self._grace = grace
        self._patience: asyncio.TimerHandle | None = None
        self._drained = False
        self._called = asyncio.Event()

    async def run(self) -> None:
        """:raises StoreError: the store can't be read or written."""
        # Before anything is leased: the crawl may be paused.
        await self._attend()
        self._tell("joined")
        attending = asyncio.create_task(self._keep_attending())
        try:
            await self.worker.run()
        finally:
            attending.cancel()
            if self._patience is not None:
                self._patience.cancel()
            (failure,) = await asyncio.gather(attending, return_exceptions=True)
            self._tell("left")
        if isinstance(failure, Exception):
            raise failure
        await self._report()
        if await self._is_alone():
            await self._conclude()

    def drain(self, *, hurried: bool = False) -> None:
        """``hurried``: what is in flight has only its time of grace."""
        self._drained = True
        self.worker.drain()
        if hurried and self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(self._grace, self.stop)

    def stop(self) -> None:
        self._drained = True
        self.worker.stop()

    def heed(self) -> None:
        """Look at once what is asked of all, and whether there is work."""
        self._called.set()

    def _tell(self, what: str) -> None:
        if self._events is not None:
            stats = self._stats
            self._events.worker(self.worker.name, what, pid=os.getpid(), pages=stats.pages, items=stats.items)

    async def _keep_attending(self) -> None:
        try:
            while True:
                await called(self._called, _ATTEND_SECONDS)
                self._called.clear()
                await self._attend()
        except Exception:
            # A worker that can't hear must not go on.
            self.drain(hurried=True)
            raise

    async def _attend(self) -> None:
        await self._report()
        facts = await self._ledger.facts()
        state = facts.get("state")
        if state == State.RUNNING and await self._heed_limits():
            self.drain(hurried=True)
        elif state == State.RUNNING:
            self.worker.resume()
            if self._feeding is not None and not self._drained:
                await self._feeding.take()
        elif state == State.PAUSED:
            self.worker.pause()
        else:
            self.drain(hurried=facts.get("reason") != INTERRUPTED)

    async def _report(self) -> None:
        report = self._stats.report(
            pid=os.getpid(),
            started=self._started,
            in_flight=self.worker.in_flight,
            flying=self.worker.flying(_MOST_TOLD),
            held=self.worker.held,
            concurrency=self.worker.gauge.limit,
        )
        await self._ledger.report(self.worker.name, msgspec.json.encode(report))

    async def _is_alone(self) -> bool:
        return self._is_supervised is not None and not await self._is_supervised()

    async def _limit_reached(self) -> str | None:
        return self._limits.reached(await self._frontier.counts(), 0)

    async def _heed_limits(self) -> bool:
        """Whether a limit ends the crawl and nobody else says so; all others are told."""
        reached = await self._limit_reached()
        # A crawl that reaches its limit with its last page has finished.
        if not reached or not await self._is_alone() or await self.worker.is_over():
            return False
        await self._ledger.note(state=State.STOPPING, reason=reached)
        return True

    async def _conclude(self) -> None:
        """Note the end, as nobody else will. Other workers may do so at the same time; they note the same."""
        over = not self._drained and await self.worker.is_over()
        state = (await self._ledger.facts()).get("state")
        if state == State.RUNNING and over:
            await self._ledger.note(state=State.FINISHED, reason="", unattended="yes")
        elif state == State.STOPPING and await self._limit_reached():
            await self._ledger.note(state=State.LIMITED, unattended="yes")
        elif state == State.STOPPING:
            await self._ledger.note(state=State.STOPPED)


async def is_over(
    frontier: Frontier,
    ledger: Ledger,
    feed: Feed | None = None,
    *,
    stay: bool = False,
    is_supervised: Callable[[], Awaitable[bool]] | None = None,
) -> bool:
    """Nothing is left to do and nothing will come, or the crawl was ended for another reason.

    A crawl that is to ``stay`` waits for more, and one that its supervisor feeds, unless that is gone
    (``is_supervised``, None: it is there). While it is paused it is not over.
    """
    facts = await ledger.facts()
    state = facts.get("state")
    if state == State.PAUSED:
        return False
    if state != State.RUNNING:
        return True
    if stay or facts.get("seeded") != "yes":
        return False
    if facts.get("fed") == "yes" and (is_supervised is None or await is_supervised()):
        return False
    # The feed first: what is taken from it meanwhile is among the counts.
    if feed is not None and await feed.length():
        return False
    return (await frontier.counts()).finished


async def is_at_work(frontier: Frontier, ledger: Ledger) -> bool:
    """Whether some worker that lives still has pages of the crawl, and may yet settle them."""
    if not (await frontier.counts()).leased:
        return False
    reports = (await ledger.reports()).values()
    return any(age < _SILENT_SECONDS and msgspec.json.decode(report, type=Report).held for age, report in reports)

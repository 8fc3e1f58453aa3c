"""A worker's heartbeat: it reports to the ledger and follows the crawl's state.

Every ``_CHECK_SECONDS`` a :class:`CrawlWorker` writes its report, reads the crawl's state, and takes pushed start URLs
from the feed. So a pause or a stop reaches all workers, on every machine, within two seconds; at once if
:meth:`CrawlWorker.check_now` is called.

An operator can ask one worker to leave: its name is then among the facts ``draining``. It finishes its pages and ends,
and the others go on.

Each worker finds out for itself that no work is left, and ends. The supervisor then completes the outputs and notes
the end of the crawl. If the supervisor is gone, the workers watch the limits and note the end themselves. They mark the
crawl as ``unattended``, so that the same command, run again, completes the outputs instead of starting a new crawl.
Only the supervisor watches ``max_seconds``, which counts from the start of its command.

When the crawl is to end, pages in flight have ``grace`` seconds; then they are given back, so a handler that never
returns does not keep the crawl from ending. If a signal asked for the end, this limit does not apply: the user can
send a second signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from uttu.blackbox import started_pid
from uttu.clock import Clock
from uttu.engine.aio import wait_for_event
from uttu.engine.history import EventRecorder, Sampler, record_last
from uttu.engine.log_tail import LogTail, keep_log_tail
from uttu.engine.stats import WorkerStats
from uttu.engine.watchdog import Watchdog
from uttu.engine.worker import Worker
from uttu.engine.worker_processes import CrashedPage, settle_crashed
from uttu.frontier.base import Frontier, History, Ledger, SeedQueue
from uttu.model.crawl import NO_REASON, CrawlLimits, CrawlState, Reason, ReasonKind, WorkerReport

if TYPE_CHECKING:
    from uttu.engine.seeds import PushedSeeds

_CHECK_SECONDS = 1.0
# A worker whose last report is older than this counts as gone.
_SILENT_SECONDS = 5.0
# Time for the handlers of pages in flight when the crawl is to end, on top of the fetch timeout.
GRACE_SECONDS = 5.0
# The most time for pages in flight after SIGTERM; shorter than the ten seconds after which Docker kills a container.
TERMINATE_SECONDS = 8.0
# Maximum number of in-flight URLs in a report.
_MAX_REPORTED_URLS = 3
_log = logging.getLogger("uttu.worker")


class CrawlWorker:
    """A :class:`Worker` that reports to the crawl's ledger and follows its state while it runs.

    :param pushed_seeds: Takes start URLs from the feed; None if the store has no feed.
    :param is_supervised: Whether a supervisor watches the ``limits`` and will note the crawl's end. None means yes.
    :param grace: Seconds that pages in flight have when the crawl is to end.
    :param history: Where samples of the crawl's numbers go; None to take none.
    """

    def __init__(
        self,
        worker: Worker,
        frontier: Frontier,
        ledger: Ledger,
        stats: WorkerStats,
        clock: Clock,
        *,
        pushed_seeds: PushedSeeds | None = None,
        is_supervised: Callable[[], Awaitable[bool]] | None = None,
        limits: CrawlLimits | None = None,
        events: EventRecorder | None = None,
        grace: float = GRACE_SECONDS,
        watchdog: Watchdog | None = None,
        history: History | None = None,
    ) -> None:
        self._watchdog = watchdog
        self.worker = worker
        self._frontier = frontier
        self._ledger = ledger
        self._stats = stats
        self._clock = clock
        self._pushed_seeds = pushed_seeds
        self._is_supervised = is_supervised
        self._limits = limits or CrawlLimits()
        self._started = clock.time()
        self._events = events
        self._grace = grace
        self._patience: asyncio.TimerHandle | None = None
        self._drained = False
        self._called = asyncio.Event()
        self._history = history
        self._sampler = Sampler(history, frontier, ledger, clock, worker.name) if history is not None else None
        self._host = socket.gethostname()
        self._log_tail: LogTail | None = None

    async def run(self) -> None:
        """Work until the crawl is over or the worker is drained.

        :raises StoreError: the store can't be read or written.
        """
        with keep_log_tail() as self._log_tail:
            await self._run()

    async def _run(self) -> None:
        # Read the state before the first lease: the crawl may be paused.
        await self._check_crawl()
        self._tell("joined")
        attending = asyncio.create_task(self._check_loop())
        try:
            with self._watchdog.watching() if self._watchdog is not None else contextlib.nullcontext():
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
        if self._sampler is not None:
            await self._sampler.leave()
        if await self._is_alone():
            await self._conclude()

    async def bury(self, pages: Sequence[CrashedPage]) -> None:
        """Settle pages that crashed a worker process as dead: now, or when this worker leases them.

        :raises StoreError: the store can't be written.
        """
        self.worker.condemn({each.page.fingerprint: each.reason for each in pages})
        await settle_crashed(self._frontier, pages)

    def drain(self, *, hurried: bool = False, seconds: float | None = None) -> None:
        """Start no more pages, and end when the pages in flight are settled.

        :param hurried: Give pages in flight back after ``grace`` seconds, or after ``seconds`` if that is shorter.
        """
        self._drained = True
        self.worker.drain()
        if hurried and self._patience is None:
            grace = self._grace if seconds is None else min(seconds, self._grace)
            self._patience = asyncio.get_running_loop().call_later(grace, self.stop)

    def stop(self) -> None:
        self._drained = True
        self.worker.stop()

    def check_now(self) -> None:
        """Read the crawl's state and ask for work at once."""
        self._called.set()

    def _tell(self, what: str) -> None:
        """Log and publish that this worker has joined or left."""
        _log.info(
            "Worker %(worker)s has %(what)s; pages: %(pages)d, items: %(items)d",
            {"worker": self.worker.name, "what": what, "pages": self._stats.pages, "items": self._stats.items},
        )
        if self._events is not None:
            stats = self._stats
            self._events.worker(self.worker.name, what, pid=started_pid(), pages=stats.pages, items=stats.items)

    async def _check_loop(self) -> None:
        try:
            while True:
                await wait_for_event(self._called, _CHECK_SECONDS)
                self._called.clear()
                await self._check_crawl()
        except Exception:
            # A worker that can't read the crawl's state must not continue.
            self.drain(hurried=True)
            raise

    async def _check_crawl(self) -> None:
        await self._report()
        if self._sampler is not None:
            await self._sampler.look()
        facts = await self._ledger.facts()
        if self.worker.name in facts.draining:
            self.drain()
        if facts.state is CrawlState.RUNNING and await self._enforce_limits():
            self.drain(hurried=True)
        elif facts.state is CrawlState.RUNNING:
            self.worker.resume()
            if self._pushed_seeds is not None and not self._drained:
                await self._pushed_seeds.take()
        elif facts.state is CrawlState.PAUSED:
            self.worker.pause()
        else:
            self.drain(hurried=facts.reason.kind is not ReasonKind.INTERRUPTED)

    async def _report(self) -> None:
        report = self._stats.report(
            pid=started_pid(),
            started=self._started,
            in_flight=self.worker.in_flight,
            flying=self.worker.flying(_MAX_REPORTED_URLS),
            held=self.worker.held,
            concurrency=self.worker.controller.limit,
            host=self._host,
            log=self._log_tail.lines if self._log_tail is not None else (),
        )
        await self._ledger.report(self.worker.name, msgspec.json.encode(report))

    async def _is_alone(self) -> bool:
        return self._is_supervised is not None and not await self._is_supervised()

    async def _limit_reached(self) -> str | None:
        return self._limits.reached(await self._frontier.counts(), 0)

    async def _enforce_limits(self) -> bool:
        """Note STOPPING if a limit is reached and no supervisor does so; returns whether it was noted."""
        reached = await self._limit_reached()
        # A crawl that reaches its limit with its last page is finished, not limited.
        if not reached or not await self._is_alone() or await self.worker.is_over():
            return False
        await self._ledger.note(state=CrawlState.STOPPING, reason=Reason(reached))
        return True

    async def _conclude(self) -> None:
        """Note the end of a crawl without a supervisor. Other workers may write the same facts at the same time."""
        over = not self._drained and await self.worker.is_over()
        state = (await self._ledger.facts()).state
        if state is CrawlState.RUNNING and over:
            await self._ledger.note(state=CrawlState.FINISHED, reason=NO_REASON, unattended=True)
        elif state is CrawlState.STOPPING and await self._limit_reached():
            await self._ledger.note(state=CrawlState.LIMITED, unattended=True)
        elif state is CrawlState.STOPPING:
            await self._ledger.note(state=CrawlState.STOPPED)
        else:
            return
        if self._history is not None:
            await record_last(self._history, self._frontier, self._ledger, self._clock)


async def is_over(
    frontier: Frontier,
    ledger: Ledger,
    feed: SeedQueue | None = None,
    *,
    stay: bool = False,
    is_supervised: Callable[[], Awaitable[bool]] | None = None,
) -> bool:
    """Whether the crawl is over: no work is left and none will come, or its state says that it ends.

    A paused crawl is not over. A crawl whose supervisor reads start URLs from a topic is not over while that supervisor
    lives.

    :param stay: The crawl waits for more start URLs, so it is never over by itself.
    :param is_supervised: Whether the supervisor lives; None means yes.
    """
    facts = await ledger.facts()
    if facts.state is CrawlState.PAUSED:
        return False
    if facts.state is not CrawlState.RUNNING:
        return True
    if stay or not facts.seeded:
        return False
    if facts.fed and (is_supervised is None or await is_supervised()):
        return False
    # Check the feed before the counts: an entry that is taken in between is then among the counts.
    if feed is not None and await feed.length():
        return False
    return (await frontier.counts()).finished


async def is_at_work(frontier: Frontier, ledger: Ledger) -> bool:
    """Whether a living worker holds leases of the crawl, so outcomes may still come."""
    if not (await frontier.counts()).leased:
        return False
    reports = (await ledger.reports()).values()
    return any(age < _SILENT_SECONDS and msgspec.json.decode(report, type=WorkerReport).held for age, report in reports)


async def has_other_workers(ledger: Ledger, draining: Collection[str]) -> bool:
    """Whether a worker has reported lately that is not among those that leave."""
    return any(age < _SILENT_SECONDS for name, (age, _) in (await ledger.reports()).items() if name not in draining)

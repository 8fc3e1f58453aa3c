"""The supervisor: puts start URLs, watches the limits, exports items, and decides how the crawl ended. One per crawl.

The pages are processed by its worker group: one worker in this process
(:class:`~uttu.engine.heartbeat.CrawlWorker`), or several worker processes
(:class:`~uttu.engine.worker_processes.WorkerProcesses`). Workers on other machines may join the crawl.

All workers, the worker group included, read from the ledger that the crawl is paused or stopping. Two things are not
in the ledger: that this process failed, and that it hands the crawl on to another supervisor. The supervisor signals
these to its own worker group only, and waits ``grace`` seconds at most for the pages in flight.

If an operator drains all workers of the group, the supervisor stays while workers elsewhere are at the crawl.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from uttu.clients.addresses import mask_logins
from uttu.clock import Clock
from uttu.engine.aio import wait_for_event
from uttu.engine.exporter import Exporter
from uttu.engine.heartbeat import GRACE_SECONDS, has_other_workers, is_at_work, is_over
from uttu.engine.history import EventRecorder, record_last
from uttu.engine.link_filter import validate_request
from uttu.engine.seeds import TopicSeeds
from uttu.engine.worker_processes import CrashedPage
from uttu.errors import SpiderError, StartError, StoreError, UttuError
from uttu.frontier.base import Frontier, History, Ledger, SeedQueue
from uttu.model import Request
from uttu.model.crawl import NO_REASON, CrawlLimits, CrawlState, Reason, ReasonKind
from uttu.model.facts import CrawlFacts

_WATCH_SECONDS = 0.5
_LINGER_SECONDS = 0.2
HANDED_ON = Reason("handed on")
DRAINED = Reason("its last worker was drained")
_log = logging.getLogger("uttu.crawl")


class WorkerGroup(Protocol):
    """The workers that a supervisor starts: a single worker in this process, or worker processes."""

    async def run(self) -> None:
        """Work until the crawl is over or :meth:`drain` was called."""

    async def bury(self, pages: Sequence[CrashedPage]) -> None:
        """Settle pages that crashed a worker process as dead."""

    def drain(self) -> None:
        """Finish the pages in flight, start no more."""

    def stop(self) -> None:
        """Drain, and give back the pages in flight."""

    def check_now(self) -> None:
        """Read the crawl's state and ask for work at once, instead of within a second."""


class Ending(msgspec.Struct, frozen=True):
    """How a crawl ended: its state and the reason."""

    state: CrawlState
    reason: Reason = NO_REASON


class Supervisor:
    """Runs one crawl to its end, or until it is handed on to another supervisor (:meth:`hand_on`).

    :param start: The start requests, in batches that are put as they come.
    :param crew: The worker group.
    :param feed: The queue of pushed start URLs, if the store has one; the crawl is not finished while it holds entries.
    :param stay: Wait for more start URLs instead of finishing when no work is left.
    :param spent: Seconds of the limit ``max_seconds`` that earlier supervisors of this crawl used.
    :param grace: Seconds that the worker group has for the pages in flight after :meth:`hurry`.
    :param history: Where the last sample of the crawl's numbers goes.
    """

    def __init__(
        self,
        *,
        start: AsyncIterator[Sequence[Request]],
        crew: WorkerGroup,
        frontier: Frontier,
        ledger: Ledger,
        drain: Exporter,
        limits: CrawlLimits,
        clock: Clock,
        feed: SeedQueue | None = None,
        stay: bool = False,
        topic_seeds: TopicSeeds | None = None,
        events: EventRecorder | None = None,
        spent: float = 0.0,
        grace: float = GRACE_SECONDS,
        history: History | None = None,
    ) -> None:
        self._history = history
        self._start = start
        self._crew = crew
        self._frontier = frontier
        self._ledger = ledger
        self._drain = drain
        self._limits = limits
        self._clock = clock
        self._feed = feed
        self._stay = stay
        self._topic_seeds = topic_seeds
        self._events = events
        self._spent = spent
        self._grace = grace
        self._patience: asyncio.TimerHandle | None = None
        self._told: CrawlState | None = None
        self._called = asyncio.Event()
        self._stop_reason = self._failure = NO_REASON
        self._limited = self._stopped = self._handing_on = False
        self._not_paused = asyncio.Event()
        self._output_over = asyncio.Event()

    async def open(self) -> None:
        """Open the outputs. Call it before :meth:`run`.

        :raises SinkError: an output can't be written.
        """
        await self._drain.open()

    @property
    def elsewhere(self) -> dict[str, str]:
        """The outputs that other processes write, with the owner of each. They are taken over if the owner is gone."""
        return self._drain.elsewhere

    async def bury(self, pages: Sequence[CrashedPage]) -> None:
        """Settle pages that crashed the previous process of this crawl as dead. Call it before :meth:`run`."""
        await self._crew.bury(pages)

    async def run(self, *, going_on: bool = False) -> Ending:
        """Run the crawl; returns how it ended.

        :param going_on: Another supervisor handed the crawl on. A pause or stop requested since then stays in force.
        :raises UttuError: the store, an output or the start requests can't be used; the crawl can be resumed.
        """
        asked = (await self._ledger.facts()).state if going_on else None
        # A crawl that was handed on is running already. Writing the state again could overwrite a pause or stop.
        if asked not in (CrawlState.RUNNING, CrawlState.PAUSED, CrawlState.STOPPING, CrawlState.STOPPED):
            await self._ledger.note(state=CrawlState.RUNNING, reason=NO_REASON)
        await self._ledger.note(unattended=False, fed=self._topic_seeds is not None)
        if self._topic_seeds is not None:
            # Until _watch() has checked the limits.
            self._topic_seeds.pause()
            self._topic_seeds.seeding = True
        self._tell(asked or CrawlState.RUNNING)
        helpers = (self._seed(), self._watch(), self._take_in(), self._drain.run(self._output_over))
        tasks = [asyncio.create_task(each) for each in helpers]
        crew = asyncio.create_task(self._run_crew())
        try:
            await self._until_over(crew, tasks)
        except BaseException as error:
            await self._cancel_tasks(crew, tasks)
            with contextlib.suppress(UttuError):
                await self._drain.finish(False)
            with contextlib.suppress(UttuError):
                await self._note_failure(error)
            raise
        await self._cancel_tasks(crew, tasks)
        return await self._end()

    async def _run_crew(self) -> None:
        """Run the worker group. If its workers were drained, wait while workers elsewhere are at the crawl."""
        await self._crew.run()
        facts = await self._ledger.facts()
        while _was_drained(facts) and not (self._stop_reason or self._handing_on or await self._is_over()):
            if not await has_other_workers(self._ledger, facts.draining):
                self._stop_reason = DRAINED
                return
            await wait_for_event(self._called, _WATCH_SECONDS)
            facts = await self._ledger.facts()

    async def _is_over(self) -> bool:
        return await is_over(self._frontier, self._ledger, self._feed, stay=self._stay)

    async def _cancel_tasks(self, crew: asyncio.Task[None], tasks: list[asyncio.Task[None]]) -> None:
        """Cancel all tasks but the exporter, which ends by itself when ``_output_over`` is set."""
        self._output_over.set()
        if self._patience is not None:
            self._patience.cancel()
        for task in (crew, *tasks[:-1]):
            task.cancel()
        await asyncio.gather(crew, *tasks, return_exceptions=True)

    async def _until_over(self, crew: asyncio.Task[None], tasks: list[asyncio.Task[None]]) -> None:
        """Wait until the worker group is done. If another task fails, drain the group and raise that error."""
        watched = {crew, *tasks}
        while not crew.done():
            done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {crew}:
                if (error := task.exception()) is not None:
                    self._failure = Reason(describe_failure(error), ReasonKind.FAILED)
                    self.drain(self._failure)
                    self.hurry()
                    await asyncio.wait([crew])
                    task.result()
        crew.result()

    async def _note_failure(self, error: BaseException) -> None:
        """Note the state STOPPED, if workers were asked to stop because of the failure.

        It is not noted after a store error: the store may be back soon, and another process may continue the crawl.
        """
        if not self._failure or isinstance(error, StoreError):
            await self._ledger.note(fed=False)
            return
        self._tell(CrawlState.STOPPED, self._failure)
        await self._ledger.note(fed=False, state=CrawlState.STOPPED, reason=self._failure)

    def drain(self, reason: Reason) -> None:
        """Let the worker group finish the pages in flight."""
        self._stop_reason = self._stop_reason or reason
        self._accept_seeds(False)
        self._crew.drain()

    def hand_on(self) -> None:
        """Let the worker group finish the pages in flight, and leave the state RUNNING for the next supervisor."""
        self._handing_on = True
        self._accept_seeds(False)
        self._crew.drain()
        self.hurry()

    def hurry(self, seconds: float | None = None) -> None:
        """Stop the worker group after ``grace`` seconds.

        :param seconds: Stop the whole crawl after this time, if it is shorter; workers elsewhere are not awaited.
        """
        if self._patience is None:
            loop = asyncio.get_running_loop()
            if seconds is None:
                self._patience = loop.call_later(self._grace, self._crew.stop)
            else:
                self._patience = loop.call_later(min(seconds, self._grace), self.stop, self._stop_reason)

    def stop(self, reason: Reason) -> None:
        """Let the worker group give back the pages in flight."""
        self._stop_reason = self._stop_reason or reason
        self._stopped = True
        self._accept_seeds(False)
        self._crew.stop()

    def check_now(self) -> None:
        """Read the crawl's state at once, also in the worker group."""
        self._called.set()
        self._crew.check_now()

    async def _take_in(self) -> None:
        """Read start URLs from the topic until it is idle; then note that no more will come."""
        if self._topic_seeds is not None:
            await self._topic_seeds.run()
            await self._ledger.note(fed=False)

    def _accept_seeds(self, more: bool) -> None:
        """Resume or pause reading from the topic. Messages that are not taken wait at the broker."""
        if self._topic_seeds is not None:
            (self._topic_seeds.resume if more else self._topic_seeds.pause)()

    async def _seed(self) -> None:
        """Put the start requests, unless an earlier run put all of them. The frontier drops those that it has seen."""
        if not (await self._ledger.facts()).seeded:
            await self._put_start()
            await self._ledger.note(seeded=True)
            _log.info("All start requests are in the frontier")
        if self._topic_seeds is not None:
            self._topic_seeds.seeding = False

    async def _put_start(self) -> None:
        async for batch in self._start:
            try:
                requests = [validate_request(msgspec.structs.replace(request, start=True)) for request in batch]
            except ValueError as error:
                raise SpiderError(f"the spider starts with {error}") from error
            await self._not_paused.wait()
            await self._frontier.put(requests)
            self._crew.check_now()

    async def _watch(self) -> None:
        began = self._clock.monotonic()
        while True:
            if self._drain.errors:
                raise self._drain.errors[0]
            facts = await self._ledger.facts()
            await self._heed(facts)
            seconds = self._spent + self._clock.monotonic() - began
            reached = self._limits.reached(await self._frontier.counts(), seconds)
            if reached:
                self._limited = True
                await self._ledger.note(state=CrawlState.STOPPING, reason=Reason(reached))
                self.drain(Reason(reached))
                return
            ending = self._stop_reason or self._handing_on
            self._accept_seeds(facts.state is CrawlState.RUNNING and not ending)
            await wait_for_event(self._called, _WATCH_SECONDS)
            self._called.clear()

    async def _heed(self, facts: CrawlFacts) -> None:
        """Follow the state that an operator wrote; write STOPPING if this process was asked to stop."""
        state = facts.state
        self._tell(state, facts.reason)
        if state is CrawlState.PAUSED:
            self._not_paused.clear()
        else:
            self._not_paused.set()
        if state in (CrawlState.STOPPING, CrawlState.STOPPED):
            self.drain(facts.reason)
        elif self._stop_reason:
            await self._ledger.note(state=CrawlState.STOPPING, reason=self._stop_reason)

    async def _end(self) -> Ending:
        facts = await self._ledger.facts()
        if facts.state in (CrawlState.STOPPING, CrawlState.STOPPED):
            self._stop_reason = self._stop_reason or facts.reason
        ending = await self._judge()
        if ending.state is CrawlState.RUNNING:
            await self._drain.finish(False)
            await self._ledger.note(fed=False)
            _log.info("The crawl is handed on to another process")
            return ending
        if ending.state is not CrawlState.FINISHED:
            await self._await_others()
        await self._drain.finish(ending.state.ended)
        if ending.state is CrawlState.FINISHED and (await self._judge()).state is not CrawlState.FINISHED:
            ending = Ending(CrawlState.STOPPED, Reason("start URLs came in the last moment"))
        await self._ledger.note(state=ending.state, reason=ending.reason, unattended=False, fed=False)
        self._tell(ending.state, ending.reason)
        if self._history is not None:
            await record_last(self._history, self._frontier, self._ledger, self._clock)
        return ending

    def _tell(self, state: CrawlState | None, reason: Reason = NO_REASON) -> None:
        """Log and publish the state if it has changed."""
        if state is not None and state is not self._told:
            why = ": %(reason)s" if reason else ""
            _log.info(f"The crawl is %(state)s{why}", {"state": state, "reason": mask_logins(str(reason))})
            if self._events is not None:
                self._events.state(state, reason)
        self._told = state

    async def _await_others(self) -> None:
        """Wait for the pages in flight on other machines: their items belong to the outputs."""
        while not self._stopped and await is_at_work(self._frontier, self._ledger):
            await self._ledger.note(state=CrawlState.STOPPING, reason=self._stop_reason)
            await asyncio.sleep(_LINGER_SECONDS)

    async def _judge(self) -> Ending:
        facts = await self._ledger.facts()
        seeded = facts.seeded and not facts.fed
        fed = self._feed is None or not await self._feed.length()
        counts = await self._frontier.counts()
        # At max_items, some items of the last page may have been left out, so the crawl is not finished.
        if counts.finished and seeded and fed and not self._stay and not self._limits.reached_items(counts):
            return Ending(CrawlState.FINISHED)
        if self._limited or self._limits.reached(counts, 0):
            return Ending(CrawlState.LIMITED, self._stop_reason or Reason(self._limits.reached(counts, 0) or ""))
        if self._handing_on and not self._stop_reason:
            return Ending(CrawlState.RUNNING, HANDED_ON)
        return Ending(CrawlState.STOPPED, self._stop_reason)


def _was_drained(facts: CrawlFacts) -> bool:
    """Whether an operator has drained a worker since the crawl was started or resumed."""
    return any(at >= facts.began for at in facts.draining.values())


def describe_failure(error: BaseException) -> str:
    """One line on why a crawl failed."""
    if isinstance(error, StartError) and error.reason:
        return error.reason
    return (str(error) or type(error).__name__).splitlines()[0]

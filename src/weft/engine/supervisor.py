"""The Supervisor: one a crawl. Feeds the start URLs, watches the limits, drains the outbox, knows the end.

The crew does the work: a worker in this process, or several processes (``crew.Processes``). Workers on other machines
may take part; all of them, the crew included, hear from the ledger that the crawl is paused or to stop, and give
back what takes too long then. What is not in the ledger, that this process failed or hands the crawl on, only the crew
is told, and only so long it is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from weft.clock import Clock
from weft.engine.drain import Drain
from weft.engine.events import Events
from weft.engine.gate import checked
from weft.engine.intake import Intake
from weft.engine.limits import Limits
from weft.engine.member import GRACE_SECONDS, is_at_work
from weft.engine.states import State
from weft.engine.tasks import called
from weft.errors import SpiderError, StartError, StoreError, WeftError
from weft.frontier.base import Feed, Frontier, Ledger
from weft.model import Request

_WATCH_SECONDS = 0.5
_LINGER_SECONDS = 0.2
HANDED_ON = "handed on"


class Crew(Protocol):
    """Those who do the work."""

    async def run(self) -> None:
        """Work until the crawl is over or :meth:`drain` was called."""

    def drain(self) -> None:
        """Finish what is in flight, begin nothing more."""

    def stop(self) -> None:
        """Give back what is in flight, too."""

    def heed(self) -> None:
        """Look at once what is asked of all, and whether there is work."""


class Ending(msgspec.Struct, frozen=True):
    """How a crawl ended: its state, and the reason in words."""

    state: State
    reason: str = ""


class Supervisor:
    """Runs one crawl to its end, or for as long as it is this one's turn (:meth:`hand_on`).

    ``start`` are its first requests, in batches that are put as they come. ``spent`` are the seconds that others before
    it had, of the time that the crawl may take. ``grace`` are those that the crew has for what is in flight.
    """

    def __init__(
        self, *, start: AsyncIterator[Sequence[Request]], crew: Crew, frontier: Frontier, ledger: Ledger, drain: Drain,
        limits: Limits, clock: Clock, feed: Feed | None = None, stay: bool = False,
        intake: Intake | None = None, events: Events | None = None, spent: float = 0.0,
        grace: float = GRACE_SECONDS,
    ) -> None:  # fmt: skip
        self._start = start
        self._crew = crew
        self._frontier = frontier
        self._ledger = ledger
        self._drain = drain
        self._limits = limits
        self._clock = clock
        self._feed = feed
        self._stay = stay
        self._intake = intake
        self._events = events
        self._spent = spent
        self._grace = grace
        self._patience: asyncio.TimerHandle | None = None
        self._told = ""
        self._called = asyncio.Event()
        self._stop_reason = self._failure = ""
        self._limited = self._stopped = self._handing_on = False
        self._going = asyncio.Event()
        self._output_over = asyncio.Event()

    async def open(self) -> None:
        """Open the outputs; before :meth:`run`.

        :raises SinkError: one can't be written.
        """
        await self._drain.open()

    @property
    def elsewhere(self) -> dict[str, str]:
        """The outputs that others write, and who does. They are taken over when the others are gone."""
        return self._drain.elsewhere

    async def run(self, *, going_on: bool = False) -> Ending:
        """``going_on``: another handed the crawl on; what was asked of it in between, a pause or a stop, still holds.

        :raises WeftError: the store, an output or the start can't be used; the crawl can be resumed.
        """
        fed = "yes" if self._intake is not None else ""
        asked = (await self._ledger.facts()).get("state") if going_on else None
        # One that goes on is running already: to write that again would undo what is asked of it at this moment.
        if asked not in (State.RUNNING, State.PAUSED, State.STOPPING, State.STOPPED):
            await self._ledger.note(state=State.RUNNING, reason="")
        await self._ledger.note(unattended="", fed=fed)
        if self._intake is not None:
            # Until it is known that no limit is reached.
            self._intake.pause()
            self._intake.seeding = True
        self._tell(asked or State.RUNNING)
        helpers = (self._seed(), self._watch(), self._take_in(), self._drain.run(self._output_over))
        tasks = [asyncio.create_task(each) for each in helpers]
        crew = asyncio.create_task(self._crew.run())
        try:
            await self._until_over(crew, tasks)
        except BaseException as error:
            await self._wind_up(crew, tasks)
            with contextlib.suppress(WeftError):
                await self._drain.finish(False)
            with contextlib.suppress(WeftError):
                await self._ledger.note(fed="", **self._failed(error))
            raise
        await self._wind_up(crew, tasks)
        return await self._end()

    async def _wind_up(self, crew: asyncio.Task[None], tasks: list[asyncio.Task[None]]) -> None:
        """The outputs end of themselves, in order; the others have nothing more to do."""
        self._output_over.set()
        if self._patience is not None:
            self._patience.cancel()
        for task in (crew, *tasks[:-1]):
            task.cancel()
        await asyncio.gather(crew, *tasks, return_exceptions=True)

    async def _until_over(self, crew: asyncio.Task[None], tasks: list[asyncio.Task[None]]) -> None:
        """Until the crew is done; sooner if one of the others fails, after the crew has drained."""
        watched = {crew, *tasks}
        while not crew.done():
            done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {crew}:
                if (error := task.exception()) is not None:
                    self._failure = reason_of(error)
                    self.drain(self._failure)
                    self._hurry()
                    await asyncio.wait([crew])
                    task.result()
        crew.result()

    def _failed(self, error: BaseException) -> dict[str, str]:
        """How a crawl that failed is noted: as stopped, where all others were told to stop for it.

        Not if it is for the store, which may be there again for whoever goes on in a moment.
        """
        if not self._failure or isinstance(error, StoreError):
            return {}
        self._tell(State.STOPPED, self._failure)
        return {"state": State.STOPPED, "reason": self._failure}

    def drain(self, reason: str) -> None:
        """Let the crew finish what is in flight."""
        self._stop_reason = self._stop_reason or reason
        self._let_in(False)
        self._crew.drain()

    def hand_on(self) -> None:
        """Let the crew finish what is in flight, and leave the crawl as it is: running, for another to go on with."""
        self._handing_on = True
        self._let_in(False)
        self._crew.drain()
        self._hurry()

    def _hurry(self) -> None:
        if self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(self._grace, self._crew.stop)

    def stop(self, reason: str) -> None:
        """Let the crew give back what is in flight."""
        self._stop_reason = self._stop_reason or reason
        self._stopped = True
        self._let_in(False)
        self._crew.stop()

    def heed(self) -> None:
        """Look at once what is asked of the crawl."""
        self._called.set()
        self._crew.heed()

    async def _take_in(self) -> None:
        """Start URLs from a topic, for as long as the crawl is to wait for them."""
        if self._intake is not None:
            await self._intake.run()
            await self._ledger.note(fed="")

    def _let_in(self, more: bool) -> None:
        """What is not taken now waits with the broker, for the next run as well."""
        if self._intake is not None:
            (self._intake.resume if more else self._intake.pause)()

    async def _seed(self) -> None:
        """Put the start requests, unless a former run did. Idempotent, so a run that was killed does it again."""
        if (await self._ledger.facts()).get("seeded") != "yes":
            await self._put_start()
            await self._ledger.note(seeded="yes")
        if self._intake is not None:
            self._intake.seeding = False

    async def _put_start(self) -> None:
        async for batch in self._start:
            try:
                requests = [checked(msgspec.structs.replace(request, start=True)) for request in batch]
            except ValueError as error:
                raise SpiderError(f"the spider starts with {error}") from error
            await self._going.wait()  # not while the crawl is paused
            await self._frontier.put(requests)
            self._crew.heed()

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
                await self._ledger.note(state=State.STOPPING, reason=reached)
                self.drain(reached)
                return
            ending = self._stop_reason or self._handing_on
            self._let_in(facts.get("state") == State.RUNNING and not ending)
            await called(self._called, _WATCH_SECONDS)
            self._called.clear()

    async def _heed(self, facts: dict[str, str]) -> None:
        """What an operator asked for; and what this process was asked for, others are to hear."""
        state = facts.get("state", "")
        self._tell(state, facts.get("reason", ""))
        if state == State.PAUSED:
            self._going.clear()
        else:
            self._going.set()
        if state in (State.STOPPING, State.STOPPED):
            self.drain(facts.get("reason", ""))
        elif self._stop_reason:
            await self._ledger.note(state=State.STOPPING, reason=self._stop_reason)

    async def _end(self) -> Ending:
        facts = await self._ledger.facts()
        if facts.get("state") in (State.STOPPING, State.STOPPED):
            self._stop_reason = self._stop_reason or facts.get("reason", "")
        ending = await self._judge()
        if ending.state is State.RUNNING:
            await self._drain.finish(False)
            await self._ledger.note(fed="")
            return ending
        if ending.state is not State.FINISHED:
            await self._await_others()
        await self._drain.finish(ending.state.ended)
        if ending.state is State.FINISHED and (await self._judge()).state is not State.FINISHED:
            ending = Ending(State.STOPPED, "start URLs came in the last moment")
        await self._ledger.note(state=ending.state, reason=ending.reason, unattended="", fed="")
        self._tell(ending.state, ending.reason)
        return ending

    def _tell(self, state: str, reason: str = "") -> None:
        """That the state has changed, if it has."""
        if self._events is not None and state != self._told:
            self._events.state(state, reason)
        self._told = state

    async def _await_others(self) -> None:
        """Workers on other machines finish what is in flight, too; their items are part of the outputs."""
        while not self._stopped and await is_at_work(self._frontier, self._ledger):
            await self._ledger.note(state=State.STOPPING, reason=self._stop_reason)
            await asyncio.sleep(_LINGER_SECONDS)

    async def _judge(self) -> Ending:
        facts = await self._ledger.facts()
        seeded = facts.get("seeded") == "yes" and facts.get("fed") != "yes"
        fed = self._feed is None or not await self._feed.length()
        counts = await self._frontier.counts()
        if counts.finished and seeded and fed and not self._stay:
            return Ending(State.FINISHED)
        if self._limited or self._limits.reached(counts, 0):
            return Ending(State.LIMITED, self._stop_reason or self._limits.reached(counts, 0) or "")
        if self._handing_on and not self._stop_reason:
            return Ending(State.RUNNING, HANDED_ON)
        return Ending(State.STOPPED, self._stop_reason)


def reason_of(error: BaseException) -> str:
    """Why a crawl failed, in one line."""
    if isinstance(error, StartError) and error.reason:
        return error.reason
    return (str(error) or type(error).__name__).splitlines()[0]

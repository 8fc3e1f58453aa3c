"""Run a slice of a crawl in its process: lead the crawl or take part in it, until the time is up or it is over.

The process with the supervisor's role leads the crawl. A slice takes the role if it is free, and continues the crawl.
If another process has it, a copy of this slice or a person's ``uttu crawl``, the slice takes part as a worker, and
checks whether the role has become free.

Copies of a slice and late slices must not do work twice. A broker delivers a message again if it cannot know that it
was processed. So any slice may come twice, and the copy may come while the first one runs, or days later. The ledger of
the crawl has a mark for each job that takes part (``CrawlFacts.slices``): the number of its last slice, and when that
slice ended.

- A slice with a lower number than the mark is stale: a later one has begun, so it is dropped.
- A slice with the same number continues the work, or takes part if another process leads. If the mark says that the
  slice has just ended, its process is about to send the next slice or the result, so the copy waits. If nothing comes
  within ``patience``, because that process was killed at this moment, the copy continues in its place.
- A slice of a job without a mark is the first, and begins the crawl as the command would.

A request of kind ``join`` only takes part. It never leads, because it has no outputs: a crawl that ended under it would
be recorded as finished before its items were written.

:class:`SliceControl` tells the process when to end: by its timer, by the task that started it, or by signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from typing import Any, Final

from uttu.engine.supervisor import Ending
from uttu.errors import StoreError, UttuError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlCatalog, CrawlStore
from uttu.jobs.crawl_task.protocol import HAND_ON_LINE, STOP_LINE, SliceEnd, SliceEvent, SliceRequest
from uttu.model.crawl import REVOKED, CrawlState, ReasonKind
from uttu.model.facts import CrawlFacts, SliceMark
from uttu.runtime.crawl import join_crawl, lead_crawl, summarize_crawl
from uttu.runtime.messaging import connect_messaging
from uttu.runtime.registry import create_sink, open_frontier
from uttu.settings import DATA_FOLDER, Settings


class SliceAction(StrEnum):
    """The action that a slice takes."""

    BEGIN = "begin"
    GO_ON = "go on"
    CONCLUDE = "conclude"
    """The crawl is over, and this job reports its result."""
    WAIT = "wait"
    DROP = "drop"
    LOST = "lost"
    """The crawl that the job began no longer exists."""


def is_crawl_over(facts: CrawlFacts) -> bool:
    """Whether a crawl has ended. If no process led it at that moment, its outputs are still to be written."""
    if facts.state is None:
        return False
    return facts.state is CrawlState.STOPPED or (facts.state.ended and not facts.unattended)


def decide_action(facts: CrawlFacts | None, order: SliceRequest, now: float, patience: float) -> SliceAction:
    """Decide what a slice request means for a crawl with these facts; None: no crawl has that name.

    :param patience: seconds after its end in which a slice may still send the next one.
    """
    mark = facts.slices.get(order.job) if facts is not None else None
    if facts is None or mark is None:
        return SliceAction.BEGIN if order.number == 1 and order.kind == "slice" else SliceAction.LOST
    if order.kind == "slice":
        if mark.number > order.number:
            return SliceAction.DROP
        if mark.number == order.number and now - mark.ended < patience:
            return SliceAction.WAIT
    return SliceAction.CONCLUDE if is_crawl_over(facts) else SliceAction.GO_ON


class SliceControl:
    """The end of a slice: ``let_go`` is called when the time is up, ``stop`` when the job was revoked.

    Both may be replaced at any time. The request, the first line on standard input, must have been read before
    :meth:`listen`.
    """

    def __init__(self, seconds: float) -> None:
        self.let_go: Callable[[], None] = lambda: None
        self.stop: Callable[[], None] = lambda: None
        self.is_time_up = self.is_revoked = False
        self.is_orphaned = False
        """Whether the task is gone: no process reads the events."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self._up)

    def listen(self) -> None:
        """Start reading standard input and handling signals."""
        self._loop.add_reader(sys.stdin.fileno(), self._read)
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._up)

    def deaf(self) -> None:
        """Stop the timer, the reader and the signal handlers."""
        self._timer.cancel()
        self._loop.remove_reader(sys.stdin.fileno())
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.remove_signal_handler(number)

    def _read(self) -> None:
        said = os.read(sys.stdin.fileno(), 4096).decode()
        if not said:
            self._loop.remove_reader(sys.stdin.fileno())
            self.is_orphaned = True
            self._up()
        if HAND_ON_LINE in said:
            self._up()
        if STOP_LINE in said:
            self.is_revoked = True
            self.stop()

    def _up(self) -> None:
        self.is_time_up = True
        self.let_go()


SendEvent = Callable[[SliceEvent], None]

_POLL_SECONDS: Final = 0.3
_PROGRESS_SECONDS: Final = 0.5
# The next slice needs a moment to take the role, so the role must be found free this many times in a row.
_FREE_POLLS: Final = 3
_FREE_POLL_SECONDS: Final = 1.0
_RATE_SECONDS: Final = 10.0
# Minimum time in which another process may send the next slice or store the result.
MIN_HANDOVER_SECONDS: Final = 10.0


class SliceRunner:
    """Runs one slice request. ``say`` sends events to the task, ``notice`` writes to the log."""

    def __init__(self, order: SliceRequest, reins: SliceControl, say: SendEvent, notice: Callable[[str], None]) -> None:
        self._order = order
        self._reins = reins
        self._say = say
        self._notice = notice
        self._patience = max(MIN_HANDOVER_SECONDS, order.seconds)

    async def run(self) -> SliceEvent:
        """Run until the slice ends; return its last event.

        :raises UttuError: the slice cannot run.
        """
        self._spider, settings, self._name = self._order.plan(first=True).load()
        async with _connect(settings.frontier) as catalog:
            self._catalog: CrawlCatalog = catalog
            while True:
                word = await self._step(settings)
                if word is not None:
                    return word
                await asyncio.sleep(_POLL_SECONDS)

    async def _step(self, settings: Settings) -> SliceEvent | None:
        """Decide on an action and perform it; None: decide again."""
        turn = await self._turn()
        if turn in (SliceAction.BEGIN, SliceAction.GO_ON):
            if self._reins.is_time_up:
                return SliceEvent(end=SliceEnd.AGAIN)
            if self._order.kind == "join":
                return SliceEvent(end=SliceEnd.STALE) if await self._take_part(turn) else None
            async with contextlib.AsyncExitStack() as place:
                if await self._take_place(place):
                    # From here on no other process can end the crawl, so decide again.
                    turn = await self._turn()
                    if turn in (SliceAction.BEGIN, SliceAction.GO_ON):
                        return await self._lead(settings, turn)
                else:
                    await self._take_part(turn)
                    return None
        match turn:
            case SliceAction.CONCLUDE:
                return await self._conclude()
            case SliceAction.WAIT:
                return SliceEvent(end=SliceEnd.AGAIN)
            case SliceAction.LOST if self._order.kind == "slice":
                raise UttuError(
                    f"crawl {self._name!r} was started again, or is gone: this job had begun the former one"
                )
        return SliceEvent(end=SliceEnd.STALE)

    async def _turn(self) -> SliceAction:
        return self._turn_by(await self._facts())

    def _turn_by(self, facts: CrawlFacts | None) -> SliceAction:
        return decide_action(facts, self._order, time.time(), self._patience)

    async def _facts(self) -> CrawlFacts | None:
        if self._name not in await self._catalog.names():
            return None
        async with self._opened() as store:
            return await store.ledger.facts()

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[CrawlStore]:
        store = await self._catalog.open(self._name, Rules())
        try:
            yield store
        finally:
            await store.frontier.close()

    async def _take_place(self, place: contextlib.AsyncExitStack) -> bool:
        if await self._catalog.is_supervised(self._name):
            return False
        try:
            await place.enter_async_context(self._catalog.supervise(self._name))
        except StoreError:
            raise
        except UttuError:
            return False
        return True

    async def _mark(self, store: CrawlStore, *, ended: bool = False) -> None:
        """Store the mark of this slice; a ``join`` has none.

        If the task is gone, no next slice will be sent, so the mark is not set to ended: the copy need not wait.
        """
        if self._order.kind == "slice" and not (ended and self._reins.is_orphaned):
            mark = SliceMark(self._order.number, time.time() if ended else 0.0)
            await store.ledger.note(slices={self._order.job: mark})

    async def _lead(self, settings: Settings, turn: SliceAction) -> SliceEvent:
        plan = self._order.plan(first=turn is SliceAction.BEGIN)
        sinks = [create_sink(target, self._name) for target in plan.outputs]
        spent = max(0.0, time.time() - self._order.began)
        async with (
            connect_messaging(settings, self._name, self._notice, fed=True) as wire,
            lead_crawl(plan, self._spider, settings, self._catalog, self._name, sinks, wire, spent) as crawl,
        ):
            store, supervisor = crawl.opened.store, crawl.supervisor
            await supervisor.bury(self._order.took_down)
            await self._mark(store)
            self._say(SliceEvent(leads=True))
            async with self._telling(store), self._letting_go(store, supervisor.hand_on):
                self._reins.stop = lambda: supervisor.drain(REVOKED)
                if self._reins.is_revoked:
                    supervisor.drain(REVOKED)
                ending = await supervisor.run(going_on=turn is SliceAction.GO_ON)
            if ending.state is CrawlState.RUNNING:
                await self._mark(store, ended=True)
                return SliceEvent(end=SliceEnd.HANDED_ON)
            return await self._over(ending, store)

    async def _take_part(self, turn: SliceAction) -> bool:
        """Work until the time is up, the crawl is over, or no process leads it. False: there is no work yet."""
        facts = await self._facts()
        if facts is None or facts.state not in (CrawlState.RUNNING, CrawlState.PAUSED):
            return facts is not None and facts.state is not None
        if turn is SliceAction.BEGIN and self._order.fresh:
            raise UttuError(f"crawl {self._name!r} is running already: stop it before it can start again")
        plan = self._order.plan(first=False)
        settings = plan.joining(self._spider, facts)
        async with (
            connect_messaging(settings, self._name, self._notice) as wire,
            join_crawl(self._spider, settings, self._catalog, self._name, wire) as part,
        ):
            await part.member.bury(self._order.took_down)
            await self._mark(part.store)
            stopping: list[asyncio.Task[None]] = []

            def stop() -> None:
                note = part.store.ledger.note(state=CrawlState.STOPPING, reason=REVOKED)
                stopping.append(asyncio.ensure_future(note))

            let_go = functools.partial(part.member.drain, hurried=True)
            async with self._telling(part.store), self._letting_go(part.store, let_go, free=True):
                self._reins.stop = stop
                if self._reins.is_revoked:
                    stop()
                await part.member.run()
            await asyncio.gather(*stopping)
        return True

    @contextlib.asynccontextmanager
    async def _letting_go(
        self, store: CrawlStore, let_go: Callable[[], None], *, free: bool = False
    ) -> AsyncIterator[None]:
        """Call ``let_go`` during the block once the time is up; with ``free`` also once no process leads the crawl.

        The seeds of a crawl must be complete first: the next slice would begin with them from the start.
        """
        up = asyncio.Event()

        async def watch() -> None:
            await up.wait()
            while not (free or self._reins.is_orphaned or await _is_seeded(store)):  # noqa: ASYNC110 (stores have no events)
                await asyncio.sleep(_POLL_SECONDS)
            let_go()

        async def watch_place() -> None:
            looks = 0
            while looks < _FREE_POLLS:
                await asyncio.sleep(_FREE_POLL_SECONDS)
                looks = 0 if await self._catalog.is_supervised(self._name) else looks + 1
            let_go()

        self._reins.let_go = up.set
        if self._reins.is_time_up:
            up.set()
        async with _run_beside(watch(), *([watch_place()] if free else [])):
            yield
        self._reins.let_go = self._reins.stop = lambda: None

    @contextlib.asynccontextmanager
    async def _telling(self, store: CrawlStore) -> AsyncIterator[None]:
        """Send progress events during the block, even if this process does not lead the crawl."""
        former = deque([(time.monotonic(), (await store.frontier.counts()).done)])

        async def tell() -> None:
            while True:
                await asyncio.sleep(_PROGRESS_SECONDS)
                counts = await store.frontier.counts()
                now = time.monotonic()
                former.append((now, counts.done))
                while former[0][0] < now - _RATE_SECONDS:
                    former.popleft()
                since, done = former[0]
                rate = (counts.done - done) / (now - since) if now > since else 0.0
                numbers: dict[str, Any] = {
                    "crawl": self._name,
                    "pages": counts.done,
                    "pending": counts.work,
                    "items": counts.items,
                    "dead": counts.dead,
                    "rate": round(rate, 1),
                }
                self._say(SliceEvent(progress=numbers))

        async with _run_beside(tell()):
            yield

    async def _conclude(self) -> SliceEvent | None:
        async with self._opened() as store:
            facts = await store.ledger.facts()
            if facts.state is None or self._turn_by(facts) is not SliceAction.CONCLUDE:
                return None  # another process has started it again just now
            return await self._over(Ending(facts.state, facts.reason), store)

    async def _over(self, ending: Ending, store: CrawlStore) -> SliceEvent:
        await self._mark(store, ended=True)
        end = SliceEnd.REVOKED if ending.reason.kind is ReasonKind.REVOKED else SliceEnd.OVER
        return SliceEvent(end=end, summary={"crawl": self._name, **await summarize_crawl(ending, store)})

    async def stop(self) -> None:
        """Stop the crawl of a job that was revoked between two slices.

        :raises UttuError: the crawl cannot be stopped.
        """
        _, settings, self._name = self._order.plan(first=False).load()
        async with _connect(settings.frontier) as catalog:
            self._catalog = catalog
            while await self._turn() is SliceAction.GO_ON:
                async with contextlib.AsyncExitStack() as place, self._opened() as store:
                    alone = await self._take_place(place)
                    await store.ledger.note(state=CrawlState.STOPPED if alone else CrawlState.STOPPING, reason=REVOKED)
                await asyncio.sleep(_POLL_SECONDS)


@contextlib.asynccontextmanager
async def _connect(frontier: str) -> AsyncIterator[CrawlCatalog]:
    catalog = await open_frontier(frontier, DATA_FOLDER)
    try:
        yield catalog
    finally:
        await catalog.close()


async def _is_seeded(store: CrawlStore) -> bool:
    return (await store.ledger.facts()).seeded


@contextlib.asynccontextmanager
async def _run_beside(*works: Any) -> AsyncIterator[None]:
    """Run these during the block. Errors of the store are ignored here: the block notices them itself."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for failure in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(failure, Exception) and not isinstance(failure, StoreError):
                raise failure

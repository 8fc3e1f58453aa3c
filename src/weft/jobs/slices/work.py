"""A slice of a crawl, in its own process: lead it or take part in it, until the time is up or it is over.

Whoever has the supervisor's place leads the crawl; the place is taken where it is free, and then the crawl goes on as
it was handed on. Where another has it, a copy of this slice or a person's ``weft crawl``, this process takes part as a
worker does, which is never the same work; and it looks whether the place has become free.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from weft import assembly
from weft.config import Settings
from weft.engine.states import State
from weft.engine.supervisor import Ending
from weft.errors import StoreError, WeftError
from weft.frontier.base import Rules
from weft.frontier.depot import Depot, Store
from weft.jobs.slices.order import End, Order, Word
from weft.jobs.slices.reins import REVOKED, Reins
from weft.jobs.slices.turns import Mark, Turn, turn_of
from weft.launch import FOLDER
from weft.plan import joined, led, summary_of
from weft.wire import wired

Say = Callable[[Word], None]

_LOOK_SECONDS: Final = 0.3
_PROGRESS_SECONDS: Final = 0.5
# The next slice needs a moment to begin, and is to find the place free.
_FREE_LOOKS: Final = 3
_FREE_SECONDS: Final = 1.0
_RATE_SECONDS: Final = 10.0
# So long another may need to send the next slice, or to store the result.
LEAST_PATIENCE: Final = 10.0


class Work:
    """What an order asks for. ``say`` is how this process speaks to the task, ``notice`` how it speaks to the log."""

    def __init__(self, order: Order, reins: Reins, say: Say, notice: Callable[[str], None]) -> None:
        self._order = order
        self._reins = reins
        self._say = say
        self._notice = notice
        self._patience = max(LEAST_PATIENCE, order.seconds)

    async def run(self) -> Word:
        """:raises WeftError: it can't be done."""
        self._spider, settings, self._name = self._order.plan(first=True).load()
        async with _connected(settings.frontier) as depot:
            self._depot: Depot = depot
            while True:
                word = await self._step(settings)
                if word is not None:
                    return word
                await asyncio.sleep(_LOOK_SECONDS)

    async def _step(self, settings: Settings) -> Word | None:
        """Look how things stand, and do what is to be done; None: look again."""
        turn = await self._turn()
        if turn in (Turn.BEGIN, Turn.GO_ON):
            if self._reins.is_up:
                return Word(end=End.AGAIN)
            async with contextlib.AsyncExitStack() as place:
                if await self._take_place(place):
                    # Only from here on nobody else can end it.
                    turn = await self._turn()
                    if turn in (Turn.BEGIN, Turn.GO_ON):
                        return await self._lead(settings, turn)
                else:
                    await self._take_part(turn)
                    return None
        match turn:
            case Turn.CONCLUDE:
                return await self._conclude()
            case Turn.WAIT:
                return Word(end=End.AGAIN)
            case Turn.LOST if self._order.kind == "slice":
                raise WeftError(
                    f"crawl {self._name!r} was started again, or is gone: this job had begun the former one"
                )
        return Word(end=End.STALE)

    async def _turn(self) -> Turn:
        return self._turn_by(await self._facts())

    def _turn_by(self, facts: dict[str, str] | None) -> Turn:
        return turn_of(facts, self._order, time.time(), self._patience)

    async def _facts(self) -> dict[str, str] | None:
        if self._name not in await self._depot.names():
            return None
        async with self._opened() as store:
            return await store.ledger.facts()

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Store]:
        store = await self._depot.open(self._name, Rules())
        try:
            yield store
        finally:
            await store.frontier.close()

    async def _take_place(self, place: contextlib.AsyncExitStack) -> bool:
        if await self._depot.is_supervised(self._name):
            return False
        try:
            await place.enter_async_context(self._depot.supervise(self._name))
        except StoreError:
            raise
        except WeftError:
            return False
        return True

    async def _mark(self, store: Store, *, ended: bool = False) -> None:
        """Only a slice has a number. One whose task is gone does not send the next: its copy need not wait for that."""
        if self._order.kind == "slice" and not (ended and self._reins.is_alone):
            await store.ledger.note(**Mark(self._order.number, time.time() if ended else 0.0).note(self._order.job))

    async def _lead(self, settings: Settings, turn: Turn) -> Word:
        plan = self._order.plan(first=turn is Turn.BEGIN)
        sinks = [assembly.sink_for(target, self._name) for target in plan.outputs]
        spent = max(0.0, time.time() - self._order.began)
        async with (
            wired(settings, self._name, self._notice, fed=True) as wire,
            led(plan, self._spider, settings, self._depot, self._name, sinks, wire, spent) as crawl,
        ):
            store, supervisor = crawl.opened.store, crawl.supervisor
            await self._mark(store)
            self._say(Word(leads=True))
            async with self._telling(store), self._letting_go(store, supervisor.hand_on):
                self._reins.stop = lambda: supervisor.drain(REVOKED)
                if self._reins.is_called_off:
                    supervisor.drain(REVOKED)
                ending = await supervisor.run(going_on=turn is Turn.GO_ON)
            if ending.state is State.RUNNING:
                await self._mark(store, ended=True)
                return Word(end=End.HANDED_ON)
            return await self._over(ending, store)

    async def _take_part(self, turn: Turn) -> None:
        """Until the time is up, the crawl is over, or nobody leads it any more."""
        facts = await self._facts()
        if facts is None or facts.get("state") not in (State.RUNNING, State.PAUSED):
            return  # it is just beginning, or ending
        if turn is Turn.BEGIN and self._order.fresh:
            raise WeftError(f"crawl {self._name!r} is running already: stop it before it can start again")
        plan = self._order.plan(first=False)
        settings = plan.joining(self._spider, facts)
        async with (
            wired(settings, self._name, self._notice) as wire,
            joined(self._spider, settings, self._depot, self._name, wire) as part,
        ):
            await self._mark(part.store)
            stopping: list[asyncio.Task[None]] = []

            def stop() -> None:
                note = part.store.ledger.note(state=State.STOPPING, reason=REVOKED)
                stopping.append(asyncio.ensure_future(note))

            let_go = functools.partial(part.member.drain, hurried=True)
            async with self._telling(part.store), self._letting_go(part.store, let_go, free=True):
                self._reins.stop = stop
                if self._reins.is_called_off:
                    stop()
                await part.member.run()
            await asyncio.gather(*stopping)

    @contextlib.asynccontextmanager
    async def _letting_go(self, store: Store, let_go: Callable[[], None], *, free: bool = False) -> AsyncIterator[None]:
        """Let go within the block once the time is up; ``free``: or once nobody leads the crawl.

        What begins a crawl must be put as a whole, as the next slice would begin with it from the start.
        """
        up = asyncio.Event()

        async def watch() -> None:
            await up.wait()
            while not (free or self._reins.is_alone or await _is_seeded(store)):  # noqa: ASYNC110 (stores have no events)
                await asyncio.sleep(_LOOK_SECONDS)
            let_go()

        async def watch_place() -> None:
            looks = 0
            while looks < _FREE_LOOKS:
                await asyncio.sleep(_FREE_SECONDS)
                looks = 0 if await self._depot.is_supervised(self._name) else looks + 1
            let_go()

        self._reins.let_go = up.set
        if self._reins.is_up:
            up.set()
        async with _beside(watch(), *([watch_place()] if free else [])):
            yield
        self._reins.let_go = self._reins.stop = lambda: None

    @contextlib.asynccontextmanager
    async def _telling(self, store: Store) -> AsyncIterator[None]:
        """How far the crawl is, again and again; also while this is not the one who leads it."""
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
                    "crawl": self._name, "pages": counts.done, "pending": counts.work, "items": counts.items,
                    "dead": counts.dead, "rate": round(rate, 1),
                }  # fmt: skip
                self._say(Word(progress=numbers))

        async with _beside(tell()):
            yield

    async def _conclude(self) -> Word | None:
        async with self._opened() as store:
            facts = await store.ledger.facts()
            if self._turn_by(facts) is not Turn.CONCLUDE:
                return None  # somebody has started it again at this moment
            return await self._over(Ending(State(facts["state"]), facts.get("reason", "")), store)

    async def _over(self, ending: Ending, store: Store) -> Word:
        await self._mark(store, ended=True)
        return Word(end=End.OVER, summary={"crawl": self._name, **await summary_of(ending, store)})

    async def stop(self) -> None:
        """See to it that the crawl of a job that was called off between two slices stops.

        :raises WeftError: it can't be told.
        """
        _, settings, self._name = self._order.plan(first=False).load()
        async with _connected(settings.frontier) as depot:
            self._depot = depot
            while await self._turn() is Turn.GO_ON:
                async with contextlib.AsyncExitStack() as place, self._opened() as store:
                    alone = await self._take_place(place)
                    await store.ledger.note(state=State.STOPPED if alone else State.STOPPING, reason=REVOKED)
                await asyncio.sleep(_LOOK_SECONDS)


@contextlib.asynccontextmanager
async def _connected(frontier: str) -> AsyncIterator[Depot]:
    depot = await assembly.open_depot(frontier, FOLDER)
    try:
        yield depot
    finally:
        await depot.close()


async def _is_seeded(store: Store) -> bool:
    return (await store.ledger.facts()).get("seeded") == "yes"


@contextlib.asynccontextmanager
async def _beside(*works: Any) -> AsyncIterator[None]:
    """Do these until the block is left. A store that can't be read is for the block to notice."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for failure in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(failure, Exception) and not isinstance(failure, StoreError):
                raise failure

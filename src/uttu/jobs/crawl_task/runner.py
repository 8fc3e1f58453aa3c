"""``python -m uttu.jobs.crawl_task.runner``: run one slice of a crawl, with its request on standard input.

It is a separate process because a crawl has an event loop and threads, which do not fit into a pool of forked
processes, and so that a spider that harms its process does not harm the pool. The process leads the crawl or takes part
in it, until the time is up or the crawl is over.

The process with the supervisor's role leads the crawl. A slice takes the role if it is free, and continues the crawl.
If another process has it, a copy of this slice or a person's ``uttu crawl``, the slice takes part as a worker, and
checks whether the role has become free.

A request of kind ``join`` only takes part. It never leads, because it has no outputs: a crawl that ended under it would
be recorded as finished before its items were written.

:class:`SliceControl` ends the slice: by its timer, on request of the task that started it, or by signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from uttu.blackbox import inherited, is_harmed
from uttu.engine.supervisor import Ending
from uttu.engine.worker_processes import HARMED
from uttu.errors import SpiderError, StoreError, UttuError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlCatalog, CrawlStore
from uttu.jobs.crawl_task.protocol import (
    HAND_ON_LINE,
    STOP_LINE,
    SliceAction,
    SliceEnd,
    SliceEvent,
    SliceRequest,
    decide_action,
)
from uttu.model.crawl import REVOKED, CrawlState, ReasonKind
from uttu.model.facts import CrawlFacts, SliceMark
from uttu.runtime import logs
from uttu.runtime.crawl import join_crawl, lead_crawl, summarize_crawl
from uttu.runtime.messaging import connect_messaging
from uttu.runtime.registry import create_sink, open_frontier
from uttu.settings import DATA_FOLDER, Settings


class SliceControl:
    """The end of a slice: ``on_time_up`` is called when the time is up, ``stop`` when the job was revoked.

    Both may be replaced at any time. The request, the first line on standard input, must have been read before
    :meth:`listen`.
    """

    def __init__(self, seconds: float) -> None:
        self.on_time_up: Callable[[], None] = lambda: None
        self.stop: Callable[[], None] = lambda: None
        self.is_time_up = self.is_revoked = False
        self.is_orphaned = False
        """Whether the task is gone: no process reads the events."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self._end_time)

    def listen(self) -> None:
        """Start reading standard input and handling signals."""
        self._loop.add_reader(sys.stdin.fileno(), self._read)
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._end_time)

    def close(self) -> None:
        """Stop the timer, the reader and the signal handlers."""
        self._timer.cancel()
        self._loop.remove_reader(sys.stdin.fileno())
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.remove_signal_handler(number)

    def _read(self) -> None:
        text = os.read(sys.stdin.fileno(), 4096).decode()
        if not text:
            self._loop.remove_reader(sys.stdin.fileno())
            self.is_orphaned = True
            self._end_time()
        if HAND_ON_LINE in text:
            self._end_time()
        if STOP_LINE in text:
            self.is_revoked = True
            self.stop()

    def _end_time(self) -> None:
        self.is_time_up = True
        self.on_time_up()


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
    """Runs one slice request. ``send`` sends events to the task, ``notice`` writes to the log."""

    def __init__(
        self, request: SliceRequest, control: SliceControl, send: SendEvent, notice: Callable[[str], None]
    ) -> None:
        self._request = request
        self._control = control
        self._send = send
        self._notice = notice
        self._patience = max(MIN_HANDOVER_SECONDS, request.seconds)
        self._stopping: list[asyncio.Task[None]] = []

    async def run(self) -> SliceEvent:
        """Run until the slice ends; return its last event.

        :raises UttuError: the slice cannot run.
        """
        self._spider, settings, self._name = self._request.to_spec(first=True).load()
        async with _connect(settings.frontier) as catalog:
            self._catalog: CrawlCatalog = catalog
            while True:
                event = await self._step(settings)
                if event is not None:
                    return event
                await asyncio.sleep(_POLL_SECONDS)

    async def _step(self, settings: Settings) -> SliceEvent | None:
        """Decide on an action and perform it; None: decide again."""
        action = await self._decide()
        if action in (SliceAction.BEGIN, SliceAction.GO_ON):
            if self._control.is_time_up:
                return SliceEvent(end=SliceEnd.AGAIN)
            if self._request.kind == "join":
                return SliceEvent(end=SliceEnd.STALE) if await self._take_part(action) else None
            async with contextlib.AsyncExitStack() as role:
                if await self._take_role(role):
                    # From here on no other process can end the crawl, so decide again.
                    action = await self._decide()
                    if action in (SliceAction.BEGIN, SliceAction.GO_ON):
                        return await self._lead(settings, action)
                else:
                    await self._take_part(action)
                    return None
        match action:
            case SliceAction.CONCLUDE:
                return await self._conclude()
            case SliceAction.WAIT:
                return SliceEvent(end=SliceEnd.AGAIN)
            case SliceAction.LOST if self._request.kind == "slice":
                raise UttuError(
                    f"The crawl {self._name!r} that this job began no longer exists: it was started again or removed"
                )
        return SliceEvent(end=SliceEnd.STALE)

    async def _decide(self) -> SliceAction:
        return self._decide_by(await self._facts())

    def _decide_by(self, facts: CrawlFacts | None) -> SliceAction:
        return decide_action(facts, self._request, time.time(), self._patience)

    async def _facts(self) -> CrawlFacts | None:
        if self._name not in await self._catalog.names():
            return None
        async with self._open_store() as store:
            return await store.ledger.facts()

    @contextlib.asynccontextmanager
    async def _open_store(self) -> AsyncIterator[CrawlStore]:
        store = await self._catalog.open(self._name, Rules())
        try:
            yield store
        finally:
            await store.frontier.close()

    async def _take_role(self, role: contextlib.AsyncExitStack) -> bool:
        """Take the supervisor's role until ``role`` is closed; False if another process has it."""
        if await self._catalog.is_supervised(self._name):
            return False
        try:
            await role.enter_async_context(self._catalog.supervise(self._name))
        except StoreError:
            raise
        except UttuError:
            return False
        return True

    async def _store_mark(self, store: CrawlStore, *, ended: bool = False) -> None:
        """Store the mark of this slice; a ``join`` has none.

        If the task is gone, no next slice will be sent, so the mark is not set to ended: the copy need not wait.
        """
        if self._request.kind == "slice" and not (ended and self._control.is_orphaned):
            mark = SliceMark(self._request.number, time.time() if ended else 0.0)
            await store.ledger.note(slices={self._request.job: mark})

    async def _lead(self, settings: Settings, action: SliceAction) -> SliceEvent:
        spec = self._request.to_spec(first=action is SliceAction.BEGIN)
        sinks = [create_sink(target, self._name) for target in spec.outputs]
        elapsed = max(0.0, time.time() - self._request.began)
        async with (
            connect_messaging(settings, self._name, self._notice, fed=True) as messaging,
            lead_crawl(spec, self._spider, settings, self._catalog, self._name, sinks, messaging, elapsed) as crawl,
        ):
            store, supervisor = crawl.opened.store, crawl.supervisor
            await supervisor.bury(self._request.took_down)
            await self._store_mark(store)
            self._send(SliceEvent(leads=True))
            async with self._report_progress(store), self._end_in_time(store, supervisor.hand_on):
                self._control.stop = lambda: supervisor.drain(REVOKED)
                if self._control.is_revoked:
                    supervisor.drain(REVOKED)
                ending = await supervisor.run(going_on=action is SliceAction.GO_ON)
            if ending.state is CrawlState.RUNNING:
                await self._store_mark(store, ended=True)
                return SliceEvent(end=SliceEnd.HANDED_ON)
            return await self._report_end(ending, store)

    async def _take_part(self, action: SliceAction) -> bool:
        """Work until the time is up, the crawl is over, or no process leads it. False: there is no work yet."""
        facts = await self._facts()
        if facts is None or facts.state not in (CrawlState.RUNNING, CrawlState.PAUSED):
            return facts is not None and facts.state is not None
        if action is SliceAction.BEGIN and self._request.fresh:
            raise UttuError(f"The crawl {self._name!r} is running. Stop it first: uttu stop {self._name}")
        spec = self._request.to_spec(first=False)
        settings = spec.joining(self._spider, facts)
        async with (
            connect_messaging(settings, self._name, self._notice) as messaging,
            join_crawl(self._spider, settings, self._catalog, self._name, messaging) as part,
        ):
            await part.member.bury(self._request.took_down)
            await self._store_mark(part.store)
            drain = functools.partial(part.member.drain, hurried=True)
            async with self._report_progress(part.store), self._end_in_time(part.store, drain, leads=False):
                self._control.stop = functools.partial(self._request_stop, part.store)
                if self._control.is_revoked:
                    self._control.stop()
                await part.member.run()
            await asyncio.gather(*self._stopping)
        return True

    def _request_stop(self, store: CrawlStore) -> None:
        """Ask the process that leads the crawl to stop it."""
        note = store.ledger.note(state=CrawlState.STOPPING, reason=REVOKED)
        self._stopping.append(asyncio.ensure_future(note))

    @contextlib.asynccontextmanager
    async def _end_in_time(
        self, store: CrawlStore, end: Callable[[], None], *, leads: bool = True
    ) -> AsyncIterator[None]:
        """Call ``end`` during the block once the time is up, or once no process leads the crawl (``leads`` is False).

        :param leads: whether this process leads the crawl.
        """
        time_is_up = asyncio.Event()
        self._control.on_time_up = time_is_up.set
        if self._control.is_time_up:
            time_is_up.set()
        works = [self._end_after(time_is_up, store, end, leads=leads)]
        if not leads:
            works.append(self._end_without_leader(end))
        async with _run_beside(*works):
            yield
        self._control.on_time_up = self._control.stop = lambda: None

    async def _end_after(
        self, time_is_up: asyncio.Event, store: CrawlStore, end: Callable[[], None], *, leads: bool
    ) -> None:
        """Call ``end`` when the time is up. A process that leads the crawl completes its seeds first.

        The next slice would begin incomplete seeds from the start. If the task is gone, there is no next slice.
        """
        await time_is_up.wait()
        while leads and not (self._control.is_orphaned or await _is_seeded(store)):  # noqa: ASYNC110 (no events)
            await asyncio.sleep(_POLL_SECONDS)
        end()

    async def _end_without_leader(self, end: Callable[[], None]) -> None:
        """Call ``end`` when the supervisor's role was found free ``_FREE_POLLS`` times in a row."""
        polls = 0
        while polls < _FREE_POLLS:
            await asyncio.sleep(_FREE_POLL_SECONDS)
            polls = 0 if await self._catalog.is_supervised(self._name) else polls + 1
        end()

    @contextlib.asynccontextmanager
    async def _report_progress(self, store: CrawlStore) -> AsyncIterator[None]:
        """Send progress events during the block, even if this process does not lead the crawl."""
        async with _run_beside(self._send_progress(store, (await store.frontier.counts()).done)):
            yield

    async def _send_progress(self, store: CrawlStore, done: int) -> None:
        """Send a progress event every ``_PROGRESS_SECONDS``; the rate is that of the last ``_RATE_SECONDS``."""
        history = deque([(time.monotonic(), done)])
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            counts = await store.frontier.counts()
            now = time.monotonic()
            history.append((now, counts.done))
            while history[0][0] < now - _RATE_SECONDS:
                history.popleft()
            since, done = history[0]
            rate = (counts.done - done) / (now - since) if now > since else 0.0
            progress: dict[str, Any] = {
                "crawl": self._name,
                "pages": counts.done,
                "pending": counts.work,
                "items": counts.items,
                "dead": counts.dead,
                "rate": round(rate, 1),
            }
            self._send(SliceEvent(progress=progress))

    async def _conclude(self) -> SliceEvent | None:
        async with self._open_store() as store:
            facts = await store.ledger.facts()
            if facts.state is None or self._decide_by(facts) is not SliceAction.CONCLUDE:
                return None  # another process has started it again just now
            return await self._report_end(Ending(facts.state, facts.reason), store)

    async def _report_end(self, ending: Ending, store: CrawlStore) -> SliceEvent:
        await self._store_mark(store, ended=True)
        end = SliceEnd.REVOKED if ending.reason.kind is ReasonKind.REVOKED else SliceEnd.OVER
        return SliceEvent(end=end, summary={"crawl": self._name, **await summarize_crawl(ending, store)})

    async def stop(self) -> None:
        """Stop the crawl of a job that was revoked between two slices.

        :raises UttuError: the crawl cannot be stopped.
        """
        _, settings, self._name = self._request.to_spec(first=False).load()
        async with _connect(settings.frontier) as catalog:
            self._catalog = catalog
            while await self._decide() is SliceAction.GO_ON:
                async with contextlib.AsyncExitStack() as role, self._open_store() as store:
                    has_role = await self._take_role(role)
                    await store.ledger.note(
                        state=CrawlState.STOPPED if has_role else CrawlState.STOPPING, reason=REVOKED
                    )
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
async def _run_beside(*works: Awaitable[None]) -> AsyncIterator[None]:
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


def main() -> None:
    """Run the slice. Events go to the original standard output; a spider's prints go to standard error, the worker's
    log.
    """
    out = os.dup(1)
    os.dup2(2, 1)

    def send(event: SliceEvent) -> None:
        # If the task is gone, SliceControl notices the closed input pipe.
        with contextlib.suppress(BrokenPipeError), os.fdopen(out, "wb", closefd=False) as lines:
            lines.write(msgspec.json.encode(event) + b"\n")

    inherited()  # before the spider is loaded: programs that it starts must not see the variable
    request = msgspec.json.decode(_read_first_line(), type=SliceRequest)
    logs.set_up()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        send(runner.run(_run_request(request, send)))


def _read_first_line() -> bytes:
    """Read byte by byte: the lines that follow must not end up in a buffer."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            raise SystemExit("No slice request on standard input")
        line += byte
    return line


async def _run_request(request: SliceRequest, send: SendEvent) -> SliceEvent:
    control = SliceControl(request.seconds)
    runner = SliceRunner(request, control, send, _print_notice)
    try:
        if not Path(request.file).is_file():
            raise SpiderError(
                f"There is no spider file {request.file} on {socket.gethostname()}, in the worker's folder {Path.cwd()}"
            )
        if request.kind == "stop":
            await runner.stop()
            return SliceEvent(end=SliceEnd.STALE)
        control.listen()
        return await runner.run()
    except Exception as error:
        if is_harmed():  # a handler has harmed this process, which is why it fails: the task starts another process
            os._exit(HARMED)
        if not isinstance(error, UttuError):
            traceback.print_exc()
        return SliceEvent.from_error(error)
    finally:
        control.close()


def _print_notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

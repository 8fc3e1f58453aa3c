"""Run a crawl, or a worker of one, in the foreground: signals, standard output, progress, summary, exit code.

Signals are received by Python's signal handlers, not by those of the event loop: Python's also run while a handler of
the spider blocks the loop, and can interrupt it. The first SIGINT or SIGTERM drains: the pages in flight are finished.
The second one stops at once.

Standard output is reserved for items and summaries. Anything that a spider prints goes to standard error. The file
descriptor is redirected, not only ``sys.stdout``, so this also holds for worker processes and for programs that a
spider starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import FrameType
from typing import Any, BinaryIO, Final

import msgspec
import uvloop

from uttu import blackbox
from uttu.cli.output import say
from uttu.cli.progress import ProgressView, create_view, name_pages
from uttu.engine import watchdog
from uttu.engine.heartbeat import TERMINATE_SECONDS, CrawlWorker
from uttu.engine.supervisor import Ending, Supervisor
from uttu.engine.worker_processes import CrashedPage
from uttu.errors import BROKEN, BY_SIGNAL, FAILED, StoreError, UttuError
from uttu.frontier.catalog import CrawlCatalog, CrawlStore
from uttu.model.crawl import INTERRUPTED, CrawlState
from uttu.operations.crawls import (
    CrawlStatus,
    connect_frontier,
    describe_frontier,
    format_command,
    has_fetched_nothing,
    open_store,
    read_status,
)
from uttu.policy.conditions import Condition, collect_metrics
from uttu.runtime import spec as plans
from uttu.runtime.crawl import LeadSession, join_crawl, lead_crawl, summarize_crawl
from uttu.runtime.messaging import connect_messaging
from uttu.runtime.registry import create_sink
from uttu.runtime.registry import mask_target as shown_
from uttu.spider import Spider
from uttu.spider.loader import find_warnings

_OUT: Final = 1
_ERR: Final = 2


@contextlib.contextmanager
def reserve_stdout(wanted: bool) -> Iterator[BinaryIO]:
    """The original standard output. If ``wanted``, other writers go to standard error within the block."""
    kept = _redirect_stdout() if wanted else None
    if kept is None:
        yield sys.stdout.buffer
        return
    with os.fdopen(kept, "wb") as out:
        try:
            yield out
        finally:
            # The spider's last output must not follow the items.
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
            os.dup2(kept, _OUT)


def _redirect_stdout() -> int | None:
    """Send standard output to standard error. Returns a descriptor of the original; None if that fails."""
    sys.stdout.flush()
    try:
        kept = os.dup(_OUT)
        os.dup2(_ERR, _OUT)
    except OSError:
        return None
    if isinstance(sys.stdout, io.TextIOWrapper):
        # It is not a terminal, so it would buffer lines while those of standard error are shown at once.
        sys.stdout.reconfigure(line_buffering=True)
    return kept


# A terminal sends SIGINT both to a process and to its guardian, which forwards it; so do systems that signal whole
# process groups. A signal that the guardian did not forward is dropped if a forwarded one arrives within this time.
_DUPLICATE_SECONDS: Final = 0.3


class Signals:
    """SIGINT and SIGTERM: the first one drains, the second one stops, a third one has its default effect.

    After SIGTERM, the pages in flight have only ``TERMINATE_SECONDS``, since SIGKILL often follows.
    """

    def __init__(self) -> None:
        self.received = 0
        self._times = 0
        self._forwarded = 0
        self._accepted = float("-inf")

    @contextlib.contextmanager
    def cancelling(self) -> Iterator[None]:
        """Cancel the current task on a signal, until :meth:`listen` is called or the block ends."""
        task = asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            if self._times == 1:
                print("uttu: Stopped before the crawl began", file=sys.stderr, flush=True)
            task.cancel()

        self.install(cancel, cancel)
        try:
            yield
        finally:
            self.deaf()

    def listen(self, supervisor: Supervisor, view: ProgressView) -> None:
        def drain() -> None:
            view.stopping()
            supervisor.drain(INTERRUPTED)

        def terminate() -> None:
            drain()
            supervisor.hurry(TERMINATE_SECONDS)

        self.install(drain, lambda: supervisor.stop(INTERRUPTED), terminate)

    def install(
        self, drain: Callable[[], None], stop: Callable[[], None], terminate: Callable[[], None] | None = None
    ) -> None:
        """Handle signals with these functions. ``terminate`` replaces ``drain`` for SIGTERM."""
        loop = asyncio.get_running_loop()

        def accept(number: int) -> None:
            self._accepted = time.monotonic()
            watchdog.notify_stop()
            # A signal at the very end may find the loop closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._receive, number, drain, stop, terminate or drain)

        def accept_unless_forwarded(number: int) -> None:
            if time.monotonic() - self._accepted > 2 * _DUPLICATE_SECONDS:
                accept(number)

        def receive(number: int, frame: FrameType | None) -> None:
            box = blackbox.inherited() if blackbox.guardian else None
            if box is None:
                accept(number)
            elif box.forwarded > self._forwarded:
                # Two signals that arrive while a handler blocks the process are received as one.
                for _ in range(box.forwarded - self._forwarded):
                    accept(number)
                self._forwarded = box.forwarded
            elif time.monotonic() - self._accepted > _DUPLICATE_SECONDS:
                timer = threading.Timer(_DUPLICATE_SECONDS, accept_unless_forwarded, (number,))
                timer.daemon = True
                timer.start()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, receive)

    def _receive(
        self, number: int, drain: Callable[[], None], stop: Callable[[], None], terminate: Callable[[], None]
    ) -> None:
        self.received = number
        self._times += 1
        if self._times == 1:
            (terminate if number == signal.SIGTERM else drain)()
        else:
            stop()
        if self._times == 2:
            self.deaf()

    @staticmethod
    def drain_if_orphaned(drain: Callable[[], None]) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            drain()

    @staticmethod
    def deaf() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class ForegroundSpec(plans.CrawlSpec, frozen=True, kw_only=True):
    """The options of a ``crawl`` or ``worker`` command."""

    conditions: tuple[Condition, ...] = ()
    as_json: bool = False


def run_crawl(plan: ForegroundSpec, took_down: Sequence[CrashedPage] = (), spent: float = 0.0) -> int:
    """Run a crawl to its end. Returns the exit code.

    :param took_down: pages that crashed the previous process of this crawl.
    :param spent: seconds between the start of the crawl and that crash.
    """
    with reserve_stdout(plan.as_json or "-" in plan.outputs) as out:
        return _run_crawl(plan, took_down, spent, out)


def _run_crawl(plan: ForegroundSpec, took_down: Sequence[CrashedPage], spent: float, out: BinaryIO) -> int:
    spider, settings, name = plan.load()
    for doubt in find_warnings(spider):
        say(f"uttu: {doubt}")
    sinks = [create_sink(target, name, out) for target in plan.outputs]

    async def crawl() -> int:
        signals = Signals()
        try:
            with signals.cancelling():
                return await lead(signals)
        except asyncio.CancelledError:
            if not signals.received:
                raise
            return BY_SIGNAL + signals.received

    async def lead(signals: Signals) -> int:
        async with (
            connect_frontier(settings.frontier) as catalog,
            catalog.supervise(name),
            connect_messaging(settings, name, say, fed=True) as wire,
            lead_crawl(plan, spider, settings, catalog, name, sinks, wire, spent) as crawl,
        ):
            await crawl.supervisor.bury(took_down)
            hint = functools.partial(format_command, catalog)
            shown = {"quiet": plan.as_json, "items_here": "-" in plan.outputs and out.isatty()}
            view = create_view(spider.name, crawl.opened.store, hint, **shown)
            return await _crawl(plan, spider, name, crawl, view, out, signals)

    return _run(crawl())


def run_worker(plan: ForegroundSpec, took_down: Sequence[CrashedPage] = (), *, tied: bool) -> int:
    """Join a crawl until it is over. Returns the exit code. ``took_down``: see :func:`run_crawl`."""
    spider, own, name = plan.load()

    async def work() -> int:
        async with connect_frontier(own.frontier) as catalog:
            standing = await _read_running_status(plan, catalog, name)
            if not standing.supervised and not tied:
                say(f"crawl {name!r} has no supervisor now: its items stay in the store until: {standing.command()}")
            settings = plan.joining(spider, standing.facts)
            async with (
                connect_messaging(settings, name, say) as wire,
                join_crawl(spider, settings, catalog, name, wire) as part,
            ):
                await part.member.bury(took_down)
                return await _work(part.member, tied)

    return _run(work())


async def _crawl(
    plan: ForegroundSpec,
    spider: Spider,
    name: str,
    crawl: LeadSession,
    view: ProgressView,
    out: BinaryIO,
    signals: Signals,
) -> int:
    began = time.monotonic()
    supervisor, store = crawl.supervisor, crawl.opened.store
    view.opened(crawl.opened)
    for output, owner in supervisor.elsewhere.items():
        view.say(f"  {output} is being written by {owner}: it is left to that, and taken over when that is gone")
    signals.listen(supervisor, view)
    try:
        async with view:
            ending = await supervisor.run()
        about = {"crawl": name, "seconds": round(time.monotonic() - began, 3)}
        broken = await _report_end(plan, about, ending, store, view, out)
        await view.warn_of_silent(spider)
    finally:
        signals.deaf()
    if ending.state is CrawlState.STOPPED:
        return BY_SIGNAL + signals.received if signals.received else FAILED
    if broken:
        return BROKEN
    return FAILED if await has_fetched_nothing(store) else 0


async def _report_end(
    plan: ForegroundSpec, about: dict[str, Any], ending: Ending, store: CrawlStore, view: ProgressView, out: BinaryIO
) -> list[str]:
    """Report how the crawl ended. Returns the conditions that are met. ``about`` is the beginning of the summary."""
    counts, kinds = await store.frontier.counts(), await store.inspector.dead_kinds()
    numbers = collect_metrics(counts, kinds)
    await view.ended()
    broken = [condition.text for condition in plan.conditions if condition.met(numbers)]
    if plan.as_json:
        outputs = [shown_(target) for target in plan.outputs]
        summary = {**about, **await summarize_crawl(ending, store), "outputs": outputs, "broken": broken}
        stream = sys.stderr.buffer if "-" in plan.outputs else out
        stream.write(msgspec.json.encode(summary) + b"\n")
        stream.flush()
        return broken
    await view.closed(ending, counts)
    if counts.items and not plan.outputs:
        view.say(f"  the items are kept with the crawl: {view.hint('export', '-o', 'FILE')}")
    for text in broken:
        view.say(f"  --fail-on {text}: it is so")
    return broken


async def _read_running_status(plan: ForegroundSpec, catalog: CrawlCatalog, name: str) -> CrawlStatus:
    """The status of the crawl to join.

    :raises UttuError: the crawl does not exist or is not running.
    """
    command = format_command(catalog, "crawl", str(plan.file))
    if name not in await catalog.names():
        raise StoreError(
            f"there is no crawl {name!r} {describe_frontier(catalog)} to take part in; start it with: {command}"
        )
    async with open_store(catalog, name) as store:
        standing = await read_status(catalog, name, store)
    state = standing.facts.state
    if state not in (CrawlState.RUNNING, CrawlState.PAUSED):
        raise UttuError(f"crawl {name!r} is not running ({state or 'never started'}); start it with: {command}")
    return standing


async def _work(member: CrawlWorker, tied: bool) -> int:
    signals = Signals()

    def drain() -> None:
        if not tied:
            flying = name_pages(member.worker.flying(member.worker.in_flight), member.worker.in_flight)
            say(f"stopping: waiting for {flying or 'nothing'}; once more to stop at once")
        member.drain()

    def terminate() -> None:
        drain()
        if not tied:
            member.drain(hurried=True, seconds=TERMINATE_SECONDS)

    signals.install(drain, member.stop, terminate)
    try:
        if tied:
            # If the parent process is gone, nobody can send a second signal. So limit the wait for the pages in flight.
            gone = functools.partial(member.drain, hurried=True)
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), signals.drain_if_orphaned, gone)
        await member.run()
        return 0
    finally:
        signals.deaf()


def _run(work: Coroutine[Any, Any, int]) -> int:
    # If a library crashes the process, print the Python lines that called it.
    with contextlib.suppress(OSError, ValueError):
        faulthandler.enable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)

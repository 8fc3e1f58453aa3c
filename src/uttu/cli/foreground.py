"""Run a crawl, or a worker of one, in the foreground: standard output, progress, summary, exit code.

:mod:`uttu.runtime.signals` handles the signals.

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
import sys
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, BinaryIO, Final

import msgspec

from uttu.cli.exit_codes import restore_streams
from uttu.cli.output import say
from uttu.cli.progress import ProgressView, create_view, name_pages
from uttu.errors import BROKEN, BY_SIGNAL, FAILED
from uttu.model.crawl import CrawlState
from uttu.operations.crawls import connect_frontier, format_command, has_fetched_nothing, read_running_status
from uttu.operations.monitor import ProgressMonitor
from uttu.policy.conditions import Condition, collect_metrics
from uttu.runtime import signals as process_signals
from uttu.runtime import spec as plans
from uttu.runtime.crawl import CrawlSummary, LeadSession, join_crawl, lead_program
from uttu.runtime.guardian import CrashedPage
from uttu.runtime.loop import run_loop
from uttu.runtime.messaging import connect_messaging
from uttu.runtime.registry import create_sink, mask_target
from uttu.runtime.signals import Signals
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
            with signals.cancelling(_say_stopped):
                return await lead(signals)
        except asyncio.CancelledError:
            if not signals.received:
                raise
            return BY_SIGNAL + signals.received

    async def lead(signals: Signals) -> int:
        async with lead_program(plan, spider, settings, name, sinks, report=say, spent=spent) as crawl:
            await crawl.supervisor.bury(took_down)
            hint = functools.partial(format_command, crawl.catalog)
            monitor = ProgressMonitor(crawl.opened.store, crawl.opened.counts.done)
            shown = {"quiet": plan.as_json, "items_here": "-" in plan.outputs and out.isatty()}
            view = create_view(spider.name, monitor, hint, **shown)
            return await _crawl(plan, spider, crawl, view, out, signals)

    return _run(crawl())


def _say_stopped() -> None:
    print("uttu: Stopped before the crawl began", file=sys.stderr, flush=True)


def run_worker(plan: ForegroundSpec, took_down: Sequence[CrashedPage] = (), *, tied: bool) -> int:
    """Join a crawl until it is over. Returns the exit code. ``took_down``: see :func:`run_crawl`."""
    spider, own, name = plan.load()

    def stopping(urls: list[str], count: int) -> None:
        say(f"stopping: waiting for {name_pages(urls, count) or 'nothing'}; press Ctrl-C again to stop at once")

    async def work() -> int:
        async with connect_frontier(own.frontier) as catalog:
            standing = await read_running_status(catalog, name, str(plan.file))
            if not standing.supervised and not tied:
                say(
                    f"Crawl {name!r} has no supervisor now. Its items stay in the store until you run: "
                    f"{standing.command()}"
                )
            settings = plan.joining(spider, standing.facts)
            async with (
                connect_messaging(settings, name, say) as wire,
                join_crawl(spider, settings, catalog, name, wire) as part,
            ):
                await part.member.bury(took_down)
                await process_signals.run_worker(part.member, None if tied else stopping)
                return 0

    return _run(work())


async def _crawl(
    plan: ForegroundSpec, spider: Spider, crawl: LeadSession, view: ProgressView, out: BinaryIO, signals: Signals
) -> int:
    view.opened(crawl.opened)
    for output, owner in crawl.supervisor.elsewhere.items():
        view.say(f"  {output} is being written by {owner}; this process takes over when that one ends")
    signals.listen(crawl.supervisor, view.stopping)
    try:
        with restore_streams():
            async with view:
                summary = await crawl.run()
        broken = await _report_end(plan, summary, view, out)
        await view.warn_of_silent(spider)
    finally:
        signals.deaf()
    if summary.state is CrawlState.STOPPED:
        return BY_SIGNAL + signals.received if signals.received else FAILED
    if broken:
        return BROKEN
    return FAILED if await has_fetched_nothing(crawl.opened.store) else 0


async def _report_end(plan: ForegroundSpec, summary: CrawlSummary, view: ProgressView, out: BinaryIO) -> list[str]:
    """Report how the crawl ended. Returns the conditions that are met."""
    numbers = collect_metrics(summary.counts, summary.dead_kinds)
    await view.ended()
    broken = [condition.text for condition in plan.conditions if condition.met(numbers)]
    if plan.as_json:
        shown = {
            "crawl": summary.crawl,
            "seconds": round(summary.seconds, 3),
            **summary.facts(),
            "outputs": [mask_target(target) for target in plan.outputs],
            "broken": broken,
        }
        stream = sys.stderr.buffer if "-" in plan.outputs else out
        stream.write(msgspec.json.encode(shown) + b"\n")
        stream.flush()
        return broken
    await view.closed(summary)
    if summary.counts.items and not plan.outputs:
        view.say(f"  the items are in the crawl's store; write them with: {view.hint('export', '-o', 'FILE')}")
    for text in broken:
        view.say(f"  Condition met: {text} (--fail-on)")
    return broken


def _run(work: Coroutine[Any, Any, int]) -> int:
    # If a library crashes the process, print the Python lines that called it.
    with contextlib.suppress(OSError, ValueError):
        faulthandler.enable()
    return run_loop(work)

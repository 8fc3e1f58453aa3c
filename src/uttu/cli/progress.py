"""The progress of a running crawl, on standard error: a live table on a terminal, otherwise a line every ten seconds.

:class:`~uttu.operations.monitor.ProgressMonitor` reads the store; this module draws what it finds. The live table
consists of styled texts, not of markup: messages are printed without markup while it is shown, and rich would apply
that to the table, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from uttu.cli.output import format_count, format_elapsed, say
from uttu.model.crawl import CrawlState, WorkerReport
from uttu.operations.monitor import CrawlProgress, ProgressMonitor, find_slowest
from uttu.runtime.crawl import CrawlSummary, OpenedCrawl
from uttu.spider import Spider

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Formats another command about the crawl, as the user would type it.
HintFormatter = Callable[..., str]

_LINE_SECONDS = 10.0
# After a request to stop, wait this long before showing what the crawl waits for. By then its workers have reported.
_PATIENCE_SECONDS = 2.0
# Maximum number of URLs in a message.
_MAX_NAMED = 3


class ProgressView:
    """Prints a line every ``_LINE_SECONDS``. The base of the other views."""

    seconds = _LINE_SECONDS

    def __init__(self, name: str, monitor: ProgressMonitor, hint: HintFormatter) -> None:
        self.hint = hint
        self._name = name
        self._monitor = monitor
        self._warned = False
        self._task: asyncio.Task[None] | None = None
        self._due = asyncio.Event()

    def say(self, text: str) -> None:
        say(text)

    def opened(self, opened: OpenedCrawl) -> None:
        counts = opened.counts
        if opened.resumed and opened.former == CrawlState.FINISHED and not counts.work:
            self.say(f"crawl {self._name} has finished: there is nothing to resume (--fresh starts again)")
        elif opened.resumed:
            self.say(f"resuming crawl {self._name}: {counts.done:,} done, {counts.work:,} to do (--fresh starts again)")
        elif opened.former == CrawlState.FINISHED:
            self.say(f"{self._name}: the last crawl finished; starting a new one")
        elif opened.former:
            self.say(
                f"{self._name}: the last crawl ended at its {opened.former}; starting a new one (--resume continues it)"
            )

    def stopping(self) -> None:
        """A signal asked the crawl to stop. The workers' next reports tell what it still waits for."""
        self.say("stopping: waiting for the pages in flight; press Ctrl-C again to stop at once")
        asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._due.set)

    async def __aenter__(self) -> ProgressView:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.seconds):
                    await self._due.wait()
            self._due.clear()
            progress = await self._monitor.look()
            self.show(progress)
            self.warn_of_logins(progress.reports)

    def warn_of_logins(self, reports: list[WorkerReport]) -> None:
        """Warn once if there are several workers and a host uses a login, which only one process has."""
        hosts = [host for report in reports for host in report.logins]
        if hosts and len(reports) > 1 and not self._warned:
            self._warned = True
            self.say(
                f"  warning: {hosts[0]} uses cookies with a login or a form. Each of the {len(reports)} workers keeps"
                " its own cookies, so pages that the others fetch are not logged in. Use one worker, or give the"
                " cookies to the requests: page.follow(…, cookies=…)"
            )

    def show(self, progress: CrawlProgress) -> None:
        counts, waits = progress.counts, waits_for(progress)
        self.say(
            f"{self._name}: {counts.done:,} pages ({progress.rate:,.0f}/s), {counts.pending:,} pending, "
            f"{progress.in_flight} in flight, {counts.delayed:,} delayed, {counts.items:,} items, {counts.dead:,} dead"
            + (f"; stopping, waits for {waits}" if waits else "")
        )

    async def ended(self) -> None:
        """Print warnings that were not printed while the crawl ran."""
        self.warn_of_logins(await self._monitor.all_reports())

    async def warn_of_silent(self, spider: Spider) -> None:
        """Warn about handlers that yielded nothing for any page of the crawl."""
        for name, pages in (await self._monitor.find_silent_handlers(spider)).items():
            got = format_count(pages, "page")
            self.say(f"  warning: the handler {name!r} got {got} and yielded nothing: neither items nor requests")

    async def closed(self, summary: CrawlSummary) -> None:
        """Print the final lines: how the crawl ended, its results, and what to do next."""
        results, counts = await self._monitor.conclude(), summary.counts
        how = {
            CrawlState.FINISHED: "finished",
            CrawlState.LIMITED: f"ended at its {summary.reason}",
            CrawlState.STOPPED: f"stopped ({summary.reason}); the same command resumes it",
        }[summary.state]
        made = f"{format_count(counts.done, 'page')}, {format_count(counts.items, 'item')}, {counts.dead:,} dead"
        left = f"; {counts.work:,} left" if counts.work else ""
        self.say(f"{self._name}: {how}. {made} in {format_elapsed(self._monitor.seconds)}{left}")
        if summary.state is CrawlState.FINISHED and not (counts.done or counts.dead):
            self.say("  there was nothing to start from: give the spider start=, sitemap= or @spider.start")
        if results.given_back:
            named = name_pages(results.given_back, len(results.given_back))
            self.say(f"  still in flight at the end, and put back into the queue: {named}")
        if results.dead_kinds:
            listed = ", ".join(f"{count:,} {kind}" for kind, count in results.dead_kinds.items())
            self.say(f"  dead: {listed}  ({self.hint('status', '--dead')})")
        if (dead := results.last_dead) is not None:
            url = dead.request.url
            self.say(f"  no page could be fetched. Last error: {url}: {dead.reason.removeprefix(f'{url}: ')}")


def waits_for(progress: CrawlProgress) -> str:
    """The pages that a stopping crawl waits for; empty if it is not stopping."""
    return name_pages(progress.flying, progress.in_flight) if progress.stopping else ""


def name_pages(urls: list[str], count: int) -> str:
    """The URLs of up to ``_MAX_NAMED`` pages, and how many more there are. Empty if there are no URLs."""
    named = urls[:_MAX_NAMED]
    rest = count - len(named)
    return ", ".join(named) + (f" and {rest:,} more" if named and rest > 0 else "")


class SilentView(ProgressView):
    """Prints only warnings and errors."""

    async def __aenter__(self) -> ProgressView:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def create_view(
    name: str, monitor: ProgressMonitor, hint: HintFormatter, *, quiet: bool, items_here: bool
) -> ProgressView:
    """The view for this terminal or file. ``items_here``: items are printed to the same terminal."""
    if quiet:
        return SilentView(name, monitor, hint)
    # A live table and lines of items would overwrite each other.
    if sys.stderr.isatty() and not items_here:
        return LiveView(name, monitor, hint)
    return ProgressView(name, monitor, hint)


_FRAME_SECONDS = 0.5


class LiveView(ProgressView):
    """Redraws a table every ``_FRAME_SECONDS``. Messages scroll above it."""

    seconds = _FRAME_SECONDS

    def __init__(
        self, name: str, monitor: ProgressMonitor, hint: HintFormatter, console: Console | None = None
    ) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(name, monitor, hint)
        self._live = Live(console=console or Console(stderr=True), auto_refresh=False, transient=True)

    def say(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False, soft_wrap=True)

    async def __aenter__(self) -> ProgressView:
        self._live.start()
        return await super().__aenter__()

    async def __aexit__(self, *exception: object) -> None:
        await super().__aexit__(*exception)
        self._live.stop()

    def show(self, progress: CrawlProgress) -> None:
        self._live.update(self._table(progress), refresh=True)

    def _table(self, progress: CrawlProgress) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        counts, reports = progress.counts, progress.reports
        span = format_elapsed(self._monitor.seconds)
        table.add_row(Text(self._name, "bold"), Text(f"{span}, {format_count(len(reports), 'worker')}"))
        table.add_row("pages", Text.assemble((f"{counts.done:,}", "bold green"), f"  {progress.rate:,.0f}/s"))
        rows = [
            ("items", f"{counts.items:,}"),
            ("pending", f"{counts.pending:,}" + (f"  + {counts.delayed:,} delayed" if counts.delayed else "")),
            ("in flight", f"{progress.in_flight}"),
            ("errors", f"{progress.errors:,}  {progress.retries:,} retries, {counts.dead:,} dead"),
        ]
        if slow := find_slowest(reports):
            rows.append(("slowest", "  ".join(f"{host} {seconds * 1000:,.0f} ms" for host, seconds in slow)))
        if waits := waits_for(progress):
            rows.append(("stopping", f"waits for {waits}"))
        for name, value in rows:
            table.add_row(name, Text(value))
        return table

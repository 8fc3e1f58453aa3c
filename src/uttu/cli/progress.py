"""The progress of a running crawl, on standard error: a live table on a terminal, otherwise a line every ten seconds.

A view polls the store for counts and the ledger for the reports of all workers. The live table consists of styled
texts, not of markup: messages are printed without markup while it is shown, and rich would apply that to the table,
too.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import Callable

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from uttu.cli.output import format_count, format_elapsed, say
from uttu.engine.aio import wait_for_event
from uttu.engine.supervisor import Ending
from uttu.frontier.catalog import CrawlStore
from uttu.model import Counts
from uttu.model.crawl import CrawlState, WorkerReport
from uttu.operations.crawls import has_fetched_nothing
from uttu.runtime.crawl import OpenedCrawl
from uttu.spider import Spider
from uttu.spider.loader import is_bare

# Formats another command about the crawl, as the user would type it.
HintFormatter = Callable[..., str]

_LINE_SECONDS = 10.0
# A worker whose last report is older does not count as running.
_STALE_SECONDS = 5.0
# After a request to stop, wait this long before showing what the crawl waits for. By then its workers have reported.
_PATIENCE_SECONDS = 2.0
# Maximum number of URLs in a message.
_MAX_NAMED = 3


class ProgressView:
    """Prints a line every ``_LINE_SECONDS``. The base of the other views."""

    seconds = _LINE_SECONDS

    def __init__(self, name: str, store: CrawlStore, hint: HintFormatter) -> None:
        self.hint = hint
        self._name = name
        self._store = store
        self._began = time.monotonic()
        self._last = (self._began, 0)
        self._rate = 0.0
        self._ending = False
        self._warned = False
        self._task: asyncio.Task[None] | None = None
        self._due = asyncio.Event()

    def say(self, text: str) -> None:
        say(text)

    def opened(self, opened: OpenedCrawl) -> None:
        counts = opened.counts
        self._last = (self._began, counts.done)
        if opened.resumed and opened.former == CrawlState.FINISHED and not counts.work:
            self.say(f"crawl {self._name} has finished, there is nothing to go on with (--fresh starts again)")
        elif opened.resumed:
            self.say(f"resuming crawl {self._name}: {counts.done:,} done, {counts.work:,} to do (--fresh starts again)")
        elif opened.former == CrawlState.FINISHED:
            self.say(f"{self._name}: the last crawl finished; starting anew")
        elif opened.former:
            self.say(f"{self._name}: the last crawl ended at its {opened.former}; starting anew (--resume goes on)")

    def stopping(self) -> None:
        """A signal asked the crawl to stop. The workers' next reports tell what it still waits for."""
        self.say("stopping: waiting for the pages in flight; once more to stop at once")
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
            await wait_for_event(self._due, self.seconds)
            self._due.clear()
            await self._refresh()

    async def _reports(self, oldest: float) -> list[WorkerReport]:
        """Reports of at most ``oldest`` seconds, and of this run: killed workers of the run before left theirs, too."""
        oldest = min(oldest, time.monotonic() - self._began)
        reports = (await self._store.ledger.reports()).values()
        return [msgspec.json.decode(report, type=WorkerReport) for age, report in reports if age <= oldest]

    async def _refresh(self) -> None:
        counts, fresh = await self._store.frontier.counts(), await self._reports(_STALE_SECONDS)
        self._ending = (await self._store.ledger.facts()).get("state") == CrawlState.STOPPING
        now = time.monotonic()
        then, done = self._last
        self._rate = (counts.done - done) / max(now - then, 1e-9)
        self._last = (now, counts.done)
        self.show(counts, fresh)
        self.warn_of_logins(fresh)

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

    def show(self, counts: Counts, reports: list[WorkerReport]) -> None:
        flying = sum(report.in_flight for report in reports)
        waits = self.waits_for(reports)
        self.say(
            f"{self._name}: {counts.done:,} pages ({self._rate:,.0f}/s), {counts.pending:,} pending, "
            f"{flying} in flight, {counts.delayed:,} delayed, {counts.items:,} items, {counts.dead:,} dead"
            + (f"; stopping, waits for {waits}" if waits else "")
        )

    def waits_for(self, reports: list[WorkerReport]) -> str:
        """The pages that a stopping crawl waits for; empty if it is not stopping."""
        flying = sum(report.in_flight for report in reports)
        return name_pages([url for report in reports for url in report.flying], flying) if self._ending else ""

    async def ended(self) -> None:
        """Print warnings that were not printed while the crawl ran."""
        self.warn_of_logins(await self._reports(math.inf))

    async def warn_of_silent(self, spider: Spider) -> None:
        """Warn about handlers that yielded nothing for any page of the crawl."""
        stored = (await self._store.ledger.reports()).values()
        reports = [msgspec.json.decode(report, type=WorkerReport) for _, report in stored]
        giving = {name for report in reports for name in report.giving}
        empty: Counter[str] = Counter()
        for report in reports:
            empty.update(report.empty)
        for name, pages in empty.items():
            handler = spider.handlers.get(name)
            if name not in giving and handler is not None and not is_bare(handler):
                got = format_count(pages, "page")
                self.say(f"  warning: the handler {name!r} got {got} and yielded nothing: neither items nor requests")

    async def closed(self, ending: Ending, counts: Counts) -> None:
        """Print the final lines: how the crawl ended, its results, and what to do next."""
        dead, kinds = await self._store.inspector.dead(1), await self._store.inspector.dead_kinds()
        given_back = [url for report in await self._reports(math.inf) for url in report.given_back]
        seconds = time.monotonic() - self._began
        how = {
            CrawlState.FINISHED: "finished",
            CrawlState.LIMITED: f"ended at its {ending.reason}",
            CrawlState.STOPPED: f"stopped ({ending.reason}); the same command resumes it",
        }[ending.state]
        made = f"{format_count(counts.done, 'page')}, {format_count(counts.items, 'item')}, {counts.dead:,} dead"
        left = f"; {counts.work:,} left" if counts.work else ""
        self.say(f"{self._name}: {how}. {made} in {format_elapsed(seconds)}{left}")
        if ending.state is CrawlState.FINISHED and not (counts.done or counts.dead):
            self.say("  there was nothing to start from: give the spider start=, sitemap= or @spider.start")
        if given_back:
            self.say(f"  in flight to the last, and given back: {name_pages(given_back, len(given_back))}")
        if kinds:
            listed = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
            self.say(f"  dead: {listed}  ({self.hint('status', '--dead')})")
        if dead and await has_fetched_nothing(self._store):
            url = dead[0].request.url
            self.say(f"  no page could be fetched, the last: {url}: {dead[0].reason.removeprefix(f'{url}: ')}")


def name_pages(urls: list[str], count: int) -> str:
    """The URLs of up to ``_MAX_NAMED`` pages, and how many more there are. Empty if there are no URLs."""
    told = urls[:_MAX_NAMED]
    rest = count - len(told)
    return ", ".join(told) + (f" and {rest:,} more" if told and rest > 0 else "")


class SilentView(ProgressView):
    """Prints only warnings and errors."""

    async def __aenter__(self) -> ProgressView:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def create_view(name: str, store: CrawlStore, hint: HintFormatter, *, quiet: bool, items_here: bool) -> ProgressView:
    """The view for this terminal or file. ``items_here``: items are printed to the same terminal."""
    if quiet:
        return SilentView(name, store, hint)
    # A live table and lines of items would overwrite each other.
    if sys.stderr.isatty() and not items_here:
        return LiveView(name, store, hint)
    return ProgressView(name, store, hint)


_FRAME_SECONDS = 0.5
_SLOWEST = 3


class LiveView(ProgressView):
    """Redraws a table every ``_FRAME_SECONDS``. Messages scroll above it."""

    seconds = _FRAME_SECONDS

    def __init__(self, name: str, store: CrawlStore, hint: HintFormatter, console: Console | None = None) -> None:
        super().__init__(name, store, hint)
        self._live = Live(console=console or Console(stderr=True), auto_refresh=False, transient=True)

    def say(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False, soft_wrap=True)

    async def __aenter__(self) -> ProgressView:
        self._live.start()
        return await super().__aenter__()

    async def __aexit__(self, *exception: object) -> None:
        await super().__aexit__(*exception)
        self._live.stop()

    def show(self, counts: Counts, reports: list[WorkerReport]) -> None:
        self._live.update(self._table(counts, reports), refresh=True)

    def _table(self, counts: Counts, reports: list[WorkerReport]) -> Table:
        table = Table.grid(padding=(0, 2))
        flying = sum(report.in_flight for report in reports)
        errors = sum(count for report in reports for count in report.dead.values())
        retries = sum(report.retries for report in reports)
        span = format_elapsed(time.monotonic() - self._began)
        table.add_row(Text(self._name, "bold"), Text(f"{span}, {format_count(len(reports), 'worker')}"))
        table.add_row("pages", Text.assemble((f"{counts.done:,}", "bold green"), f"  {self._rate:,.0f}/s"))
        rows = [
            ("items", f"{counts.items:,}"),
            ("pending", f"{counts.pending:,}" + (f"  + {counts.delayed:,} delayed" if counts.delayed else "")),
            ("in flight", f"{flying}"),
            ("errors", f"{errors:,}  {retries:,} retries, {counts.dead:,} dead"),
        ]
        if slow := find_slowest(reports):
            rows.append(("slowest", "  ".join(f"{host} {seconds * 1000:,.0f} ms" for host, seconds in slow)))
        if waits := self.waits_for(reports):
            rows.append(("stopping", f"waits for {waits}"))
        for name, value in rows:
            table.add_row(name, Text(value))
        return table


def find_slowest(reports: list[WorkerReport]) -> list[tuple[str, float]]:
    """The slowest hosts with their highest time over all workers, in seconds."""
    hosts: dict[str, float] = {}
    for host, seconds in (pair for report in reports for pair in report.slowest):
        hosts[host] = max(seconds, hosts.get(host, 0.0))
    return sorted(hosts.items(), key=lambda pair: -pair[1])[:_SLOWEST]

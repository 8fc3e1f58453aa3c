"""What a running crawl shows: a live table on a terminal (:mod:`weft.cli.live`), a line every ten seconds elsewhere.

All on stderr.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable

import msgspec

from weft.cli.words import number, say, stopwatch
from weft.engine.states import State
from weft.engine.stats import Report
from weft.engine.supervisor import Ending
from weft.engine.tasks import called
from weft.frontier.depot import Store
from weft.launch import Opened
from weft.model import Counts

# Another command about the crawl, as it is typed.
Hint = Callable[..., str]

_LINE_SECONDS = 10.0
# A worker that has not reported for so long is not counted as running.
_STALE_SECONDS = 5.0
# After so long it is said what a crawl that was told to stop waits for: by then its workers have reported.
_PATIENCE_SECONDS = 2.0
# Of so many pages their URLs are said.
_MOST_NAMED = 3


class View:
    """A line every ten seconds."""

    seconds = _LINE_SECONDS

    def __init__(self, name: str, store: Store, hint: Hint) -> None:
        self.hint = hint
        self._name = name
        self._store = store
        self._began = time.monotonic()
        self._last = (self._began, 0)
        self._rate = 0.0
        self._ending = False
        self._task: asyncio.Task[None] | None = None
        self._due = asyncio.Event()

    def say(self, text: str) -> None:
        say(text)

    def opened(self, opened: Opened) -> None:
        counts = opened.counts
        self._last = (self._began, counts.done)
        if opened.resumed and opened.former == State.FINISHED and not counts.work:
            self.say(f"crawl {self._name} has finished, there is nothing to go on with (--fresh starts again)")
        elif opened.resumed:
            self.say(f"resuming crawl {self._name}: {counts.done:,} done, {counts.work:,} to do (--fresh starts again)")
        elif opened.former == State.FINISHED:
            self.say(f"{self._name}: the last crawl finished; starting anew")
        elif opened.former:
            self.say(f"{self._name}: the last crawl ended at its {opened.former}; starting anew (--resume goes on)")

    def stopping(self) -> None:
        """A signal asked for the end. What keeps it waiting is not known before the workers say so."""
        self.say("stopping: waiting for the pages in flight; once more to stop at once")
        asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._due.set)

    async def __aenter__(self) -> View:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await called(self._due, self.seconds)
            self._due.clear()
            await self._refresh()

    async def _reports(self, oldest: float) -> list[Report]:
        """Not those of workers that were killed with the crawl before this one; they are there still."""
        oldest = min(oldest, time.monotonic() - self._began)
        reports = (await self._store.ledger.reports()).values()
        return [msgspec.json.decode(report, type=Report) for age, report in reports if age <= oldest]

    async def _refresh(self) -> None:
        counts, fresh = await self._store.frontier.counts(), await self._reports(_STALE_SECONDS)
        self._ending = (await self._store.ledger.facts()).get("state") == State.STOPPING
        now = time.monotonic()
        then, done = self._last
        self._rate = (counts.done - done) / max(now - then, 1e-9)
        self._last = (now, counts.done)
        self.show(counts, fresh)

    def show(self, counts: Counts, reports: list[Report]) -> None:
        flying = sum(report.in_flight for report in reports)
        waits = self.waits_for(reports)
        self.say(
            f"{self._name}: {counts.done:,} pages ({self._rate:,.0f}/s), {counts.pending:,} pending, "
            f"{flying} in flight, {counts.delayed:,} delayed, {counts.items:,} items, {counts.dead:,} dead"
            + (f"; stopping, waits for {waits}" if waits else "")
        )

    def waits_for(self, reports: list[Report]) -> str:
        """The pages that keep a crawl from its end, if it is to end."""
        flying = sum(report.in_flight for report in reports)
        return named([url for report in reports for url in report.flying], flying) if self._ending else ""

    async def closed(self, ending: Ending, counts: Counts) -> None:
        """The last words: how it ended, what came of it, what to do next."""
        dead, kinds = await self._store.inspector.dead(1), await self._store.inspector.dead_kinds()
        given_back = [url for report in await self._reports(math.inf) for url in report.given_back]
        seconds = time.monotonic() - self._began
        how = {
            State.FINISHED: "finished",
            State.LIMITED: f"ended at its {ending.reason}",
            State.STOPPED: f"stopped ({ending.reason}); the same command resumes it",
        }[ending.state]
        made = f"{number(counts.done, 'page')}, {number(counts.items, 'item')}, {counts.dead:,} dead"
        left = f"; {counts.work:,} left" if counts.work else ""
        self.say(f"{self._name}: {how}. {made} in {stopwatch(seconds)}{left}")
        if ending.state is State.FINISHED and not (counts.done or counts.dead):
            self.say("  there was nothing to start from: give the spider start=, sitemap= or @spider.start")
        if given_back:
            self.say(f"  in flight to the last, and given back: {named(given_back, len(given_back))}")
        if kinds:
            listed = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
            self.say(f"  dead: {listed}  ({self.hint('status', '--dead')})")
        if dead and not counts.done:
            url = dead[0].request.url
            self.say(f"  no page could be had, the last: {url}: {dead[0].reason.removeprefix(f'{url}: ')}")


def named(urls: list[str], count: int) -> str:
    """``count`` pages, some of them by their URLs; nothing if there are none."""
    told = urls[:_MOST_NAMED]
    rest = count - len(told)
    return ", ".join(told) + (f" and {rest:,} more" if told and rest > 0 else "")


class Silence(View):
    """Nothing but what must be said."""

    async def __aenter__(self) -> View:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def view_for(name: str, store: Store, hint: Hint, *, quiet: bool, items_here: bool) -> View:
    """``items_here``: items go to the terminal, too."""
    if quiet:
        return Silence(name, store, hint)
    # A table that is drawn again and again, and lines between, would overwrite each other.
    if sys.stderr.isatty() and not items_here:
        from weft.cli.live import LiveView

        return LiveView(name, store, hint)
    return View(name, store, hint)

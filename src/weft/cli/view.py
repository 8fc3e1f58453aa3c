"""What a running crawl shows: a live table on a terminal (:mod:`weft.cli.live`), a line every ten seconds elsewhere.

All on stderr.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

import msgspec

from weft.cli.words import number, say, stopwatch
from weft.engine.states import State
from weft.engine.stats import Report
from weft.engine.supervisor import Ending
from weft.frontier.base import DeadLetter
from weft.frontier.depot import Store
from weft.launch import Opened
from weft.model import Counts

# Another command about the crawl, as it is typed.
Hint = Callable[..., str]

_LINE_SECONDS = 10.0
# A worker that has not reported for so long is not counted as running.
_STALE_SECONDS = 5.0


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
        self._task: asyncio.Task[None] | None = None

    def say(self, text: str) -> None:
        say(text)

    def opened(self, opened: Opened) -> None:
        counts = opened.counts
        self._last = (self._began, counts.done)
        if opened.resumed:
            self.say(f"resuming crawl {self._name}: {counts.done:,} done, {counts.work:,} to do (--fresh starts again)")
        elif opened.former == State.FINISHED:
            self.say(f"{self._name}: the last crawl finished; starting anew")
        elif opened.former:
            self.say(f"{self._name}: the last crawl ended at its {opened.former}; starting anew (--resume goes on)")

    async def __aenter__(self) -> View:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.seconds)
            await self._refresh()

    async def _refresh(self) -> None:
        counts, reports = await self._store.frontier.counts(), await self._store.ledger.reports()
        now = time.monotonic()
        # Of workers that were killed with the crawl before this one, the last reports are there still.
        oldest = min(_STALE_SECONDS, now - self._began)
        fresh = [msgspec.json.decode(report, type=Report) for age, report in reports.values() if age <= oldest]
        then, done = self._last
        self._rate = (counts.done - done) / max(now - then, 1e-9)
        self._last = (now, counts.done)
        self.show(counts, fresh)

    def show(self, counts: Counts, reports: list[Report]) -> None:
        flying = sum(report.in_flight for report in reports)
        self.say(
            f"{self._name}: {counts.done:,} pages ({self._rate:,.0f}/s), {counts.pending:,} pending, "
            f"{flying} in flight, {counts.delayed:,} delayed, {counts.items:,} items, {counts.dead:,} dead"
        )

    def closed(self, ending: Ending, counts: Counts, dead: list[DeadLetter], kinds: dict[str, int]) -> None:
        """The last words: how it ended, what came of it, what to do next. ``dead`` are the latest of them."""
        seconds = time.monotonic() - self._began
        how = {
            State.FINISHED: "finished",
            State.LIMITED: f"ended at its {ending.reason}",
            State.STOPPED: f"stopped ({ending.reason}); the same command resumes it",
        }[ending.state]
        made = f"{number(counts.done, 'page')}, {number(counts.items, 'item')}, {counts.dead:,} dead"
        left = f"; {counts.work:,} left" if counts.work else ""
        self.say(f"{self._name}: {how}. {made} in {stopwatch(seconds)}{left}")
        if kinds:
            listed = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
            self.say(f"  dead: {listed}  ({self.hint('status', '--dead')})")
        if dead and not counts.done:
            self.say(f"  no page could be had, the last: {dead[0].request.url}: {dead[0].reason}")


class Silence(View):
    """Nothing but what must be said."""

    async def __aenter__(self) -> View:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def view_for(name: str, store: Store, hint: Hint, *, quiet: bool) -> View:
    if quiet:
        return Silence(name, store, hint)
    if sys.stderr.isatty():
        from weft.cli.live import LiveView

        return LiveView(name, store, hint)
    return View(name, store, hint)

"""A running crawl as a table that is drawn again and again, for a terminal."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.table import Table

from weft.cli.view import Hint, View
from weft.cli.words import number, stopwatch
from weft.engine.stats import Report
from weft.frontier.depot import Store
from weft.model import Counts

_FRAME_SECONDS = 0.5


class LiveView(View):
    seconds = _FRAME_SECONDS

    def __init__(self, name: str, store: Store, hint: Hint) -> None:
        super().__init__(name, store, hint)
        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)

    def say(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False, soft_wrap=True)

    async def __aenter__(self) -> View:
        self._live.start()
        return await super().__aenter__()

    async def __aexit__(self, *exception: object) -> None:
        await super().__aexit__(*exception)
        self._live.stop()

    def show(self, counts: Counts, reports: list[Report]) -> None:
        self._live.update(self._table(counts, reports), refresh=True)

    def _table(self, counts: Counts, reports: list[Report]) -> Table:
        table = Table.grid(padding=(0, 2))
        flying = sum(report.in_flight for report in reports)
        errors = sum(count for report in reports for count in report.dead.values())
        retries = sum(report.retries for report in reports)
        span = stopwatch(time.monotonic() - self._began)
        rows: list[tuple[str, str]] = [
            (f"[bold]{self._name}[/]", f"{span}, {number(len(reports), 'worker')}"),
            ("pages", f"[bold green]{counts.done:,}[/]  {self._rate:,.0f}/s"),
            ("items", f"{counts.items:,}"),
            ("pending", f"{counts.pending:,}" + (f"  + {counts.delayed:,} delayed" if counts.delayed else "")),
            ("in flight", f"{flying}"),
            ("errors", f"{errors:,}  {retries:,} retries, {counts.dead:,} dead"),
        ]
        slow = sorted((pair for report in reports for pair in report.slowest), key=lambda pair: -pair[1])[:3]
        if slow:
            rows.append(("slowest", "  ".join(f"{host} {seconds * 1000:,.0f} ms" for host, seconds in slow)))
        if waits := self.waits_for(reports):
            rows.append(("stopping", f"waits for {waits}"))
        for row in rows:
            table.add_row(*row)
        return table

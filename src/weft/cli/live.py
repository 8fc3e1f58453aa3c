"""A running crawl as a table that is drawn again and again, for a terminal.

The table is made of texts with styles, not of markup: what is said meanwhile is printed without markup, and rich
draws the table in the same way then.
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from weft.cli.view import Hint, View
from weft.cli.words import number, stopwatch
from weft.engine.stats import Report
from weft.frontier.depot import Store
from weft.model import Counts

_FRAME_SECONDS = 0.5
_SLOWEST = 3


class LiveView(View):
    seconds = _FRAME_SECONDS

    def __init__(self, name: str, store: Store, hint: Hint, console: Console | None = None) -> None:
        super().__init__(name, store, hint)
        self._live = Live(console=console or Console(stderr=True), auto_refresh=False, transient=True)

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
        table.add_row(Text(self._name, "bold"), Text(f"{span}, {number(len(reports), 'worker')}"))
        table.add_row("pages", Text.assemble((f"{counts.done:,}", "bold green"), f"  {self._rate:,.0f}/s"))
        rows = [
            ("items", f"{counts.items:,}"),
            ("pending", f"{counts.pending:,}" + (f"  + {counts.delayed:,} delayed" if counts.delayed else "")),
            ("in flight", f"{flying}"),
            ("errors", f"{errors:,}  {retries:,} retries, {counts.dead:,} dead"),
        ]
        if slow := slowest(reports):
            rows.append(("slowest", "  ".join(f"{host} {seconds * 1000:,.0f} ms" for host, seconds in slow)))
        if waits := self.waits_for(reports):
            rows.append(("stopping", f"waits for {waits}"))
        for name, value in rows:
            table.add_row(name, Text(value))
        return table


def slowest(reports: list[Report]) -> list[tuple[str, float]]:
    """The slowest hosts, each once, however many workers ask it: as slow as it was to one of them."""
    hosts: dict[str, float] = {}
    for host, seconds in (pair for report in reports for pair in report.slowest):
        hosts[host] = max(seconds, hosts.get(host, 0.0))
    return sorted(hosts.items(), key=lambda pair: -pair[1])[:_SLOWEST]

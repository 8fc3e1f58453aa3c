"""Output of commands: messages on standard error, data on standard output; numbers, times, sizes and tables.

On a terminal, rich draws tables and fits them to its width. Otherwise they are columns of plain text, and lines are
never cut, for grep and awk. Programs use ``--json``.

rich is imported when it is first needed: a crawl whose output is not a terminal does without.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

import msgspec

from uttu.operations import format_count as format_count

if TYPE_CHECKING:
    from rich.table import Table

_UNITS = (("kB", 1e3), ("MB", 1e6), ("GB", 1e9))


def print_json(value: Any) -> None:
    """Print JSON: on one line for programs, indented on a terminal."""
    text = msgspec.json.encode(value)
    print((msgspec.json.format(text, indent=2) if sys.stdout.isatty() else text).decode())


def say(text: str) -> None:
    """Print a message to standard error: information beside the data that the command prints."""
    print(text, file=sys.stderr)


def format_duration(seconds: float) -> str:
    """A duration in one unit: ``30 ms``, ``0.4 s``, ``12 s``, ``5 min``, ``3 h``, ``2 days``."""
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s".replace(".0 s", " s")
    for unit, length, most in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 48)):
        if round(seconds / length) < most:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def format_elapsed(seconds: float) -> str:
    """A duration to the second: ``12.3 s``, ``3:24``, ``1:02:03``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_age(seconds: float) -> str:
    """A time in the past, as seconds ago: ``3 min ago``. A negative number is in the future: ``in 3 min``."""
    if abs(seconds) < 1:
        return "now"
    return f"{format_duration(seconds)} ago" if seconds > 0 else f"in {format_duration(-seconds)}"


def format_moment(at: float, now: float | None = None) -> str:
    """A Unix time in local time, and how far away it is: ``20:05:31, 3 min ago``."""
    now = time.time() if now is None else now
    then = datetime.fromtimestamp(at)
    form = "%H:%M:%S" if then.date() == datetime.fromtimestamp(now).date() else "%Y-%m-%d %H:%M"
    return f"{then.strftime(form)}, {format_age(now - at)}"


def format_zoned(at: datetime, zone: tzinfo | None = None) -> str:
    """A time with its zone, and how far away it is: ``2030-01-31 07:00 CET, in 3 h``.

    :param zone: the default is the local time zone.
    """
    then = at.astimezone(zone)
    form = "%Y-%m-%d %H:%M:%S %Z" if then.second else "%Y-%m-%d %H:%M %Z"
    return f"{then.strftime(form)}, {format_age(time.time() - at.timestamp())}"


def format_size(count: float) -> str:
    """A number of bytes: ``512 B``, ``6.0 kB``, ``1.2 MB``."""
    if count < 1000:
        return f"{count:.0f} B"
    unit, length = next((each for each in _UNITS if count < 999.5 * each[1]), _UNITS[-1])
    return f"{count / length:,.1f} {unit}" if count < 100 * length else f"{count / length:,.0f} {unit}"


TableRow = Sequence[str]

_GAP = "  "
_STYLES = {
    "running": "bold green",
    "finished": "green",
    "done": "bold green",
    "stopped": "yellow",
    "stopping": "yellow",
    "paused": "yellow",
    "limited": "yellow",
    "delayed": "yellow",
    "cut short": "bold yellow",
    "dead": "bold red",
    "unreadable": "bold red",
    "unknown": "bold yellow",
    "pending": "bold cyan",
    "leased": "bold cyan",
}


class Screen:
    """Standard output, as a terminal or as plain text."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.text import Text

        self._text = Text
        self.console = Console(highlight=False)

    @property
    def drawn(self) -> bool:
        """Whether standard output is a terminal."""
        return self.console.is_terminal

    def line(self, text: str = "", style: str = "") -> None:
        self.console.print(self._text(text, style), soft_wrap=True)

    def marked(self, word: str, rest: str = "", indent: str = "") -> None:
        """A line that begins with a coloured word, such as a state."""
        self.console.print(self._text.assemble(indent, (word, _STYLES.get(word, "bold")), rest), soft_wrap=True)

    def pairs(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print names and values, one pair per line. A value may have several lines."""
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            for number, text in enumerate(value.splitlines() or [""]):
                label = (name if number == 0 else "").ljust(width)
                self.console.print(self._text.assemble((label, "dim"), _GAP, text), soft_wrap=True)

    def table(self, head: TableRow, rows: Sequence[TableRow], numbers: Sequence[str] = (), indent: int = 0) -> None:
        """Print a table. The columns named in ``numbers`` are aligned right."""
        if not self.drawn:
            self._columns(head, rows, numbers, " " * indent)
            return
        from rich.padding import Padding

        self.console.print(Padding(build_table(head, rows, numbers), (0, 0, 0, indent)))

    @staticmethod
    def _columns(head: TableRow, rows: Sequence[TableRow], numbers: Sequence[str], indent: str) -> None:
        lines = [list(head), *([" ".join(cell.split()) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = [
                cell.rjust(width) if name in numbers else cell.ljust(width)
                for name, cell, width in zip(head, line, widths, strict=True)
            ]
            print(indent + _GAP.join(cells).rstrip())


def build_table(head: TableRow, rows: Sequence[TableRow], numbers: Sequence[str] = ()) -> Table:
    """A table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in head:
        number = name in numbers
        table.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row))
    return table


def format_kinds(kinds: dict[str, int]) -> str:
    """The dead letters of each kind: ``3 http, 1 handler``."""
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())

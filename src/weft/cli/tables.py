"""How commands show what they found: tables, times and sizes.

On a terminal tables are drawn by rich and fit its width. Elsewhere they are columns of plain text
whose lines are never cut, for grep and awk; whoever wants more than that asks for ``--json``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

Row = Sequence[str]

_GAP = "  "
_UNITS = (("kB", 1e3), ("MB", 1e6), ("GB", 1e9))
_STYLES = {
    "running": "bold green", "finished": "green", "done": "bold green", "stopped": "yellow", "stopping": "yellow",
    "paused": "yellow", "limited": "yellow", "delayed": "yellow", "cut short": "bold yellow", "dead": "bold red",
    "unreadable": "bold red", "unknown": "bold yellow", "pending": "bold cyan", "leased": "bold cyan",
}  # fmt: skip


class Screen:
    """Standard output."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)

    @property
    def drawn(self) -> bool:
        """Whether a person is looking at it."""
        return self.console.is_terminal

    def line(self, text: str = "", style: str = "") -> None:
        self.console.print(Text(text, style), soft_wrap=True)

    def marked(self, word: str, rest: str = "", indent: str = "") -> None:
        """A line that begins with a word that has a colour of its own, such as a state."""
        self.console.print(Text.assemble(indent, (word, _STYLES.get(word, "bold")), rest), soft_wrap=True)

    def pairs(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names and values, one pair a line; a value may have several lines."""
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            for number, text in enumerate(value.splitlines() or [""]):
                label = (name if number == 0 else "").ljust(width)
                self.console.print(Text.assemble((label, "dim"), _GAP, text), soft_wrap=True)

    def table(self, head: Row, rows: Sequence[Row], numbers: Sequence[str] = (), indent: int = 0) -> None:
        """A table; the columns named in ``numbers`` are flush right."""
        if not self.drawn:
            self._columns(head, rows, numbers, " " * indent)
            return
        self.console.print(Padding(drawn(head, rows, numbers), (0, 0, 0, indent)))

    @staticmethod
    def _columns(head: Row, rows: Sequence[Row], numbers: Sequence[str], indent: str) -> None:
        lines = [list(head), *([" ".join(cell.split()) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = [
                cell.rjust(width) if name in numbers else cell.ljust(width)
                for name, cell, width in zip(head, line, widths, strict=True)
            ]
            print(indent + _GAP.join(cells).rstrip())


def drawn(head: Row, rows: Sequence[Row], numbers: Sequence[str] = ()) -> Table:
    """A table for a terminal."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in head:
        number = name in numbers
        table.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row))
    return table


def print_json(value: Any) -> None:
    """As one line for programs, indented for people."""
    text = msgspec.json.encode(value)
    print((msgspec.json.format(text, indent=2) if sys.stdout.isatty() else text).decode())


def say(text: str) -> None:
    """A message: not what was asked for, but good to know."""
    print(text, file=sys.stderr)


def span(seconds: float) -> str:
    """A duration in one unit: ``30 ms``, ``0.4 s``, ``12 s``, ``5 min``, ``3 h``, ``2 days``."""
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s".replace(".0 s", " s")
    for unit, length, most in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 48)):
        if round(seconds / length) < most:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def ago(seconds: float) -> str:
    """How long ago or, where it is negative, in how long."""
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def moment(at: float, now: float | None = None) -> str:
    """A time by the clock on the wall, and how long ago it is or will be: ``20:05:31, 3 min ago``."""
    now = time.time() if now is None else now
    then = datetime.fromtimestamp(at)
    form = "%H:%M:%S" if then.date() == datetime.fromtimestamp(now).date() else "%Y-%m-%d %H:%M"
    return f"{then.strftime(form)}, {ago(now - at)}"


def size(count: float) -> str:
    """A number of bytes: ``512 B``, ``6.0 kB``, ``1.2 MB``."""
    if count < 1000:
        return f"{count:.0f} B"
    unit, length = next((each for each in _UNITS if count < 999.5 * each[1]), _UNITS[-1])
    return f"{count / length:,.1f} {unit}" if count < 100 * length else f"{count / length:,.0f} {unit}"


def number(count: int, word: str, words: str = "") -> str:
    """``1 page``, ``2,000 pages``."""
    return f"{count:,} {word if count == 1 else words or word + 's'}"

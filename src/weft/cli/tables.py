"""How commands show what they found in tables.

On a terminal tables are drawn by rich and fit its width. Elsewhere they are columns of plain text
whose lines are never cut, for grep and awk; whoever wants more than that asks for ``--json``.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

Row = Sequence[str]

_GAP = "  "
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

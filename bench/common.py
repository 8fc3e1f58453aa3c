"""Shared by the benchmarks: tables, and the files of results."""

from __future__ import annotations

import compileall
import json
import sqlite3
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench.side_by_side.machine import describe_machine

import uttu

RESULTS: Final = Path(__file__).with_name("results")
# Read at import, before anything is measured: it has the load average of other processes.
_MACHINE: Final = describe_machine()


def compile_uttu() -> None:
    """Compile Uttu's modules, as pip does when it installs a package. Those of the other crawlers are compiled."""
    compileall.compile_dir(Path(uttu.__file__).parent, quiet=1)


def save(name: str, results: dict[str, Any]) -> None:
    """Write ``bench/results/NAME.json``: date, machine, versions and the results."""
    head = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": _MACHINE,
        "versions": {"uttu": version("uttu"), "sqlite": sqlite3.sqlite_version},
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(head | results, indent=2) + "\n")


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table, aligned to the right."""
    formatted = [[_format(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *formatted, strict=True)]
    print(f"\n{title}\n")
    for row in (heads, *formatted):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    print(flush=True)


def _format(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.1f}" if abs(cell) >= 10 else f"{cell:.2f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)

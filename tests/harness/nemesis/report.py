"""The results of a run as a table, for people; written into a page between two marks."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

from tests.harness.nemesis.run import Result

BEGIN: Final = "<!-- nemesis: begin -->"
END: Final = "<!-- nemesis: end -->"
_HEAD: Final = (
    "seed",
    "what befell it",
    "pages",
    "fetched again",
    "leases lost",
    "refused",
    "late",
    "seconds",
    "found",
)


def line(result: Result) -> str:
    """One result, said when it is there."""
    clean = "clean" if not result.findings else "\n  ".join(["FOUND:", *result.findings])
    numbers = (
        f"{result.refetched} of {result.plan.site.pages} fetched again, {result.lost} leases lost, "
        f"{result.refused} refused, {result.late} late"
    )
    return f"seed {result.plan.seed}: {events(result)}; {result.seconds:.0f} s, {numbers}, {clean}"


def table(results: Sequence[Result], server: str) -> str:
    """All results, and what they were had on."""
    rows = [
        (
            str(result.plan.seed),
            events(result),
            f"{result.plan.site.pages:,}",
            str(result.refetched),
            str(result.lost),
            str(result.refused),
            str(result.late),
            f"{result.seconds:.0f}",
            "; ".join(result.findings).replace("\n", " ") or "nothing",
        )
        for result in sorted(results, key=lambda result: result.plan.seed)
    ]
    pages, again = sum(result.plan.site.pages for result in results), sum(result.refetched for result in results)
    clean = sum(not result.findings for result in results)
    head = (
        f"{date.today():%-d %B %Y}, {machine()}, Python {platform.python_version()}, {server}: {clean} of "
        f"{len(results)} seeds clean, {pages:,} pages, {again:,} of them fetched again, "
        f"{sum(result.lost for result in results):,} leases lost."
    )
    return "\n".join([head, "", _row(_HEAD), _row(["---"] * len(_HEAD)), *map(_row, rows)])


def write(file: Path, text: str) -> None:
    """Put the text between the marks of a page; a file without them is replaced."""
    kept = file.read_text() if file.exists() else ""
    if BEGIN in kept and END in kept:
        text = f"{kept.partition(BEGIN)[0]}{BEGIN}\n{text}\n{END}{kept.partition(END)[2]}"
    file.write_text(text if text.endswith("\n") else text + "\n")


def events(result: Result) -> str:
    """What happened, how often."""
    counted = Counter(event.kind for event in result.plan.events)
    return ", ".join(f"{kind} × {count}" if count > 1 else kind for kind, count in counted.items())


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {gigabytes:.0f} GB"

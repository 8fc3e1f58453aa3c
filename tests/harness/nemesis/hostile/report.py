"""Results as a table: one row for each kind that had a crawl to itself, and one for each way the others ended."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from platform import python_version
from typing import Final

import msgspec

from tests.harness.nemesis.hostile.cases import GROUPS, Case
from tests.harness.nemesis.hostile.run import Result
from tests.harness.nemesis.report import machine

BEGIN: Final = "<!-- hostile: begin -->"
END: Final = "<!-- hostile: end -->"
_REASON: Final = 90


def line(result: Result) -> str:
    """One result, printed when it is there."""
    names = result.cases[0] if len(result.cases) == 1 else f"{result.cases[0]} and {len(result.cases) - 1} more"
    if result.workers > 1:
        names += f" ({result.workers} workers)"
    ending = _category(result.endings[result.cases[0]]) if len(result.cases) == 1 else ""
    verdict = "\n    ".join(["FOUND:", *result.findings]) if result.findings else f"ok {ending}"
    return f"{names:58} gap {result.gap:6.2f} s {result.megabytes:6.0f} MB {result.seconds:6.1f} s  {verdict}"


def save(file: Path, results: Sequence[Result]) -> None:
    """As JSON lines."""
    file.write_bytes(msgspec.json.Encoder().encode_lines(results))


def load(file: Path) -> list[Result]:
    return msgspec.json.Decoder(Result).decode_lines(file.read_bytes())


def table(cases: Sequence[Case], results: Sequence[Result], before: Sequence[Result] = ()) -> str:
    """All results as Markdown. ``before``: the same of an earlier version, for comparison."""
    bad = sum(bool(result.findings) for result in results)
    tried = {name for result in results for name in result.cases}
    head = (
        f"{date.today():%-d %B %Y}, {machine()}, Python {python_version()}: {len(tried)} kinds in {len(results)} "
        f"crawls, {f'{bad} beyond a bar' if bad else 'all within the bars'}."
    )
    parts = [head, "", *_summary(results, before)]
    for group in GROUPS:
        members = [case for case in cases if case.group == group and case.name in tried]
        if members:
            parts += ["", f"### {group}", "", *_group(members, results, before)]
    return "\n".join(parts)


def write(file: Path, text: str) -> None:
    """Put the text between the marks of a page.

    :raises ValueError: the page has no marks.
    """
    kept = file.read_text()
    if BEGIN not in kept or END not in kept:
        raise ValueError(f"{file} has no marks {BEGIN} and {END}")
    file.write_text(f"{kept.partition(BEGIN)[0]}{BEGIN}\n{text}\n{END}{kept.partition(END)[2]}")


def _summary(results: Sequence[Result], before: Sequence[Result]) -> Iterable[str]:
    yield _row(["group", "kinds", "longest gap", "largest process", "crawls beyond a bar", *["before"] * bool(before)])
    yield _row(["---"] * (6 if before else 5))
    for group in GROUPS:
        own = [result for result in results if _group_of(result) == group]
        if own:
            was = [result for result in before if _group_of(result) == group]
            then = [f"{_gap(was)}, {_memory(was)}" if was else ""] * bool(before)
            count = str(len({name for result in own for name in result.cases}))
            yield _row([group, count, _gap(own), _memory(own), str(sum(bool(r.findings) for r in own)), *then])


def _group(members: Sequence[Case], results: Sequence[Result], before: Sequence[Result]) -> Iterable[str]:
    alone = [result for result in results if len(result.cases) == 1 and _group_of(result) == members[0].group]
    shared = [result for result in results if len(result.cases) > 1 and _group_of(result) == members[0].group]
    about = {case.name: case.about for case in members}
    if alone:
        earlier = {(result.cases, result.workers): result for result in before}
        yield _row(["kind", "what it does", "gap", "memory", "ends as", *["gap and memory before"] * bool(before)])
        yield _row(["---"] * (6 if before else 5))
        for result in alone:
            was = earlier.get((result.cases, result.workers))
            then = [f"{_gap([was])}, {_memory([was])}{_fault(was)}" if was else ""] * bool(before)
            yield _row([_name(result), about[result.cases[0]], *_cells(result), *then])
        yield ""
    if shared:
        yield from _shared(shared)


def _shared(results: Sequence[Result]) -> Iterable[str]:
    """Kinds that were tried together, by how they ended: the gap and the memory are those of their crawls."""
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    crawls: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        for name in result.cases:
            category = _category(result.endings[name])
            kinds[category].append(name.partition("/")[2])
            crawls[category].append(result)
    yield _row(["ends as", "kinds", "gap", "memory"])
    yield _row(["---"] * 4)
    for category, names in sorted(kinds.items()):
        yield _row([category, ", ".join(names), _gap(crawls[category]), _memory(crawls[category])])


def _cells(result: Result) -> list[str]:
    ending = _category(result.endings[result.cases[0]])
    found = "; ".join(result.findings)
    return [_gap([result]), _memory([result]), f"{ending} — **{_cell(found)}**" if found else ending]


def _fault(result: Result) -> str:
    return "; did not end" if any("not over" in each or "did not" in each for each in result.findings) else ""


def _name(result: Result) -> str:
    workers = f" ({result.workers} workers)" if result.workers > 1 else ""
    return result.cases[0].partition("/")[2] + workers


def _group_of(result: Result) -> str:
    return result.cases[0].partition("/")[0]


def _category(ending: str) -> str:
    """``done``, or ``dead: kind`` with what is said of handlers."""
    word, _, rest = ending.partition(": ")
    if word != "dead":
        return word
    kind, _, reason = rest.partition(": ")
    reason = re.sub(r"https?://\S+|[\d.]+:\d+", "…", reason)
    return f"dead: {kind}" + (f": {_cell(reason[:_REASON])}" if kind in ("handler", "lost", "worker") else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _gap(results: Iterable[Result]) -> str:
    return f"{max(result.gap for result in results):.2f} s"


def _memory(results: Iterable[Result]) -> str:
    return f"{max(result.megabytes for result in results):,.0f} MB"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

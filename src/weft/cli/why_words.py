"""What became of a URL, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from weft.cli.crawls import Standing
from weft.cli.status_view import pace_of
from weft.cli.tables import Screen
from weft.cli.why_fate import Fate
from weft.cli.words import ago, moment, number, print_json, size, span
from weft.engine.states import State


def show(found: Sequence[Fate], standing: Standing) -> None:
    screen = Screen()
    for fate in found:
        head, *rest = _words(fate, standing)
        screen.line(fate.url, "bold")
        screen.marked(fate.trace.state, head, indent="  ")
        for text in rest:
            screen.line(f"  {text}")
        for text in fate.trace.detail.splitlines():
            screen.line(f"    {text}", "dim")
        if fate.trace.state == "dead" and fate.trace.kind != "robots":
            # What robots.txt forbids, it forbids again.
            screen.line(f"  once more: {standing.words('retry', standing.name, '--url', fate.url)}")


def print_data(found: Sequence[Fate], standing: Standing) -> None:
    """The first with all that is known; where it redirected to below ``then``."""
    first, *others = [_as_dict(fate, standing) for fate in found]
    print_json({"crawl": standing.name, **first, "then": others})


def _words(fate: Fate, standing: Standing) -> list[str]:
    """One line that goes on after the state, and lines below it."""
    trace = fate.trace
    match trace.state:
        case "done":
            return _done(fate)
        case "dead":
            status = f", status {trace.status}" if trace.status else ""
            tries = number(trace.attempt, "try", "tries")
            return [f" {moment(trace.at)}, after {tries}{status}", f"{trace.kind}: {trace.reason}"]
        case "delayed":
            return [
                f": to be tried again at {moment(trace.due)}, after {number(trace.attempt, 'try', 'tries')}",
                trace.reason,
                *_standstill(standing),
            ]
        case "leased":
            return [f" by {trace.worker} until {moment(trace.due)}", _worker(trace.worker, standing)]
        case "pending":
            return _pending(fate, standing)
        case "unknown":
            return [f" to the crawl {standing.name}", *fate.guesses, *(f"but it knows {url}" for url in fate.known_as)]


def _done(fate: Fate) -> list[str]:
    trace = fate.trace
    if not trace.at:
        return [", but nothing more is known of it"]
    facts = [f"status {trace.status}", size(trace.size)] if trace.status else []  # none: it was not asked for as a page
    if not fate.target:
        facts += [number(trace.links, "new link"), number(trace.items, "item")]
    return [f" {moment(trace.at)}: {', '.join(facts)}", *([trace.reason] if trace.reason else [])]


def _pending(fate: Fate, standing: Standing) -> list[str]:
    trace, lane = fate.trace, fate.lane
    before = f"{trace.ahead:,} before it" if trace.ahead else "the next one"
    lines = [f" in the lane {trace.lane}: {before}"]
    if lane is not None:
        lines.append(f"the lane is due {ago(-lane.wait)}; its pace: {pace_of(lane)}")
        if lane.reason and lane.wait > 0:
            lines.append(f"held for {span(lane.wait)} more because: {lane.reason}")
    if trace.attempt:
        lines.append(f"{number(trace.attempt, 'try', 'tries')} so far")
    return lines + _standstill(standing)


def _standstill(standing: Standing) -> list[str]:
    """That nothing is begun, whatever a lane's turn is, and what to do about it."""
    if not standing.alive:
        # Without --resume, a crawl that ended at a limit would start anew.
        command = standing.command() + (" --resume" if standing.state == State.LIMITED else "")
        return [f"the crawl is not running ({standing.state}); go on with: {command}"]
    if standing.state == State.PAUSED:
        return [f"the crawl is paused; go on with: {standing.words('resume', standing.name)}"]
    if standing.state == State.STOPPING:
        return [f"the crawl is stopping{standing.how}, and begins no page any more"]
    return []


def _worker(name: str, standing: Standing) -> str:
    age, report = standing.workers.get(name, (None, None))
    if age is None or report is None:
        return "that worker has not reported yet"
    if name in standing.living:
        return f"that worker is alive (process {report.pid})"
    return f"that worker is gone (last heard of {ago(age)}); the page goes back in line when the crawl goes on"


def _as_dict(fate: Fate, standing: Standing) -> dict[str, Any]:
    trace: dict[str, Any] = msgspec.structs.asdict(fate.trace)
    request = trace.pop("request")
    head, *rest = _words(fate, standing)
    return {
        "url": fate.url,
        **trace,
        "request": None if request is None else msgspec.structs.asdict(request),
        "guesses": fate.guesses,
        "known_as": fate.known_as,
        "words": [fate.trace.state + head, *rest],
    }

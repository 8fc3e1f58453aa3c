"""Showing how crawls stand: the list of all, and one with its workers and lanes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from weft.cli.crawls import CUT_SHORT, Standing
from weft.cli.tables import Screen
from weft.cli.words import ago, number, print_json, say, size, span
from weft.engine.states import State
from weft.frontier.base import LaneState
from weft.frontier.depot import Store
from weft.launch import MOVED

_TOP_LANES = 5
_JSON_LANES = 20
_MOST_LANES = 100_000
# Workers that are gone leave their last report behind.
_TOP_GONE = 5


def show_all(found: Sequence[Standing], address: str, as_json: bool) -> None:
    """``address``: where they are; empty for this folder."""
    if as_json:
        print_json([_as_dict(each) for each in found])
        return
    if not found:
        where = f"at {address}" if address else "in this folder"
        say(f"no crawl was started {where}. Begin with: weft new NAME URL, or watch one: weft demo")
        return
    now = time.time()
    Screen().table(
        ("crawl", "state", "pages", "items", "to do", "dead", "active", "reason"),
        [
            (
                each.name, each.state, f"{each.counts.done:,}", f"{each.counts.items:,}", f"{each.counts.work:,}",
                f"{each.counts.dead:,}", ago(now - each.active) if each.active else "", each.reason,
            )
            for each in found
        ],
        numbers=("pages", "items", "to do", "dead"),
    )  # fmt: skip


async def show_one(standing: Standing, store: Store, as_json: bool) -> None:
    kinds, lanes = await store.inspector.dead_kinds(), await store.inspector.lanes(_MOST_LANES)
    if as_json:
        print_json({**_as_dict(standing), "dead_kinds": kinds, "lanes": [_lane(lane) for lane in lanes[:_JSON_LANES]]})
        return
    counts, screen = standing.counts, Screen()
    dead = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    screen.marked(standing.state, f"  {standing.name}{standing.how}")
    rows = [
        ("pages", f"{counts.done:,} done, {counts.dead:,} dead" + (f": {dead} (--dead)" if dead else "")),
        ("items", f"{counts.items:,}"),
        ("received", size(counts.bytes)),
        ("to do", f"{counts.pending:,} pending, {counts.leased:,} leased, {counts.delayed:,} delayed"),
    ]
    if waits := _waits(standing, lanes):
        rows.append(("waits for", "\n".join(waits)))
    if command := _go_on(standing):
        rows.append(("go on", command))
    screen.pairs(rows)
    if standing.workers:
        screen.line()
        _show_workers(standing, screen)
    if lanes:
        screen.line()
        _show_lanes(lanes[:_TOP_LANES], screen)
        if len(lanes) > _TOP_LANES:
            screen.line(f"and {number(len(lanes) - _TOP_LANES, 'more lane')} (--lanes)", "dim")


async def show_lanes(store: Store, limit: int, as_json: bool) -> None:
    lanes = await store.inspector.lanes(limit or _MOST_LANES)
    if as_json:
        print_json([_lane(lane) for lane in lanes])
    elif lanes:
        _show_lanes(lanes, Screen())
    else:
        say("no lane has pages waiting")


def _go_on(standing: Standing) -> str:
    """The command that lets it go on, if one is needed."""
    if standing.state == State.PAUSED and standing.alive:
        return standing.words("resume", standing.name)
    if standing.reason.startswith(MOVED):
        return ""
    return standing.command() if standing.state in (CUT_SHORT, State.STOPPED, State.PAUSED) else ""


def _waits(standing: Standing, lanes: Sequence[LaneState]) -> list[str]:
    """What stands between the crawl and its end, in words."""
    counts, found = standing.counts, []
    living = [report for _, report in standing.living.values()]
    if standing.state == State.PAUSED:
        found.append("the operator, who paused it")
    elif standing.alive and not living:
        found.append("workers: none has reported lately")
    if standing.alive and standing.facts.get("seeded") != "yes":
        found.append("its start URLs, which are not all read yet")
    if standing.feed:
        found.append(f"{number(standing.feed, 'start URL')} that were pushed and not taken in yet")
    if counts.leased and living:
        flying = sum(report.in_flight for report in living)
        found.append(
            f"{number(counts.leased, 'page')} with {number(len(living), 'worker')}, {flying} of them in flight"
        )
    elif counts.leased:
        found.append(f"{number(counts.leased, 'page')} of workers that are gone: back in line when the crawl goes on")
    if counts.delayed:
        found.append(f"{number(counts.delayed, 'page')} to be tried again later")
    held = [lane for lane in lanes if lane.reason and lane.wait > 0]
    found += [f"{lane.name}, held for {span(lane.wait)} more: {lane.reason}" for lane in held[:3]]
    if len(held) > 3:
        found.append(f"{number(len(held) - 3, 'more lane')} that are held (--lanes)")
    soonest = min((lane.wait for lane in lanes if lane.pending), default=0.0)
    if soonest > 1 and not held and standing.state == State.RUNNING:
        found.append(f"the next lane to be due, in {span(soonest)}")
    return found


def _show_workers(standing: Standing, screen: Screen) -> None:
    now = time.time()
    rows, living = [], standing.living
    gone = len(standing.workers) - len(living)
    by_age = sorted(standing.workers.items(), key=lambda pair: (pair[0] not in living, pair[1][0]))
    works = "paused" if standing.state == State.PAUSED else "working"
    for name, (age, report) in by_age[: len(living) + _TOP_GONE]:
        worked = now - age - report.started
        rows.append(
            (
                name, works if name in living else "gone", ago(age), str(report.pid),
                str(report.in_flight), str(report.held), f"{report.pages:,}",
                f"{report.pages / worked:,.1f}/s" if worked > 0 else "",
            )
        )  # fmt: skip
    numbers = ("pid", "in flight", "held", "pages", "on average")
    screen.table(("worker", "is", "reported", *numbers), rows, numbers)
    if gone > _TOP_GONE:
        screen.line(f"and {gone - _TOP_GONE:,} more that are gone", "dim")


def _show_lanes(lanes: Sequence[LaneState], screen: Screen) -> None:
    screen.table(
        ("lane", "pending", "out", "so far", "pace", "due", "held because"),
        [
            (
                lane.name, f"{lane.pending:,}", f"{lane.active:,}", f"{lane.total:,}", pace_of(lane), ago(-lane.wait),
                lane.reason if lane.wait > 0 else "",
            )
            for lane in lanes
        ],
        numbers=("pending", "out", "so far"),
    )  # fmt: skip


def pace_of(lane: LaneState) -> str:
    """``every 0.5 s``, ``4 at once``, ``every 2 s (set by the operator)`` …"""
    parts = [f"every {span(lane.pace.delay)}"] if lane.pace.delay else []
    if lane.pace.limit > 1 or (lane.pace.limit and not parts):
        parts.append(f"{lane.pace.limit} at once")
    return (", ".join(parts) or "any") + (" (set by the operator)" if lane.pinned else "")


def _as_dict(standing: Standing) -> dict[str, Any]:
    workers = {name: {"age": age, **msgspec.structs.asdict(report)} for name, (age, report) in standing.workers.items()}
    return {
        "crawl": standing.name,
        "state": standing.state,
        "reason": standing.reason,
        "supervised": standing.supervised,
        "alive": standing.alive,
        "active": standing.active,
        "file": standing.facts.get("file", ""),
        "counts": msgspec.structs.asdict(standing.counts),
        "feed": standing.feed,
        "workers": workers,
    }


def _lane(lane: LaneState) -> dict[str, Any]:
    return {**msgspec.structs.asdict(lane), "pace": {"delay": lane.pace.delay, "limit": lane.pace.limit}}

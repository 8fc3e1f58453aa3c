"""What ``weft top`` shows: the crawl, its workers and its busiest lanes.

Rates are those of the last seconds, from what changed between two looks; at the first look there is only the average
of each worker's life.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from weft.cli.crawls import Standing, standing_of
from weft.cli.status_view import pace_of
from weft.cli.tables import Screen, drawn
from weft.cli.words import ago, size, span
from weft.engine.stats import Report
from weft.frontier.base import LaneState
from weft.frontier.depot import Depot, Store

_LANES = 10
_LOOK_SECONDS = 1.0
# Rates are taken over so many looks.
_LOOKS = 6

_WORKERS = ("worker", "pages/s", "pages", "in flight", "held", "reported")
_LANE_HEAD = ("lane", "pending", "out", "so far", "pace", "waits for")
_NUMBERS = ("pages/s", "pages", "in flight", "held", "pending", "out", "so far")


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that reported lately."""

    name: str
    rate: float
    pages: int
    in_flight: int
    held: int
    age: float


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl at one moment."""

    standing: Standing
    rate: float
    workers: list[WorkerRow]
    gone: int
    lanes: list[LaneState]


class Watch:
    """Looks at a crawl again and again."""

    def __init__(self, depot: Depot, name: str, store: Store) -> None:
        self._depot = depot
        self._name = name
        self._store = store
        # When, pages done, and of each worker when it reported and its pages.
        self._past: deque[tuple[float, int, dict[str, tuple[float, int]]]] = deque(maxlen=_LOOKS)

    async def look(self) -> Look:
        standing = await standing_of(self._depot, self._name, self._store)
        lanes = await self._store.inspector.lanes(_LANES)
        now = time.monotonic()
        reported = {name: (now - age, report.pages) for name, (age, report) in standing.workers.items()}
        self._past.append((now, standing.counts.done, reported))
        living = sorted(standing.living.items())
        workers = [
            WorkerRow(
                name=name, rate=self._rate_of(name, age, report), pages=report.pages, in_flight=report.in_flight,
                held=report.held, age=age,
            )
            for name, (age, report) in living
        ]  # fmt: skip
        then, done, _ = self._past[0]
        rate = (standing.counts.done - done) / (now - then) if now > then else sum(each.rate for each in workers)
        gone = len(standing.workers) - len(living)
        return Look(standing=standing, rate=rate, workers=workers, gone=gone, lanes=lanes)

    def _rate_of(self, name: str, age: float, report: Report) -> float:
        at, pages = self._past[-1][2][name]
        for _, _, reported in self._past:
            if name in reported and at - reported[name][0] > _LOOK_SECONDS / 2:
                return max(0.0, (pages - reported[name][1]) / (at - reported[name][0]))
        worked = time.time() - age - report.started
        return pages / worked if worked > 0 else 0.0


def waits_for(lane: LaneState) -> str:
    """What keeps the next page of a lane."""
    if lane.reason and lane.wait > 0:
        return f"{lane.reason}, {span(lane.wait)} more"
    if lane.pace.limit and lane.active >= lane.pace.limit:
        return "the page that is out" if lane.active == 1 else f"the {lane.active} pages that are out"
    if lane.wait > 0:
        return f"its delay, {span(lane.wait)} more"
    return "a worker" if lane.pending else ""


def show(look: Look) -> None:
    """Once, for a file or a pipe."""
    screen = Screen()
    screen.marked(look.standing.state, f"  {look.standing.name}{look.standing.how}")
    screen.pairs(_summary(look))
    if look.workers:
        screen.line()
        screen.table(_WORKERS, _worker_rows(look), _NUMBERS)
    if look.lanes:
        screen.line()
        screen.table(_LANE_HEAD, _lane_rows(look), _NUMBERS)


def _summary(look: Look) -> list[tuple[str, str]]:
    counts = look.standing.counts
    to_do = f"{counts.pending:,} pending, {counts.leased:,} leased, {counts.delayed:,} delayed"
    if look.standing.feed:
        to_do += f", {look.standing.feed:,} in the feed"
    workers = f"{len(look.workers):,} at work" + (f", {look.gone:,} gone" if look.gone else "")
    return [
        ("pages", f"{counts.done:,} done, {counts.dead:,} dead, {look.rate:,.1f}/s"),
        ("items", f"{counts.items:,}"),
        ("received", size(counts.bytes)),
        ("to do", to_do),
        ("workers", workers),
    ]


def _worker_rows(look: Look) -> list[tuple[str, ...]]:
    return [
        (each.name, f"{each.rate:,.1f}", f"{each.pages:,}", str(each.in_flight), str(each.held), ago(each.age))
        for each in look.workers
    ]


def _lane_rows(look: Look) -> list[tuple[str, ...]]:
    return [
        (
            lane.name, f"{lane.pending:,}", f"{lane.active:,}", f"{lane.total:,}", pace_of(lane), waits_for(lane),
        )
        for lane in look.lanes
    ]  # fmt: skip


def as_dict(look: Look) -> dict[str, Any]:
    standing = look.standing
    return {
        "crawl": standing.name,
        "state": standing.state,
        "reason": standing.reason,
        "counts": msgspec.structs.asdict(standing.counts),
        "feed": standing.feed,
        "rate": look.rate,
        "workers": {each.name: _without(msgspec.structs.asdict(each), "name") for each in look.workers},
        "gone": look.gone,
        "lanes": [
            {**msgspec.structs.asdict(lane), "pace": msgspec.structs.asdict(lane.pace), "waits_for": waits_for(lane)}
            for lane in look.lanes
        ],
    }


def _without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


async def live(watch: Watch) -> None:
    """On a terminal, once a second, until someone presses q or Ctrl-C."""
    ended = asyncio.Event()
    with _keys(ended), Live(console=Console(highlight=False), auto_refresh=False, screen=True) as screen:
        while not ended.is_set():
            screen.update(_drawn(await watch.look()), refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), _LOOK_SECONDS)


def _drawn(look: Look) -> Group:
    standing = look.standing
    title = Text.assemble((standing.name, "bold"), f"  {standing.state}{standing.how}", ("   q ends", "dim"))
    pairs = [Text.assemble((name.ljust(10), "dim"), value) for name, value in _summary(look)]
    workers = drawn(_WORKERS, _worker_rows(look), _NUMBERS)
    lanes = drawn(_LANE_HEAD, _lane_rows(look), _NUMBERS)
    return Group(title, *pairs, Text(), workers, Text(), lanes)


@contextlib.contextmanager
def _keys(ended: asyncio.Event) -> Iterator[None]:
    """Hear q without Enter, if there is a keyboard."""
    if not sys.stdin.isatty():
        yield
        return
    keyboard = sys.stdin.fileno()

    def pressed() -> None:
        if os.read(keyboard, 64).lower()[:1] in (b"q", b""):
            ended.set()

    former = termios.tcgetattr(keyboard)
    loop = asyncio.get_running_loop()
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, pressed)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, former)

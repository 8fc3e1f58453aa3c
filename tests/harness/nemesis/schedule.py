"""A seed becomes a plan: which site is crawled, by how many, and what befalls them. Pure.

Events are timed by the crawl's own progress, not by the clock: ``at`` is the share of the pages that are done. So
they fall into the same stretch of the crawl on a slow machine and on a fast one, and never after its end.
"""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Final

import msgspec

from uttu.testing.site import Site

# What a page's turn takes beside its delay, roughly: it decides how many pages make a crawl of some length.
_TURN_SECONDS: Final = 0.015
_EARLIEST, _LATEST = 0.05, 0.8
MOST_WORKERS: Final = 4


class Kind(StrEnum):
    """What can happen. ``seconds`` is how long it lasts, where it lasts."""

    KILL = "kill"
    """kill -9 of a worker; another joins."""
    KILL_CRAWL = "kill crawl"
    """kill -9 of ``uttu crawl``; the same command is run again."""
    FREEZE = "freeze"
    """SIGSTOP of any process until its leases are lost, and for ``seconds`` at least; then SIGCONT."""
    RESTART = "restart"
    """kill -9 of the server, which is away for ``seconds``."""
    CUT = "cut"
    """All connections to the server are cut."""
    FLUSH = "flush"
    """The server forgets all scripts and functions."""
    PAUSE = "pause"
    """``uttu pause``, and ``uttu resume`` when nothing is in flight and ``seconds`` have passed."""
    JOIN = "join"
    """One more worker."""
    LEAVE = "leave"
    """SIGTERM to a worker."""


_CHANCES: Final = {
    Kind.KILL: 5,
    Kind.KILL_CRAWL: 3,
    Kind.FREEZE: 5,
    Kind.RESTART: 4,
    Kind.CUT: 3,
    Kind.FLUSH: 2,
    Kind.PAUSE: 2,
    Kind.JOIN: 2,
    Kind.LEAVE: 2,
}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """``pick``, from 0 up to 1, chooses among the processes that are there by then."""

    kind: Kind
    at: float
    pick: float = 0.0
    seconds: float = 0.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run: ``workers`` take part beside ``uttu crawl`` itself."""

    seed: int
    site: Site
    delay: float
    robots: bool
    lease_seconds: float
    workers: int
    events: tuple[Event, ...]


def draw(seed: int, seconds: float = 18.0) -> Plan:
    """The plan of a seed, for a crawl that would take about so long if it were left alone."""
    dice = random.Random(seed)
    hosts, delay = dice.randint(6, 12), round(dice.uniform(0.03, 0.06), 3)
    latency = dice.choice((0.0, 0.02, 0.05))
    pages = hosts * int(seconds * dice.uniform(0.8, 1.2) / (delay + latency + _TURN_SECONDS))
    site = Site(seed=seed, hosts=hosts, pages=pages, links=12, page_bytes=1500, latency=latency)
    lease_seconds, workers = round(dice.uniform(2.0, 4.0), 1), dice.randint(2, 3)
    return Plan(
        seed=seed,
        site=site,
        delay=delay,
        robots=dice.random() < 0.5,
        lease_seconds=lease_seconds,
        workers=workers,
        events=_events(dice, lease_seconds, workers),
    )


def _events(dice: random.Random, lease_seconds: float, workers: int) -> tuple[Event, ...]:
    moments = sorted(round(dice.uniform(_EARLIEST, _LATEST), 3) for _ in range(dice.randint(5, 8)))
    found = []
    for at in moments:
        chances = {kind: chance for kind, chance in _CHANCES.items() if _fits(kind, workers)}
        (kind,) = dice.choices(list(chances), list(chances.values()))
        workers += {Kind.JOIN: 1, Kind.LEAVE: -1}.get(kind, 0)
        found.append(
            Event(
                kind=kind, at=at, pick=dice.randrange(1000) / 1000, seconds=_lasting(kind, dice.random(), lease_seconds)
            )
        )
    return tuple(found)


def _fits(kind: Kind, workers: int) -> bool:
    """A worker stays, so that the crawl goes on while ``uttu crawl`` is away; and the machine is small."""
    match kind:
        case Kind.LEAVE:
            return workers > 1
        case Kind.JOIN:
            return workers < MOST_WORKERS
    return True


def _lasting(kind: Kind, roll: float, lease_seconds: float) -> float:
    match kind:
        case Kind.FREEZE:
            return round(lease_seconds * (1.2 + roll), 1)
        case Kind.RESTART:
            return round(3.0 * roll, 1)
        case Kind.PAUSE:
            return round(0.5 + roll, 1)
    return 0.0

"""The crawls of a depot: which one is meant, and how it stands.

The ledger says how a crawl *was* when a process last wrote to it. Whether it still runs say its supervisor,
who can't be dead without the depot knowing, and, where workers may be anywhere, their own reports.
"""

from __future__ import annotations

import contextlib
import difflib
import shlex
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from weft import assembly, config, launch
from weft.drivers.urls import masked
from weft.engine.states import State
from weft.engine.stats import Report
from weft.errors import StoreError
from weft.frontier.base import Rules
from weft.frontier.depot import Depot, Store
from weft.model import Counts
from weft.plan import withheld_by
from weft.spider import Spider

CUT_SHORT = "cut short"
UNREADABLE = "unreadable"
# A worker that has not reported for so long is not counted as working.
FRESH_SECONDS = 5.0


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a crawl stands. ``state`` is one of :class:`State`, ``cut short`` or ``unreadable``."""

    name: str
    state: str
    reason: str = ""
    supervised: bool = False
    alive: bool = False
    """Whether someone works on it, or would: a supervisor, or workers of a fleet."""
    counts: Counts = Counts()
    facts: dict[str, str] = {}
    workers: dict[str, tuple[float, Report]] = {}
    """The last report of each worker, and its age in seconds."""
    feed: int = 0
    """How many entries wait to be taken in."""
    active: float = 0.0
    """When it was last worked on."""
    frontier: str = ""
    """What ``--frontier`` has to be, without its password; empty if it need not be given."""

    @property
    def how(self) -> str:
        """The reason behind the state, in brackets, if there is something to say."""
        return f" ({self.reason})" if self.reason else ""

    @property
    def living(self) -> dict[str, tuple[float, Report]]:
        """The workers that are at work, and their reports."""
        return {name: each for name, each in self.workers.items() if self.alive and each[0] < FRESH_SECONDS}

    def command(self) -> str:
        """What was typed to start it, as far as it is known."""
        return shlex.join(crawl_command(self.name, self.facts, self.frontier))

    def words(self, *words: str) -> str:
        """Another command about it, with what else has to be said."""
        return _joined(words, self.frontier)


@contextlib.asynccontextmanager
async def depot_at(frontier: str) -> AsyncIterator[Depot]:
    """The depot at a URL; the one of the settings without it.

    :raises ConfigError: there is nothing of that kind.
    :raises StoreError: it can't be reached.
    """
    async with connected(frontier or config.load_frontier()) as depot:
        yield depot


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Depot]:
    """The depot at exactly this URL."""
    depot = await assembly.open_depot(url, launch.FOLDER)
    try:
        yield depot
    finally:
        await depot.close()


@contextlib.asynccontextmanager
async def opened(depot: Depot, name: str) -> AsyncIterator[Store]:
    """The store of a crawl, to look at.

    :raises StoreError: it can't be opened.
    """
    store = await depot.open(name, Rules())
    try:
        yield store
    finally:
        await store.frontier.close()


async def standing_of(depot: Depot, name: str, store: Store) -> Standing:
    """How the crawl of an open store stands."""
    supervised = await depot.is_supervised(name)
    facts, counts, reports = await store.ledger.facts(), await store.frontier.counts(), await store.ledger.reports()
    workers = {worker: (age, msgspec.json.decode(report, type=Report)) for worker, (age, report) in reports.items()}
    youngest = min((age for age, _ in workers.values()), default=None)
    alive = supervised or (depot.shared and youngest is not None and youngest < FRESH_SECONDS)
    state = facts.get("state", State.RUNNING)
    if state in (State.RUNNING, State.STOPPING) and not alive:
        state = CUT_SHORT
    return Standing(
        name=name,
        state=state,
        reason=facts.get("reason", "") if state != CUT_SHORT else "",
        supervised=supervised,
        alive=alive,
        counts=counts,
        facts=facts,
        workers=workers,
        feed=await store.feed.length() if store.feed else 0,
        active=float(facts.get("began", 0)) if youngest is None else time.time() - youngest,
        frontier=frontier_of(depot),
    )


async def survey(depot: Depot) -> list[Standing]:
    """All crawls, the one last worked on first. One that can't be read is listed as such."""
    found = []
    for name in await depot.names():
        try:
            async with opened(depot, name) as store:
                found.append(await standing_of(depot, name, store))
        except StoreError as error:
            found.append(Standing(name=name, state=UNREADABLE, reason=str(error)))
    return sorted(found, key=lambda each: -each.active)


async def choose(depot: Depot, name: str = "") -> tuple[str, str]:
    """The crawl of this name, or of this spider file, or the latest; and a remark where it was a choice.

    :raises StoreError: there is none.
    """
    return (name, "") if name and name in await depot.names() else _pick(depot, await survey(depot), name)


def _pick(depot: Depot, found: list[Standing], name: str) -> tuple[str, str]:
    found = [each for each in found if each.state != UNREADABLE]
    where = place_of(depot)
    if not found:
        none = "none was started in this folder" if where == "here" else "none was started there"
        raise StoreError(f"there is no crawl {where}: {none}. Start one with: {command_at(depot, 'crawl', 'FILE')}")
    if not name:
        remark = f"of {found[0].name}, the latest of {len(found)} crawls {where}" if len(found) > 1 else ""
        return found[0].name, remark
    for each in found:
        if _is_of(depot, each, Path(name)):
            return each.name, f"of {each.name}"
    names = [each.name for each in found]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[:5]
    raise StoreError(f"there is no crawl {name!r} {where}; there is: {', '.join(near)} (weft status lists all)")


def _is_of(depot: Depot, standing: Standing, file: Path) -> bool:
    known = Path(standing.facts.get("file", ""))
    # On another machine of a fleet the file is elsewhere.
    return known == file.resolve() or (depot.shared and file.suffix == ".py" and known.name == file.name)


def place_of(depot: Depot) -> str:
    """Where its crawls are, in words."""
    return f"at {depot.address}" if depot.address else "here"


def frontier_of(depot: Depot) -> str:
    """What ``--frontier`` has to be for this depot; empty if the settings say so already."""
    return depot.address if depot.address != masked(config.load_frontier()) else ""


def command_at(depot: Depot, *words: str) -> str:
    """A command about crawls of the depot, as it is typed."""
    return _joined(words, frontier_of(depot))


def _joined(words: Sequence[str], frontier: str) -> str:
    return shlex.join(["weft", *words, *_frontier_words(frontier)])


def _frontier_words(frontier: str) -> list[str]:
    return ["--frontier", frontier] if frontier else []


def crawl_command(name: str, facts: dict[str, str], frontier: str = "") -> list[str]:
    """The words of the command that goes on with a crawl."""
    file = Path(facts.get("file", "FILE"))
    with contextlib.suppress(ValueError):
        file = file.relative_to(Path.cwd())
    arguments = msgspec.json.decode(facts.get("arguments", "{}"), type=dict[str, str])
    words = ["weft", "crawl", str(file)]
    for key, value in arguments.items():
        words += ["-a", f"{key}={value}"]
    for key, value in msgspec.json.decode(facts.get("flags", "{}")).items():
        words += ["-s", f"{key}={value}"]
    for key, by_flag in withheld_by(facts).items():
        words += ["-s", f"{key}=***"] if by_flag else []
    for output in msgspec.json.decode(facts.get("outputs", "[]"), type=list[str]):
        words += ["-o", output]
    words += _frontier_words(frontier)
    spider = facts.get("spider", name)
    if name != launch.crawl_id(Spider(spider), arguments):
        words += ["--crawl", name]
    return words

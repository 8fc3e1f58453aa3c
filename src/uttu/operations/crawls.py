"""List the crawls of a frontier, find the one that the user named, read its status, and watch it run.

The ledger holds the state that a process wrote last. Whether the crawl still runs is known from its supervisor, whose
lock the frontier releases when it dies, and, on a shared frontier, from the age of its workers' reports.

:class:`CrawlMonitor` takes snapshots. Rates are computed from the difference to a snapshot some seconds ago; the first
snapshot only has the average over each worker's life.
"""

from __future__ import annotations

import contextlib
import difflib
import shlex
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from uttu import settings
from uttu.clients.addresses import mask_password
from uttu.errors import StoreError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlCatalog, CrawlStore
from uttu.model import Counts
from uttu.model.crawl import CrawlState, WorkerReport
from uttu.model.lease import LaneState
from uttu.runtime.registry import open_frontier
from uttu.runtime.spec import derive_crawl_name, read_withheld
from uttu.settings import DATA_FOLDER
from uttu.spider import Spider

CUT_SHORT = "cut short"
UNREADABLE = "unreadable"
# A worker whose last report is older than this does not count as working.
WORKER_TIMEOUT_SECONDS = 5.0


class CrawlStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a crawl. ``state`` is a value of :class:`CrawlState`, ``CUT_SHORT`` or ``UNREADABLE``."""

    name: str
    state: str
    reason: str = ""
    supervised: bool = False
    alive: bool = False
    """Whether a supervisor runs it or, on a shared frontier, workers report."""
    counts: Counts = Counts()
    facts: dict[str, str] = {}
    workers: dict[str, tuple[float, WorkerReport]] = {}
    """The last report of each worker, and its age in seconds."""
    feed: int = 0
    """How many pushed entries are waiting in the feed."""
    active: float = 0.0
    """When a worker last reported, or else when the crawl began (Unix time)."""
    frontier: str = ""
    """The value of ``--frontier`` for commands about it, without its password; empty if it is not needed."""

    @property
    def how(self) -> str:
        """The reason in brackets, to append to the state; empty without a reason."""
        return f" ({self.reason})" if self.reason else ""

    @property
    def living(self) -> dict[str, tuple[float, WorkerReport]]:
        """The workers whose reports are recent, and their reports."""
        return {name: each for name, each in self.workers.items() if self.alive and each[0] < WORKER_TIMEOUT_SECONDS}

    def command(self) -> str:
        """The command that started it, as far as the ledger has it."""
        return shlex.join(build_crawl_command(self.name, self.facts, self.frontier))

    def words(self, *words: str) -> str:
        """Another ``uttu`` command about it, with ``--frontier`` if that is needed."""
        return _join_words(words, self.frontier)


@contextlib.asynccontextmanager
async def connect_configured_frontier(frontier: str) -> AsyncIterator[CrawlCatalog]:
    """Open the catalog at a URL, or the one in the settings if it is empty.

    :raises ConfigError: the address is invalid.
    :raises StoreError: the store can't be reached.
    """
    async with connect_frontier(frontier or settings.load_frontier()) as catalog:
        yield catalog


@contextlib.asynccontextmanager
async def connect_frontier(url: str) -> AsyncIterator[CrawlCatalog]:
    """Open the catalog at exactly this URL; empty for the default folder."""
    catalog = await open_frontier(url, DATA_FOLDER)
    try:
        yield catalog
    finally:
        await catalog.close()


@contextlib.asynccontextmanager
async def open_store(catalog: CrawlCatalog, name: str) -> AsyncIterator[CrawlStore]:
    """Open the store of a crawl with default rules, to read it.

    :raises StoreError: it can't be opened.
    """
    store = await catalog.open(name, Rules())
    try:
        yield store
    finally:
        await store.frontier.close()


async def read_status(catalog: CrawlCatalog, name: str, store: CrawlStore) -> CrawlStatus:
    """Read the status of a crawl from its open store."""
    supervised = await catalog.is_supervised(name)
    facts, counts, reports = await store.ledger.facts(), await store.frontier.counts(), await store.ledger.reports()
    workers = {
        worker: (age, msgspec.json.decode(report, type=WorkerReport)) for worker, (age, report) in reports.items()
    }
    youngest = min((age for age, _ in workers.values()), default=None)
    alive = supervised or (catalog.shared and youngest is not None and youngest < WORKER_TIMEOUT_SECONDS)
    state = facts.get("state", CrawlState.RUNNING)
    if state in (CrawlState.RUNNING, CrawlState.STOPPING) and not alive:
        state = CUT_SHORT
    return CrawlStatus(
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
        frontier=frontier_option(catalog),
    )


async def list_crawls(catalog: CrawlCatalog) -> list[CrawlStatus]:
    """All crawls, the most recently active first. One that can't be read has the state ``UNREADABLE``."""
    found = []
    for name in await catalog.names():
        try:
            async with open_store(catalog, name) as store:
                found.append(await read_status(catalog, name, store))
        except StoreError as error:
            found.append(CrawlStatus(name=name, state=UNREADABLE, reason=str(error)))
    return sorted(found, key=lambda each: -each.active)


async def find_crawl(catalog: CrawlCatalog, name: str = "") -> tuple[str, str]:
    """The name of the crawl with this name, of this spider file, or the latest one; and a remark if it was a choice.

    :raises StoreError: such a crawl does not exist.
    """
    return (name, "") if name and name in await catalog.names() else _pick(catalog, await list_crawls(catalog), name)


def _pick(catalog: CrawlCatalog, found: list[CrawlStatus], name: str) -> tuple[str, str]:
    found = [each for each in found if each.state != UNREADABLE]
    where = describe_frontier(catalog)
    if not found:
        none = "none was started in this folder" if where == "here" else "none was started there"
        raise StoreError(
            f"there is no crawl {where}: {none}. Start one with: {format_command(catalog, 'crawl', 'FILE')}"
        )
    if not name:
        remark = f"of {found[0].name}, the latest of {len(found)} crawls {where}" if len(found) > 1 else ""
        return found[0].name, remark
    for each in found:
        if _is_crawl_of(catalog, each, Path(name)):
            return each.name, f"of {each.name}"
    names = [each.name for each in found]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[:5]
    raise StoreError(f"there is no crawl {name!r} {where}; there is: {', '.join(near)} (uttu status lists all)")


def _is_crawl_of(catalog: CrawlCatalog, standing: CrawlStatus, file: Path) -> bool:
    known = Path(standing.facts.get("file", ""))
    # On another machine the file may have another path, so the name is enough on a shared frontier.
    return known == file.resolve() or (catalog.shared and file.suffix == ".py" and known.name == file.name)


def describe_frontier(catalog: CrawlCatalog) -> str:
    """Describe the place of the catalog in a message."""
    return f"at {catalog.address}" if catalog.address else "here"


def frontier_option(catalog: CrawlCatalog) -> str:
    """The value of ``--frontier`` for this catalog; empty if the settings name the same."""
    return catalog.address if catalog.address != mask_password(settings.load_frontier()) else ""


def format_command(catalog: CrawlCatalog, *words: str) -> str:
    """Format an ``uttu`` command about crawls of this catalog, as the user would type it."""
    return _join_words(words, frontier_option(catalog))


def _join_words(words: Sequence[str], frontier: str) -> str:
    return shlex.join(["uttu", *words, *_frontier_words(frontier)])


def _frontier_words(frontier: str) -> list[str]:
    return ["--frontier", frontier] if frontier else []


def build_crawl_command(name: str, facts: dict[str, str], frontier: str = "") -> list[str]:
    """The words of the command that continues a crawl."""
    file = Path(facts.get("file", "FILE"))
    with contextlib.suppress(ValueError):
        file = file.relative_to(Path.cwd())
    arguments = msgspec.json.decode(facts.get("arguments", "{}"), type=dict[str, str])
    words = ["uttu", "crawl", str(file)]
    for key, value in arguments.items():
        words += ["-a", f"{key}={value}"]
    for key, value in msgspec.json.decode(facts.get("flags", "{}")).items():
        words += ["-s", f"{key}={value}"]
    for key, by_flag in read_withheld(facts).items():
        words += ["-s", f"{key}=***"] if by_flag else []
    for output in msgspec.json.decode(facts.get("outputs", "[]"), type=list[str]):
        words += ["-o", output]
    words += _frontier_words(frontier)
    spider = facts.get("spider", name)
    if name != derive_crawl_name(Spider(spider), arguments):
        words += ["--crawl", name]
    return words


async def has_fetched_nothing(store: CrawlStore) -> bool:
    """Whether pages are dead and no page reached a handler; redirects that led to a dead page don't count."""
    counts = await store.frontier.counts()
    if not counts.dead or not counts.done:
        return counts.dead > 0
    # A worker that was killed may not have reported its last pages, but their items are there.
    reports = [msgspec.json.decode(report, type=WorkerReport) for _, report in (await store.ledger.reports()).values()]
    return not counts.items and bool(reports) and not any(report.pages for report in reports)


_TOP_LANES = 10


SNAPSHOT_SECONDS = 1.0


# The number of snapshots over which rates are computed.
_RATE_SNAPSHOTS = 6


class WorkerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A worker with a recent report."""

    name: str
    rate: float
    pages: int
    in_flight: int
    held: int
    age: float


class CrawlSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl at one moment."""

    standing: CrawlStatus
    rate: float
    workers: list[WorkerSnapshot]
    gone: int
    lanes: list[LaneState]


class CrawlMonitor:
    """Takes snapshots of a crawl and computes rates from them."""

    def __init__(self, catalog: CrawlCatalog, name: str, store: CrawlStore) -> None:
        self._catalog = catalog
        self._name = name
        self._store = store
        # For each snapshot: its time, the pages done, and by worker the time of its report and its pages.
        self._past: deque[tuple[float, int, dict[str, tuple[float, int]]]] = deque(maxlen=_RATE_SNAPSHOTS)

    async def look(self) -> CrawlSnapshot:
        standing = await read_status(self._catalog, self._name, self._store)
        lanes = await self._store.inspector.lanes(_TOP_LANES)
        now = time.monotonic()
        reported = {name: (now - age, report.pages) for name, (age, report) in standing.workers.items()}
        self._past.append((now, standing.counts.done, reported))
        living = sorted(standing.living.items())
        workers = [
            WorkerSnapshot(
                name=name,
                rate=self._rate_of(name, age, report),
                pages=report.pages,
                in_flight=report.in_flight,
                held=report.held,
                age=age,
            )
            for name, (age, report) in living
        ]
        then, done, _ = self._past[0]
        rate = (standing.counts.done - done) / (now - then) if now > then else sum(each.rate for each in workers)
        gone = len(standing.workers) - len(living)
        return CrawlSnapshot(standing=standing, rate=rate, workers=workers, gone=gone, lanes=lanes)

    def _rate_of(self, name: str, age: float, report: WorkerReport) -> float:
        at, pages = self._past[-1][2][name]
        for _, _, reported in self._past:
            if name in reported and at - reported[name][0] > SNAPSHOT_SECONDS / 2:
                return max(0.0, (pages - reported[name][1]) / (at - reported[name][0]))
        worked = time.time() - age - report.started
        return pages / worked if worked > 0 else 0.0

"""List the crawls of a frontier, find the one that the user named, and read its status, lanes and dead letters.

The ledger holds the state that a process wrote last. Whether the crawl still runs is known from its supervisor, whose
lock the frontier releases when it dies, and, on a shared frontier, from the age of its workers' reports.

Operations take the name of a crawl and the URL of a frontier, both as the user gave them, and open what they need.
``folder`` is the project's folder, whose ``uttu.toml`` and ``.uttu`` count; relative paths start there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from uttu import settings
from uttu.clients.addresses import mask_password
from uttu.errors import StoreError, UsageError, UttuError
from uttu.frontier.catalog import CrawlCatalog, CrawlStore, KeySizes
from uttu.frontier.catalog import KeySize as KeySize
from uttu.model import Counts
from uttu.model.crawl import NO_REASON, CrawlState, Reason, SettingValue, WorkerReport
from uttu.model.facts import CrawlFacts
from uttu.model.history import EventKind
from uttu.model.inspection import DeadGroup, DeadQuery, LaneFilter, LanePage, LaneQuery, count_kinds
from uttu.model.lease import DeadLetter, LaneState
from uttu.operations import Report
from uttu.operations.connections import connect_configured_frontier as connect_configured_frontier
from uttu.operations.connections import connect_frontier as connect_frontier
from uttu.operations.connections import kept_connections as kept_connections
from uttu.operations.connections import open_store as open_store
from uttu.runtime.spec import derive_crawl_name
from uttu.spider import Spider

# A worker whose last report is older than this does not count as working.
WORKER_TIMEOUT_SECONDS = 5.0
# Crawls of a list that are read at the same time.
_AT_ONCE = 8


class BrokenState(StrEnum):
    """A state that no process writes to the ledger, but that an observer finds."""

    CUT_SHORT = "cut short"
    """The ledger says that the crawl runs, but no process is alive."""
    UNREADABLE = "unreadable"
    """The store can't be read; the reason says why."""


class CrawlStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a crawl."""

    name: str
    state: CrawlState | BrokenState
    reason: Reason = NO_REASON
    supervised: bool = False
    alive: bool = False
    """Whether a supervisor runs it or, on a shared frontier, workers report."""
    counts: Counts = Counts()
    facts: CrawlFacts = CrawlFacts()
    workers: dict[str, tuple[float, WorkerReport]] = {}
    """The last report of each worker, and its age in seconds."""
    gone: tuple[str, ...] = ()
    """Workers of this machine whose process does not exist any more, also if their last report is recent."""
    feed: int = 0
    """How many pushed entries are waiting in the feed."""
    active: float = 0.0
    """When a worker last reported, or else when the crawl began (Unix time)."""
    frontier: str = ""
    """The value of ``--frontier`` for commands about it, without its password; empty if it is not needed."""
    folder: str = "."
    """The project's folder, in which commands about it are typed."""

    @property
    def how(self) -> str:
        """The reason in brackets, to append to the state; empty without a reason."""
        return f" ({self.reason})" if self.reason else ""

    @property
    def living(self) -> dict[str, tuple[float, WorkerReport]]:
        """The workers whose reports are recent and that are not known to be gone, and their reports."""
        if not self.alive:
            return {}
        return {
            name: each
            for name, each in self.workers.items()
            if each[0] < WORKER_TIMEOUT_SECONDS and name not in self.gone
        }

    def command(self) -> str:
        """The command that started it, as far as the ledger has it."""
        return shlex.join(build_crawl_command(self.name, self.facts, self.frontier, Path(self.folder)))

    def words(self, *words: str) -> str:
        """Another ``uttu`` command about it, with ``--frontier`` if that is needed."""
        return _join_words(words, self.frontier)


class CrawlHandle(msgspec.Struct, frozen=True):
    """An open crawl, and the project's folder that its commands refer to."""

    catalog: CrawlCatalog
    name: str
    store: CrawlStore
    folder: Path = Path()

    async def status(self) -> CrawlStatus:
        return await read_status(self.catalog, self.name, self.store, self.folder)


@contextlib.asynccontextmanager
async def select_crawl(crawl: str, frontier: str, report: Report, folder: Path = Path()) -> AsyncIterator[CrawlHandle]:
    """Open the crawl that is meant, to read it; see :func:`find_crawl`. A choice is reported.

    :raises ConfigError: the frontier's address is invalid.
    :raises StoreError: the store can't be reached, or has no such crawl.
    """
    async with connect_configured_frontier(frontier, folder) as catalog:
        name, remark = await find_crawl(catalog, crawl, folder)
        if remark:
            report(remark)
        async with open_store(catalog, name) as store:
            yield CrawlHandle(catalog, name, store, folder)


def _has_ended(report: WorkerReport) -> bool:
    """Whether a worker ran on this machine, and its process does not exist any more."""
    if not report.pid or report.host != socket.gethostname():
        return False
    try:
        os.kill(report.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


async def read_status(catalog: CrawlCatalog, name: str, store: CrawlStore, folder: Path = Path()) -> CrawlStatus:
    """Read the status of a crawl from its open store."""
    supervised = await catalog.is_supervised(name)
    facts, counts, reports = await store.ledger.facts(), await store.frontier.counts(), await store.ledger.reports()
    workers = {
        worker: (age, msgspec.json.decode(report, type=WorkerReport)) for worker, (age, report) in reports.items()
    }
    recent = {name: report for name, (age, report) in workers.items() if age < WORKER_TIMEOUT_SECONDS}
    gone = tuple(name for name, report in recent.items() if _has_ended(report))
    youngest = min((age for age, _ in workers.values()), default=None)
    alive = supervised or (catalog.shared and len(recent) > len(gone))
    state = facts.state or CrawlState.RUNNING
    cut_short = state in (CrawlState.RUNNING, CrawlState.STOPPING) and not alive
    return CrawlStatus(
        name=name,
        state=BrokenState.CUT_SHORT if cut_short else state,
        reason=NO_REASON if cut_short else facts.reason,
        supervised=supervised,
        alive=alive,
        counts=counts,
        facts=facts,
        workers=workers,
        gone=gone,
        feed=await store.feed.length() if store.feed else 0,
        active=facts.began if youngest is None else time.time() - youngest,
        frontier=frontier_option(catalog, folder),
        folder=str(folder),
    )


async def read_running_status(catalog: CrawlCatalog, name: str, file: str) -> CrawlStatus:
    """The status of a crawl that a worker may join.

    :param file: The spider file, for the message.
    :raises UttuError: the crawl does not exist or is not running.
    """
    command = format_command(catalog, "crawl", file)
    if name not in await catalog.names():
        raise StoreError(f"There is no crawl {name!r} {describe_frontier(catalog)} to join. Start it with: {command}")
    async with open_store(catalog, name) as store:
        standing = await read_status(catalog, name, store)
    state = standing.facts.state
    if state not in (CrawlState.RUNNING, CrawlState.PAUSED):
        raise UttuError(f"Crawl {name!r} is not running ({state or 'never started'}). Start it with: {command}")
    return standing


async def list_crawls(
    catalog: CrawlCatalog, folder: Path = Path(), known: Mapping[str, CrawlStatus] = {}
) -> list[CrawlStatus]:
    """All crawls, the most recently active first. One that can't be read has the state ``BrokenState.UNREADABLE``.

    :param known: The status of crawls that need not be read again, by name.
    """
    turns = asyncio.Semaphore(_AT_ONCE)

    async def read(name: str) -> CrawlStatus:
        if name in known:
            return known[name]
        try:
            async with turns, open_store(catalog, name) as store:
                return await read_status(catalog, name, store, folder)
        except StoreError as error:
            return CrawlStatus(name=name, state=BrokenState.UNREADABLE, reason=Reason(str(error)))

    # On a busy server each answer takes some milliseconds, so crawls don't wait for one another.
    found = await asyncio.gather(*map(read, await catalog.names()))
    return sorted(found, key=lambda each: -each.active)


async def find_crawl(catalog: CrawlCatalog, name: str = "", folder: Path = Path()) -> tuple[str, str]:
    """The name of the crawl with this name, of this spider file, or the latest one; and a remark if it was a choice.

    :raises StoreError: such a crawl does not exist.
    """
    if name and name in await catalog.names():
        return name, ""
    return _pick(catalog, await list_crawls(catalog, folder), name, folder)


def _pick(catalog: CrawlCatalog, found: list[CrawlStatus], name: str, folder: Path) -> tuple[str, str]:
    found = [each for each in found if each.state is not BrokenState.UNREADABLE]
    where = describe_frontier(catalog)
    if not found:
        none = "none was started in this folder" if where == "here" else "none was started there"
        raise StoreError(
            f"There is no crawl {where}: {none}. Start one with: "
            f"{_join_words(('crawl', 'FILE'), frontier_option(catalog, folder))}"
        )
    if not name:
        remark = f"of {found[0].name}, the latest of {len(found)} crawls {where}" if len(found) > 1 else ""
        return found[0].name, remark
    for each in found:
        if _is_crawl_of(catalog, each, folder / name):
            return each.name, f"of {each.name}"
    names = [each.name for each in found]
    import difflib  # slow to import, and seldom needed

    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[:5]
    raise StoreError(f"There is no crawl {name!r} {where}, but there is: {', '.join(near)} (uttu status lists all)")


def _is_crawl_of(catalog: CrawlCatalog, standing: CrawlStatus, file: Path) -> bool:
    known = Path(standing.facts.file)
    # On another machine the file may have another path, so the name is enough on a shared frontier.
    return known == file.resolve() or (catalog.shared and file.suffix == ".py" and known.name == file.name)


def describe_frontier(catalog: CrawlCatalog) -> str:
    """Describe the place of the catalog in a message."""
    return f"at {catalog.address}" if catalog.address else "here"


def frontier_option(catalog: CrawlCatalog, folder: Path = Path()) -> str:
    """The value of ``--frontier`` for this catalog; empty if the settings name the same."""
    return catalog.address if catalog.address != mask_password(settings.load_frontier(folder=folder)) else ""


def format_command(catalog: CrawlCatalog, *words: str) -> str:
    """Format an ``uttu`` command about crawls of this catalog, as the user would type it."""
    return _join_words(words, frontier_option(catalog))


def _join_words(words: Sequence[str], frontier: str) -> str:
    return shlex.join(["uttu", *words, *_frontier_words(frontier)])


def _frontier_words(frontier: str) -> list[str]:
    return ["--frontier", frontier] if frontier else []


def build_crawl_command(name: str, facts: CrawlFacts, frontier: str = "", folder: Path = Path()) -> list[str]:
    """The words of the command that continues a crawl, to be typed in ``folder``."""
    file = Path(facts.file or "FILE")
    with contextlib.suppress(ValueError):
        file = file.relative_to(folder.absolute())
    words = ["uttu", "crawl", str(file)]
    for key, value in facts.arguments.items():
        words += ["-a", f"{key}={value}"]
    for key, value in facts.flags.items():
        words += ["-s", f"{key}={value}"]
    for key, by_flag in facts.withheld.items():
        words += ["-s", f"{key}=***"] if by_flag else []
    for output in facts.outputs:
        words += ["-o", output]
    words += _frontier_words(frontier)
    if name != derive_crawl_name(Spider(facts.spider or name), facts.arguments):
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


class CrawlList(msgspec.Struct, frozen=True):
    """All crawls of a frontier. ``address``: of the frontier, without its password; empty for the project's folder."""

    address: str
    crawls: list[CrawlStatus]


async def read_all(frontier: str, folder: Path = Path(), known: Mapping[str, CrawlStatus] = {}) -> CrawlList:
    """The status of all crawls of a frontier, the most recently active first.

    :param known: The status of crawls that need not be read again, by name.
    :raises StoreError: the store can't be reached.
    """
    async with connect_configured_frontier(frontier, folder) as catalog:
        return CrawlList(catalog.address, await list_crawls(catalog, folder, known))


class CrawlDetails(msgspec.Struct, frozen=True):
    """The status of a crawl, with its lanes and its dead letters by kind.

    ``lanes`` are those with the most pending pages, ``held`` those that are held. ``trimmed``: how many items were
    removed from the store after all outputs had them.
    """

    status: CrawlStatus
    dead_kinds: dict[str, int]
    lanes: LanePage
    held: LanePage
    trimmed: int


# Lanes in the details of a crawl: those with the most pending pages.
_TOP_LANES = 50
# Page size when all lanes or dead letters are asked for.
_PAGE = 1000


async def read_details(
    crawl: str, frontier: str, report: Report, folder: Path = Path(), lanes: bool = True
) -> CrawlDetails:
    """The status of one crawl in detail.

    :param lanes: Read the lanes, too. In a crawl of many hosts this takes longer than everything else.
    :raises StoreError: the store can't be reached, or has no such crawl.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        inspector = found.store.inspector
        no_lanes = LanePage([])
        return CrawlDetails(
            await found.status(),
            count_kinds(await inspector.dead_groups()),
            await inspector.lanes(LaneQuery(limit=_TOP_LANES)) if lanes else no_lanes,
            await inspector.lanes(LaneQuery(limit=_TOP_LANES, only=LaneFilter.HELD)) if lanes else no_lanes,
            (await found.store.outbox.trimmed()).count,
        )


async def read_lanes(crawl: str, frontier: str, query: LaneQuery, report: Report, folder: Path = Path()) -> LanePage:
    """A page of lanes of a crawl: those with the most pending pages first. A limit of 0 means all.

    :raises StoreError: the store can't be reached, or has no such crawl.
    :raises ValueError: ``query.after`` is not the ``next`` of a page.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        if query.limit:
            return await found.store.inspector.lanes(query)
        lanes: list[LaneState] = []
        after = query.after
        while True:
            page = await found.store.inspector.lanes(msgspec.structs.replace(query, limit=_PAGE, after=after))
            lanes += page.lanes
            after = page.next
            if not after:
                return LanePage(lanes, total=len(lanes))


class DeadLetters(msgspec.Struct, frozen=True):
    """A page of dead letters of a crawl, the latest first, and the groups of all its dead letters."""

    letters: list[DeadLetter]
    groups: list[DeadGroup]
    next: str = ""
    """The ``after`` of the next page; empty at the end. A page of a search may be short although there is a next."""

    @property
    def kinds(self) -> dict[str, int]:
        """The number of dead letters of each kind, the most frequent first."""
        return count_kinds(self.groups)


async def read_dead_letters(
    crawl: str, frontier: str, query: DeadQuery, report: Report, folder: Path = Path()
) -> DeadLetters:
    """A page of dead letters of a crawl, the latest first. A limit of 0 means all.

    :raises StoreError: the store can't be reached, or has no such crawl.
    :raises ValueError: ``query.after`` is not the ``next`` of a page.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        inspector = found.store.inspector
        groups = await inspector.dead_groups()
        if query.limit:
            page = await inspector.dead(query)
            return DeadLetters(page.letters, groups, page.next)
        letters: list[DeadLetter] = []
        after = query.after
        while True:
            page = await inspector.dead(msgspec.structs.replace(query, limit=_PAGE, after=after))
            letters += page.letters
            after = page.next
            if not after:
                return DeadLetters(letters, groups)


async def read_settings(crawl: str, frontier: str, report: Report, folder: Path = Path()) -> list[SettingValue]:
    """The settings that a crawl was started or resumed with last, and where each came from. Secrets are masked.

    Empty if an older version of Uttu started it.

    :raises StoreError: the store can't be reached, or has no such crawl.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        return list((await found.store.ledger.facts()).settings)


async def read_keys(crawl: str, frontier: str, report: Report, folder: Path = Path()) -> list[KeySize]:
    """What a crawl takes in the memory of its server, by kind of key, the largest first.

    :raises StoreError: the store can't be reached, or has no such crawl.
    :raises UsageError: the store has no keys.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        if not isinstance(found.catalog, KeySizes):
            raise UsageError(f"Only crawls on Redis have keys; this one is {describe_frontier(found.catalog)}")
        return await found.catalog.key_sizes(found.name)


async def record_action(store: CrawlStore, by: str, action: str, **fields: str | int | float) -> None:
    """Write to the history of a crawl what an operator did.

    :param by: Who did it; empty if that is not known.
    """
    await store.history.add_events([(EventKind.OPERATOR, {"by": by, "action": action, **fields})])

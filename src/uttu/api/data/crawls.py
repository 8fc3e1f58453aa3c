"""Crawls: what the stores know of them. :mod:`uttu.api.data.control` has what can be done to one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec

from uttu.api.context import CALL_SECONDS, FRESH_SECONDS, SEARCH_SECONDS, Context
from uttu.api.data.buses import BusHealth, read_buses
from uttu.api.problems import BadParameters
from uttu.clients.addresses import mask_password
from uttu.errors import UttuError
from uttu.model.crawl import CrawlState, SettingValue
from uttu.model.history import CrawlEvent, CrawlSample
from uttu.model.inspection import DeadQuery, LanePage, LaneQuery
from uttu.model.lease import LaneState
from uttu.operations import crawls, diagnosis, explanation, fetch, history, items, workers
from uttu.operations.crawls import CrawlDetails, CrawlStatus, DeadLetters, KeySize
from uttu.operations.diagnosis import LaneWait, Problem, ProgressEstimate
from uttu.operations.explanation import CrawlExplanation
from uttu.operations.history import CrawlHistory, EventPage, EventQuery
from uttu.operations.items import ItemPage
from uttu.operations.workers import WorkerState
from uttu.settings import load_frontier

PageSize = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Url = Annotated[str, msgspec.Meta(min_length=1, max_length=8192)]
# The sparkline of a crawl in the overview.
_RECENT_SECONDS: Final = 600.0
_RECENT_POINTS: Final = 30
# Samples change every 10 seconds; a longer list of crawls has no sparklines from here on.
_SAMPLES_FRESH_SECONDS: Final = 5.0
_MOST_SAMPLED: Final = 50
# The sizes of keys are estimated, and cost the server some hundred commands.
_KEYS_FRESH_SECONDS: Final = 30.0
# A crawl that has ended may be started again by a command.
_ENDED_FRESH_SECONDS: Final = 6.0
_ENDED: Final = (CrawlState.FINISHED, CrawlState.LIMITED, CrawlState.STOPPED)
T = TypeVar("T")


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A store that the dashboard watches. ``error`` is empty if it answers."""

    name: str
    address: str
    crawls: int = 0
    error: str = ""


class CrawlRow(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl in a list. ``recent``: pages per second over the last ten minutes, the oldest first."""

    store: str
    status: CrawlStatus
    rate: float = 0.0
    recent: list[float] = []


class StoreProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a crawl of a store."""

    store: str
    problem: Problem


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the dashboard watches, in short."""

    crawls: list[CrawlRow]
    stores: list[StoreHealth]
    buses: list[BusHealth]
    problems: list[StoreProblem]


class CrawlView(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl in detail, with its progress and what is wrong with it."""

    details: CrawlDetails
    progress: ProgressEstimate
    problems: list[Problem] = []


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """All crawls of all stores, the most recently active first."""

    crawls: list[CrawlRow]
    stores: list[StoreHealth]


def ignore(message: str) -> None:
    """Drop messages for people at a terminal; results say the same as values."""


async def read_overview(context: Context) -> Overview:
    """All crawls, stores and brokers, and what is wrong right now."""
    (rows, stores, samples), buses = await asyncio.gather(_read_stores(context), read_buses(context))
    problems = [
        StoreProblem(store=store, problem=problem)
        for store in context.stores
        for problem in diagnosis.find_problems(
            [row.status for row in rows if row.store == store],
            {name: found for (place, name), found in samples.items() if place == store},
        )
    ]
    return Overview(crawls=rows, stores=stores, buses=buses, problems=problems)


async def read_crawls(context: Context) -> Listed:
    """All crawls of all stores. A store that is away has an ``error``, and its crawls are left out."""
    rows, stores, _ = await _read_stores(context)
    return Listed(crawls=rows, stores=stores)


def list_stores(context: Context) -> list[StoreHealth]:
    """The names and addresses of all stores. None of them is asked."""
    own = load_frontier(folder=context.folder)
    return [StoreHealth(name=name, address=mask_password(url or own)) for name, url in context.stores.items()]


async def read_statuses(context: Context, store: str) -> list[CrawlStatus]:
    """The status of all crawls of a store."""
    url = context.store_url(store)

    async def read() -> list[CrawlStatus]:
        now, ended = time.monotonic(), context.ended.get(store, {})
        known = {name: status for name, (at, status) in ended.items() if now - at < _ENDED_FRESH_SECONDS}
        found = (await crawls.read_all(url, context.folder, known)).crawls
        context.ended[store] = {
            each.name: ended[each.name] if each.name in known else (now, each)
            for each in found
            if each.state in _ENDED and not each.alive
        }
        return found

    return await context.read(("crawls", store), f"The store {store}", read)


async def _read_stores(
    context: Context,
) -> tuple[list[CrawlRow], list[StoreHealth], dict[tuple[str, str], Sequence[CrawlSample]]]:
    rows: list[CrawlRow] = []
    samples: dict[tuple[str, str], Sequence[CrawlSample]] = {}

    async def look(health: StoreHealth) -> StoreHealth:
        store = health.name
        try:
            statuses = await read_statuses(context, store)
        except (UttuError, OSError) as error:
            return msgspec.structs.replace(health, error=str(error))
        alive = [status.name for status in statuses if status.alive][:_MOST_SAMPLED]
        found = await asyncio.gather(*(_read_samples(context, store, name) for name in alive), return_exceptions=True)
        recent = {name: each for name, each in zip(alive, found, strict=True) if not isinstance(each, BaseException)}
        samples.update({(store, name): each for name, each in recent.items()})
        rows.extend(_make_row(store, status, recent.get(status.name, [])) for status in statuses)
        return msgspec.structs.replace(health, crawls=len(statuses))

    stores = list(await asyncio.gather(*map(look, list_stores(context))))
    return sorted(rows, key=lambda row: -row.status.active), stores, samples


def _make_row(store: str, status: CrawlStatus, samples: Sequence[CrawlSample]) -> CrawlRow:
    points = history.make_points(samples, _RECENT_SECONDS, _RECENT_POINTS)
    rate = diagnosis.describe_progress(status, samples).rate if status.alive else 0.0
    return CrawlRow(store=store, status=status, rate=rate, recent=[point.pages for point in points])


async def _read_samples(context: Context, store: str, crawl: str) -> list[CrawlSample]:
    url = context.store_url(store)
    return await context.read(
        ("samples", store, crawl),
        f"The store {store}",
        lambda: history.read_recent_samples(crawl, url, _RECENT_SECONDS, ignore, context.folder),
        _SAMPLES_FRESH_SECONDS,
    )


async def read_crawl(context: Context, store: str, crawl: str, lanes: bool = True) -> CrawlView:
    """The status of a crawl in detail, its progress, and what is wrong with it. Quicker without its ``lanes``."""
    details = await _read(
        context,
        store,
        crawl,
        ("details", lanes),
        lambda url: crawls.read_details(crawl, url, ignore, context.folder, lanes),
    )
    samples = await _read_samples(context, store, crawl)
    held = details.held.total if details.held.total is not None else len(details.held.lanes)
    return CrawlView(
        details=details,
        progress=diagnosis.describe_progress(details.status, samples, held),
        problems=diagnosis.find_problems([details.status], {crawl: samples}),
    )


async def read_history(
    context: Context,
    store: str,
    crawl: str,
    seconds: Annotated[float, msgspec.Meta(ge=10, le=60 * 86400)] = 3600.0,
    points: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 120,
) -> CrawlHistory:
    """The rates of a crawl over the last ``seconds``, in at most ``points`` points."""
    return await _read(
        context,
        store,
        crawl,
        ("history", seconds, points),
        lambda url: history.read_history(crawl, url, seconds, points, ignore, context.folder),
        _SAMPLES_FRESH_SECONDS,
    )


async def read_events(
    context: Context, store: str, crawl: str, after: Annotated[int, msgspec.Meta(ge=-1)] = -1, limit: PageSize = 100
) -> list[CrawlEvent]:
    """Events of a crawl after a position, the oldest first; the latest ones without ``after``."""
    return await _read(
        context,
        store,
        crawl,
        ("events", after, limit),
        lambda url: history.read_events(crawl, url, after, limit, ignore, context.folder),
    )


async def read_event_page(context: Context, store: str, crawl: str, query: EventQuery) -> EventPage:
    """A page of events of a crawl, the latest first. ``before``: the ``next`` of the page before."""
    return await _read(
        context, store, crawl, query, lambda url: history.read_event_page(crawl, url, query, ignore, context.folder)
    )


async def read_keys(context: Context, store: str, crawl: str) -> list[KeySize]:
    """What a crawl on Redis takes in the memory of its server, by kind of key, the largest first.

    :raises UsageError: its store is not Redis.
    """
    return await _read(
        context,
        store,
        crawl,
        "keys",
        lambda url: crawls.read_keys(crawl, url, ignore, context.folder),
        _KEYS_FRESH_SECONDS,
    )


def has_keys(context: Context, store: str) -> bool:
    """Whether a store is Redis, whose crawls have keys."""
    url = context.store_url(store) or load_frontier(folder=context.folder)
    return url.lower().startswith(("redis:", "rediss:", "redis+"))


def is_same_server(context: Context, store: str, bus: str) -> bool:
    """Whether a store and a broker are the same Redis server, perhaps with another login or database."""
    frontier = context.store_url(store) or load_frontier(folder=context.folder)
    return has_keys(context, store) and _locate(frontier) == _locate(context.bus_url(bus))


def _locate(url: str) -> str:
    """A URL without its login, database and options."""
    scheme, _, rest = url.partition("://")
    place = rest.partition("?")[0].rpartition("@")[2]
    return f"{scheme}://{place if '+unix' in scheme else place.partition('/')[0]}".lower()


class LaneListing(msgspec.Struct, frozen=True, kw_only=True):
    """A page of lanes. ``waits`` says why the next page of each waits, by the name of the lane."""

    lanes: list[LaneState]
    waits: dict[str, LaneWait]
    next: str = ""
    total: int | None = None


async def list_lanes(context: Context, store: str, crawl: str, query: LaneQuery) -> LaneListing:
    """A page of lanes (hosts), those with the most pending requests first, and why each waits."""
    page = await read_lanes(context, store, crawl, query)
    waits = {lane.name: diagnosis.describe_wait(lane) for lane in page.lanes}
    return LaneListing(lanes=page.lanes, waits=waits, next=page.next, total=page.total)


async def read_lanes(context: Context, store: str, crawl: str, query: LaneQuery) -> LanePage:
    """A page of lanes (hosts), those with the most pending requests first."""
    return await _read(
        context,
        store,
        crawl,
        query,
        lambda url: crawls.read_lanes(crawl, url, query, ignore, context.folder),
    )


async def prepare_lanes(context: Context, store: str, crawl: str) -> None:
    """Read a page of lanes, so that the next one comes quickly."""
    with contextlib.suppress(UttuError, OSError):
        query = LaneQuery(limit=1)
        url = await context.check_crawl(store, crawl)
        await context.read(
            (store, crawl, query),
            f"The store {store}",
            lambda: crawls.read_lanes(crawl, url, query, ignore, context.folder),
            limit=SEARCH_SECONDS,
        )


async def read_dead_letters(context: Context, store: str, crawl: str, query: DeadQuery) -> DeadLetters:
    """A page of dead letters, the latest first, and the groups of all of them."""
    return await _read(
        context,
        store,
        crawl,
        query,
        lambda url: crawls.read_dead_letters(crawl, url, query, ignore, context.folder),
    )


async def explain(context: Context, store: str, crawl: str, url: Url) -> CrawlExplanation:
    """What became of a URL in a crawl, and of each URL that it redirected to. 503 while it is searched: ask again."""
    return await search_url(context, store, crawl, url, CALL_SECONDS)


async def search_url(context: Context, store: str, crawl: str, url: str, patience: float) -> CrawlExplanation:
    """As :func:`explain`. The search goes on if it takes longer than ``patience``, and the next call has its result.

    :raises StillSearching: it takes longer.
    """
    canonical = parse_parameter(fetch.parse_web_url, url)
    frontier = await context.check_crawl(store, crawl)
    return await context.search(
        (store, crawl, "why", canonical),
        f"The store {store}",
        lambda: explanation.explain(crawl, frontier, canonical, ignore, confined=True, folder=context.folder),
        patience,
    )


async def read_items(
    context: Context,
    store: str,
    crawl: str,
    limit: PageSize = 50,
    before: Annotated[int, msgspec.Meta(ge=0)] = 0,
    match: str = "",
) -> ItemPage:
    """A page of items, the latest first. ``before``: the ``next`` of the page before."""
    return await _read(
        context,
        store,
        crawl,
        ("items", limit, before, match),
        lambda url: items.read_items(crawl, url, limit, before, match, ignore, context.folder),
    )


async def read_workers(context: Context, store: str, crawl: str) -> list[WorkerState]:
    """The workers of a crawl with what they hold and the end of their logs."""
    return await _read(
        context, store, crawl, "workers", lambda url: workers.read_workers(crawl, url, ignore, context.folder)
    )


async def read_settings(context: Context, store: str, crawl: str) -> list[SettingValue]:
    """The settings of a crawl and where each came from. Secrets are masked."""
    return await _read(
        context, store, crawl, "settings", lambda url: crawls.read_settings(crawl, url, ignore, context.folder)
    )


async def _read(
    context: Context,
    store: str,
    crawl: str,
    key: Any,
    call: Callable[[str], Coroutine[Any, Any, T]],
    seconds: float = FRESH_SECONDS,
) -> T:
    """Read something of a crawl. ``call`` gets the URL of the store; ``key`` tells it from other calls."""
    url = await context.check_crawl(store, crawl)
    try:
        return await context.read((store, crawl, key), f"The store {store}", lambda: call(url), seconds)
    except ValueError as error:
        # A cursor that is not the "next" of a page.
        raise BadParameters(str(error)) from error


def parse_parameter(parse: Callable[[str], str], text: str) -> str:
    """Parse a parameter.

    :raises BadParameters: its text is not valid.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise BadParameters(str(error)) from error

"""Everything that can be done to a crawl: pause it, push URLs, retry its errors, export its items, and more."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from uttu.api.context import LONG_SECONDS, Context
from uttu.api.data.crawls import Url, ignore, parse_parameter
from uttu.api.problems import BadParameters
from uttu.model import Request
from uttu.operations import control, fetch, items, move, seeds, workers
from uttu.operations.control import RateChange, RetryResult, StateChange
from uttu.operations.fetch import FetchedPage
from uttu.operations.items import ExportResult
from uttu.operations.seeds import PushResult
from uttu.operations.workers import DrainResult
from uttu.settings import load_frontier, load_settings

_FETCH_SECONDS: Final = 60.0


class Moved(msgspec.Struct, frozen=True):
    """What became of a move, in words."""

    said: str


_DECISIONS: Final = {"pause": control.pause, "resume": control.resume, "stop": control.stop}


async def change_state(context: Context, store: str, crawl: str, action: str, by: str = "") -> StateChange:
    """Pause, resume or stop a crawl.

    :raises UttuError: that makes no sense for the crawl.
    """
    if action not in _DECISIONS:
        raise BadParameters(f"There is no action {action!r:.50}; there are: {', '.join(_DECISIONS)}")
    url = await context.check_crawl(store, crawl)
    change = await context.change(
        f"The store {store}",
        control.change_state(crawl, url, _DECISIONS[action], ignore, by=by, folder=context.folder),
    )
    # Workers read the ledger every second without it, so nobody needs to wait for a broker that is away.
    context.run_behind(control.announce_change(change, ignore, context.folder))
    return change


async def set_rate(
    context: Context,
    store: str,
    crawl: str,
    host: Url,
    delay: Annotated[float, msgspec.Meta(ge=0, le=86400)] | None = None,
    by: str = "",
) -> RateChange:
    """Set the delay of one host in seconds for all workers; null lets the crawl decide again."""
    lane = parse_parameter(control.parse_lane, host)
    url = await context.check_crawl(store, crawl)
    return await context.change(
        f"The store {store}", control.set_rate(crawl, url, lane, delay, ignore, by=by, folder=context.folder)
    )


async def push_urls(
    context: Context,
    store: str,
    crawl: str,
    urls: Annotated[list[str], msgspec.Meta(min_length=1, max_length=10_000)],
    by: str = "",
) -> PushResult:
    """Add start URLs to a crawl; each is a URL, or a request as a JSON object in text.

    Those in a private network count as ``bad``, unless the crawl has pages of that host already.
    """
    url = await context.check_crawl(store, crawl)
    entries = "\n".join(urls).encode(errors="replace").split(b"\n")
    return await context.change(
        f"The store {store}",
        seeds.push_seeds(
            crawl, url, (), "", ignore, entries=entries, confined=True, public=True, by=by, folder=context.folder
        ),
        LONG_SECONDS,
    )


async def retry_dead(
    context: Context, store: str, crawl: str, kind: str = "", message: str = "", url: str = "", by: str = ""
) -> RetryResult:
    """Queue dead letters again: those of one kind, message or URL, or all."""
    canonical = parse_parameter(fetch.parse_web_url, url) if url else ""
    frontier = await context.check_crawl(store, crawl)
    return await context.change(
        f"The store {store}",
        control.retry_dead(
            crawl, frontier, ignore, kind=kind, url=canonical, message=message, by=by, folder=context.folder
        ),
        LONG_SECONDS,
    )


async def drain_worker(context: Context, store: str, crawl: str, worker: str, by: str = "") -> DrainResult:
    """Let one worker finish its pages and leave; the others go on."""
    url = await context.check_crawl(store, crawl)
    return await context.change(
        f"The store {store}", workers.drain_worker(crawl, url, worker, ignore, by=by, folder=context.folder)
    )


async def export_items(
    context: Context, store: str, crawl: str, target: Annotated[str, msgspec.Meta(max_length=4096)], by: str = ""
) -> ExportResult:
    """Write all items of a crawl to a file of the project's folder, or to a topic of a broker of the project.

    :raises ConfigError: the target is a file elsewhere, or another server.
    """
    url = await context.check_crawl(store, crawl)
    context.confinement.check_output(target)
    async with context.exporting:
        return await context.change_in_thread(
            lambda: items.export_items(crawl, url, [target], ignore, by=by, folder=context.folder)
        )


async def move_crawl(
    context: Context, store: str, crawl: str, target: str, replace: bool = False, by: str = ""
) -> Moved:
    """Move a crawl to another store of the dashboard. ``target`` is its name."""
    source = await context.check_crawl(store, crawl) or load_frontier(folder=context.folder)
    goal = context.store_url(target) or load_frontier(folder=context.folder)
    if target == store:
        raise BadParameters(f"The crawl is in the store {store} already")
    said = await context.change_in_thread(lambda: move.move_crawl(source, goal, crawl, replace=replace, by=by))
    return Moved(said)


async def fetch_page(context: Context, url: Url, by: str = "") -> FetchedPage:
    """Fetch a page as a crawl would, without following redirects.

    :raises UsageError: the host is in a private network, and the setting ``private`` of the project is off.
    """
    request = Request(url=parse_parameter(fetch.parse_web_url, url))
    settings = msgspec.structs.replace(load_settings(folder=context.folder), max_redirects=0, meta_refresh=False)
    response = await context.change(
        f"The host of {request.url:.200}",
        fetch.fetch_page(request, settings, confined=True, public=True, folder=context.folder),
        _FETCH_SECONDS,
    )
    return FetchedPage.of(response)

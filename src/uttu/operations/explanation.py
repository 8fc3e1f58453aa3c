"""Explain what happened to a URL: from the store if it is known, otherwise by applying the crawl's rules.

A URL that was never admitted leaves no trace in the store: a crawl refuses hundreds of thousands of links that are out
of scope or look like traps, and storing each would cost more than the crawl. So the same rules are applied again here.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

import msgspec

from uttu.errors import UttuError
from uttu.frontier.catalog import CrawlStore
from uttu.model.facts import CrawlFacts
from uttu.model.inspection import LaneFilter, LaneQuery
from uttu.model.lease import LaneState, RequestState, Trace
from uttu.model.url import fingerprint, host_of, origin_of
from uttu.operations import Report
from uttu.operations.crawls import CrawlStatus, select_crawl
from uttu.policy import robots
from uttu.policy.scope import OutOfScope
from uttu.policy.traps import Traps
from uttu.runtime import factory
from uttu.settings import Settings, load_settings, restore_settings
from uttu.spider.loader import load_spider


class UrlExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one URL. ``guesses`` are possible reasons why it is unknown, the most certain first."""

    url: str
    trace: Trace
    lane: LaneState | None = None
    guesses: tuple[str, ...] = ()
    known_as: tuple[str, ...] = ()
    """Similar URLs that the crawl knows."""

    @property
    def target(self) -> str:
        """The URL it redirected to; empty if it did not, or if the target was refused."""
        redirect = self.trace.redirect
        return redirect.target if redirect is not None and not redirect.refused else ""


class CrawlExplanation(msgspec.Struct, frozen=True):
    """What a crawl knows of a URL. ``chain``: the URL and, if it redirected, each URL that it led to."""

    status: CrawlStatus
    chain: list[UrlExplanation]


async def explain(
    crawl: str, frontier: str, url: str, report: Report, *, confined: bool = False, folder: Path = Path()
) -> CrawlExplanation:
    """Explain what happened to a URL in a crawl.

    :param url: A canonical URL.
    :param confined: Never load a spider file outside of ``folder``. Files are only loaded for crawls that an older
        version started, whose settings are not stored.
    :raises StoreError: the store can't be reached, or has no such crawl.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        status = await found.status()
        return CrawlExplanation(status, await explain_url(found.store, status, url, folder if confined else None))


async def explain_url(
    store: CrawlStore, standing: CrawlStatus, url: str, confined_to: Path | None = None
) -> list[UrlExplanation]:
    """Explain a URL and, if it redirected, each URL of the chain.

    :param confined_to: The folder outside of which no spider file is loaded; None for no limit.
    """
    found: list[UrlExplanation] = []
    came_by: list[str] = []
    while url:
        # A redirect back to a page of the same chain is a separate request with a salt; see uttu.policy.redirect.
        salt = f"redirect {len(came_by)}" if url in came_by else ""
        trace = await store.inspector.trace(fingerprint(url, salt=salt), host_of(url))
        if trace.state is RequestState.UNKNOWN:
            found.append(await _explain_unknown(store, standing, url, trace, confined_to))
            break
        lane = await _find_lane(store, trace.lane) if trace.state is RequestState.PENDING else None
        found.append(UrlExplanation(url=url, trace=trace, lane=lane))
        came_by.append(url)
        url = found[-1].target if len(came_by) < 100 else ""
    return found


async def _find_lane(store: CrawlStore, name: str) -> LaneState | None:
    for only in (LaneFilter.ALL, LaneFilter.IDLE):
        page = await store.inspector.lanes(LaneQuery(limit=1, name=name, only=only))
        if page.lanes:
            return page.lanes[0]
    return None


async def _explain_unknown(
    store: CrawlStore, standing: CrawlStatus, url: str, trace: Trace, confined_to: Path | None
) -> UrlExplanation:
    traces = {each: await store.inspector.trace(fingerprint(each), host_of(each)) for each in _spellings(url)}
    known_as = tuple(each for each, trace in traces.items() if trace.state is not RequestState.UNKNOWN)
    guesses = await _guess_reasons(store, standing, url, confined_to)
    return UrlExplanation(url=url, trace=trace, guesses=tuple(guesses), known_as=known_as)


async def _guess_reasons(store: CrawlStore, standing: CrawlStatus, url: str, confined_to: Path | None) -> list[str]:
    settings, found = _read_settings(standing.facts, confined_to)
    scope = factory.create_scope(settings, standing.facts.start_hosts)
    refused = scope.refuse(url, 0)
    if refused:
        of = ""
        if refused is OutOfScope.DOMAINS:
            of = f" ({', '.join(settings.domains)})"
        elif refused is OutOfScope.PRIVATE:
            of = ", where only pages of the same host may lead"
        return [f"out of scope: {refused}{of}", *found]
    if trap := Traps(date.today()).refuse(url):
        return [f"it looks like a trap: {trap}", *found]
    guesses = []
    if settings.robots and not await _is_allowed(store, settings, url):
        guesses.append("the site's robots.txt forbids it, so it would not be fetched even if a page led to it")
    lane = await _find_lane(store, host_of(url))
    most = settings.max_pages_per_host
    if most and (lane is None or lane.total >= most):
        may = "" if lane else "perhaps "
        guesses.append(f"{may}its host has had the {most:,} pages that max_pages_per_host allows")
    left = f"; {standing.counts.work:,} pages are still to do" if standing.counts.work else ""
    guesses.append(f"no page that was fetched led the spider to it{left}")
    if settings.max_depth:
        guesses.append(f"it may lie more than max_depth={settings.max_depth} links away from the start")
    return guesses + found


async def _is_allowed(store: CrawlStore, settings: Settings, url: str) -> bool:
    stored = await store.memo.recall(f"robots {origin_of(url)}")
    return stored is None or robots.load(stored).allowed(url, settings.user_agent)


def _read_settings(facts: CrawlFacts, confined_to: Path | None) -> tuple[Settings, list[str]]:
    """The crawl's settings as far as they are known, and messages about what is not known."""
    try:
        if facts.settings:
            return restore_settings(facts.settings), []
        file = Path(facts.file)
        if confined_to is not None and not file.resolve().is_relative_to(confined_to.resolve()):
            raise UttuError(f"{file} is outside of the project's folder")
        return load_settings(load_spider(file, facts.spider).settings, facts.flags), []
    except UttuError as error:
        first = str(error).splitlines()[0].rstrip(":")
        try:
            return load_settings({}, facts.flags), [f"the spider's settings can't be read: {first}"]
        except UttuError:
            return Settings(), [f"the crawl's settings can't be read: {first}"]


def _spellings(url: str) -> list[str]:
    """URLs that people easily confuse with this one: other scheme, with or without www, slash or query."""
    scheme, _, rest = url.partition("://")
    other = "http" if scheme == "https" else "https"
    host, slash, path = rest.partition("/")
    path, mark, query = path.partition("?")
    turned = path.removesuffix("/") if path.endswith("/") else path + "/"
    named = host.removeprefix("www.") if host.startswith("www.") else "www." + host
    tail = slash + path + mark + query
    found = [f"{other}://{rest}", f"{scheme}://{named}{tail}", f"{other}://{named}{tail}"]
    if path:
        found.append(f"{scheme}://{host}/{turned}{mark}{query}")
    if query:
        found.append(f"{scheme}://{host}/{path}")
    return found

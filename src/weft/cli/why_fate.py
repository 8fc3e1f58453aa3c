"""What became of a URL: from the store where it is known, by the crawl's rules where it is not.

A URL that was never admitted left no trace: links that are out of scope or look like traps are
refused by the hundred thousand, and remembering each would cost more than the crawl. But the
rules that refused it are known, so they are asked again.
"""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import msgspec

from weft import assembly, config
from weft.cli.crawls import Standing
from weft.config import Settings
from weft.errors import WeftError
from weft.frontier.base import LaneState, Trace
from weft.frontier.depot import Store
from weft.model.url import fingerprint, host_of, origin_of
from weft.policy import robots
from weft.policy.scope import PRIVATE
from weft.policy.traps import Traps
from weft.spider.load import load_spider

_MOST_LANES = 100_000
_redirected = re.compile(r"redirected to (\S+?)(?:, which is not fetched: (.*))?").fullmatch


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one URL. ``guesses`` say why it may be unknown, the most certain first."""

    url: str
    trace: Trace
    lane: LaneState | None = None
    guesses: tuple[str, ...] = ()
    known_as: tuple[str, ...] = ()
    """Other spellings of it that the crawl does know."""

    @property
    def target(self) -> str:
        """Where it redirected to, if that was fetched in turn."""
        found = _redirected(self.trace.reason) if self.trace.state == "done" else None
        return found[1] if found and not found[2] else ""


async def fates(store: Store, standing: Standing, url: str) -> list[Fate]:
    """What became of the URL and, if it redirected, of where it led, and so on."""
    found: list[Fate] = []
    came_by: list[str] = []
    while url:
        # A redirect back to a page of its own chain is a request of its own; see policy.redirect.
        salt = f"redirect {len(came_by)}" if url in came_by else ""
        trace = await store.inspector.trace(fingerprint(url, salt=salt))
        if trace.state == "unknown":
            found.append(await _unknown(store, standing, url, trace))
            break
        lane = await _lane(store, trace.lane) if trace.state == "pending" else None
        found.append(Fate(url=url, trace=trace, lane=lane))
        came_by.append(url)
        url = found[-1].target if len(came_by) < 100 else ""
    return found


async def _lane(store: Store, name: str) -> LaneState | None:
    return next((lane for lane in await store.inspector.lanes(_MOST_LANES) if lane.name == name), None)


async def _unknown(store: Store, standing: Standing, url: str, trace: Trace) -> Fate:
    traces = {each: await store.inspector.trace(fingerprint(each)) for each in _spellings(url)}
    known_as = tuple(each for each, trace in traces.items() if trace.state != "unknown")
    return Fate(url=url, trace=trace, guesses=tuple(await _guesses(store, standing, url)), known_as=known_as)


async def _guesses(store: Store, standing: Standing, url: str) -> list[str]:
    settings, found = _settings_of(standing.facts)
    scope = assembly.scope_for(settings, frozenset(standing.facts.get("start_hosts", "").split()))
    refused = scope.refuse(url, 0)
    if refused:
        of = f" ({', '.join(settings.domains)})" if "domains" in refused else ""
        if refused == PRIVATE:
            of = ", where only pages of the same host may lead"
        return [f"out of scope: {refused}{of}", *found]
    if trap := Traps(date.today()).refuse(url):
        return [f"it looks like a trap: {trap}", *found]
    guesses = []
    if settings.robots and not await _allowed(store, settings, url):
        guesses.append("the site's robots.txt forbids it, so it would not be fetched even if a page led to it")
    lane = await _lane(store, host_of(url))
    most = settings.max_pages_per_host
    if most and (lane is None or lane.total >= most):
        may = "" if lane else "perhaps "
        guesses.append(f"{may}its host has had the {most:,} pages that max_pages_per_host allows")
    left = f"; {standing.counts.work:,} pages are still to do" if standing.counts.work else ""
    guesses.append(f"no page that was fetched led the spider to it{left}")
    if settings.max_depth:
        guesses.append(f"it may lie more than max_depth={settings.max_depth} links away from the start")
    return guesses + found


async def _allowed(store: Store, settings: Settings, url: str) -> bool:
    stored = await store.memo.recall(f"robots {origin_of(url)}")
    return stored is None or robots.load(stored).allowed(url, settings.user_agent)


def _settings_of(facts: dict[str, str]) -> tuple[Settings, list[str]]:
    """The crawl's settings, as far as they can be had; and what could not."""
    flags = msgspec.json.decode(facts.get("flags", "{}"))
    try:
        spider = load_spider(Path(facts.get("file", "")), facts.get("spider", ""))
        return config.load(spider.settings, flags), []
    except WeftError as error:
        first = str(error).splitlines()[0].rstrip(":")
        try:
            return config.load({}, flags), [f"the spider's own settings are not known now: {first}"]
        except WeftError:
            return Settings(), [f"the crawl's settings are not known now: {first}"]


def _spellings(url: str) -> list[str]:
    """What people easily take for the same URL."""
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

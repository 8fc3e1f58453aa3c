"""robots.txt: fetched once per site and crawl, kept in the store, obeyed by all workers.

The frontier leases only one page of a new host until the lane's pace is known. The worker that gets this page finds no
rules in the store. It fetches robots.txt in the page's place, stores the file, and gives the page back together with
the pace. So the file is fetched once, before anything else, and the delay between it and the first page is kept.

If the file can't be fetched, the site's lane is held and the fetch is tried again later. Attempts are counted in the
store per site, over all pages and workers, so a site with a thousand pages is not tried a thousand times as often.
After the last attempt the site counts as unavailable for ``AWAY_SECONDS``: pages that wait for it are given up without
another request.

Keys in the memo:

    robots ORIGIN         the file's text, for ROBOTS_SECONDS
    robots away ORIGIN    failed attempts so far (:class:`_Outage`), as JSON; "ORIGIN by PROXY" for requests by proxy

The file may redirect to another host, most often from example.org to www.example.org. If the rules of that host are
in the store, they are used without a request. Otherwise the file is fetched there and stored for that host, too, and
its lane is held for the delay.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec

from uttu.clients.addresses import mask_logins
from uttu.clock import Clock
from uttu.engine import throttled_hosts
from uttu.engine.link_filter import LinkFilter
from uttu.errors import FetchError
from uttu.fetch.base import Fetcher
from uttu.fetch.resolver import GuardedResolver
from uttu.frontier.base import Memo
from uttu.model import Pace, Request, Response
from uttu.model.lease import DeadKind
from uttu.model.url import Joiner, host_of, origin_of
from uttu.policy import redirect, robots
from uttu.policy.retry import GIVE_UP, MAX_RETRY_AFTER, Verdict, decide_robots, format_seconds, parse_retry_after
from uttu.policy.robots import Robots
from uttu.threads import run_in_new_thread

_log = logging.getLogger("uttu.robots")
HoldLane = Callable[[str, float, str], Awaitable[None]]
"""Hold a lane: its name, the seconds, and the reason as text."""

_MOST_KEPT = 20_000
# The most memory for rules, in bytes (estimated). Rules that were dropped are read from the store again.
_MOST_BYTES = 100_000_000
# Files larger than this are parsed in a thread, so that the event loop is not blocked: 512 KiB take 0.2 seconds.
_LARGE_BYTES = 32 * 1024


class RobotsUnavailable(Exception):
    """robots.txt could not be fetched.

    :param kind: The kind of failure, as in a dead letter.
    :param verdict: Whether and when to try again.
    :param touched: When the site was requested (monotonic); None if it was not.
    """

    def __init__(self, reason: str, kind: str, verdict: Verdict, touched: float | None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.verdict = verdict
        self.touched = touched


class LeaseExpired(Exception):
    """The lease ran out while the store was read, so this worker may not send a request to the site."""


class _Outage(msgspec.Struct, frozen=True):
    """Failed attempts for a site's robots.txt: how many, how the last one ended, and whether the site was given up."""

    tries: int
    kind: str
    reason: str
    over: bool
    word: str = ""
    """The retry token when the site was given up; see :mod:`uttu.engine.throttled_hosts`."""


class _FetchFailed(Exception):
    """One attempt to fetch robots.txt failed."""

    def __init__(self, reason: str, failure: FetchError | Response) -> None:
        super().__init__(reason)
        self.failure = failure


_decode_outage = msgspec.json.Decoder(_Outage).decode


class RobotsCache:
    """The rules of the sites that this worker has fetched from, in memory and in the store that all workers share."""

    def __init__(
        self,
        *,
        fetcher: Fetcher,
        link_filter: LinkFilter,
        names: GuardedResolver | None,
        memo: Memo,
        user_agent: str,
        pace: Pace,
        hold: HoldLane,
        clock: Clock,
        max_crawl_delay: float = robots.MAX_CRAWL_DELAY,
        max_retry_after: float = MAX_RETRY_AFTER,
    ) -> None:
        self._max_crawl_delay = max(max_crawl_delay, pace.delay)
        self._max_retry_after = max_retry_after
        self._fetcher = fetcher
        self._link_filter = link_filter
        self._names = names
        self._memo = memo
        self._user_agent = user_agent
        self._pace = pace
        self._hold = hold
        self._clock = clock
        self._known: OrderedDict[str, tuple[Robots, float]] = OrderedDict()
        self._bytes = 0
        self._away: OrderedDict[str, tuple[_Outage, float]] = OrderedDict()
        self._busy: dict[str, asyncio.Lock] = {}

    def known(self, origin: str) -> Robots | None:
        """The rules of a site, if they are in memory and not older than ``ROBOTS_SECONDS``."""
        kept = self._known.get(origin)
        return kept[0] if kept is not None and kept[1] > self._clock.monotonic() else None

    def allows(self, rules: Robots, url: str) -> bool:
        return rules.allowed(url, self._user_agent) or robots.is_robots(url)

    def refuse(self, rules: Robots, url: str) -> str | None:
        """The reason why a page may not be fetched; None if it may."""
        if not self.allows(rules, url):
            return "disallowed by the site's robots.txt"
        asked = rules.crawl_delay(self._user_agent) or 0.0
        if asked > self._max_crawl_delay:
            span = format_seconds(asked)
            return (
                f"robots.txt asks for {span} between two requests, more than max_crawl_delay={self._max_crawl_delay:g}"
            )
        return None

    def pace(self, rules: Robots) -> Pace:
        """The pace of a lane: the crawl's pace, or the site's Crawl-delay if that is slower."""
        asked = rules.crawl_delay(self._user_agent) or 0.0
        if asked > self._max_crawl_delay:
            return self._pace  # refuse() refuses all pages of the site
        return Pace(asked, 1) if asked > self._pace.delay else self._pace

    async def learn(
        self, origin: str, proxy: str = "", is_held: Callable[[], bool] = lambda: True
    ) -> tuple[Robots, float | None]:
        """Get the rules from the store or the site; also returns when the site was requested, or None if it was not.

        :param is_held: Whether the page's lease is still held; checked before a request is sent.
        :raises RobotsUnavailable: the file could not be fetched; its verdict says whether to try again.
        :raises LeaseExpired: the site must be requested, but the lease is gone.
        """
        lock = self._busy.setdefault(origin, asyncio.Lock())
        try:
            async with lock:
                known = self.known(origin)
                if known is not None:
                    return known, None
                stored = await self._memo.recall(f"robots {origin}")
                if stored is not None:
                    return await self._keep(origin, robots.load(stored)), None
                # Failures are counted per proxy: a broken proxy must not close the site for requests without it.
                way = f"{origin} by {proxy}" if proxy else origin
                tries = await self._tries(way)
                if not is_held():
                    raise LeaseExpired
                try:
                    rules, touched = await self._fetch(origin, proxy)
                except _FetchFailed as failure:
                    raise await self._failed(way, tries + 1, failure) from failure
                _log.debug("%s: read the robots.txt, %d bytes of rules", mask_logins(origin), len(rules.body))
                await self._memo.remember(f"robots {origin}", robots.dump(rules), robots.ROBOTS_SECONDS)
                return await self._keep(origin, rules), touched
        finally:
            if not lock.locked():
                self._busy.pop(origin, None)

    async def _keep(self, origin: str, rules: Robots) -> Robots:
        if len(rules.body) > _LARGE_BYTES:
            await run_in_new_thread(lambda: rules.crawl_delay(self._user_agent))  # parses
        if (old := self._known.pop(origin, None)) is not None:
            self._bytes -= old[0].weight
        self._known[origin] = (rules, self._clock.monotonic() + robots.ROBOTS_SECONDS)
        self._bytes += rules.weight
        while len(self._known) > 1 and (len(self._known) > _MOST_KEPT or self._bytes > _MOST_BYTES):
            self._bytes -= self._known.popitem(last=False)[1][0].weight
        return rules

    async def _tries(self, way: str) -> int:
        """The number of failed attempts so far.

        :raises RobotsUnavailable: the site must not be requested now.
        """
        away, until = self._away.get(way, (None, 0.0))
        left = until - self._clock.monotonic()
        if away is not None and left > 0 and not away.over:
            # Pages of one batch: the first of them has already made the attempt for all.
            raise RobotsUnavailable(away.reason, away.kind, Verdict(retry=True, after=left, hold=left), None)
        if away is None or left <= 0:
            stored = await self._memo.recall(f"robots away {way}")
            away = _decode_outage(stored) if stored is not None else None
        if away is not None and away.over:
            if away.word == await throttled_hosts.read_retry_token(self._memo):
                raise RobotsUnavailable(away.reason, away.kind, GIVE_UP, None)
            self._away.pop(way, None)
            return 0
        return away.tries if away is not None else 0

    async def _failed(self, way: str, tries: int, failure: _FetchFailed) -> RobotsUnavailable:
        """Store a failed attempt for all workers; returns the exception to raise."""
        touched, reason, what, retry_after = self._clock.monotonic(), str(failure), failure.failure, None
        if isinstance(what, Response):
            retry_after = parse_retry_after(what.headers.get("retry-after"), datetime.now(UTC))
        cause = what if isinstance(what, FetchError) else what.status
        verdict = decide_robots(tries, cause, retry_after, random.random(), self._max_retry_after)
        if verdict.too_long:
            reason += f" and asks to wait {format_seconds(verdict.too_long)}, more than max_retry_after"
            reason += f"={self._max_retry_after:g}"
        if not verdict.retry:
            reason += f" ({tries} tries)" if tries > 1 else ""
        kind = what.kind if isinstance(what, FetchError) else DeadKind.HTTP
        word = "" if verdict.retry else await throttled_hosts.read_retry_token(self._memo)
        away = _Outage(tries, kind, reason, over=not verdict.retry, word=word)
        # Keep the count longer than the lane is held, until the next page has made its attempt or none is left.
        away_seconds = min(max(verdict.too_long, robots.AWAY_SECONDS), robots.ROBOTS_SECONDS)
        seconds = verdict.hold + away_seconds
        await self._memo.remember(f"robots away {way}", msgspec.json.encode(away), seconds)
        self._away[way] = (away, touched + (away_seconds if away.over else verdict.hold))
        if len(self._away) > _MOST_KEPT:
            self._away.popitem(last=False)
        # Without the proxy, whose address may hold a password.
        site, level = mask_logins(way.partition(" by ")[0]), logging.DEBUG if verdict.retry else logging.INFO
        _log.log(level, "%s: %s", site, mask_logins(reason))
        return RobotsUnavailable(reason, kind, verdict, touched)

    async def _fetch(self, origin: str, proxy: str) -> tuple[Robots, float]:
        url = origin + "/robots.txt"
        for _ in range(robots.MAX_REDIRECTS + 1):
            try:
                # Not within the crawl's max_body: the beginning of a large file counts, and pages may be small.
                response = await self._fetcher.fetch(Request.from_canonical(url, proxy=proxy), first=robots.MAX_BYTES)
            except FetchError as error:
                raise _FetchFailed(f"robots.txt could not be fetched: {error}", error) from error
            if host_of(url) != host_of(origin) and self._pace.delay > 0:
                await self._hold(host_of(url), self._pace.delay, f"asked for the robots.txt of {host_of(origin)}")
            target = Joiner(url)(response.headers.get("location", "")) if response.status in redirect.STATUSES else None
            # A redirect out of the crawl's scope counts as a missing file.
            if target is None or self._link_filter.out_of_scope(target, host_of(origin)):
                break
            if self._names is not None and not proxy and await self._names.refuse(host_of(target)):
                break
            if host_of(target) == host_of(url):
                await asyncio.sleep(self._pace.delay)
            elif (
                robots.is_robots(target)
                and (stored := await self._memo.recall(f"robots {origin_of(target)}")) is not None
            ):
                return robots.load(stored), response.received
            url = target
        match robots.classify_status(response.status):
            case "parse":
                rules = robots.parse(response.body, cut=response.cut)
            case "allow":
                rules = robots.ALLOW_ALL
            case "retry":
                raise _FetchFailed(f"robots.txt was answered with {response.status}", response)
        if robots.is_robots(url) and origin_of(url) != origin:
            await self._memo.remember(f"robots {origin_of(url)}", robots.dump(rules), robots.ROBOTS_SECONDS)
        return rules, response.received

"""robots.txt: fetched once per site and crawl, kept in the store, obeyed by all workers.

A new host's lane gives out one page only until the lane's pace is known. The worker that gets it
finds no rules in the store, fetches robots.txt in the page's turn, stores it, and gives the page
back together with the pace; so the file is fetched once, before anything else, and the delay
between it and the first page is kept.

A file that can't be had closes its site for a while, and is tried again. The tries are the site's: they
are counted in the store, over all pages and workers, so that a site of a thousand pages is not tried a
thousand times as often. After the last one the site counts as away for a minute: the pages that wait
for it are given up, and it is not asked for each of them.

A file may have moved to another host, most often from example.org to www.example.org. That host is not asked if its
rules are known; if it is, they are known from then on, and its lane is held for the delay. So it is asked out of turn
only where the file is no robots.txt of its own.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec

from weft.clock import Clock
from weft.engine.gate import Gate
from weft.engine.names import PrivateNames
from weft.errors import FetchError
from weft.fetch.base import Fetcher
from weft.frontier.base import Memo
from weft.model import Pace, Request, Response
from weft.model.url import Joiner, host_of, origin_of
from weft.policy import redirect, robots
from weft.policy.retry import GIVE_UP, Verdict, decide_robots, parse_retry_after
from weft.policy.robots import Robots

Hold = Callable[[str, float, str], Awaitable[None]]
"""Leave a lane alone for so many seconds; the reason in words."""

_MOST_KEPT = 20_000
_LONGEST_CRAWL_DELAY = 300.0


class Unavailable(Exception):
    """robots.txt can't be had now: what to do, and the kind of failure; ``touched``, if the site was asked."""

    def __init__(self, reason: str, kind: str, verdict: Verdict, touched: float | None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.verdict = verdict
        self.touched = touched


class Lapsed(Exception):
    """The site may not be asked any more: while the store was asked, the lease ran out."""


class _Away(msgspec.Struct, frozen=True):
    """A site whose robots.txt could not be had: tries so far, how the last one ended, and whether it was the last."""

    tries: int
    kind: str
    reason: str
    over: bool


class _Failure(Exception):
    """A try came to nothing."""

    def __init__(self, reason: str, failure: FetchError | Response) -> None:
        super().__init__(reason)
        self.failure = failure


_decode_away = msgspec.json.Decoder(_Away).decode


class RobotsKeeper:
    """The rules of all sites this worker has met."""

    def __init__(
        self,
        *,
        fetcher: Fetcher,
        gate: Gate,
        names: PrivateNames | None,
        memo: Memo,
        user_agent: str,
        pace: Pace,
        hold: Hold,
        clock: Clock,
    ) -> None:
        self._fetcher = fetcher
        self._gate = gate
        self._names = names
        self._memo = memo
        self._user_agent = user_agent
        self._pace = pace
        self._hold = hold
        self._clock = clock
        self._known: OrderedDict[str, tuple[Robots, float]] = OrderedDict()
        self._away: OrderedDict[str, tuple[_Away, float]] = OrderedDict()
        self._busy: dict[str, asyncio.Lock] = {}

    def known(self, origin: str) -> Robots | None:
        """The rules, if this worker has them and they are not too old."""
        kept = self._known.get(origin)
        return kept[0] if kept is not None and kept[1] > self._clock.monotonic() else None

    def allows(self, rules: Robots, url: str) -> bool:
        return rules.allowed(url, self._user_agent) or robots.is_robots(url)

    def pace(self, rules: Robots) -> Pace:
        """The pace of a lane: the crawl's own, or the slower one that the site asks for."""
        asked = min(rules.crawl_delay(self._user_agent) or 0.0, _LONGEST_CRAWL_DELAY)
        return Pace(asked, 1) if asked > self._pace.delay else self._pace

    async def learn(
        self, origin: str, proxy: str = "", is_held: Callable[[], bool] = lambda: True
    ) -> tuple[Robots, float | None]:
        """The rules from the store or the site; with them the moment the site was asked, if it was.

        :raises Unavailable: the site must be asked again later, or not any more.
        :raises Lapsed: it is to be asked, but by another: ``is_held`` says that the lease is gone.
        """
        lock = self._busy.setdefault(origin, asyncio.Lock())
        try:
            async with lock:
                known = self.known(origin)
                if known is not None:
                    return known, None
                stored = await self._memo.recall(f"robots {origin}")
                if stored is not None:
                    return self._keep(origin, robots.load(stored)), None
                # By a proxy that does not work, no site is to be had; that is not the site's fault.
                way = f"{origin} by {proxy}" if proxy else origin
                tries = await self._tries(way)
                if not is_held():
                    raise Lapsed
                try:
                    rules, touched = await self._fetch(origin, proxy)
                except _Failure as failure:
                    raise await self._failed(way, tries + 1, failure) from failure
                await self._memo.remember(f"robots {origin}", robots.dump(rules), robots.ROBOTS_SECONDS)
                return self._keep(origin, rules), touched
        finally:
            if not lock.locked():
                self._busy.pop(origin, None)

    def _keep(self, origin: str, rules: Robots) -> Robots:
        self._known[origin] = (rules, self._clock.monotonic() + robots.ROBOTS_SECONDS)
        if len(self._known) > _MOST_KEPT:
            self._known.popitem(last=False)
        return rules

    async def _tries(self, way: str) -> int:
        """How often the site was asked in vain.

        :raises Unavailable: it is not to be asked now.
        """
        away, until = self._away.get(way, (None, 0.0))
        left = until - self._clock.monotonic()
        if away is not None and left > 0 and not away.over:
            # Pages that were out together: the first of them has asked for all.
            raise Unavailable(away.reason, away.kind, Verdict(retry=True, after=left, hold=left), None)
        if away is None or left <= 0:
            stored = await self._memo.recall(f"robots away {way}")
            away = _decode_away(stored) if stored is not None else None
        if away is not None and away.over:
            raise Unavailable(away.reason, away.kind, GIVE_UP, None)
        return away.tries if away is not None else 0

    async def _failed(self, way: str, tries: int, failure: _Failure) -> Unavailable:
        """Note it for all workers."""
        touched, reason, what, retry_after = self._clock.monotonic(), str(failure), failure.failure, None
        if isinstance(what, Response):
            retry_after = parse_retry_after(what.headers.get("retry-after"), datetime.now(UTC))
        told = what if isinstance(what, FetchError) else what.status
        verdict = decide_robots(tries, told, retry_after, random.random())
        if not verdict.retry:
            reason += f" ({tries} tries)" if tries > 1 else ""
        kind = what.kind if isinstance(what, FetchError) else "http"
        away = _Away(tries, kind, reason, over=not verdict.retry)
        # A count is kept a little longer than the lane is held: by then the next page has asked, or none is left.
        seconds = verdict.hold + robots.AWAY_SECONDS
        await self._memo.remember(f"robots away {way}", msgspec.json.encode(away), seconds)
        self._away[way] = (away, touched + (robots.AWAY_SECONDS if away.over else verdict.hold))
        if len(self._away) > _MOST_KEPT:
            self._away.popitem(last=False)
        return Unavailable(reason, kind, verdict, touched)

    async def _fetch(self, origin: str, proxy: str) -> tuple[Robots, float]:
        url = origin + "/robots.txt"
        for _ in range(robots.MAX_REDIRECTS + 1):
            try:
                # Not within the crawl's max_body: the beginning of a large file counts, and pages may be small.
                response = await self._fetcher.fetch(Request(url=url, proxy=proxy), first=robots.MAX_BYTES)
            except FetchError as error:
                raise _Failure(f"robots.txt could not be fetched: {error}", error) from error
            if host_of(url) != host_of(origin) and self._pace.delay > 0:
                await self._hold(host_of(url), self._pace.delay, f"asked for the robots.txt of {host_of(origin)}")
            target = Joiner(url)(response.headers.get("location", "")) if response.status in redirect.STATUSES else None
            # A file that moved to where the crawl may not go is not there.
            if target is None or self._gate.out_of_scope(target, host_of(origin)):
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
        match robots.judge(response.status):
            case "parse":
                rules = robots.parse(response.body, cut=response.cut)
            case "allow":
                rules = robots.ALLOW_ALL
            case "retry":
                raise _Failure(f"robots.txt was answered with {response.status}", response)
        if robots.is_robots(url) and origin_of(url) != origin:
            await self._memo.remember(f"robots {origin_of(url)}", robots.dump(rules), robots.ROBOTS_SECONDS)
        return rules, response.received

"""What happens to one leased request: robots, fetch, handler, and the outcome of it all."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from inspect import isawaitable
from typing import Any

from weft.clock import Clock
from weft.config import Settings
from weft.engine.events import Events
from weft.engine.gate import Gate
from weft.engine.handling import collect, described
from weft.engine.names import PrivateNames
from weft.engine.robots import Hold, Lapsed, RobotsKeeper, Unavailable
from weft.engine.stats import Stats
from weft.engine.turns import Turns
from weft.errors import FetchError, NetworkError, SpiderError, StoreError, TooSlow, UnknownHost
from weft.fetch.base import Fetcher
from weft.model import Dead, Done, Lease, Outcome, Pace, Request, Response, Retry
from weft.model.url import origin_of
from weft.policy import redirect
from weft.policy.retry import GIVE_UP, RetryPolicy, Verdict, decide_error, decide_status, parse_retry_after
from weft.policy.robots import Robots
from weft.policy.throttle import throttled
from weft.spider import Failure, Page, Spider
from weft.spider.faults import BY_USERS, reraise_own_cancel
from weft.spider.sitemap_handler import named_sitemaps, wants_robots
from weft.spider.spider import Middleware, Next

_MOST_DELAYS = 20_000
# How late a request may be for the handlers of other pages: by so much of the delay.
_SLICE_SHARE = 0.01
_SHORTEST_SLICE = 0.0005


class Visitor:
    """Turns leases into outcomes. Never raises for what a host or a handler does."""

    def __init__(
        self,
        *,
        spider: Spider,
        fetcher: Fetcher,
        gate: Gate,
        robots: RobotsKeeper,
        names: PrivateNames | None,
        hold: Hold,
        is_held: Callable[[Lease], bool],
        settings: Settings,
        stats: Stats,
        clock: Clock,
        events: Events | None = None,
    ) -> None:
        self._spider = spider
        self._fetch = _wrapped(fetcher, spider)
        self._gate = gate
        self._robots = robots
        self._names = names
        self._hold = hold
        self._is_held = is_held
        self._settings = settings
        self._retry = RetryPolicy(retries=settings.retries)
        self._stats = stats
        self._clock = clock
        self._events = events
        self._delays: dict[str, float] = {}
        delay = settings.rules.pace.delay
        self._turns = Turns(max(delay * _SLICE_SHARE, _SHORTEST_SLICE)) if delay > 0 else None

    async def visit(self, lease: Lease) -> Outcome:
        visit = _Visit(lease)
        try:
            outcome = await self._beforehand(visit)
            if outcome is None and not self._is_held(lease):
                # While the store or a name server was away, so was the answer; meanwhile another may ask the host.
                return visit.retry(counted=False)
            return outcome or await self._exchange(visit)
        except _Failed as failure:
            return await self._failed(visit, failure)

    async def _beforehand(self, visit: _Visit) -> Outcome | None:
        """The outcome, if there is one before the page is asked for: the site or the user's network is closed to it, or
        the site's rules are all that is wanted."""
        request = visit.lease.request
        if self._names is not None and not request.proxy:
            refused = await self._names.refuse(visit.lease.lane, start=request.start)
            if refused:
                raise _Failed(GIVE_UP, "scope", refused)
        if self._settings.robots or wants_robots(request):
            rules = self._robots.known(origin_of(request.url)) or await self._learn_rules(visit)
            if rules is None:
                return visit.retry(counted=False)
            if wants_robots(request):
                children = self._gate.admit(named_sitemaps(request, rules), visit.lease.lane)
                return visit.done(children=children, note="read for its sitemaps, once for the whole site")
            if not self._robots.allows(rules, request.url):
                raise _Failed(GIVE_UP, "robots", "disallowed by the site's robots.txt")
        return None

    async def _learn_rules(self, visit: _Visit) -> Robots | None:
        """The site's rules; None if the visit's turn went to fetching them, or is over."""
        try:
            request = visit.lease.request
            origin, lease = origin_of(request.url), visit.lease
            rules, visit.touched = await self._robots.learn(origin, request.proxy, lambda: self._is_held(lease))
        except Lapsed:
            return None
        except Unavailable as unavailable:
            visit.touched = unavailable.touched
            # The try was the site's: the page was not asked for, and has all of its own.
            raise _Failed(unavailable.verdict, unavailable.kind, str(unavailable), counted=False) from unavailable
        if self._settings.robots:
            visit.pace = self._robots.pace(rules)
        return rules if visit.touched is None else None

    async def _exchange(self, visit: _Visit) -> Outcome:
        try:
            response = await self._fetch(visit.lease.request)
        except FetchError as error:
            visit.touched = self._clock.monotonic()
            self._stats.failed += isinstance(error, NetworkError | TooSlow) and not isinstance(error, UnknownHost)
            raise _Failed(self._verdict(visit, error), error.kind, str(error)) from error
        except StoreError:
            raise  # the cache is not the page's fault
        except (Exception, SystemExit) as error:
            visit.touched = self._clock.monotonic()
            raise _Failed(GIVE_UP, "middleware", *described(error)) from error
        visit.response = response
        self._stats.fetched_one(visit.lease.lane, response.status, len(response.body), response.elapsed)
        if self._events is not None:
            request = visit.lease.request
            self._events.page(request.url, response.status, len(response.body), response.elapsed, request.depth)
        if not response.cached:
            # A middleware may have made the response itself, and left the moment out.
            visit.touched = response.received or self._clock.monotonic()
            if self._settings.throttle:
                visit.pace = self._throttled(visit.lease, response)
        if response.ok:
            return await self._handle(visit, response)
        if response.status in redirect.STATUSES and "location" in response.headers:
            return self._redirected(visit, response)
        raise _Failed(self._verdict(visit, response), "http", f"answered with status {response.status}")

    async def _handle(self, visit: _Visit, response: Response) -> Outcome:
        if self._turns is not None:
            await self._turns.wait()
        try:
            handler = self._spider.handler_for(visit.lease.request)
            requests, items = await collect(handler(Page(response)))
            children = self._gate.admit(requests, visit.lease.lane)
        except BY_USERS as error:
            reraise_own_cancel(error)
            kind = "spider" if isinstance(error, SpiderError) else "handler"
            raise _Failed(GIVE_UP, kind, *described(error)) from error
        self._stats.pages += 1
        self._stats.items += len(items)
        note = "from the cache" if response.cached else ""
        return visit.done(response, children=children, items=tuple(items), note=note)

    def _redirected(self, visit: _Visit, response: Response) -> Outcome:
        request, location = visit.lease.request, response.headers["location"]
        if len(request.via) >= self._settings.max_redirects:
            raise _Failed(GIVE_UP, "redirect", f"more than {self._settings.max_redirects} redirects: endless?")
        target = redirect.redirected(request, response.status, location, response.headers.get_all("set-cookie"))
        if target is None:
            raise _Failed(GIVE_UP, "redirect", f"redirects to {location!r}, which is no web address")
        refused = self._gate.refuse(target, visit.lease.lane)
        if refused:
            return visit.done(response, note=f"redirected to {target.url}, which is not fetched: {refused}")
        return visit.done(response, children=(target,), note=f"redirected to {target.url}")

    async def _failed(self, visit: _Visit, failure: _Failed) -> Outcome:
        """Another try, or dead after the spider's own error handler had its say."""
        verdict, reason, lease = failure.verdict, failure.reason, visit.lease
        if verdict.hold > 0:
            await self._hold(lease.lane, verdict.hold, reason)
        if verdict.retry:
            self._stats.retries += 1
            return visit.retry(after=verdict.after, reason=reason, counted=failure.counted)
        if lease.attempt > 1:
            reason += f" (try {lease.attempt})"
        detail = failure.detail
        children: tuple[Request, ...] = ()
        items: list[bytes] = []
        if self._spider.error_handler is not None:
            told = Failure(lease.request, failure.kind, reason, lease.attempt, visit.response)
            try:
                requests, items = await collect(self._spider.error_handler(told))
                children = self._gate.admit(requests, lease.lane)
            except BY_USERS as error:
                reraise_own_cancel(error)
                detail = f"{detail}\n\nand in the on_error handler:\n{described(error)[1]}".strip()
        self._stats.items += len(items)
        self._stats.dead[failure.kind] += 1
        return visit.dead(kind=failure.kind, reason=reason, detail=detail, children=children, items=tuple(items))

    def _verdict(self, visit: _Visit, result: FetchError | Response) -> Verdict:
        attempt, roll = visit.lease.attempt, random.random()
        if isinstance(result, FetchError):
            return decide_error(self._retry, attempt, result, roll)
        retry_after = parse_retry_after(result.headers.get("retry-after"), datetime.now(UTC))
        return decide_status(self._retry, attempt, result.status, retry_after, roll) or GIVE_UP

    def _throttled(self, lease: Lease, response: Response) -> Pace:
        rules = self._robots.known(origin_of(lease.request.url)) if self._settings.robots else None
        floor = self._robots.pace(rules) if rules is not None else self._settings.rules.pace
        delay = throttled(self._delays.get(lease.lane, floor.delay), response.elapsed, response.ok, floor.delay)
        if len(self._delays) >= _MOST_DELAYS:
            self._delays.clear()
        self._delays[lease.lane] = delay
        return Pace(delay, floor.limit)


class _Failed(Exception):
    """A visit came to nothing, at whatever stage: what to do, and why, in a word, a line and at length.

    ``counted``: it was one of the page's tries.
    """

    def __init__(self, verdict: Verdict, kind: str, reason: str, detail: str = "", *, counted: bool = True) -> None:
        super().__init__(reason)
        self.counted = counted
        self.verdict = verdict
        self.kind = kind
        self.reason = reason
        self.detail = detail


class _Visit:
    """What is known of one visit so far; its outcome is made of it."""

    __slots__ = ("lease", "pace", "response", "touched")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.pace: Pace | None = None
        self.touched: float | None = None
        self.response: Response | None = None

    def done(
        self,
        response: Response | None = None,
        *,
        children: tuple[Request, ...] = (),
        items: tuple[bytes, ...] = (),
        note: str = "",
    ) -> Done:
        status, size = (response.status, len(response.body)) if response is not None else (0, 0)
        return Done(
            lease=self.lease, touched=self.touched, pace=self.pace, children=children, items=items, status=status,
            size=size, note=note,
        )  # fmt: skip

    def retry(self, **fields: Any) -> Retry:
        return Retry(lease=self.lease, touched=self.touched, pace=self.pace, **fields)

    def dead(self, **fields: Any) -> Dead:
        status = self.response.status if self.response is not None else 0
        return Dead(lease=self.lease, touched=self.touched, pace=self.pace, status=status, **fields)


def _wrapped(fetcher: Fetcher, spider: Spider) -> Next:
    """The fetch within the spider's middlewares, the first added outermost."""
    fetch: Next = fetcher.fetch
    for middleware in reversed(spider.middlewares):
        fetch = _layer(middleware, fetch)
    return fetch


def _layer(middleware: Middleware, inner: Next) -> Next:
    async def fetch(request: Request) -> Response:
        given: Any = middleware(request, inner)
        # Even one that is not async, which can't have fetched, is to be told what it gave.
        response = await given if isawaitable(given) else given
        if not isinstance(response, Response):
            # Here, layer by layer: those further out, which would only stumble over it, are not to blame.
            name = getattr(middleware, "__name__", repr(middleware))
            forgotten = "; is a return missing?" if response is None else ""
            raise TypeError(f"middleware {name!r} returned {response!r:.80}, not a Response{forgotten}")
        return response

    return fetch

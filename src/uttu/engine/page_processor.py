"""Process one leased request: robots.txt, fetch, handler, and the outcome.

    lease ─► throttled host? ─► private host? ─► robots.txt ─► fetch (within middlewares) ─► redirect, retry, handler
          ─► link filter ─► Done | Retry | Dead

Errors of hosts and handlers do not leave :class:`PageProcessor`: every lease ends in an outcome. A request that may
not be sent yet (robots.txt had to be fetched first, the lease ran out) ends in a ``Retry`` that does not count as an
attempt.

:class:`LoginWatch` notices logins. Each process has its own cookie jar, so a session that begins in one process is
unknown to the others. The worker's stats report it, and the command line warns if there are several workers.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from uttu.clients.addresses import mask_logins
from uttu.clock import Clock
from uttu.engine.admission import LoopBudget, MemoryBudget
from uttu.engine.aio import is_cancelled, uncancel
from uttu.engine.events import Events
from uttu.engine.handler_output import OutputBounds, apply_directives, collect, describe_error
from uttu.engine.handler_steps import HandlerBlocked, HandlerRun, StepTracker
from uttu.engine.link_filter import LinkFilter, count_links, fits_one_slice
from uttu.engine.robots import HoldLane, LeaseExpired, RobotsCache, RobotsUnavailable
from uttu.engine.stats import LoginWatch, WorkerStats
from uttu.engine.throttled_hosts import ThrottledHosts
from uttu.errors import FetchError, NetworkError, SpiderError, StoreError, TooSlow, UnknownHost
from uttu.fetch.base import Fetcher
from uttu.fetch.resolver import GuardedResolver
from uttu.frontier.base import Memo
from uttu.model import Dead, Done, Lease, Outcome, Pace, Redirect, Request, Response, Retry
from uttu.model.lease import DeadKind
from uttu.model.url import origin_of
from uttu.policy import redirect
from uttu.policy.retry import GIVE_UP, RetryPolicy, Verdict, decide_error, decide_status, parse_retry_after
from uttu.policy.robots import ALLOW_ALL, Robots
from uttu.policy.throttle import adjust_delay
from uttu.settings import Settings
from uttu.spider import Failure, Page, Spider
from uttu.spider.page import find_refresh_target
from uttu.spider.spider import request_sitemaps, wants_robots, wrap_fetch

_MOST_DELAYS = 20_000
# Handlers of one loop round may take this share of the crawl's delay, and at least _SHORTEST_SLICE seconds, so that
# they do not make requests of other hosts late.
_SLICE_SHARE = 0.01
_SHORTEST_SLICE = 0.0005
_log = logging.getLogger("uttu.page")


class PageProcessor:
    """Turns leases into outcomes.

    :param names: Resolves host names and refuses private addresses; None if they are allowed or a proxy resolves names.
    :param hold: Holds a lane for some seconds, for all workers.
    :param is_stopping: Whether a cancelled page is to be given back. By default: whether its task was cancelled.
    :param memo: See :class:`ThrottledHosts`.
    """

    def __init__(
        self,
        *,
        spider: Spider,
        fetcher: Fetcher,
        link_filter: LinkFilter,
        robots: RobotsCache,
        names: GuardedResolver | None,
        hold: HoldLane,
        is_held: Callable[[Lease], bool],
        settings: Settings,
        stats: WorkerStats,
        clock: Clock,
        events: Events | None = None,
        steps: StepTracker | None = None,
        is_stopping: Callable[[], bool] | None = None,
        memo: Memo | None = None,
    ) -> None:
        self._spider = spider
        self._fetch = wrap_fetch(fetcher.fetch, spider.middlewares)
        self._link_filter = link_filter
        self._robots = robots
        self._names = names
        self._hold = hold
        self._is_held = is_held
        self._settings = settings
        self._retry = RetryPolicy(retries=settings.retries, longest=settings.max_retry_after)
        self._patience = ThrottledHosts(settings.max_retry_after, clock, memo)
        self._logins = LoginWatch(stats) if settings.cookies else None
        self._stats = stats
        self._clock = clock
        self._events = events
        self._steps = steps or StepTracker()
        self._is_stopping = is_stopping or is_cancelled
        self._bounds = OutputBounds(
            max_links_per_page=settings.max_links_per_page,
            max_items_per_page=settings.max_items_per_page,
            max_item_size=settings.max_item_size,
            max_items_size_per_page=settings.max_items_size_per_page,
        )
        self._room = MemoryBudget()
        # Looked up once: the line for each page must not cost anything while it is off.
        self._is_logged = _log.isEnabledFor(logging.DEBUG)
        self._spider_log = spider.log
        self._delays: dict[str, float] = {}
        delay = settings.rules.pace.delay
        self._turns = LoopBudget(max(delay * _SLICE_SHARE, _SHORTEST_SLICE)) if delay > 0 else None

    async def visit(self, lease: Lease) -> Outcome:
        """Process one leased request.

        :raises StoreError: the store can't be read or written.
        """
        visit = _PageState(lease)
        try:
            outcome = await self._check_before_fetch(visit)
            if outcome is None and not self._is_held(lease):
                # The lease ran out while the store or the name server was slow; another worker may have the page.
                return visit.retry(counted=False)
            return outcome or await self._exchange(visit)
        except _PageFailed as failure:
            return await self._failed(visit, failure)

    async def _check_before_fetch(self, visit: _PageState) -> Outcome | None:
        """Check what can be decided before the fetch; returns an outcome if the page must not or need not be fetched.

        That is: the host is throttled, its address is private, robots.txt forbids the page or had to be fetched first,
        or the request only asks for the sitemaps in robots.txt.
        """
        request = visit.lease.request
        if (reason := self._patience.refuse(visit.lease.lane)) and not await self._patience.reopened(visit.lease.lane):
            raise _PageFailed(GIVE_UP, DeadKind.HTTP, reason)
        if self._names is not None and not request.proxy:
            refused = await self._names.refuse(visit.lease.lane, start=request.start)
            if refused:
                raise _PageFailed(GIVE_UP, DeadKind.SCOPE, refused)
        if self._settings.robots or wants_robots(request):
            rules = self._robots.known(origin_of(request.url)) or await self._load_rules(visit)
            if rules is None:
                return visit.retry(counted=False)
            if wants_robots(request):
                children = self._link_filter.admit(request_sitemaps(request, rules), visit.lease.lane)
                return visit.done(children=children, note="read for its sitemaps, once for the whole site")
            if refused := self._robots.refuse(rules, request.url):
                raise _PageFailed(GIVE_UP, DeadKind.ROBOTS, refused)
        return None

    async def _load_rules(self, visit: _PageState) -> Robots | None:
        """The site's rules; None if the page must be given back: robots.txt was just fetched, or the lease is gone."""
        try:
            request = visit.lease.request
            origin, lease = origin_of(request.url), visit.lease
            rules, visit.touched = await self._robots.learn(origin, request.proxy, lambda: self._is_held(lease))
        except LeaseExpired:
            return None
        except RobotsUnavailable as unavailable:
            visit.touched = unavailable.touched
            if not self._settings.robots and not unavailable.verdict.retry:
                # Only the sitemaps are wanted, and they may be at the usual path. If the site was requested just now,
                # that is tried with the next lease.
                return ALLOW_ALL if visit.touched is None else None
            # Attempts for robots.txt count for the site, not for the page.
            raise _PageFailed(unavailable.verdict, unavailable.kind, str(unavailable), counted=False) from unavailable
        if self._settings.robots:
            visit.pace = self._robots.pace(rules)
        return rules if visit.touched is None else None

    async def _exchange(self, visit: _PageState) -> Outcome:
        try:
            response = await (self._fetched(visit) if self._spider.middlewares else self._fetch(visit.lease.request))
        except FetchError as error:
            visit.touched = self._clock.monotonic()
            self._stats.failed += isinstance(error, NetworkError | TooSlow) and not isinstance(error, UnknownHost)
            raise _PageFailed(self._verdict(visit, error), error.kind, str(error)) from error
        except StoreError:
            raise  # the development cache failed, not the page
        except BaseException as error:
            visit.touched = self._clock.monotonic()
            await self._reraise_unless_users(error)
            raise _PageFailed(GIVE_UP, DeadKind.MIDDLEWARE, *self._describe(visit, error)) from error
        visit.response = response
        self._stats.record_fetch(visit.lease.lane, response.status, len(response.body), response.elapsed)
        if self._is_logged:
            _log_fetched(response)
        if self._events is not None:
            request = visit.lease.request
            self._events.page(request.url, response.status, len(response.body), response.elapsed, request.depth)
        if self._logins is not None:
            self._logins.look(visit.lease.lane, visit.lease.request, response)
        if not response.cached:
            # A middleware may have built the response itself, without ``received``.
            visit.touched = response.received or self._clock.monotonic()
            if self._settings.throttle:
                visit.pace = self._throttled(visit.lease, response)
        self._patience.answered(visit.lease.lane, response.status)
        if response.ok:
            if self._settings.meta_refresh and (target := find_refresh_target(response)):
                child = Request.from_canonical(target, depth=visit.lease.request.depth)
                if not self._link_filter.refuse(child, visit.lease.lane):
                    return self._redirected(visit, response, target, 303)
            return await self._handle(visit, response)
        if response.status in redirect.STATUSES and "location" in response.headers:
            return self._redirected(visit, response, response.headers["location"], response.status)
        verdict, reason = self._patience.decide(visit.lease.lane, response.status, self._verdict(visit, response))
        if verdict.closed:
            await self._patience.note_closed(visit.lease.lane)
        raise _PageFailed(verdict, DeadKind.HTTP, reason)

    async def _fetched(self, visit: _PageState) -> Response:
        """Fetch through the spider's middlewares, tracked as steps of the user's code."""
        longest = self._settings.handler_timeout and self._settings.handler_timeout + self._settings.timeout
        with HandlerRun(self._steps, visit.lease, longest) as run:
            return await run.drive(self._fetch(visit.lease.request))

    async def _handle(self, visit: _PageState, response: Response) -> Outcome:
        if self._turns is not None:
            await self._turns.wait()
        try:
            page = Page(response)
            page._logger = self._spider_log
            if not page._is_large:  # most pages are small
                return await self._hand_over(visit, page)
            async with self._room.take(len(response.body)):
                await page.prepare()
                return await self._hand_over(visit, page)
        except BaseException as error:
            await self._reraise_unless_users(error)
            kind = DeadKind.SPIDER if isinstance(error, SpiderError) else DeadKind.HANDLER
            raise _PageFailed(GIVE_UP, kind, *self._describe(visit, error)) from error

    async def _hand_over(self, visit: _PageState, page: Page) -> Outcome:
        """Call the handler; returns the outcome with its items and requests."""
        note = ""
        most = self._settings.max_links_per_page
        handler = self._spider.handler_for(visit.lease.request)
        with self._run(visit) as run:
            requests, items = await collect(handler(page), run, self._bounds)
            name = visit.lease.request.handler or self._spider.default_handler
            if name not in self._stats.giving:
                self._stats.gave(name, bool(items) or any(map(count_links, requests)))
            if self._settings.nofollow or self._settings.noindex:
                requests, items, note = apply_directives(page, requests, items, self._settings)
            if fits_one_slice(requests, most):  # true for most pages
                children, left = self._link_filter.admit(requests, visit.lease.lane), 0
            else:
                children, left = await self._link_filter.admit_in_slices(
                    requests, visit.lease.lane, most, run.yield_to_loop
                )
        self._stats.pages += 1
        self._stats.items += len(items)
        if page.response.cached:
            note = f"from the cache; {note}".removesuffix("; ")
        if left:
            note = f"{note}; " * bool(note) + f"the last {left:,} of its links were left out: max_links_per_page={most}"
            _log.warning("%s: %s", mask_logins(visit.lease.request.url), note)
        return visit.done(page.response, children=children, items=tuple(items), note=note)

    def _run(self, visit: _PageState) -> HandlerRun:
        return HandlerRun(self._steps, visit.lease, self._settings.handler_timeout)

    def _describe(self, visit: _PageState, error: BaseException) -> tuple[str, str]:
        """Describe an error in a step of the handler: its text is made by the user's code, too."""
        if isinstance(error, HandlerBlocked):
            # Not in a step: the heartbeat is still late, so that would be interrupted at once.
            return describe_error(error)
        try:
            with HandlerRun(self._steps, visit.lease):
                return describe_error(error)
        except HandlerBlocked as blocked:
            return f"{type(error).__name__}, whose text {blocked}", ""

    async def _reraise_unless_users(self, error: BaseException) -> None:
        """Raise errors that the user's code did not cause: this page must be given back, or the program must end.

        For all other errors the page is dead and its task continues, even if the handler cancelled that task.
        """
        if isinstance(error, HandlerBlocked) and error.stopping:
            raise asyncio.CancelledError from error
        if isinstance(error, asyncio.CancelledError):
            if self._is_stopping():
                raise error
            await uncancel()
        # With Python's default signal handler, Ctrl-C raises this in whatever code is running.
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            raise error

    def _redirected(self, visit: _PageState, response: Response, location: str, status: int) -> Outcome:
        request = visit.lease.request
        if len(request.via) >= (most := self._settings.max_redirects):
            raise _PageFailed(GIVE_UP, DeadKind.REDIRECT, f"more than {most} redirects")
        set_cookies = response.headers.get_all("set-cookie")
        target = redirect.redirect_request(request, status, location, set_cookies, self._clock.time())
        if target is None:
            raise _PageFailed(GIVE_UP, DeadKind.REDIRECT, f"redirects to {location!r}, which is not a web address")
        if refused := self._link_filter.refuse(target, visit.lease.lane):
            return msgspec.structs.replace(visit.done(response), redirect=Redirect(target.url, refused))
        return msgspec.structs.replace(visit.done(response, children=(target,)), redirect=Redirect(target.url))

    async def _failed(self, visit: _PageState, failure: _PageFailed) -> Outcome:
        """Hold the lane if needed; return a retry, or call the spider's error handler and return a dead page."""
        verdict, reason, lease = failure.verdict, failure.reason, visit.lease
        if verdict.hold > 0:
            await self._hold(lease.lane, verdict.hold, reason)
        if verdict.retry:
            self._stats.retries += 1
            _log.info(
                "Retry in %(after).1f s after attempt %(attempt)d: %(url)s: %(reason)s",
                _fields(lease, reason) | {"after": verdict.after},
            )
            return visit.retry(after=verdict.after, reason=reason, counted=failure.counted)
        if lease.attempt > 1:
            reason += f" (try {lease.attempt})"
        detail = failure.detail
        children: tuple[Request, ...] = ()
        items: list[bytes] = []
        if self._spider.error_handler is not None:
            given_up = Failure(lease.request, failure.kind, reason, lease.attempt, visit.response)
            try:
                with self._run(visit) as run:
                    requests, items = await collect(self._spider.error_handler(given_up), run, self._bounds)
                    most = self._settings.max_links_per_page
                    children, _ = await self._link_filter.admit_in_slices(requests, lease.lane, most, run.yield_to_loop)
            except BaseException as error:
                await self._reraise_unless_users(error)
                items = []
                detail = f"{detail}\n\nand in the on_error handler:\n{self._describe(visit, error)[1]}".strip()
        self._stats.items += len(items)
        self._stats.dead[failure.kind] += 1
        _log.info("Given up (%(kind)s): %(url)s: %(reason)s", _fields(lease, reason) | {"kind": failure.kind})
        if detail:
            _log.debug("%s: %s", mask_logins(lease.request.url), mask_logins(detail))
        return visit.dead(kind=failure.kind, reason=reason, detail=detail, children=children, items=tuple(items))

    def _verdict(self, visit: _PageState, result: FetchError | Response) -> Verdict:
        attempt, roll = visit.lease.attempt, random.random()
        if isinstance(result, FetchError):
            return decide_error(self._retry, attempt, result, roll)
        retry_after = parse_retry_after(result.headers.get("retry-after"), datetime.now(UTC))
        return decide_status(self._retry, attempt, result.status, retry_after, roll) or GIVE_UP

    def _throttled(self, lease: Lease, response: Response) -> Pace:
        rules = self._robots.known(origin_of(lease.request.url)) if self._settings.robots else None
        floor = self._robots.pace(rules) if rules is not None else self._settings.rules.pace
        delay = adjust_delay(self._delays.get(lease.lane, floor.delay), response.elapsed, response.ok, floor.delay)
        if len(self._delays) >= _MOST_DELAYS:
            self._delays.clear()
        self._delays[lease.lane] = delay
        return Pace(delay, floor.limit)


class _PageFailed(Exception):
    """Processing a page failed, at any stage. ``kind``, ``reason`` and ``detail`` are those of a dead letter.

    :param counted: Whether this counts as one of the page's attempts.
    """

    def __init__(self, verdict: Verdict, kind: str, reason: str, detail: str = "", *, counted: bool = True) -> None:
        super().__init__(reason)
        self.counted = counted
        self.verdict = verdict
        self.kind = kind
        self.reason = reason
        self.detail = detail


class _PageState:
    """The state of one page while it is processed; builds its outcome."""

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
            lease=self.lease,
            touched=self.touched,
            pace=self.pace,
            children=children,
            items=items,
            status=status,
            size=size,
            note=note,
        )

    def retry(self, **fields: Any) -> Retry:
        return Retry(lease=self.lease, touched=self.touched, pace=self.pace, **fields)

    def dead(self, **fields: Any) -> Dead:
        status = self.response.status if self.response is not None else 0
        return Dead(lease=self.lease, touched=self.touched, pace=self.pace, status=status, **fields)


def _fields(lease: Lease, reason: str) -> dict[str, Any]:
    """The fields of a log record about a failed page."""
    return {"url": mask_logins(lease.request.url), "attempt": lease.attempt, "reason": mask_logins(reason)}


def _log_fetched(response: Response) -> None:
    """``200 GET https://a.example/ 12.3 KB 0.12 s``."""
    request, size = response.request, len(response.body)
    fields = {
        "status": response.status,
        "method": request.method,
        "url": mask_logins(request.url),
        "bytes": size,
        "seconds": round(response.elapsed, 3),
        "cached": response.cached,
    }
    source = " from the cache" if response.cached else ""
    _log.debug(f"%(status)d %(method)s %(url)s {size / 1000:.1f} KB %(seconds).2f s{source}", fields)

"""What a visit tells the worker's stats; what it does as a whole is tested in tests/crawl."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging

import pytest

from uttu.clock import SystemClock
from uttu.engine.link_filter import LinkFilter
from uttu.engine.page_processor import PageProcessor
from uttu.engine.robots import RobotsCache
from uttu.engine.stats import WorkerStats
from uttu.errors import BadResponse, FetchError, NetworkError, TLSError, TooLarge, TooSlow, UnknownHost
from uttu.fetch.base import Fetcher
from uttu.model import Done, Headers, Lease, Pace, Request, Response
from uttu.policy.scope import Scope
from uttu.policy.traps import Traps
from uttu.settings import Settings
from uttu.spider import Page, Spider


class Failing:
    """Never has a response."""

    def __init__(self, error: FetchError) -> None:
        self._error = error

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        raise self._error

    async def close(self) -> None:
        pass


class NoMemo:
    """Must not be asked: robots.txt does not matter."""

    async def recall(self, key: str) -> bytes | None:
        raise AssertionError(key)

    async def remember(self, key: str, value: bytes, seconds: float) -> None:
        raise AssertionError(key)


class Serving:
    """Has the same page for every request."""

    def __init__(self, body: bytes, content_type: str) -> None:
        self._body = body
        self._headers = Headers([("content-type", content_type)])

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        return Response(request=request, url=request.url, status=200, headers=self._headers, body=self._body)

    async def close(self) -> None:
        pass


def visitor_of(spider: Spider, fetcher: Fetcher, stats: WorkerStats) -> PageProcessor:
    async def hold(lane: str, seconds: float, reason: str) -> None: ...

    clock = SystemClock()
    link_filter = LinkFilter(Scope(), Traps(datetime.date(2026, 1, 1)))
    keeper = RobotsCache(
        fetcher=fetcher,
        link_filter=link_filter,
        names=None,
        memo=NoMemo(),
        user_agent="Uttu",
        pace=Pace(0, 1),
        hold=hold,
        clock=clock,
    )
    return PageProcessor(
        spider=spider,
        fetcher=fetcher,
        link_filter=link_filter,
        robots=keeper,
        names=None,
        hold=hold,
        is_held=lambda lease: True,
        settings=Settings(robots=False),
        stats=stats,
        clock=clock,
    )


def lease_of(number: int = 1) -> Lease:
    request = Request(url=f"http://example.org/{number}")
    return Lease(
        id=number, fingerprint=request.fingerprint, lane=request.lane, request=request, attempt=1, wait=0, deadline=0
    )


@pytest.mark.parametrize(
    ("error", "strained"),
    [(NetworkError, 1), (TooSlow, 1), (TLSError, 1), (UnknownHost, 0), (TooLarge, 0), (BadResponse, 0)],
)
async def test_which_failures_are_signs_of_strain(error: type[FetchError], strained: int) -> None:
    stats = WorkerStats()
    await visitor_of(Spider("test"), Failing(error("no")), stats).visit(lease_of())
    assert (stats.failed, stats.fetched) == (strained, 0)


@pytest.mark.parametrize(
    ("size", "content_type", "at_once"),
    [
        (9_000_000, "text/html", 1),
        (2_500_000, "text/xml", 3),
        (5_000_000, "application/json", 1),
        (9_000_000, "application/pdf", 4),  # not parsed
        (200_000, "text/html", 4),
    ],
)
async def test_large_pages_are_handled_a_few_at_a_time(size: int, content_type: str, at_once: int) -> None:
    spider = Spider("test")
    inside = most = 0
    full, overfull = asyncio.Event(), asyncio.Event()

    @spider.page
    async def page(page: Page) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == at_once:
            full.set()
        if inside > at_once:
            overfull.set()
        await full.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.4):  # for another one to come in
                await overfull.wait()
        inside -= 1

    fetcher = Serving(b"<p>" + b"x" * size, content_type)
    processor = visitor_of(spider, fetcher, WorkerStats())
    outcomes = await asyncio.gather(*(processor.visit(lease_of(number)) for number in range(4)))
    assert [type(outcome) for outcome in outcomes] == [Done] * 4
    assert most == at_once


async def test_each_page_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    spider = Spider("test")

    @spider.page
    def page(page: Page) -> None:
        page.log.info("seen")

    fetcher = Serving(b"x" * 12_345, "text/plain")
    with caplog.at_level(logging.DEBUG, "uttu"):
        await visitor_of(spider, fetcher, WorkerStats()).visit(lease_of())
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("uttu.page", "200 GET http://example.org/1 12.3 KB 0.00 s"),
        ("uttu.spider.test", "http://example.org/1: seen"),
    ]


async def test_a_page_that_is_given_up_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "uttu"):
        await visitor_of(Spider("test"), Failing(TooLarge("too large")), WorkerStats()).visit(lease_of())
    assert [each.getMessage() for each in caplog.records] == ["Given up (too_large): http://example.org/1: too large"]


async def test_pages_log_nothing_by_default(caplog: pytest.LogCaptureFixture) -> None:
    await visitor_of(Spider("test"), Failing(UnknownHost("no such host")), WorkerStats()).visit(lease_of())
    await visitor_of(Spider("test"), Serving(b"x", "text/plain"), WorkerStats()).visit(lease_of())
    assert not caplog.records

"""Hosts that ask for more time than a crawl has: what waits longer than the bound is dead, with that reason."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.crawl.servers import NOT_FOUND, answering, asked, page
from tests.fetch.servers import response
from uttu import Page, Spider
from uttu.model.crawl import CrawlState
from uttu.testing.crawls import Crawled, crawl

YEAR = 365 * 86400
THROTTLED = "429 Too Many Requests"


async def run(folder: Path, *start: str, **settings: Any) -> Crawled:
    spider = Spider("waits", start=start, private=True)

    @spider.page
    def links(page: Page) -> object:
        return [{"url": page.url}, page.follow_all("a")]

    async with asyncio.timeout(20):
        return await crawl(spider, folder, **settings)


@pytest.mark.parametrize("delay", ["inf", "Infinity", "1e309", "1e9", str(YEAR), "301"])
async def test_a_crawl_delay_beyond_the_bound(tmp_path: Path, delay: str) -> None:
    def answer(path: str) -> bytes:
        robots = f"User-agent: *\nCrawl-delay: {delay}\n".encode()
        return response(robots) if path == "/robots.txt" else page()

    async with answering(answer) as server:
        urls = [server.url + str(number) for number in range(20)]
        done = await run(tmp_path, *urls, robots=True, per_host=1)
        assert done.ending.state is CrawlState.FINISHED
        assert (done.counts.done, done.counts.dead) == (0, 20)
        assert all("robots.txt asks for" in letter.reason for letter in done.dead)
        assert all("max_crawl_delay=300" in letter.reason for letter in done.dead)
        assert asked(server) == ["/robots.txt"]


@pytest.mark.parametrize("delay", ["nan", "-1", "-inf", "0", "soon", ""])
async def test_a_crawl_delay_that_makes_no_sense(tmp_path: Path, delay: str) -> None:
    def answer(path: str) -> bytes:
        robots = f"User-agent: *\nCrawl-delay: {delay}\n".encode()
        return response(robots) if path == "/robots.txt" else page()

    async with answering(answer) as server:
        done = await run(tmp_path, *(server.url + str(number) for number in range(5)), robots=True)
        assert (done.counts.done, done.counts.dead) == (5, 0)


async def test_the_bound_on_crawl_delays_is_a_setting(tmp_path: Path) -> None:
    def answer(path: str) -> bytes:
        return response(b"User-agent: *\nCrawl-delay: 0.3\n") if path == "/robots.txt" else page()

    async with answering(answer) as server:
        urls = server.url + "1", server.url + "2"
        refused = await run(tmp_path / "refused", *urls, robots=True, max_crawl_delay=0.2)
        assert refused.counts.dead == 2
        kept = await run(tmp_path / "kept", *urls, robots=True, max_crawl_delay=0.4)
        assert kept.counts.done == 2
        slower = await run(tmp_path / "slower", *urls, robots=True, max_crawl_delay=0.1, delay=0.5)
        assert slower.counts.done == 2, "the crawl itself is slower"


@pytest.mark.parametrize("status", [THROTTLED, "503 Service Unavailable", "529 Overloaded"])
@pytest.mark.parametrize("wait", [str(YEAR), "9" * 40, "date", "3601"])
async def test_a_host_that_throttles_for_a_year(tmp_path: Path, status: str, wait: str) -> None:
    later = formatdate(time.time() + YEAR, usegmt=True) if wait == "date" else wait
    async with answering(lambda path: response(b"", f"Retry-After: {later}", status=status)) as server:
        urls = [server.url + str(number) for number in range(30)]
        done = await run(tmp_path, *urls, per_host=1)
        assert done.ending.state is CrawlState.FINISHED
        assert (done.counts.done, done.counts.dead) == (0, 30)
        assert {letter.kind for letter in done.dead} == {"http"}
        assert all("asks to wait" in letter.reason for letter in done.dead)
        assert all("max_retry_after=3600" in letter.reason for letter in done.dead)
        assert len(asked(server)) == 1, "nobody else is asked for"


async def test_a_failing_page_does_not_close_its_host(tmp_path: Path) -> None:
    def answer(path: str) -> bytes:
        return response(b"", f"Retry-After: {YEAR}", status="500 No") if path == "/bad" else page()

    async with answering(answer) as server:
        done = await run(tmp_path, server.url + "bad", server.url + "good", per_host=1)
        assert "asks to wait 365 days" in done.dead_reason(server.url + "bad")
        assert done.counts.done == 1


async def test_other_hosts_go_on(tmp_path: Path) -> None:
    async with (
        answering(lambda path: response(b"", f"Retry-After: {YEAR}", status=THROTTLED)) as closed,
        answering(lambda path: page("/a", "/b") if path == "/" else page()) as good,
    ):
        done = await run(tmp_path, closed.url, good.url)
        assert (done.counts.done, done.counts.dead) == (3, 1)


async def test_a_wait_within_the_bound_is_kept(tmp_path: Path) -> None:
    answers = iter([response(b"", "Retry-After: 1", status=THROTTLED), page()])
    async with answering(lambda path: next(answers)) as server:
        began = time.monotonic()
        done = await run(tmp_path, server.url, max_retry_after=1)
        assert done.counts.done == 1
        assert time.monotonic() - began >= 1


@pytest.mark.parametrize("status", [THROTTLED, "503 Service Unavailable", "500 No"])
async def test_a_robots_txt_for_which_to_wait_a_year(tmp_path: Path, status: str) -> None:
    def answer(path: str) -> bytes:
        return response(b"", f"Retry-After: {YEAR}", status=status) if path == "/robots.txt" else NOT_FOUND

    async with answering(answer) as server:
        urls = [server.url + str(number) for number in range(10)]
        done = await run(tmp_path, *urls, robots=True, per_host=1)
        assert done.ending.state is CrawlState.FINISHED
        assert done.counts.dead == 10
        assert all("asks to wait 365 days" in letter.reason for letter in done.dead)
        assert asked(server) == ["/robots.txt"]


async def test_a_robots_txt_of_many_rules_does_not_stop_the_loop(tmp_path: Path) -> None:
    rules = b"User-agent: *\n" + b"".join(b"Disallow: " + b"*a" * 10 + b"%d$\n" % number for number in range(200_000))
    spells: list[float] = []

    async def watch() -> None:
        """How long the loop's thread works at a stretch; in CPU time, as the machine may be busy."""
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.01)
            spells.append(time.thread_time() - began)

    def answer(path: str) -> bytes:
        return response(rules) if path == "/robots.txt" else page()

    async with answering(answer) as server:
        watcher = asyncio.create_task(watch())
        done = await run(tmp_path, server.url + "a", server.url + "b", robots=True)
        watcher.cancel()
        assert done.counts.done == 2
    assert max(spells) < 0.2


async def test_a_host_that_asks_for_one_short_wait_after_the_other(tmp_path: Path) -> None:
    """Each is within the bound, but thirty pages with ten tries each would take five minutes."""
    async with answering(lambda path: response(b"", "Retry-After: 1", status=THROTTLED)) as server:
        done = await run(tmp_path, *(server.url + str(number) for number in range(30)), per_host=1, max_retry_after=2)
        assert done.counts.dead == 30
        assert all("max_retry_after=2" in letter.reason for letter in done.dead)
        assert len(asked(server)) <= 4


async def test_a_host_that_throttles_now_and_then_is_waited_for(tmp_path: Path) -> None:
    answered = 0

    def answer(path: str) -> bytes:
        nonlocal answered
        answered += 1
        return response(b"", "Retry-After: 1", status=THROTTLED) if answered % 2 else page()

    async with answering(answer) as server:
        done = await run(tmp_path, *(server.url + str(number) for number in range(4)), per_host=1, max_retry_after=1.5)
        assert (done.counts.done, done.counts.dead) == (4, 0)

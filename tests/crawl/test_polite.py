"""Politeness, by the server's log."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from uttu import Page, Spider
from uttu.frontier.sqlite import SqliteFrontier
from uttu.model import Lease
from uttu.model.crawl import CrawlState
from uttu.policy import robots as robots_policy
from uttu.testing.crawls import crawl
from uttu.testing.site import Site, gaps, overlaps, serve


def follower(start: list[str] | str, **settings: Any) -> Spider:
    spider = Spider("polite", start=start, private=True, **settings)

    @spider.page
    def page(page: Page) -> object:
        return [{"url": page.url}, *page.follow_all("a[href*='/p/']")]

    return spider


async def test_three_hundred_hosts(tmp_path: Path) -> None:
    """No gap shorter than the delay; the rate that is reached is measured by bench.polite."""
    async with serve(Site(hosts=300, pages=3000, links=8, page_bytes=600)) as site:
        done = await crawl(follower(site.url + "p/0"), tmp_path, delay=0.1, per_host=1, robots=True)
        assert done.counts.done == 3000
        assert min(gap for each in gaps(site.log).values() for gap in each) >= 0.1
        assert max(overlaps(site.log).values()) == 1


async def test_several_at_once_of_one_host(tmp_path: Path) -> None:
    async with serve(Site(pages=200, latency=0.02, page_bytes=600)) as site:
        done = await crawl(follower(site.url + "p/0"), tmp_path, per_host=3)
        assert done.counts.done == 200
        assert max(overlaps(site.log).values()) == 3


async def test_robots_rules_are_kept(tmp_path: Path) -> None:
    async with serve(Site(pages=5)) as site:
        spider = follower([site.url + "p/0", site.url + "private/1"], user_agent="Uttu/test")
        done = await crawl(spider, tmp_path, robots=True)
        assert done.dead_reason(site.url + "private/1") == "robots: disallowed by the site's robots.txt"
        assert not [record for record in site.log if record.path.startswith("/private")]
        assert [record.path for record in site.log].count("/robots.txt") == 1
        assert site.log[0].path == "/robots.txt"
        assert done.counts.done == 5


async def test_robots_may_be_ignored(tmp_path: Path) -> None:
    async with serve(Site(pages=5)) as site:
        done = await crawl(follower(site.url + "private/1"), tmp_path, robots=False)
        assert done.counts.done == 1
        assert not [record for record in site.log if record.path == "/robots.txt"]


@pytest.mark.parametrize(
    ("robots", "fetched"),
    [
        (404, True),
        (403, True),
        ("User-agent: *\nDisallow: /", False),
        ("User-agent: other\nDisallow: /", True),
        ("User-agent: uttu\nDisallow: /p/", False),
        ("# " + "x" * 600_000 + "\nUser-agent: *\nDisallow: /", True),
    ],
)
async def test_what_robots_answers_mean(tmp_path: Path, robots: str | int, fetched: bool) -> None:
    async with serve(Site(pages=1, robots=robots)) as site:
        done = await crawl(follower(site.url + "p/0", user_agent="Uttu/0"), tmp_path, robots=True)
        assert done.counts.done == int(fetched)
        assert any(record.path == "/p/0" for record in site.log) is fetched


PRIVATE = "robots: disallowed by the site's robots.txt"


def hops(number: int) -> str:
    """A way of so many redirects to ``/odd/robots.txt``, the one to it included."""
    path = "/odd/robots.txt"
    for _ in range(number - 1):
        path = f"/odd/redirect/to?url={quote(path, safe='')}"
    return path


@pytest.mark.parametrize("robots", [301, 302, 303, 307, 308, hops(1), hops(5)])
async def test_robots_redirects_are_followed(tmp_path: Path, robots: str | int) -> None:
    """To a file that forbids what the answer without its redirect would allow."""
    async with serve(Site(pages=1, robots=robots)) as site:
        done = await crawl(follower([site.url + "p/0", site.url + "private/1"]), tmp_path, robots=True)
        assert done.dead_reason(site.url + "private/1") == PRIVATE
        assert done.counts.done == 1
        assert not [record for record in site.log if record.path.startswith("/private")]


async def test_a_robots_behind_too_many_redirects_is_absent(tmp_path: Path) -> None:
    async with serve(Site(pages=1, robots=hops(6))) as site:
        done = await crawl(follower(site.url + "private/1"), tmp_path, robots=True)
        assert (done.counts.done, done.counts.dead) == (1, 0)
        assert not [record for record in site.log if record.path == "/odd/robots.txt"]
        assert len(site.log) == 1 + robots_policy.MAX_REDIRECTS + 1


@pytest.mark.parametrize("in_scope", [True, False])
async def test_a_robots_redirect_out_of_scope_is_not_followed(tmp_path: Path, in_scope: bool) -> None:
    async with serve(Site(pages=1, hosts=2, robots="/odd/redirect/host")) as site:
        domains = [] if in_scope else ["127.77.0.1"]
        done = await crawl(follower(site.url + "p/0"), tmp_path, robots=True, domains=domains)
        assert done.counts.done == 1
        assert [record.path for record in site.log if record.host == "127.77.0.2"] == ["/odd/redirect/0"] * in_scope


@pytest.mark.parametrize(
    "robots", ["User-agent: *\nDisallow: /private/\n" + "# much to say\n" * 50_000, "/odd/endless"]
)
async def test_a_robots_that_is_larger_than_a_page_may_be(tmp_path: Path, robots: str) -> None:
    async with serve(Site(pages=3, page_bytes=600, robots=robots)) as site:
        spider = follower([site.url + "p/0", site.url + "private/1"])
        done = await crawl(spider, tmp_path, robots=True, max_body=10_000)
        if robots.startswith("User-agent"):
            assert done.dead_reason(site.url + "private/1") == PRIVATE
        assert done.counts.done + done.counts.dead == 4
        assert {letter.kind for letter in done.dead} <= {"robots"}
        assert [record.path for record in site.log].count("/robots.txt") == 1


@pytest.mark.parametrize("status", [500, 501])
async def test_a_site_whose_robots_fails_is_left_alone(tmp_path: Path, status: int) -> None:
    """Its tries are its own: not those of a page, nor of each page."""
    async with serve(Site(pages=5, robots=status)) as site:
        starts = [f"{site.url}p/{number}" for number in range(5)]
        done = await crawl(follower(starts), tmp_path, robots=True, retries=0)
        assert (done.counts.done, done.counts.dead) == (0, 5)
        for start in starts:
            assert done.dead_reason(start) == f"http: robots.txt was answered with {status} (4 tries)"
        assert [record.path for record in site.log] == ["/robots.txt"] * 4
        waits = gaps(site.log)["127.77.0.1"]
        assert all(wait >= least for wait, least in zip(waits, [0.5, 1.0, 2.0], strict=True))


@pytest.mark.parametrize("per_host", [1, 0])
async def test_a_site_whose_robots_recovers_is_crawled(tmp_path: Path, per_host: int) -> None:
    async with serve(Site(pages=20, robots=(501, 500, None))) as site:
        starts = [site.url + "p/0", site.url + "p/1", site.url + "private/1"]
        done = await crawl(follower(starts), tmp_path, robots=True, retries=0, per_host=per_host)
        assert done.counts.done == 20
        assert done.dead_reason(site.url + "private/1") == PRIVATE
        paths = [record.path for record in site.log]
        assert paths[:3] == ["/robots.txt"] * 3
        assert "/robots.txt" not in paths[3:]


async def test_a_site_whose_robots_throttles_waits_as_long_as_it_says(tmp_path: Path) -> None:
    async with serve(Site(pages=3, robots=("/odd/429/x?times=1&after=2", None))) as site:
        done = await crawl(follower(site.url + "p/0"), tmp_path, robots=True, retries=0)
        assert (done.counts.done, done.counts.dead) == (3, 0)
        paths = [record.path for record in site.log]
        assert [path.partition("?")[0] for path in paths[:3]] == ["/robots.txt", "/odd/429/x", "/robots.txt"]
        assert site.log[2].time - site.log[1].time >= 2.0


async def test_a_page_has_all_its_tries_after_those_of_its_robots(tmp_path: Path) -> None:
    async with serve(Site(pages=3, robots=(501, None))) as site:
        flaky = site.url + "odd/flaky/x?fails=1&status=500"
        done = await crawl(follower(flaky), tmp_path, robots=True, retries=1)
        assert (done.counts.done, done.counts.dead) == (1, 0)


async def test_a_host_that_is_gone_does_not_hold_up_the_crawl(tmp_path: Path) -> None:
    async with serve(Site(pages=5)) as site:
        port = site.url.rstrip("/").rpartition(":")[2]
        gone = [f"http://127.77.0.9:{port}/{number}" for number in range(3)]
        done = await crawl(follower([*gone, site.url + "p/0"]), tmp_path, robots=True, retries=0)
        assert (done.counts.done, done.counts.dead) == (5, 3)
        for url in gone:
            assert done.dead_reason(url).startswith("network: robots.txt could not be fetched: ")
            assert done.dead_reason(url).endswith("(4 tries)")


async def test_the_crawl_delay_is_kept(tmp_path: Path) -> None:
    async with serve(Site(pages=4, crawl_delay=0.3)) as site:
        done = await crawl(follower(site.url + "p/0"), tmp_path, robots=True, per_host=8)
        assert done.counts.done == 4
        assert min(gaps(site.log)["127.77.0.1"]) >= 0.3


async def test_retry_after_holds_the_whole_host(tmp_path: Path) -> None:
    async with serve(Site(pages=3)) as site:
        slow = site.url + "odd/429/x?times=1&after=2"
        done = await crawl(follower([slow, site.url + "p/0"]), tmp_path, per_host=1)
        assert done.counts.done == 4
        times = [(record.time, record.path) for record in site.log]
        assert times[0][1].startswith("/odd/429")
        assert times[1][0] - times[0][0] >= 2.0, "nothing else was asked meanwhile"


async def test_503_is_tried_again_later(tmp_path: Path) -> None:
    async with serve(Site(pages=3)) as site:
        done = await crawl(follower(site.url + "odd/flaky/x?fails=1&status=503"), tmp_path)
        assert (done.ending.state, done.counts.done, done.counts.dead) == (CrawlState.FINISHED, 1, 0)
        assert gaps(site.log)["127.77.0.1"][0] >= 2.0


async def test_the_throttle_slows_down_for_a_slow_host(tmp_path: Path) -> None:
    async with serve(Site(pages=6, latency=0.3)) as site:
        done = await crawl(follower(site.url + "p/0"), tmp_path, throttle=True, per_host=1)
        assert done.counts.done == 6
        # Toward one answer's time between two requests: 0.15, 0.225 … after the answer.
        assert gaps(site.log)["127.77.0.1"][-1] >= 0.3 + 0.25


async def test_a_lane_that_waits_is_not_asked_all_the_time(tmp_path: Path) -> None:
    """An idle worker looks for work ten times a second, not ten thousand."""
    calls = 0
    lease = SqliteFrontier.lease

    async def counted(self: SqliteFrontier, limit: int, worker: str) -> list[Lease]:
        nonlocal calls
        calls += 1
        return await lease(self, limit, worker)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteFrontier, "lease", counted)
        async with serve(Site(pages=3)) as site:
            done = await crawl(follower(site.url + "p/0"), tmp_path, delay=1.0, per_host=1)
    assert done.counts.done == 3
    assert calls < 80


async def test_a_held_host_is_not_asked_for_what_was_leased_before(tmp_path: Path) -> None:
    """Pages in flight come back; those that only wait in the worker are given back."""
    async with serve(Site(pages=30, latency=0.2)) as site:
        starts = [site.url + "odd/429/x?times=1&after=2", *(f"{site.url}p/{number}" for number in range(30))]
        await crawl(follower(starts), tmp_path, concurrency=4)
        told = site.log[0].ended
        assert told is not None
        meanwhile = [record for record in site.log if told + 0.2 < record.time < told + 2.0]
        assert meanwhile == []

"""Crawls by sitemap, found through robots.txt: by the server's log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from uttu import Page, Spider
from uttu.testing.crawls import crawl
from uttu.testing.site import Site, serve

PAGES, PRODUCTS = 30, 5


def reader(root: str, **settings: Any) -> Spider:
    """Takes what the sitemaps list, and follows no links."""
    spider = Spider("sitemap", sitemap=root, private=True, **settings)

    @spider.page
    def page(page: Page) -> object:
        return {"url": page.url}

    return spider


def site_with(robots: str | int | tuple[str | int | None, ...] | None, **fields: Any) -> Site:
    return Site(pages=PAGES, products=PRODUCTS, page_bytes=600, robots=robots, **fields)


@pytest.mark.parametrize("obeyed", [True, False])
@pytest.mark.parametrize(
    "robots", [None, 404, 403, 301, "", "User-agent: *\nDisallow: /private/", "Sitemap: /sitemap.xml"]
)
async def test_the_sitemap_of_a_site(tmp_path: Path, robots: str | int | None, obeyed: bool) -> None:
    """Named by robots.txt, or in the usual place; robots.txt is asked for once, and not as a page."""
    async with serve(site_with(robots)) as site:
        done = await crawl(reader(site.url), tmp_path, robots=obeyed)
        assert len(done.items) == PAGES + PRODUCTS
        assert done.counts.dead == 0
        assert set(Counter(record.path for record in site.log).values()) == {1}
        assert site.log[0].path == "/robots.txt"


@pytest.mark.parametrize("obeyed", [True, False])
async def test_the_rules_beside_the_sitemap_count_only_if_they_are_obeyed(tmp_path: Path, obeyed: bool) -> None:
    async with serve(site_with("User-agent: *\nDisallow: /shop/\nSitemap: /sitemap-shop.xml.gz")) as site:
        done = await crawl(reader(site.url), tmp_path, robots=obeyed)
        assert len(done.items) == (0 if obeyed else PRODUCTS)
        assert [letter.kind for letter in done.dead] == ["robots"] * (PRODUCTS if obeyed else 0)


@pytest.mark.parametrize("throttle", [True, False])
async def test_a_crawl_delay_that_is_not_obeyed(tmp_path: Path, throttle: bool) -> None:
    """If it were, the crawl would take half an hour."""
    robots = "User-agent: *\nCrawl-delay: 300\nSitemap: /sitemap-shop.xml.gz"
    async with serve(site_with(robots)) as site:
        done = await crawl(reader(site.url), tmp_path, robots=False, throttle=throttle)
        assert len(done.items) == PRODUCTS


@pytest.mark.parametrize("obeyed", [True, False])
async def test_a_robots_that_fails_first(tmp_path: Path, obeyed: bool) -> None:
    async with serve(site_with((500, None))) as site:
        done = await crawl(reader(site.url), tmp_path, robots=obeyed, retries=0)
        assert (len(done.items), done.counts.dead) == (PAGES + PRODUCTS, 0)
        assert [record.path for record in site.log].count("/robots.txt") == 2


async def test_a_robots_that_stays_away_is_named(tmp_path: Path) -> None:
    async with serve(site_with(500)) as site:
        done = await crawl(reader(site.url), tmp_path, robots=True)
        assert done.dead_reason(site.url + "robots.txt") == "http: robots.txt was answered with 500 (4 tries)"
        assert {record.path for record in site.log} == {"/robots.txt"}


async def test_a_robots_that_stays_away_and_is_not_obeyed(tmp_path: Path) -> None:
    """The sitemap is looked for in its usual place."""
    async with serve(site_with(500)) as site:
        done = await crawl(reader(site.url), tmp_path, robots=False)
        assert (len(done.items), done.counts.dead) == (PAGES + PRODUCTS, 0)
        assert [record.path for record in site.log].count("/robots.txt") == 4


async def test_pages_of_the_site_beside_its_sitemap(tmp_path: Path) -> None:
    """With rules to learn for both, robots.txt is still asked for once."""
    async with serve(site_with(404)) as site:
        done = await crawl(reader(site.url, start=[site.url + "shop/", site.url + "odd/"]), tmp_path, robots=True)
        assert len(done.items) == PAGES + PRODUCTS + 2
        assert [record.path for record in site.log].count("/robots.txt") == 1

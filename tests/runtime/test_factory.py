"""Settings become objects: each takes effect, in a whole crawl or in the fetcher that is made of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fetch.certificates import Authority
from tests.fetch.test_tls import Http2
from uttu import Page, Request, Spider
from uttu.fetch import http
from uttu.model.crawl import CrawlLimits
from uttu.runtime import factory
from uttu.settings import Settings
from uttu.testing.crawls import Crawled, crawl
from uttu.testing.site import Site, overlaps, serve

FETCHING: dict[str, Any] = {
    "user_agent": "Test/1",
    "timeout": 7.0,
    "connect_timeout": 6.0,
    "read_timeout": 5.0,
    "max_body": 4,
    "cookies": False,
    "http2": False,
    "verify": False,
    "ca_file": "authority.pem",
    "proxy": "http://127.0.0.1:9",
    "headers": {"X-Team": "blue"},
}


@pytest.mark.parametrize("name", FETCHING)
def test_the_fetcher_is_made_by_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One setting differs from its default, and so does one option; what it does there is tested in tests/fetch."""
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(http, "HttpFetcher", lambda **options: made.append(options))
    for settings in (Settings(), Settings(**{name: FETCHING[name]})):
        factory.create_fetcher(settings, tmp_path)
    usual, changed = made
    assert changed == usual | {name: FETCHING[name]} != usual
    assert made[0].keys() == FETCHING.keys()


@pytest.mark.parametrize(("http2", "version"), [(True, "HTTP/2.0"), (False, "HTTP/1.1")])
async def test_http2_by_the_setting(tmp_path: Path, http2: bool, version: str) -> None:
    authority = Authority(tmp_path)
    offered = authority.server(alpn=("h2", "http/1.1"))

    class Either(Http2):
        """As the client wants it."""

        def connection_made(self, transport: Any) -> None:
            self._plain = transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2" and transport
            if not self._plain:
                super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            if self._plain:
                self._plain.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            else:
                super().data_received(data)

    fetcher = factory.create_fetcher(Settings(http2=http2, ca_file=str(authority.file)), tmp_path)
    async with await asyncio.get_running_loop().create_server(Either, "127.0.0.1", 0, ssl=offered) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        assert (await fetcher.fetch(Request.to(url))).version == version
        await fetcher.close()
        for transport in Http2.open:
            transport.abort()
        await asyncio.sleep(0)


def test_the_limits_are_made_by_the_settings() -> None:
    settings = Settings(max_pages=1, max_items=2, max_bytes=3, max_seconds=4.0)
    assert factory.create_limits(settings) == CrawlLimits(pages=1, items=2, bytes=3, seconds=4.0)


async def follow(folder: Path, *urls: str, **settings: Any) -> Crawled:
    """A crawl from these pages on, by all links."""
    spider = Spider("assembled", start=urls, private=True)

    @spider.page
    def page(page: Page) -> object:
        return [{"url": page.url, "text": page.text}, *_links(page)]

    return await crawl(spider, folder, **settings)


def _links(page: Page) -> Sequence[Request]:
    return page.follow_all("a[href*='/p/']")


async def test_so_many_pages_of_each_host(tmp_path: Path) -> None:
    async with serve(Site(hosts=3, pages=90)) as site:
        done = await follow(tmp_path, site.url + "p/0", max_pages_per_host=5)
        assert done.counts.done == 15
        assert Counter(record.host for record in site.log) == dict.fromkeys(
            ["127.77.0.1", "127.77.0.2", "127.77.0.3"], 5
        )


@pytest.mark.parametrize(
    ("settings", "header"),
    [
        ({"headers": {"X-Team": "blue"}}, ("x-team", "blue")),
        ({"headers": {"Accept-Language": "cy"}}, ("accept-language", "cy")),
        ({"user_agent": "Test/1 (tests)"}, ("user-agent", "Test/1 (tests)")),
    ],
)
async def test_headers_are_sent_with_every_request(
    tmp_path: Path, settings: dict[str, Any], header: tuple[str, str]
) -> None:
    async with serve(Site(pages=1)) as site:
        done = await follow(tmp_path, site.url + "odd/echo", **settings)
        (item,) = done.items
        assert header in [(name.lower(), value) for name, value in json.loads(item["text"])["headers"]]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_so_many_fetches_at_once(tmp_path: Path, concurrency: int) -> None:
    async with serve(Site(pages=40, latency=0.01)) as site:
        done = await follow(tmp_path, site.url + "p/0", concurrency=concurrency)
        assert done.counts.done == 40
        assert overlaps(site.log) == {"127.77.0.1": concurrency}


@pytest.mark.parametrize("cookies", [True, False])
async def test_cookies_are_kept_or_not(tmp_path: Path, cookies: bool) -> None:
    async with serve(Site(pages=1)) as site:
        starts = (site.url + "odd/cookies/set?team=blue", site.url + "odd/cookies")
        done = await follow(tmp_path, *starts, cookies=cookies, per_host=1)
        assert done.items[1]["text"].strip() == ('{"team":"blue"}' if cookies else "{}")


async def test_only_the_domains_that_are_named(tmp_path: Path) -> None:
    async with serve(Site(hosts=3, pages=90)) as site:
        done = await follow(tmp_path, site.url + "p/0", domains=["127.77.0.1", "127.77.0.3"])
        assert done.counts.done == 60
        assert {record.host for record in site.log} == {"127.77.0.1", "127.77.0.3"}


async def test_no_url_that_is_longer(tmp_path: Path) -> None:
    async with serve(Site(pages=200)) as site:
        longest = len(site.url + "p/99")
        done = await follow(tmp_path, site.url + "p/0", max_url_length=longest)
        assert done.counts.done == len({record.path for record in site.log}) <= 100
        assert max(len(record.path) for record in site.log) == len("/p/99")

"""Passwords in the URLs of pages and proxies do not reach the log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from uttu import Page, Spider
from uttu.testing.crawls import crawl
from uttu.testing.site import Site, serve


async def test_a_password_in_a_url_is_masked_in_every_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Pages that are done, retried, given up, redirected, refused by a proxy, and whose handlers log or raise."""
    caplog.set_level(logging.DEBUG, "uttu")
    async with serve(Site(pages=3)) as running:
        url = running.url
        site = url.replace("://", "://me:secret@")
        urls = [site + path for path in ("p/0", "odd/status/500", "odd/redirect/to?url=/p/1", "nowhere")]
        spider = Spider("logins", start=[*urls, "http://me:secret@127.0.0.1:9/"], retries=1, timeout=5.0)

        @spider.page
        def page(page: Page) -> None:
            page.log.warning("has %d bytes", len(page.body))
            raise ValueError(f"{page.url} is wrong")

        crawled = await crawl(spider, tmp_path, robots=True, max_seconds=30.0)
        broken = Spider("proxied", start=f"{url}p/2", proxy="http://me:secret@127.0.0.1:9", retries=0)
        broken.page(page)
        await crawl(broken, tmp_path)
    assert crawled.counts.dead >= 4
    records = [record.getMessage() + str(record.args) + str(vars(record).get("url")) for record in caplog.records]
    assert [text for text in records if "secret" in text] == []
    assert any("me:***@" in text and "Given up (handler)" in text for text in records)
    assert any("me:***@" in text and "Retry in" in text for text in records)
    assert any("me:***@" in text and text.startswith("200 GET") for text in records)

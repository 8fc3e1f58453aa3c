"""Pages that ask not to be followed or kept: obeyed where a setting says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crawl.servers import answering, asked, page
from tests.fetch.servers import Server, response
from uttu import Page, Request, Spider
from uttu.testing.crawls import Crawled, crawl

LINKS = b"""<base href="/">
<a href="a">a</a> <a href="b" rel="nofollow">b</a> <a href="c" rel="external NOFOLLOW">c</a>
<a href="d" rel="nofollow">d</a> <a href="/d">d</a> <area href="e" rel=nofollow>
"""


async def run(folder: Path, server: Server, **settings: Any) -> Crawled:
    spider = Spider("obedient", start=server.url, private=True, user_agent="Uttu/test")

    @spider.page
    def saved(page: Page) -> object:
        if page.depth:
            return {"path": page.url}
        links = [Request.to(url, depth=1) for url in page.links("area, a[href=c]")]
        return [{"path": page.url}, page.follow_all("a"), page.follow("a[href=b]"), *links]

    return await crawl(spider, folder, **settings)


@pytest.mark.parametrize("nofollow", [False, True])
async def test_links_with_nofollow(tmp_path: Path, nofollow: bool) -> None:
    def answer(path: str) -> bytes:
        return response(LINKS, "Content-Type: text/html") if path == "/" else page()

    async with answering(answer) as server:
        await run(tmp_path, server, nofollow=nofollow)
        left = ["/a", "/d"] if nofollow else ["/a", "/b", "/c", "/d", "/e"]
        assert sorted(asked(server)) == ["/", *left]


@pytest.mark.parametrize(
    ("start", "followed", "kept"),
    [
        (page("/a"), True, True),
        (page("/a", head="<meta name=robots content=nofollow>"), False, True),
        (page("/a", head="<meta name=robots content=noindex>"), True, False),
        (page("/a", head='<META NAME="Robots" CONTENT="NONE">'), False, False),
        (page("/a", head="<meta name=uttu content='nofollow,noindex'>"), False, False),
        (page("/a", head="<meta name=other content=none>"), True, True),
        (page("/a", headers=("X-Robots-Tag: nofollow",)), False, True),
        (page("/a", headers=("X-Robots-Tag: noindex", "X-Robots-Tag: nofollow")), False, False),
        (page("/a", headers=("X-Robots-Tag: other: none",)), True, True),
        (page("/a", headers=("X-Robots-Tag: uttu: none",)), False, False),
    ],
)
async def test_pages_with_rules_for_robots(tmp_path: Path, start: bytes, followed: bool, kept: bool) -> None:
    async with answering(lambda path: start if path == "/" else page()) as server:
        done = await run(tmp_path / "on", server, nofollow=True, noindex=True)
        assert ("/a" in asked(server)) is followed
        assert [item["path"] for item in done.items if item["path"] == server.url] == [server.url] * kept
        server.heads.clear()
        done = await run(tmp_path / "off", server)
        assert asked(server) == ["/", "/a"], "by default a page is taken as it is"
        assert len(done.items) == 2

"""Pages that send their visitors elsewhere, as a redirect does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.crawl.servers import NOT_FOUND, Answer, answering, asked, page
from tests.fetch.servers import Server, response
from uttu import Page, Spider
from uttu.testing.crawls import Crawled, crawl


def refresh(content: str) -> str:
    return f'<meta http-equiv="refresh" content="{content}">'


async def run(folder: Path, server: Server, path: str = "", **settings: Any) -> Crawled:
    spider = Spider("refresh", start=server.url + path, private=True)

    @spider.page
    def saved(page: Page) -> object:
        return {
            "path": page.url.removeprefix(server.url),
            "via": len(page.request.via),
            "cookies": page.request.cookies,
        }

    async with asyncio.timeout(20):
        return await crawl(spider, folder, **settings)


def paths(done: Crawled) -> list[str]:
    return [item["path"] for item in done.items]


def site(**answers: bytes) -> Answer:
    return lambda path: answers.get(path.strip("/").partition("?")[0] or "start", NOT_FOUND)


@pytest.mark.parametrize(
    "start",
    [
        page(head=refresh("0; url=/next")),
        page(head=refresh("5;URL=next")),
        page(head=refresh("100; url='/next'")),
        page(head='<META CONTENT="0;/next" HTTP-EQUIV=REFRESH>'),
        page(head='<base href="/other/">' + refresh("0; url=../next")),
        page(headers=("Refresh: 0; url=/next",)),
        page(headers=("Refresh: 3;/next",), head=refresh("0; url=/wrong")),
        response(b"not html", "Content-Type: text/plain", "Refresh: 0; url=/next"),
        response(refresh("0; url=/next").encode()),
    ],
)
async def test_a_refresh_is_followed_like_a_redirect(tmp_path: Path, start: bytes) -> None:
    async with answering(site(start=start, next=page())) as server:
        done = await run(tmp_path, server)
        assert [(item["path"], item["via"]) for item in done.items] == [("next", 1)]
        assert asked(server) == ["/", "/next"]
        assert done.counts.done == 2


@pytest.mark.parametrize("padding", ["", "я" * 5000])
async def test_the_query_of_a_refresh_is_in_the_charset_of_the_page(tmp_path: Path, padding: str) -> None:
    html = f"<meta charset=windows-1251>{refresh('0; url=/next?q=я')}{padding}"
    start = response(html.encode("windows-1251"), "Content-Type: text/html")
    async with answering(site(start=start, next=page())) as server:
        assert paths(await run(tmp_path, server)) == ["next?q=%FF"]


@pytest.mark.parametrize(
    "start",
    [
        page(head=refresh("101; url=/next")),
        page(head=refresh("600")),
        page(head=refresh("0")),
        page(head=refresh("0; url=/")),
        page(head=refresh("30; url=/#top")),
        page(headers=("Refresh: 30",)),
        page(head=f"<noscript>{refresh('0; url=/next')}</noscript>"),
        page(head=f"<!--{refresh('0; url=/next')}-->"),
        page(head=f"<script>'{refresh('0; url=/next')}'</script>"),
        page(head=refresh("0; url=mailto:me@a.example")),
        page(head=refresh("0; url=http://elsewhere.example/")),
        page(head=refresh("soon; url=/next")),
        response(refresh("0; url=/next").encode(), "Content-Type: text/plain"),
    ],
)
async def test_a_page_that_stays(tmp_path: Path, start: bytes) -> None:
    async with answering(site(start=start, next=page())) as server:
        done = await run(tmp_path, server, domains="127.0.0.1")
        assert paths(done) == [""]
        assert asked(server) == ["/"]


async def test_it_can_be_turned_off(tmp_path: Path) -> None:
    async with answering(site(start=page(head=refresh("0; url=/next")))) as server:
        assert paths(await run(tmp_path, server, meta_refresh=False)) == [""]


async def test_pages_that_refresh_in_a_circle(tmp_path: Path) -> None:
    pages = {name: page(head=refresh(f"5; url=/{after}")) for name, after in (("a", "b"), ("b", "c"), ("c", "a"))}
    async with answering(site(**pages)) as server:
        done = await run(tmp_path, server, "a")
        assert paths(done) == ["c"]
        assert asked(server) == ["/a", "/b", "/c"]
        assert done.counts.dead == 0


async def test_a_chain_without_end(tmp_path: Path) -> None:
    def answer(path: str) -> bytes:
        return page(head=refresh(f"0; url=/{int(path.strip('/') or 0) + 1}"))

    async with answering(answer) as server:
        done = await run(tmp_path, server, max_redirects=3)
        assert done.dead_reason(server.url + "3") == "redirect: more than 3 redirects"


async def test_a_page_that_sets_a_cookie_and_sends_to_itself(tmp_path: Path) -> None:
    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wall = page(head=refresh("0; url=/"), headers=("Set-Cookie: seen=1; Path=/",))
        writer.write(page() if b"seen=1" in head else wall)

    from tests.fetch.servers import serving

    async with serving(handle) as server:
        done = await run(tmp_path, server)
        assert [(item["path"], item["cookies"]) for item in done.items] == [("", {"seen": "1"})]


async def test_the_answer_to_a_form_refreshes_to_a_page(tmp_path: Path) -> None:
    from uttu import Request

    async with answering(site(start=page(head=refresh("0; url=/next")), next=page())) as server:
        spider = Spider("form", private=True)

        @spider.start
        def start() -> object:
            yield Request.to(server.url, method="POST", body=b"a=b")

        @spider.page
        def saved(page: Page) -> object:
            return {"method": page.request.method, "body": page.request.body.decode()}

        done = await crawl(spider, tmp_path)
        assert done.items == [{"method": "GET", "body": ""}]

"""Cookies that redirects set, seen by the server: with a jar, and without."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.crawl.servers import page
from tests.fetch.servers import response, serving
from uttu import Page, Request, Spider
from uttu.testing.crawls import crawl


def to(location: str, *cookies: str) -> bytes:
    return response(b"", f"Location: {location}", *(f"Set-Cookie: {cookie}" for cookie in cookies), status="302 Found")


CHAINS: dict[str, list[tuple[str, bytes, str]]] = {
    "a deleted cookie": [
        ("/login", to("/in", "s=1; Path=/", "t=2; Path=/"), ""),
        ("/in", to("/out", "s=; Path=/; Expires=Thursday, 01-Jan-70 00:00:01 GMT"), "s=1; t=2"),
        ("/out", page(), "t=2"),
    ],
    "a path": [
        ("/a/login", to("/a/in", "s=1", "t=2; Path=/b"), ""),
        ("/a/in", to("/b/x"), "s=1"),
        ("/b/x", page(), "t=2"),
    ],
    "Secure and a foreign domain": [
        ("/login", to("/in", "s=1; Secure", "t=2; Domain=other.example", "u=3"), ""),
        ("/in", page(), "u=3"),
    ],
    "a newer value": [
        ("/1", to("/2", "s=1; Path=/"), ""),
        ("/2", to("/3", "s=2; Path=/"), "s=1"),
        ("/3", page(), "s=2"),
    ],
    "the longest path first": [
        ("/1", to("/a/b", "x=1; Path=/", "y=2; Path=/a/b", "z=3; Path=/a"), ""),
        ("/a/b", page(), "y=2; z=3; x=1"),
    ],
}


@pytest.mark.parametrize("jar", [True, False])
@pytest.mark.parametrize("name", CHAINS)
async def test_what_the_server_gets(tmp_path: Path, name: str, jar: bool) -> None:
    chain = CHAINS[name]
    answers = {path: answer for path, answer, _ in chain}

    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answers[head.split()[1].decode()])

    got: list[str] = []
    async with serving(handle) as server:
        spider = Spider("chain", private=True, start=server.url + chain[0][0][1:])

        @spider.page
        def last(page: Page) -> object:
            return {"url": page.url}

        done = await crawl(spider, tmp_path, cookies=jar)
        assert len(done.items) == 1
        for head in server.heads:
            lines = head.decode().split("\r\n")
            got.append(next((line.partition(": ")[2] for line in lines if line.lower().startswith("cookie:")), ""))
    assert got == [cookies for _, _, cookies in chain]


async def test_the_spiders_own_cookie_can_be_deleted(tmp_path: Path) -> None:
    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(to("/out", "own=; Max-Age=0") if b"GET /in " in head else page())

    async with serving(handle) as server:
        spider = Spider("own", private=True)

        @spider.start
        def start() -> object:
            yield Request.to(server.url + "in", cookies={"own": "1", "kept": "2"})

        @spider.page
        def last(page: Page) -> object:
            return page.request.cookies

        done = await crawl(spider, tmp_path)
        assert done.items == [{"kept": "2"}]
        assert b"Cookie: kept=2\r\n" in server.heads[-1]

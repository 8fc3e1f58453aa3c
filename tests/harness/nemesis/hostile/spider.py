"""The spider of a hostile crawl. Run by ``uttu crawl`` in a folder that has a ``plan.json``: see :mod:`.run`.

A well-behaved host is crawled page by page, one after the other. After the first pages come the hostile ones, each
with the handler that the plan names. The file ``stop`` ends the pages of the good host.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.harness.nemesis.hostile import bad_handlers
from tests.harness.nemesis.hostile.plan import BEGUN, PLAN, STOP, WARM_UP, Plan
from uttu import Page, Request, Spider

_FOLDER: Final = Path.cwd()  # a handler may change it
_PLAN: Final = msgspec.json.decode((_FOLDER / PLAN).read_bytes(), type=Plan)
_LOOK_SECONDS: Final = 0.02

spider = Spider("hostile")


@spider.start
async def start() -> AsyncIterator[Request]:
    yield Request.to(_PLAN.good, handler="good")
    while not (_FOLDER / BEGUN).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(_LOOK_SECONDS)
    for url, handler in _PLAN.hostile:
        yield Request.to(url, handler=handler)


@spider.page
def good(page: Page) -> Iterator[Any]:
    """A page of the well-behaved host, which leads to the next one."""
    first, _, number = page.url.rpartition("/")
    yield {"page": int(number), "title": page.css("title::text").get()}
    if int(number) >= WARM_UP * _PLAN.step:
        (_FOLDER / BEGUN).touch()
    if not (_FOLDER / STOP).exists():
        yield Request.to(f"{first}/{int(number) + _PLAN.step}", handler="good")


# What spiders usually do with a page.


@spider.page
def look(page: Page) -> dict[str, Any]:
    return {
        "title": (page.css("title::text").get() or "")[:100],
        "heading": page.css("h1").text[:100],
        "text": len(page.text),
        "paragraphs": len(page.css("p")),
        "links": len(page.links()),
    }


@spider.page
def size(page: Page) -> dict[str, int]:
    return {"size": len(page.body)}


@spider.page
def follow(page: Page) -> Iterator[Any]:
    yield {"title": (page.css("title::text").get() or "")[:100]}
    yield page.follow_all("a", to="follow")


@spider.page
def links(page: Page) -> dict[str, int]:
    return {"links": len(page.links())}


@spider.page
def hrefs(page: Page) -> dict[str, int]:
    return {"links": len(page.css("a::attr(href)").getall())}


@spider.page
def every_html(page: Page) -> dict[str, int]:
    return {"characters": sum(map(len, page.css("div").getall()))}


@spider.page
def every_text(page: Page) -> dict[str, int]:
    return {"characters": sum(len(each.text) for each in page.css("div"))}


@spider.page
def attributes(page: Page) -> dict[str, int]:
    return {"attributes": len(page.css("div").attrib)}


@spider.page
def xpath(page: Page) -> dict[str, Any]:
    return {
        "title": (page.xpath("//title/text()").get() or "")[:100],
        "links": len(page.xpath("//a/@href").getall()),
        "elements": page.xpath("count(//*)").get(),
        "items": len(page.xpath("//item/link/text()").getall()),
    }


@spider.page
def sleeps_two(page: Page) -> None:
    time.sleep(2)


@spider.page
def json(page: Page) -> dict[str, str]:
    return {"type": type(page.json()).__name__}


@spider.page
def sitemap_read(page: Page) -> dict[str, int]:
    return {"pages": len(page.sitemap().pages)}


for kind in bad_handlers.KINDS:
    spider.page(kind.handler)

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from uttu import Page, Request, Spider
from uttu.engine.handler_output import collect
from uttu.errors import ConfigError, SpiderError, StartError
from uttu.policy.robots import parse
from uttu.spider.items import encode
from uttu.spider.loader import load_spider
from uttu.spider.spider import SITEMAP, request_sitemaps, sitemap_request, wants_robots
from uttu.testing.pages import page_of


@dataclasses.dataclass
class Dataclass:
    name: str
    when: datetime.date


class Struct(msgspec.Struct):
    name: str


@attrs.define
class Attrs:
    name: str


class Pydantic(pydantic.BaseModel):
    name: str
    price: decimal.Decimal


async def starts(spider: Spider) -> list[Request]:
    return [request async for request in spider.start_requests()]


def test_the_first_handler_is_the_default() -> None:
    spider = Spider("s")

    @spider.page
    def listing(page: Page) -> None: ...

    @spider.page
    def product(page: Page) -> None: ...

    assert spider.handler_for(Request.to("http://example.org/")) is listing
    assert spider.handler_for(Request.to("http://example.org/", handler="product")) is product
    with pytest.raises(SpiderError, match="no handler 'gone'; it has: listing, product"):
        spider.handler_for(Request.to("http://example.org/", handler="gone"))


def test_two_handlers_of_one_name() -> None:
    spider = Spider("s")

    def page(page: Page) -> None: ...

    spider.page(page)
    with pytest.raises(SpiderError, match="two handlers named 'page'"):
        spider.page(page)


def test_a_second_start_or_error_handler_is_refused() -> None:
    spider = Spider("s")

    def one(failure: object = None) -> None: ...

    def other(failure: object = None) -> None: ...

    for what, register in (("start", spider.start), ("on_error", spider.on_error)):
        register(one)
        with pytest.raises(SpiderError, match=rf"two @spider.{what} functions, 'one' and 'other'\. Keep one"):
            register(other)
    assert [spider.starter, spider.error_handler] == [one] * 2


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", ".hidden"])
def test_invalid_spider_names(name: str) -> None:
    with pytest.raises(SpiderError, match="letters"):
        Spider(name)


async def test_start_urls_sitemaps_and_a_start_function() -> None:
    spider = Spider(
        "s",
        start=["http://a.example/", "http://b.example/x"],
        sitemap=["http://c.example/", "http://d.example/map.xml"],
    )

    @spider.start
    async def start() -> AsyncIterator[Any]:
        yield "http://e.example/"
        yield [Request.to("http://f.example/", meta={"n": 1}), "http://g.example/"]

    found = await starts(spider)
    assert [request.url for request in found] == [
        "http://a.example/",
        "http://b.example/x",
        "http://c.example/robots.txt",
        "http://d.example/map.xml",
        "http://e.example/",
        "http://f.example/",
        "http://g.example/",
    ]
    assert [request.handler for request in found[2:4]] == [SITEMAP, SITEMAP]


async def test_a_bad_start_url_is_named() -> None:
    with pytest.raises(SpiderError, match="'example' is not a URL to start from"):
        await starts(Spider("s", start="example"))


async def given_up(spider: Spider) -> StartError:
    with pytest.raises(StartError) as raised:
        await starts(spider)
    return raised.value


async def test_start_error_shows_only_user_code() -> None:
    spider = Spider("s")

    @spider.start
    async def start() -> AsyncIterator[str]:
        yield "http://a.example/"
        raise KeyError("no list")

    error = await given_up(spider)
    first, *lines = str(error).splitlines()
    assert first == "@spider.start of spider 's' raised:"
    assert [line.partition(", in ")[2] or line.strip() for line in lines] == [
        "start",
        'raise KeyError("no list")',
        "KeyError: 'no list'",
    ]
    assert error.reason == "@spider.start raised KeyError: 'no list'"


async def test_invalid_start_functions() -> None:
    def wants_more(more: object) -> None: ...

    def calls_it() -> None:
        wants_more()  # type: ignore[call-arg]

    def exits() -> None:
        sys.exit("bye")

    async def cancels() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    for starter, reason in ((calls_it, "missing 1"), (exits, "SystemExit: bye"), (cancels, "CancelledError")):
        spider = Spider("s")
        spider.start(starter)
        assert reason in (await given_up(spider)).reason
    with pytest.raises(SpiderError, match="called without arguments"):
        Spider("s").start(wants_more)


async def test_cancelled_start_is_not_an_error() -> None:
    spider = Spider("s")

    @spider.start
    async def start() -> None:
        await asyncio.Event().wait()

    reading = asyncio.create_task(starts(spider))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def requested(given: object) -> list[Request]:
    requests, _ = await collect(given)
    assert all(isinstance(each, Request) for each in requests)
    return [each for each in requests if isinstance(each, Request)]


async def test_the_sitemap_handler() -> None:
    spider = Spider("s")
    handler = spider.handlers[SITEMAP]
    robots = page_of("User-agent: *\nSitemap: http://example.org/a.xml\n", "http://example.org/old/robots.txt")
    requests = await requested(handler(robots))
    assert [(request.url, request.handler) for request in requests] == [("http://example.org/a.xml", SITEMAP)]
    index = "<sitemapindex><sitemap><loc>http://example.org/1.xml</loc></sitemap></sitemapindex>"
    requests = await requested(handler(page_of(index, "http://example.org/s.xml")))
    assert [(request.url, request.handler) for request in requests] == [("http://example.org/1.xml", SITEMAP)]
    urls = "<urlset><url><loc>http://example.org/p</loc></url></urlset>"
    requests = await requested(handler(page_of(urls, "http://example.org/1.xml")))
    assert requests == [Request(url="http://example.org/p")]


@pytest.mark.parametrize(
    ("robots", "sitemaps"),
    [
        ("User-agent: *\nSitemap: http://example.org/a.xml\nsitemap: /b.xml\n", ["a.xml", "b.xml"]),
        ("Sitemap: mailto:me\nSitemap: a.xml", ["a.xml"]),
        ("User-agent: *\nDisallow: /", ["sitemap.xml"]),
        ("", ["sitemap.xml"]),
    ],
)
def test_the_sitemaps_that_a_robots_txt_names(robots: str, sitemaps: list[str]) -> None:
    request = sitemap_request(Request.to("http://example.org/", depth=2))
    assert list(request_sitemaps(request, parse(robots.encode()))) == [
        Request(url=f"http://example.org/{name}", handler=SITEMAP, depth=2) for name in sitemaps
    ]


@pytest.mark.parametrize(
    ("url", "handler", "wants"),
    [
        ("http://example.org/robots.txt", SITEMAP, True),
        ("http://example.org/robots.txt", "", False),
        ("http://example.org/old/robots.txt", SITEMAP, False),
        ("http://example.org/sitemap.xml", SITEMAP, False),
    ],
)
def test_requests_for_robots_txt_only(url: str, handler: str, wants: bool) -> None:
    assert wants_robots(Request(url=url, handler=handler)) is wants


def test_arguments() -> None:
    spider = Spider("s", args={"category": "books", "pages": 3})
    spider.set_args({"pages": "5"})
    assert spider.args == {"category": "books", "pages": 5}
    with pytest.raises(ConfigError, match="takes no argument colour; it takes: category, pages"):
        spider.set_args({"colour": "red"})
    with pytest.raises(ConfigError, match="-a pages=many"):
        spider.set_args({"pages": "many"})
    free = Spider("t")
    free.set_args({"anything": "goes"})
    assert free.args == {"anything": "goes"}


@pytest.mark.parametrize(
    ("default", "given", "expected"),
    [
        ([1], "[2,3]", [2, 3]),
        ([], '["a", {"b": null}]', ["a", {"b": None}]),
        ({}, '{"a": [1.5]}', {"a": [1.5]}),
        ((), "[2]", (2,)),
        ({1}, "[2, 2]", {2}),
    ],
)
def test_json_arguments(default: Any, given: str, expected: Any) -> None:
    spider = Spider("s", args={"l": default})
    spider.set_args({"l": given})
    assert spider.args == {"l": expected}


@pytest.mark.parametrize("given", ["2", "2,3", "", "[2", '{"a":1}'])
def test_list_argument_that_is_not_json(given: str) -> None:
    with pytest.raises(ConfigError, match=rf"^-a l={re.escape(given)}: write a list as JSON, like 'l=\[1, 2\]': "):
        Spider("s", args={"l": [1]}).set_args({"l": given})
    with pytest.raises(ConfigError, match=r"write a dict as JSON, like 'l=\{\"a\": 1\}'"):
        Spider("s", args={"l": {}}).set_args({"l": "[2]"})


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"a": 1, "b": [None, True]}, b'{"a":1,"b":[null,true]}'),
        (Dataclass("x", datetime.date(2026, 1, 2)), b'{"name":"x","when":"2026-01-02"}'),
        (Struct("x"), b'{"name":"x"}'),
        (Attrs("x"), b'{"name":"x"}'),
        (Pydantic(name="x", price=decimal.Decimal("1.50")), b'{"name":"x","price":"1.50"}'),
        ({"nested": Pydantic(name="x", price=decimal.Decimal(2))}, b'{"nested":{"name":"x","price":"2"}}'),
    ],
)
def test_items_of_every_kind(item: Any, expected: bytes) -> None:
    assert encode(item) == expected


def test_item_that_json_cannot_express() -> None:
    with pytest.raises(TypeError, match=r"can't be written as JSON: JSON has no type for object"):
        encode({"a": object()})


def write(folder: Path, text: str) -> Path:
    file = folder / "spider.py"
    file.write_text(text)
    return file


GOOD = (
    "from uttu import Spider\nspider = Spider('one', start='http://example.org/')\n@spider.page\ndef page(page): pass\n"
)


def test_loading(tmp_path: Path) -> None:
    assert load_spider(write(tmp_path, GOOD)).name == "one"
    (tmp_path / "helper.py").write_text("NAME = 'helped'\n")
    assert load_spider(write(tmp_path, "from helper import NAME\n" + GOOD.replace("'one'", "NAME"))).name == "helped"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def (:\n", r"syntax error in line 1"),
        ("x = 1\n", r"has no spider\. Write one"),
        (GOOD + "other = Spider('two')\n", r"has 2 spiders \(one, two\)\. Choose one with --spider"),
        ("import nonsense_module\n", r"Cannot load .*:\n(.|\n)*line 1(.|\n)*No module named 'nonsense_module'"),
        ("from uttu import Spider\nspider = Spider('one')\n", r"has no handler\. Put @spider.page"),
    ],
)
def test_unusable_spider_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpiderError, match=message):
        load_spider(write(tmp_path, text))


def test_choosing_among_spiders(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD + "other = Spider('two')\nother.page(lambda page: None)\n")
    assert load_spider(file, "two").name == "two"
    with pytest.raises(SpiderError, match="no spider 'three'; it has: one, two"):
        load_spider(file, "three")
    with pytest.raises(SpiderError, match="There is no spider file"):
        load_spider(tmp_path / "missing.py")


def test_the_log_of_a_spider() -> None:
    assert Spider("shop.de").log.name == "uttu.spider.shop.de"

"""Handlers that give too much, or what can't be stored."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from uttu import Page, Request

_MB: Final = 1024 * 1024


def endless_items(page: Page) -> Iterator[dict[str, int]]:
    """items without end"""
    for number in itertools.count():
        yield {"n": number}


async def endless_items_async(page: Page) -> AsyncIterator[dict[str, int]]:
    """items without end, from an async generator"""
    for number in itertools.count():
        yield {"n": number}


def endless_nothing(page: Page) -> Iterator[None]:
    """yields None without end"""
    while True:
        yield None


def endless_requests(page: Page) -> Iterator[Request]:
    """requests without end"""
    for number in itertools.count():
        yield Request.to(f"{page.url}&n={number}")


def endless_same(page: Page) -> Iterator[Request]:
    """the same request without end"""
    while True:
        yield Request.to(page.url)


def endless_nested(page: Page) -> Iterator[Any]:
    """generators in generators without end"""
    yield endless_nested(page)


def endless_follow(page: Page) -> Any:
    """follow_all of links without end"""
    return page.follow_all(f"/p/1?n={number}" for number in itertools.count())


def large_items(page: Page) -> Iterator[dict[str, str]]:
    """a thousand items of 1 MB"""
    for _ in range(1000):
        yield {"text": "x" * _MB}


def million_items(page: Page) -> Iterator[dict[str, int]]:
    """a million items"""
    return ({"n": number} for number in range(1_000_000))


def million_children(page: Page) -> Iterator[Request]:
    """a million requests"""
    return (Request.to(f"{page.url}&n={number}") for number in range(1_000_000))


def item_1gb(page: Page) -> dict[str, str]:
    """an item of 1 GB"""
    return {"text": "x" * (1024 * _MB)}


def item_100mb(page: Page) -> dict[str, str]:
    """an item of 100 MB"""
    return {"text": "x" * (100 * _MB)}


def item_shared(page: Page) -> dict[str, Any]:
    """an item of 10 GB that is small in memory"""
    text: Any = "x" * 1000
    for _ in range(7):
        text = [text] * 10
    return {"text": text}


def links_endless(page: Page) -> Iterator[Any]:
    """follow_all of a thousand links, without end"""
    while True:
        yield page.follow_all([f"/p/{number}?x" for number in range(1000)])


def links_meta(page: Page) -> Any:
    """50,000 links with 100 KB of meta each"""
    return page.follow_all([f"/p/{number}?x" for number in range(50_000)], meta={"text": "x" * 100_000})


def requests_meta(page: Page) -> Iterator[Request]:
    """50,000 requests with 100 KB of meta each"""
    text = "x" * 100_000
    for number in range(50_000):
        yield Request.to(f"{page.url}&n={number}", meta={"text": text})


def requests_body(page: Page) -> Iterator[Request]:
    """1,000 requests with a body of 3 MB each"""
    for number in range(1000):
        yield Request.to(f"{page.url}&n={number}", method="POST", body=b"x" * (3 * _MB))


def item_deep(page: Page) -> dict[str, Any]:
    """an item 100,000 levels deep"""
    item: dict[str, Any] = {}
    for _ in range(100_000):
        item = {"a": item}
    return item


def item_cyclic(page: Page) -> dict[str, Any]:
    """an item that contains itself"""
    item: dict[str, Any] = {}
    item["self"] = item
    return item


def item_nan(page: Page) -> dict[str, float]:
    """an item with NaN and infinity"""
    return {"a": float("nan"), "b": float("inf")}


def item_surrogates(page: Page) -> dict[str, str]:
    """an item with a lone surrogate"""
    return {"text": "\ud800", "\udfff": "x"}


def item_int(page: Page) -> dict[str, int]:
    """an item with an integer of 500 digits"""
    return {"n": 10**500}


def item_nul(page: Page) -> dict[str, str]:
    """an item with NUL in a key"""
    return {"a\0b": "c\0d"}


def item_keys(page: Page) -> dict[Any, Any]:
    """an item whose keys are not text"""
    return {1: "a", None: "b", (1, 2): "c"}


def item_object(page: Page) -> dict[str, object]:
    """an item with an object that has no JSON"""
    return {"a": object()}


class _Lying(dict[str, int]):
    def __iter__(self) -> Iterator[str]:
        return (str(number) for number in itertools.count())

    def keys(self) -> Any:
        return iter(self)

    def items(self) -> Any:
        return ((key, 0) for key in self)


def item_lying(page: Page) -> dict[str, int]:
    """a dict whose keys never end"""
    return _Lying(a=1)


def request_surrogate(page: Page) -> Request:
    """a request for a URL with a lone surrogate"""
    return Request(url="http://127.77.0.1/\ud800")


def request_long(page: Page) -> Request:
    """a request for a URL of 1 MB"""
    return Request(url=f"{page.url}&x={'x' * _MB}")


def request_priority(page: Page) -> Request:
    """a request with a priority of 10**30"""
    return Request.to(f"{page.url}&a=1", priority=10**30)


def request_meta(page: Page) -> Request:
    """a request whose meta can't be stored"""
    return Request.to(f"{page.url}&a=1", meta={"a": object()})


def request_meta_large(page: Page) -> Request:
    """a request with 100 MB of meta"""
    return Request.to(f"{page.url}&a=1", meta={"a": "x" * (100 * _MB)})


def request_meta_cyclic(page: Page) -> Request:
    """a request whose meta contains itself"""
    meta: dict[str, Any] = {}
    meta["self"] = meta
    return Request.to(f"{page.url}&a=1", meta=meta)


def request_header(page: Page) -> Request:
    """a request with a line break in a header"""
    return Request.to(f"{page.url}&a=1", headers={"X-A": "b\r\nX-C: d"})


def request_method(page: Page) -> Request:
    """a request with a method of nonsense"""
    return Request.to(f"{page.url}&a=1", method="GET / HTTP/1.1\r\n")


def request_depth(page: Page) -> Request:
    """a request with a depth of 2**70"""
    return Request.to(f"{page.url}&a=1", depth=2**70)


def request_tree(page: Page) -> Iterator[Request]:
    """each page asks for two more"""
    for number in (0, 1):
        yield Request.to(f"{page.url}{number}", handler="request_tree")

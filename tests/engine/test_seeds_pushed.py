"""What other programs push: which entries are requests, and what becomes of the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from uttu.engine.seeds import PushedSeeds, parse_request
from uttu.model import Request


class MemoryFeed:
    """The contract in its smallest form."""

    def __init__(self, entries: Sequence[bytes]) -> None:
        self.entries = list(entries)
        self.put: list[Request] = []
        self.refused: list[bytes] = []

    async def peek(self, limit: int) -> list[bytes]:
        return self.entries[:limit]

    async def accept(self, requests: Sequence[Request], entries: Sequence[bytes], refused: Sequence[bytes]) -> int:
        new = [request for request in requests if request not in self.put]
        self.put += new
        self.refused += refused
        for entry in (*entries, *refused):
            self.entries.remove(entry)
        return len(new)

    async def length(self) -> int:
        return len(self.entries)


def test_a_url_is_a_request_to_it() -> None:
    entry = b" HTTPS://Shop.example/a b?x=1#top\r\n"
    assert parse_request(entry, set()) == Request.to("https://shop.example/a b?x=1", start=True)


def test_an_object_has_the_fields_of_a_request() -> None:
    entry = (
        '{"url": "https://shop.example/é", "handler": "product", "method": "post", "headers": {"A": "b"},'
        ' "body": "né", "meta": {"n": [1]}, "cookies": {"c": "d"}, "priority": 7, "salt": "s"}'
    )
    assert parse_request(entry.encode(), {"product"}) == Request.to(
        "https://shop.example/é",
        handler="product",
        method="POST",
        headers={"A": "b"},
        body="né".encode(),
        meta={"n": [1]},
        cookies={"c": "d"},
        priority=7,
        salt="s",
        start=True,
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (b"", "an empty line"),
        (b"  \n", "an empty line"),
        (b"shop", "not an absolute http or https URL: 'shop'"),
        (b"ftp://shop.example/", "not an absolute http or https URL"),
        (b"https://shop.example/\xff", "is not UTF-8 text"),
        (b'{"url": "https://shop.example/"', "is not a request: "),
        (b'{"handler": "product"}', "missing required field `url`"),
        (b'{"url": "https://shop.example/", "colour": 1}', "unknown field `colour`"),
        (b'{"url": "https://shop.example/", "priority": "high"}', "Expected `int`"),
        (b'{"url": "https://shop.example/", "priority": 9000000000}', "out of range"),
        (b'{"url": "https://shop.example/", "handler": "nope"}', "a handler that the spider does not have: 'nope'"),
        (b'{"url": 7}', "Expected `str`"),
        (b"[1]", "not an absolute http or https URL"),
    ],
)
def test_what_is_no_request_says_why(entry: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        parse_request(entry, {"product"})


def test_where_the_handlers_are_not_known_any_may_be_named() -> None:
    assert parse_request(b'{"url": "https://shop.example/", "handler": "x"}', None).handler == "x"


async def test_everything_is_taken_and_what_is_no_request_is_put_aside() -> None:
    urls = [b"https://shop.example/%d" % n for n in range(1200)]
    feed = MemoryFeed([*urls[:3], b"rubbish", *urls[3:], b"{", urls[0]])
    assert await PushedSeeds(feed, {"product"}).take() == 1200
    assert [request.url.encode() for request in feed.put] == urls
    assert feed.refused == [b"rubbish", b"{"]
    assert await feed.length() == 0
    assert await PushedSeeds(feed, {"product"}).take() == 0


def test_an_object_too_deep_to_read_is_no_request() -> None:
    nested = b'{"url": "https://shop.example/", "meta": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    with pytest.raises(ValueError, match="is not a request"):
        parse_request(nested, set())


INSIDE = [
    "http://127.0.0.1:9",
    "http://localhost:3128",
    "socks5://10.0.0.1:1080",
    "http://[::1]:9",
    "http://2130706433:9",
    "http://0x7f.1:9",
    "http://u:p@169.254.169.254",
    "http://proxy.internal:3128",
    "no proxy",
    "http://[::1",
]


@pytest.mark.parametrize("proxy", INSIDE)
async def test_a_proxy_in_a_private_network_is_refused(proxy: str) -> None:
    entry = json.dumps({"url": "https://shop.example/", "proxy": proxy}).encode()
    feed = MemoryFeed([entry])
    assert await PushedSeeds(feed, set()).take() == 0
    assert feed.refused == [entry]


@pytest.mark.parametrize(
    ("proxy", "options"),
    [
        ("http://8.8.8.8:3128", {}),
        ("http://127.0.0.1:9", {"proxy": "http://127.0.0.1:9"}),
        ("http://127.0.0.1:9", {"private": True}),
    ],
)
async def test_a_public_proxy_and_the_own_one_may_be_named(proxy: str, options: dict[str, Any]) -> None:
    feed = MemoryFeed([json.dumps({"url": "https://shop.example/", "proxy": proxy}).encode()])
    assert await PushedSeeds(feed, set(), **options).take() == 1
    assert feed.put[0].proxy == proxy


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "FILE:/etc/passwd", "data:text/html,x", "/etc/passwd", "ftp://a/b"]
)
def test_only_urls_of_the_web_are_requests(url: str) -> None:
    for entry in (url, json.dumps({"url": url})):
        with pytest.raises(ValueError, match="not an absolute http or https URL"):
            parse_request(entry.encode(), set())

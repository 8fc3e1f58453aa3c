"""What other programs push: which entries are requests, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from weft.engine.feeding import Feeding, request_of
from weft.model import Request


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
    assert request_of(entry, set()) == Request.to("https://shop.example/a b?x=1", start=True)


def test_an_object_has_the_fields_of_a_request() -> None:
    entry = (
        '{"url": "https://shop.example/é", "handler": "product", "method": "post", "headers": {"A": "b"},'
        ' "body": "né", "meta": {"n": [1]}, "cookies": {"c": "d"}, "priority": 7, "salt": "s"}'
    )
    assert request_of(entry.encode(), {"product"}) == Request.to(
        "https://shop.example/é", handler="product", method="POST", headers={"A": "b"}, body="né".encode(),
        meta={"n": [1]}, cookies={"c": "d"}, priority=7, salt="s", start=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (b"", "an empty line"),
        (b"  \n", "an empty line"),
        (b"shop", "not an absolute http or https URL: 'shop'"),
        (b"ftp://shop.example/", "not an absolute http or https URL"),
        (b"https://shop.example/\xff", "is not UTF-8 text"),
        (b'{"url": "https://shop.example/"', "is no request: "),
        (b'{"handler": "product"}', "missing required field `url`"),
        (b'{"url": "https://shop.example/", "colour": 1}', "unknown field `colour`"),
        (b'{"url": "https://shop.example/", "priority": "high"}', "Expected `int`"),
        (b'{"url": "https://shop.example/", "priority": 9000000000}', "out of all bounds"),
        (b'{"url": "https://shop.example/", "handler": "nope"}', "a handler that the spider does not have: 'nope'"),
        (b'{"url": 7}', "Expected `str`"),
        (b"[1]", "not an absolute http or https URL"),
    ],
)
def test_what_is_no_request_says_why(entry: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        request_of(entry, {"product"})


def test_where_the_handlers_are_not_known_any_may_be_named() -> None:
    assert request_of(b'{"url": "https://shop.example/", "handler": "x"}', None).handler == "x"


async def test_everything_is_taken_and_what_is_no_request_is_put_aside() -> None:
    urls = [b"https://shop.example/%d" % n for n in range(1200)]
    feed = MemoryFeed([*urls[:3], b"rubbish", *urls[3:], b"{", urls[0]])
    assert await Feeding(feed, {"product"}).take() == 1200
    assert [request.url.encode() for request in feed.put] == urls
    assert feed.refused == [b"rubbish", b"{"]
    assert await feed.length() == 0
    assert await Feeding(feed, {"product"}).take() == 0


def test_an_object_too_deep_to_read_is_no_request() -> None:
    nested = b'{"url": "https://shop.example/", "meta": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    with pytest.raises(ValueError, match="is no request"):
        request_of(nested, set())

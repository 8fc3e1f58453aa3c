from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu import Request
from uttu.model import Counts, Headers


def test_a_plain_link_costs_little_more_than_its_url() -> None:
    request = Request.to("https://example.org/products/12345", depth=3)
    assert request.record() == b'{"u":"https://example.org/products/12345","d":3}'


@given(
    st.builds(
        Request,
        url=st.just("http://example.org/x"),
        handler=st.text(max_size=8),
        method=st.sampled_from(["GET", "POST", "PUT"]),
        headers=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        body=st.binary(max_size=30),
        meta=st.dictionaries(st.text(max_size=5), st.integers(-100, 100) | st.text(max_size=5) | st.none(), max_size=3),
        cookies=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        priority=st.integers(-1000, 1000),
        depth=st.integers(0, 100),
        via=st.lists(st.text(max_size=9), max_size=3).map(tuple),
        salt=st.text(max_size=5),
        proxy=st.text(max_size=5),
    )
)
def test_records_hold_everything(request_: Request) -> None:
    assert Request.from_record(request_.record()) == request_


def test_invalid_request_url() -> None:
    with pytest.raises(ValueError, match="not an absolute"):
        Request.to("not a url")


def test_headers_are_case_insensitive_and_keep_repeats() -> None:
    headers = Headers([("Set-Cookie", "a=1"), ("Content-Type", "text/html"), ("set-cookie", "b=2")])
    assert headers["content-type"] == "text/html"
    assert headers.get_all("SET-COOKIE") == ["a=1", "b=2"]
    assert headers.get("missing") is None


def test_counts() -> None:
    counts = Counts(pending=1, leased=2, delayed=3, done=4, dead=5)
    assert (counts.seen, counts.work, counts.finished) == (15, 6, False)
    assert Counts(done=1).finished


@pytest.mark.parametrize("make", [Request, Request.to, lambda url: Request(url=url)])
def test_request_urls_become_canonical(make: Callable[[str], Request]) -> None:
    assert make("HTTP://Shop.example:80/a/../b#top").url == "http://shop.example/b"
    with pytest.raises(ValueError, match="not an absolute"):
        make("/b")


def test_only_the_url_is_positional() -> None:
    assert Request("https://a.example/", depth=2) == Request(url="https://a.example/", depth=2)
    with pytest.raises(TypeError):
        Request("https://a.example/", "handler")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="callback"):
        Request("https://a.example/", callback=print)  # type: ignore[call-arg]


def test_a_copy_with_other_values() -> None:
    request = Request("https://a.example/", depth=2, meta={"n": 1})
    assert request.replace(priority=5) == Request("https://a.example/", depth=2, meta={"n": 1}, priority=5)
    assert request.replace(url="HTTPS://B.example").url == "https://b.example/"
    with pytest.raises(ValueError, match="not an absolute"):
        request.replace(url="b")
    with pytest.raises(TypeError):
        request.replace(nosuch=1)


def test_copied_requests_are_equal() -> None:
    request = Request("https://a.example/", depth=2)
    assert pickle.loads(pickle.dumps(request)) == copy.deepcopy(request) == Request.from_record(request.record())


class Text(str):
    """As lxml's strings."""

    __slots__ = ("parent",)

    def __str__(self) -> str:
        raise AssertionError("the base's own text is stored")


class Number(int):
    pass


def test_values_of_subclasses_are_stored_as_their_base() -> None:
    request = Request(
        Text("https://a.example/"), meta={Text("a"): [Text("b"), Number(3)]}, headers={"X": Text("c")}, salt=Text("d")
    )
    read = Request.from_record(request.record())
    assert (read.url, read.meta, read.headers, read.salt) == (
        "https://a.example/",
        {"a": ["b", 3]},
        {"X": "c"},
        "d",
    )
    with pytest.raises(TypeError, match="object"):
        Request("https://a.example/", meta={"a": object()}).record()

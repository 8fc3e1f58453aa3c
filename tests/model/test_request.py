from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import Request
from weft.model import Counts, Headers


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


def test_a_request_to_nowhere() -> None:
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

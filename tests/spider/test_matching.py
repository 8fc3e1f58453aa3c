"""CSS on deep and wide trees: the same elements, in linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uttu import Page
from uttu.spider import matching
from uttu.testing.pages import page_of

names = st.sampled_from(["div", "span", "b", "*"])
pages = st.recursive(
    st.sampled_from(["x", " ", "<!-- c -->"]),
    lambda children: st.builds(
        lambda name, attribute, inner: f"<{name}{attribute}>{''.join(inner)}</{name}>",
        st.sampled_from(["div", "span", "b"]),
        st.sampled_from(["", "", " class=a", " class='a b'", " id=q"]),
        st.lists(children, max_size=5),
    ),
    max_leaves=30,
)
conditions = st.sampled_from(
    [
        "",
        "",
        "",
        "",
        ".a",
        ".b",
        "#q",
        ":not(.a)",
        ":has(b)",
        ":first-child",
        ":nth-child(2)",
        ":nth-child(odd)",
        ":nth-child(-n + 2)",
        ":nth-last-child(2n+1)",
        ":nth-of-type(EVEN)",
        ":nth-last-of-type(1)",
        ":nth-child(n+2).a",
        ":NTH-child(+3n-1)",
        ":nth-child(2):nth-last-child(1)",
        "[class]:nth-child(2)",
    ]
)
compounds = st.builds("{}{}".format, names, conditions)
combinators = st.sampled_from([" ", " ", "\t", " > ", ">", "+", " + ", " ~ ", "~"])
selectors = st.builds(
    lambda first, rest: first + "".join(combinator + compound for combinator, compound in rest),
    st.one_of(compounds, compounds, st.just(":scope"), st.just(":scope.a")),
    st.lists(st.tuples(combinators, compounds), min_size=1, max_size=4),
)
queries = st.lists(selectors, min_size=1, max_size=2).map(", ".join)


def found(page: Page, outer: str, inner: str) -> list[object]:
    boxes = page.css(outer)
    return [boxes.getall(), *([box.css(inner).getall(), box.css(inner).get()] for box in boxes)]


@given(pages, queries, queries)
@settings(max_examples=400, deadline=None)
def test_matches_equal_those_of_lexbor(source: str, outer: str, inner: str) -> None:
    expected = found(page_of(source), outer, inner)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "_MAX_VISITS", 0)
        page = page_of(source)
        assert found(page, outer, inner) == expected
        assert "uttu" not in page.css("html").get("")


DEEP = "<x></x>" + "<div><p>" * 250
WIDE = "<x></x><div>" + "<p>x</p>" * 100_000
# Each unclosed <b> is opened again in every paragraph.
REOPENED = "<x></x>" + "".join(f"<b a={number}>" for number in range(300)) + "<p>x" * 800


@pytest.mark.parametrize(
    ("source", "query"),
    [
        (DEEP, "x div div div"),
        (DEEP, "x div p div p div p"),
        (DEEP, "x > div div > p div > p"),
        (DEEP * 20, "x div p"),
        (DEEP * 20, "x ~ p div > p, x div div div::text"),
        (WIDE, "h1 ~ p"),
        (WIDE, "x ~ p ~ p"),
        (WIDE, "p:nth-child(200000)"),
        (WIDE, "div > p:nth-last-of-type(200000)::text"),
        (REOPENED, "x b b b"),
        (REOPENED, "x > b p b b"),
    ],
)
def test_no_selector_takes_long(source: str, query: str) -> None:
    page = page_of(source)
    page.css("html").attrib  # noqa: B018 - parsed now
    began = time.process_time()
    assert page.css(query).get() is None
    assert time.process_time() - began < 1


def test_an_ordinary_page_is_left_to_lexbor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uttu.spider.document.find_by_levels", None)
    row = "<div class=row><ul><li><div><p><span><b><a href=/>x</a></b></span></p></div></li></ul></div>"
    page = page_of(f"<div><div><div><main>{row * 200}</main></div></div></div>")
    assert len(page.css("main .row li a")) == 200
    assert len(page.css("main li a")) == 200
    assert len(page.css("main .row:nth-child(2n) a")) == 100
    assert len(page.css(".row ~ .row a")) == 199

"""CSS on the tree finds what cssselect's XPath, as parsel uses it, finds on the mirror."""

from __future__ import annotations

from cssselect import HTMLTranslator
from hypothesis import given, settings
from hypothesis import strategies as st

from uttu.spider.query import Query, parse
from uttu.testing.pages import page_of

names = st.sampled_from(["div", "span", "b", "i"])
attributes = st.sampled_from(["", "", ' class="a"', ' class="a b"', ' id="q"', ' data-k="1"', ' class="b" data-k="2"'])
texts = st.sampled_from(["x", "y z", " "])
nodes = st.recursive(
    texts,
    lambda children: st.builds(
        lambda name, attribute, inner: f"<{name}{attribute}>{''.join(inner)}</{name}>",
        names,
        attributes,
        st.lists(children, max_size=4),
    ),
    max_leaves=25,
)
pages = st.builds("<!doctype html><body>{}{}{}</body>".format, nodes, nodes, nodes)
conditions = st.sampled_from(
    [
        "",
        "",
        "",
        ".a",
        ".b",
        "#q",
        "[data-k]",
        "[data-k='1']",
        ":first-child",
        ":last-child",
        ":nth-child(2)",
        ":empty",
        ":only-child",
        ":not(.a)",
        ":not(span)",
        ":has(b)",
        ":has(> i)",
        ":contains('x')",
        ":is(b, .a)",
        "[class!=a]",
    ]
)
compounds = st.builds("{}{}".format, st.one_of(names, st.just("*")), conditions)
combinators = st.sampled_from([" ", " ", " > ", " + ", " ~ "])


def join(first: str, rest: list[tuple[str, str]]) -> str:
    return first + "".join(combinator + compound for combinator, compound in rest)


selectors = st.builds(
    join, st.one_of(compounds, compounds, st.just(":scope")), st.lists(st.tuples(combinators, compounds), max_size=3)
)
queries = st.lists(selectors, min_size=1, max_size=2).map(", ".join)


@given(pages, queries, queries)
@settings(max_examples=500, deadline=None)
def test_css_finds_what_xpath_finds(source: str, outer: str, inner: str) -> None:
    page = page_of(source)
    translator = HTMLTranslator()
    boxes = page.css(outer)
    assert boxes.getall() == page.xpath(translator.css_to_xpath(outer)).getall()
    assert boxes.css(inner).getall() == boxes.xpath(translator.css_to_xpath(inner)).getall()
    assert page.css(outer).get() == boxes.get()
    assert "uttu" not in page.css("html").getall()[0]


def test_query_takes() -> None:
    assert parse("a") == (Query("a", is_tag=True, ignores_tables=True),)
    assert parse("a[title='x, y']::text") == (Query("a[title='x, y']", "text"),)
    assert parse("a::attr( href )") == (Query("a", "attribute", "href", is_tag=True, ignores_tables=True),)
    assert [(each.css, each.take, each.name) for each in parse("a, b::text, i ::attr(x), u > ::text, p ::text")] == [
        ("a", "element", ""),
        ("b, u > *", "text", ""),
        ("i", "all_attributes", "x"),
        ("p", "all_text", ""),
    ]
    assert parse("a:contains('x')")[0].xpath
    assert not parse("a[title=':contains(x)']")[0].xpath

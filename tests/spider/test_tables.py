"""Selectors give the same whether or not the elements that the parser adds to tables were removed before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from uttu.spider.query import IMPLIED, parse
from uttu.testing.pages import page_of

_TAGS = ("table", "tr", "td", "tbody", "col", "colgroup", "template", "div", "p", "b")
_COMPOUNDS = ("table", "tr", "td", ".x", "#y", "[k]", "td.x", "div", "p", "b", "table[k]", "tbody", "TR", "tr#y")


@st.composite
def documents(draw: st.DrawFn) -> str:
    pieces = []
    for _ in range(draw(st.integers(1, 25))):
        tag = draw(st.sampled_from(_TAGS))
        attribute = draw(st.sampled_from(("", ' class="x"', ' id="y"', " k=1")))
        pieces.append(draw(st.sampled_from((f"<{tag}{attribute}>", f"</{tag}>", " text ", "\n"))))
    return "".join(pieces)


@st.composite
def selectors(draw: st.DrawFn) -> str:
    css = " ".join(draw(st.lists(st.sampled_from(_COMPOUNDS), min_size=1, max_size=3)))
    return css + draw(st.sampled_from(("", "::text", "::attr(k)")))


@given(documents(), selectors())
def test_results_do_not_depend_on_implied_elements(document: str, selector: str) -> None:
    early, late = page_of(document), page_of(document)
    late.css("table > tr").getall()  # removes what the parser added
    query = f"{selector}::attr(class)" if "::" not in selector else selector
    assert early.css(query).getall() == late.css(query).getall()


def test_which_selectors_ignore_implied_elements() -> None:
    def ignores(selector: str) -> bool:
        return all(query.ignores_tables for query in parse(selector))

    for selector in ("title::text", "div.card", "h3 a::text", "a[href]::attr(href)", "div#x p.y", "td.x", ".a .b"):
        assert ignores(selector), selector
    others = ("table > tr", "table::text", ".x::text", "td ::text", "*", "div *", "p:first-child", "a ~ b", "a + b")
    for selector in (*others, *IMPLIED, *(f"{name} tr" for name in IMPLIED), "a[title='b c']"):
        assert not ignores(selector), selector

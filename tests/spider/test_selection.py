"""Selections by CSS and XPath, in parsel's manner."""

from __future__ import annotations

import pytest

from uttu.spider.document import Document, ElementSelection
from uttu.spider.query import Query, parse
from uttu.testing.pages import page_of

HTML = """
<html><head><title>Shop</title></head><body>
<div class="item" id="a"><h2>One <b>bold</b> tail</h2><span class="price">£1.50</span>
<a href="/1" data-x="">first</a></div>
<div class="item" id="b"><h2>Two</h2><span class="price">£2.75</span><a href="/2">second</a></div>
<p></p><p>text</p>
</body></html>
"""


def test_text_attributes_and_html() -> None:
    page = page_of(HTML)
    assert page.css("title::text").get() == "Shop"
    assert page.css("div.item::attr(id)").getall() == ["a", "b"]
    assert page.css("span.price::text").getall() == ["£1.50", "£2.75"]
    assert page.css("h2").get() == "<h2>One <b>bold</b> tail</h2>"
    assert page.css("a::attr(data-x)").get() == ""


def test_text_of_element_or_of_all_below() -> None:
    page = page_of(HTML)
    assert page.css("#a h2::text").getall() == ["One ", " tail"]
    assert page.css("#a h2 ::text").getall() == ["One ", "bold", " tail"]
    assert page.css("#a h2").text == "One bold tail"


def test_the_first_text_may_be_in_a_later_match() -> None:
    assert page_of(HTML).css("p::text").get() == "text"


def test_nothing_found() -> None:
    page = page_of(HTML)
    assert page.css("nav::text").get() is None
    assert page.css("nav::text").get(default="none") == "none"
    assert page.css("nav").getall() == []
    assert not page.css("nav")
    assert page.css("nav").attrib == {}
    assert page.css("nav").text == ""
    assert page.css("nav").css("a").get() is None


def test_iteration_and_nesting() -> None:
    boxes = page_of(HTML).css("div.item")
    assert len(boxes) == 2
    assert [(box.css("h2::text").get(), box.css("a").attrib["href"]) for box in boxes] == [
        ("One ", "/1"),
        ("Two", "/2"),
    ]
    assert boxes[1].css("span::text").get() == "£2.75"
    assert boxes.css("a::attr(href)").getall() == ["/1", "/2"]
    assert [each.get() for each in page_of(HTML).css("span.price::text")] == ["£1.50", "£2.75"]


def test_query_lists() -> None:
    page = page_of(HTML)
    assert page.css("title::text, h2::text").getall() == ["Shop", "One ", " tail", "Two"]
    assert page.css("a::attr(href), title::text").getall() == ["Shop", "/1", "/2"]


def test_regular_expressions() -> None:
    prices = page_of(HTML).css("span.price::text")
    assert prices.re(r"[\d.]+") == ["1.50", "2.75"]
    assert prices.re(r"£(\d+)") == ["1", "2"]
    assert prices.re_first(r"£(\d+)") == "1"
    assert prices.re_first("nothing", default="-") == "-"


def test_xpath() -> None:
    page = page_of(HTML)
    assert page.xpath("//span/text()").getall() == ["£1.50", "£2.75"]
    assert page.xpath("//a/@href").get() == "/1"
    assert page.xpath("count(//a)").get() == "2"
    assert page.xpath("//div[@id=$which]//a/text()", which="b").get() == "second"
    assert [box.xpath("./h2").get() for box in page.xpath("//div")][1] == "<h2>Two</h2>"
    assert page.xpath("//a[re:test(@href, '2$')]/text()").get() == "second"
    assert page.xpath("//nav").getall() == []


def test_css_and_xpath_nest_in_one_another() -> None:
    page = page_of(HTML)
    assert page.css("div.item").xpath("./a/@href").getall() == ["/1", "/2"]
    assert page.xpath("//div").css("a::attr(href)").getall() == ["/1", "/2"]


def test_invalid_query_messages() -> None:
    with pytest.raises(ValueError, match="only ::text and ::attr"):
        page_of(HTML).css("a::before")
    with pytest.raises(ValueError, match="XPath '//a\\['"):
        page_of(HTML).xpath("//a[")


def test_commas_in_brackets_and_strings_do_not_split() -> None:
    assert parse("a[title='x, y']::text") == (Query("a[title='x, y']", "text"),)
    assert parse(":is(a, b)::attr(href)") == (Query(":is(a, b)", "attribute", "href"),)


def test_an_empty_page() -> None:
    page = page_of("")
    assert page.css("a").getall() == []
    assert page.xpath("//a").getall() == []
    assert page.links() == []


@pytest.mark.parametrize(
    "html",
    [
        HTML,
        "",
        "no markup",
        "<a><a href=1>two<A href=2>three",
        "<svg><title>s</title><a>in</a><html>odd</html></svg><title>t</title><math><a>m</a></math>",
        "<template><a>t</a></template><noscript><a>n</a></noscript><table><a>moved</a><tr><td>x</table>",
        "<frameset><frame src=1></frameset>",
    ],
)
def test_tag_lookup_equals_selector(html: str) -> None:
    page = page_of(html)
    for name in ("a", "A", "title", "html", "body", "td", "frame", "svg", "h2", "nothing"):
        assert page.css(name).getall() == page.css(f":is({name})").getall()
        assert page.css(name).get() == page.css(f":is({name})").get()
        for part in page.css("svg, div, html"):
            assert part.css(name).getall() == part.css(f":is({name})").getall()


DEEP = "<div>" * 200 + "x" * 500_000


@pytest.mark.parametrize("content_type", ["text/html", "text/xml"])
def test_output_of_nested_elements_is_bounded(content_type: str) -> None:
    # 200 times 500 KB are 100 MB, more than 32 MB and 6 times the page.
    with pytest.raises(ValueError, match="return too much HTML and text"):
        page_of(DEEP, content_type=content_type).css("div").getall()
    with pytest.raises(ValueError, match="return too much HTML and text"):
        [each.text for each in page_of(DEEP, content_type=content_type).css("div")]
    with pytest.raises(ValueError, match="return too much HTML and text"):
        [each.get() for each in page_of(DEEP, content_type=content_type).css("div")]
    # Elements side by side give what the page has; a few passes over a large page are no problem either.
    page = page_of("<r>" + "<p>x</p>" * 50_000 + "</r>", content_type=content_type)
    for _ in range(20):
        assert len(page.css("p").getall()) == 50_000
    large = page_of(f"<div>{'x' * 9_000_000}</div>", content_type=content_type)
    for _ in range(4):
        assert len(large.css("div").get("")) > 9_000_000
        assert len(large.css("div").text) == 9_000_000


@pytest.mark.parametrize("content_type", ["text/html", "text/xml"])
def test_queries_within_queries_find_a_bounded_number(content_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uttu.spider.selection.MAX_MATCHES", 1000)
    page = page_of("<div>x" * 60, content_type=content_type)
    assert len(page.css("div")) == 60
    with pytest.raises(ValueError, match="more than 1,000 matches"):
        page.css("div").css("div").getall()
    with pytest.raises(ValueError, match="more than 1,000 matches"):
        page.css("div").css("*::text").getall()
    with pytest.raises(ValueError, match="more than 1,000 matches"):
        page.css("div").xpath(".//div")


AROUND = (
    '<div class="Outer x" id="o"><section><b>0</b>'
    '<div class="card"><div class="x"><a>1</a></div><i><a>2</a></i></div>'
    '<p class="card"><b><a>3</a></b><a>4</a></p></section></div>'
)


@pytest.mark.parametrize("doctype", ["<!doctype html>", ""])
@pytest.mark.parametrize(
    "query",
    [
        *("div a", ".x a", "div.x a", "#o a", "i a", "i > a", ".card a", "b a, i a", "b a, .x a", "section b", "a"),
        *(".outer a", ".OUTER a", "i, b a", "html a", r".\78 a", "p > a", "b + a", "*.x a", "[id] a", "i:not(.x) a"),
        *("div a, :scope", ":scope > a, i a"),
    ],
)
def test_ancestors_outside_do_not_match(query: str, doctype: str) -> None:
    """With anchors, a search goes without the attribute that marks the element; it must find the same."""
    page = page_of(doctype + AROUND)
    document = page._document
    assert isinstance(document, Document)
    (parsed,) = parse(query)
    for card in page.css(".card, .card i"):
        assert isinstance(card, ElementSelection)
        found, marked = (
            [node.mem_id for node in document.find(each, card._nodes[0])]
            for each in (parsed, parsed._replace(anchors=frozenset()))
        )
        assert found == marked
        assert card.css(query).get() == next(iter(card.css(query).getall()), None)


def test_anchors_of_selectors() -> None:
    anchors = {
        query: parse(query)[0].anchors
        for query in ("i a", "B.x a", "b#Y > a, .z a", "[x] a", "b a, * i", "a", "i a, :scope")
    }
    assert anchors == {
        "i a": {"i"},
        "B.x a": {".x"},
        "b#Y > a, .z a": {"#y", ".z"},
        "[x] a": set(),
        "b a, * i": set(),
        "a": set(),
        "i a, :scope": set(),
    }

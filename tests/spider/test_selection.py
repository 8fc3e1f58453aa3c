"""Selections by CSS and XPath, in parsel's manner."""

from __future__ import annotations

import pytest

from weft.spider.query import Query, parse
from weft.testing.pages import page_of

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


def test_text_is_of_the_element_itself_unless_a_space_says_below() -> None:
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
    assert page.css("a::attr(href), title::text").getall() == ["/1", "/2", "Shop"]


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


def test_what_is_wrong_with_a_query_is_said() -> None:
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
def test_elements_by_their_name_are_those_that_the_selector_finds(html: str) -> None:
    page = page_of(html)
    for name in ("a", "A", "title", "html", "body", "td", "frame", "svg", "h2", "nothing"):
        assert page.css(name).getall() == page.css(f":is({name})").getall()
        assert page.css(name).get() == page.css(f":is({name})").get()
        for part in page.css("svg, div, html"):
            assert part.css(name).getall() == part.css(f":is({name})").getall()

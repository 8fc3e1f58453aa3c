"""What parsel does, and what Uttu does the same: expected values are parsel's (1.12), for each row of the table in
docs/reference/selections.md. Where Uttu differs on purpose, the tests below say so.
"""

from __future__ import annotations

import time

import pytest

from uttu import Page, Selection
from uttu.testing.pages import page_of

DOCUMENT = (
    '<!doctype html><html lang="en"><head><title>T &amp; t</title></head><body><div class="Foo x" id="o">'
    '<p class="foo" id="p1">a<a class="x" href="1">k</a>z</p><div class="in" id="i">t<b>hello <i>world</i></b><!--c-->'
    '</div>after</div><p lang="en-GB">q</p><form><input name="c"></form><ul><li>1</li><li class="sel big">2</li>'
    '<li>3 <a href="/x?a=1&amp;b=2">l</a></li></ul><dl><dt>A</dt><dd>1</dd><dt>B</dt><dd>2</dd></dl>'
    '<table id="t1"><tr><th>h</th></tr><tr><td>c1</td><td>c2</td></tr></table>'
    '<table id="t2"><tbody><tr><td>d1</td></tr></tbody></table></body></html>'
)
PRICES = (
    "<p>Price: 12.50 EUR, was 15.00 EUR &amp; more &lt;b&gt; &pound;3 a&nbsp;b</p>"
    "<p>none &amp;eacute; &amp;#163; &amp;amp;</p>"
)

TEXTS_AND_ATTRIBUTES = [
    ("div::text", ["t", "after"]),
    ("div ::text", ["a", "k", "z", "t", "hello ", "world", "after"]),
    ("div > ::text", ["a", "z", "t", "hello "]),
    ("#o + ::text", ["q"]),
    ("p::text, a::text", ["a", "k", "z", "q", "l"]),
    ("b::text", ["hello "]),
    ("b ::text", ["hello ", "world"]),
    ("a::attr(href)", ["1", "/x?a=1&b=2"]),
    ("div ::attr(class)", ["Foo x", "foo", "x", "in"]),
    ("div > ::attr(class)", ["foo", "in"]),
    ("a::attr('href')", ["1", "/x?a=1&b=2"]),
    ("a::attr(nothing)", []),
    ("a::attr(href), title::text", ["T & t", "1", "/x?a=1&b=2"]),
    ("#o ::text, li a::attr(href)", ["a", "k", "z", "t", "hello ", "world", "after", "/x?a=1&b=2"]),
    ("#i::text, #i", ['<div class="in" id="i">t<b>hello <i>world</i></b><!--c--></div>', "t"]),
    ("title::text", ["T & t"]),
]
CSS = [
    (
        "a, a.x",
        [
            '<a class="x" href="1">k</a>',
            '<a href="/x?a=1&amp;b=2">l</a>',
        ],
    ),
    ("#o > p > a", ['<a class="x" href="1">k</a>']),
    ("li:contains('3')", ['<li>3 <a href="/x?a=1&amp;b=2">l</a></li>']),
    ("b:contains('hello world')", ["<b>hello <i>world</i></b>"]),
    ("b:contains('Hello')", []),
    ("p:lang(en)", ['<p class="foo" id="p1">a<a class="x" href="1">k</a>z</p>', '<p lang="en-GB">q</p>']),
    ("input:enabled", ['<input name="c">']),
    ("dd[id!=x]", ["<dd>1</dd>", "<dd>2</dd>"]),
    ("li:not(.sel)", ["<li>1</li>", '<li>3 <a href="/x?a=1&amp;b=2">l</a></li>']),
    ("li:nth-of-type(2)", ['<li class="sel big">2</li>']),
    ("li:nth-last-child(1) a", ['<a href="/x?a=1&amp;b=2">l</a>']),
    ("div:has(> b)", ['<div class="in" id="i">t<b>hello <i>world</i></b><!--c--></div>']),
    ("li:is(.sel)", ['<li class="sel big">2</li>']),
    ("li:first-child, li:last-child", ["<li>1</li>", '<li>3 <a href="/x?a=1&amp;b=2">l</a></li>']),
    ("table > tr", ["<tr><th>h</th></tr>", "<tr><td>c1</td><td>c2</td></tr>"]),
    ("#t1 > tr > td", ["<td>c1</td>", "<td>c2</td>"]),
    ("#t2 > tbody > tr", ["<tr><td>d1</td></tr>"]),
    ("table > tbody > tr", ["<tr><td>d1</td></tr>"]),
    ("td:first-child", ["<td>c1</td>", "<td>d1</td>"]),
    ("dt + dd", ["<dd>1</dd>", "<dd>2</dd>"]),
    ("li ~ li", ['<li class="sel big">2</li>', '<li>3 <a href="/x?a=1&amp;b=2">l</a></li>']),
    ("[class~=big]", ['<li class="sel big">2</li>']),
    (
        "p[lang|=en]",
        ['<p lang="en-GB">q</p>'],
    ),
    ("LI.sel", ['<li class="sel big">2</li>']),
    ("i:only-child", ["<i>world</i>"]),
    ("p:empty", []),
    (":scope > body > p", ['<p lang="en-GB">q</p>']),
]
XPATH = [
    ("//li/text()", ["1", "2", "3 "]),
    ("//a/@href", ["1", "/x?a=1&b=2"]),
    ("//table/tr/td", ["<td>c1</td>", "<td>c2</td>"]),
    ("//li[has-class('sel')]", ['<li class="sel big">2</li>']),
    ("//li[has-class('big','sel')]/text()", ["2"]),
    ("//li[has-class('se')]", []),
    ("//a[re:test(@href, '^\\d$')]/@href", ["1"]),
    ("re:replace('a1b2', '\\d', 'g', '-')", ["a-b-"]),
    ("set:difference(//li, //li[@class])", ["<li>1</li>", '<li>3 <a href="/x?a=1&amp;b=2">l</a></li>']),
    ("//comment()", ["<!--c-->"]),
    ("string(//li[3])", ["3 l"]),
    ("1234567.89", ["1234567.89"]),
    ("0.1 + 0.2", ["0.30000000000000004"]),
    ("//li = '2'", ["1"]),
    ("boolean(//nope)", ["0"]),
    ("concat(//a/@href, '!')", ["1!"]),
    ("//a | //a/@href", ['<a class="x" href="1">k</a>', "1", '<a href="/x?a=1&amp;b=2">l</a>', "/x?a=1&b=2"]),
    ("//dd[position() > 1]/text()", ["2"]),
    ("name(//*[@id='i'])", ["div"]),
    ("//nope", []),
]
CHAINS = [
    ("xpath //tr", "css td::text", ["c1", "c2", "d1"]),
    ("css dt", "xpath following-sibling::dd[1]/text()", ["1", "2"]),
    (
        "css dt",
        "xpath ..",
        ["<dl><dt>A</dt><dd>1</dd><dt>B</dt><dd>2</dd></dl>", "<dl><dt>A</dt><dd>1</dd><dt>B</dt><dd>2</dd></dl>"],
    ),
    ("css #i", "xpath ancestor::*/@id", ["o"]),
    ("css li", "xpath //dt/text()", ["A", "B", "A", "B", "A", "B"]),
    ("css body", "xpath ./div/@id", ["o"]),
    ("css b", "xpath ./i/text()", ["world"]),
    ("xpath //div", "css div::attr(id)", ["o", "i", "i"]),
    ("css div", "css div::attr(id)", ["o", "i", "i"]),
    ("css div", "xpath .//a/@href", ["1"]),
    ("css li", "css body li", []),
    ("css #i", "css div b", ["<b>hello <i>world</i></b>"]),
    ("css #o", "css div b", ["<b>hello <i>world</i></b>"]),
    ("css p", "css div > p", []),
    ("css ul", "css :scope > li::text", ["1", "2", "3 "]),
    ("css dt", "css dt + dd::text", ["1", "2"]),
    ("css dt", "css :scope + dd::text", ["1", "2"]),
    ("css ul", "css ::text", ["1", "2", "3 ", "l"]),
    ("css li", "css li::text", ["1", "2", "3 "]),
    ("xpath //li/text()", "xpath .", ["1", "2", "3 "]),
    ("xpath //li/text()", "css *", []),
    ("css li", "xpath self::li[@class]/@class", ["sel big"]),
    ("xpath //td", "xpath ../td[1]/text()", ["c1", "c1", "d1"]),
    ("xpath //b", "css ::text", ["hello ", "world"]),
    ("css a", "xpath @href | text()", ["1", "k", "/x?a=1&b=2", "l"]),
]
REGEX = [
    ("p::text", r"\d+\.\d+", ["12.50", "15.00"]),
    ("p::text", r"(\d+)\.(\d+)", ["12", "50", "15", "00"]),
    ("p::text", r"(\d+)\.\d+|(none)", ["12", "", "15", "", "", "none"]),
    ("p::text", r"(?P<extract>\d+)\.\d+", ["12"]),
    ("p::text", r"(?P<extract>x)?none", []),
    ("p::text", r"(?P<whole>\d+)\.(?P<part>\d+)", ["12", "50", "15", "00"]),
    ("p", r"more \S+", ["more &lt;b>"]),
    ("p", r"£\d", ["£3"]),
    ("p", r"a\sb", ["a\xa0b"]),
    ("p::text", r"none .*", ["none é £ &amp;"]),
    ("p::text", r"nothing", []),
    ("p", r"<p>\w+", ["<p>Price", "<p>none"]),
]


@pytest.mark.parametrize(("query", "expected"), TEXTS_AND_ATTRIBUTES + CSS)
def test_css(query: str, expected: list[str]) -> None:
    check(page_of(DOCUMENT).css(query), expected)
    assert page_of(DOCUMENT).css(query).get() == (expected[0] if expected else None)


@pytest.mark.parametrize(("query", "expected"), XPATH)
def test_xpath(query: str, expected: list[str]) -> None:
    check(page_of(DOCUMENT).xpath(query), expected)


@pytest.mark.parametrize(("first", "second", "expected"), CHAINS)
def test_selections_within_selections(first: str, second: str, expected: list[str]) -> None:
    selection = run(page_of(DOCUMENT), first)
    check(run(selection, second), expected)
    each_alone = [value for each in selection for value in run(each, second).getall()]
    assert each_alone == expected


@pytest.mark.parametrize(("query", "pattern", "expected"), REGEX)
def test_regular_expressions(query: str, pattern: str, expected: list[str]) -> None:
    selection = page_of(PRICES).css(query)
    assert selection.re(pattern) == expected
    assert selection.re_first(pattern) == (expected[0] if expected else None)
    assert selection.re_first(pattern, default="-") == (expected[0] if expected else "-")


def run(selection: Page | Selection, step: str) -> Selection:
    how, _, query = step.partition(" ")
    return selection.css(query) if how == "css" else selection.xpath(query)


def check(selection: Selection, expected: list[str]) -> None:
    assert selection.getall() == expected
    assert selection.get() == (expected[0] if expected else None)
    assert selection.get("-") == (expected[0] if expected else "-")
    assert len(selection) == len(expected)
    assert bool(selection) is bool(expected)
    assert [each.get() for each in selection] == expected
    assert selection[1:].getall() == expected[1:]
    assert f"of {len(expected)}" in repr(selection)
    if expected:
        assert selection[-1].get() == expected[-1]
        with pytest.raises(IndexError):
            selection[len(expected)]


def test_entities_in_results_may_stay() -> None:
    found = page_of(PRICES).css("p::text").re("none .*", replace_entities=False)
    assert found == ["none &eacute; &#163; &amp;"]


def test_variables() -> None:
    page = page_of(DOCUMENT)
    assert page.xpath("//li[@class=$name]/text()", name="sel big").get() == "2"
    assert page.xpath("//li[count(.//a)=$n]/a/text()", n=1).get() == "l"
    assert page.css("ul").xpath("./li[$n]/text()", n=2).get() == "2"
    with pytest.raises(ValueError, match="Undefined variable"):
        page.xpath("//li[@class=$name]")


def test_html_ignores_namespaces() -> None:
    page = page_of("<svg viewBox='1'><path d=x></path><a xlink:href='/s'>t</a></svg>")
    assert page.xpath("//svg/path/@d").get() == "x"
    assert page.xpath("//svg:path", namespaces={"svg": "http://www.w3.org/2000/svg"}).getall() == []
    page.register_namespace("svg", "http://www.w3.org/2000/svg")
    page.remove_namespaces()
    assert page.xpath("//svg/a/@*").get() == "/s"


# Where Uttu differs.


def test_numbers_are_as_xpath_writes_them() -> None:
    page = page_of(DOCUMENT)
    numbers = {
        "count(//li)": "3",
        "1 div 0": "Infinity",
        "-1 div 0": "-Infinity",
        "number('x')": "NaN",
        "10000000000 * 10000000000 * 10": "1000000000000000000000",
        "1 div 3": "0.3333333333333333",
        "-0.5": "-0.5",
        "0.00001": "0.00001",
    }
    assert {query: page.xpath(query).get() for query in numbers} == numbers


def test_names_of_attributes_in_any_case() -> None:
    page = page_of('<a HREF="/x">t</a><svg viewBox="0 0 1 1"></svg>')
    assert page.css("a::attr(HREF)").getall() == page.css("a::attr(href)").getall() == ["/x"]
    assert page.css("svg::attr(viewbox)").getall() == page.css("svg::attr(viewBox)").getall() == ["0 0 1 1"]
    assert page.css("svg ::attr(VIEWBOX)").get() == "0 0 1 1"
    assert page.xpath("//svg/@viewBox").get() == "0 0 1 1"


def test_unknown_entities_stay() -> None:
    assert page_of("<p>AT&amp;T; &amp;foo;</p>").css("p::text").re(".+") == ["AT&T; &foo;"]


def test_html_is_written_as_browsers_do() -> None:
    page = page_of("<p title='a&nbsp;b' hidden>x&nbsp;y</p>")
    assert page.css("p").get() == page.xpath("//p").get() == '<p title="a&nbsp;b" hidden="">x&nbsp;y</p>'
    assert page.css("p::text").get() == "x\xa0y"


def test_selection_of_empty_string_is_true() -> None:
    assert page_of("<a title=''>x</a>").css("a::attr(title)")[0]


def test_html_is_parsed_as_browsers_do() -> None:
    """libxml2 keeps what is misplaced in a table there; browsers put it before the table."""
    page = page_of("<table><p>moved</p><tr><td>1</td></tr></table>")
    assert page.css("table > tr > td::text").get() == "1"
    assert page.xpath("//p/following-sibling::table//td/text()").get() == "1"
    assert page.css("table p").getall() == []


def test_implied_markup_is_as_in_browsers() -> None:
    page = page_of("<option selected>x</option><pre>\n\na</pre><textarea>\nb</textarea>")
    assert page.css("option::attr(selected)").get() == page.xpath("//option/@selected").get() == ""
    assert page.css("head").get() == "<head></head>"
    assert page.css("pre::text, textarea::text").getall() == ["\na", "b"]


def test_rows_of_tables() -> None:
    mixed = (
        "<table id=a><tr><td>1</table><table id=b><tbody><tr><td>2<tr><td>3</tbody><tr><td>4</table>"
        "<table id=c><TBODY class=w><tr><td>5"
    )
    for page in (page_of(mixed), page_of(f"<!-- <tbody> --><p title='<tbody>'>{mixed}")):
        assert page.css("table > tr > td::text").getall() == ["1", "4"]
        assert page.xpath("//table/tr/td/text()").getall() == ["1", "4"]
        assert page.css("table > tbody > tr > td::text").getall() == ["2", "3", "5"]
        assert page.css("tbody::attr(class)").getall() == ["w"]
        assert page.css("#a").get() == '<table id="a"><tr><td>1</td></tr></table>'
        assert page.css("table tr td::text").getall() == ["1", "2", "3", "4", "5"]


def test_tables_do_not_depend_on_earlier_queries() -> None:
    source = "<table><col><tr><td>1</td></tr></table>"
    expected = "<table><col><tr><td>1</td></tr></table>"
    table = page_of(source).css("table")
    assert len(table) == 1
    assert table.get() == expected
    assert page_of(source).css("table").get() == page_of(source).css("body > table").get() == expected
    assert page_of(source).css("table").getall() == [expected]
    assert page_of(source).css("table")[0].get() == expected
    assert page_of(source).css("table").css("tr").xpath("..").get() == expected
    assert page_of(source).css("table::text").getall() == []
    assert page_of(source).css("tbody").getall() == page_of(source).css("colgroup").getall() == []
    assert page_of(source).css("TBODY").get() is None


def test_templates_are_part_of_the_page() -> None:
    page = page_of("<div><template><a href=/1>x</a><template><a href=/2>y</a></template></template></div>")
    assert page.css("a::text").getall() == page.xpath("//a/text()").getall() == ["x", "y"]
    assert page.css("template > a::attr(href)").getall() == ["/1", "/2"]
    assert len(page.links()) == 2
    assert (
        page.css("div").get()
        == '<div><template><a href="/1">x</a><template><a href="/2">y</a></template></template></div>'
    )


def test_implied_elements_in_templates_are_removed() -> None:
    page = page_of("<template><colgroup><tr><td>1</td></tr></template>")
    assert page.css("template").get() == "<template><colgroup></colgroup><tr><td>1</td></tr></template>"
    assert page.css("template > tr > td::text").get() == "1"


def test_pages_without_doctype_match_classes_in_any_case() -> None:
    assert page_of("<p class=Foo>x").css(".foo::text").get() == "x"
    assert page_of("<!doctype html><p class=Foo>x").css(".foo::text").get() is None


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("//div", "this is XPath. Use xpath"),
        ("./a", "this is XPath"),
        (".//a", "this is XPath"),
        ("@href", "this is XPath"),
        ("a/@href", "this is XPath"),
        ("div/text()", "this is XPath"),
        ("(//a)[1]", "this is XPath"),
        ("> p", "begins with a combinator. Use ':scope > p'"),
        ("", "it is empty"),
        ("a, ", "Invalid CSS selector"),
        ("a[", "Invalid CSS selector"),
        ("li:eq(1)", "pseudo-class :eq\\(\\) is unknown"),
        ("a::before", "only ::text and ::attr"),
        ("a::text b", "only ::text and ::attr"),
    ],
)
def test_wrong_queries_raise_at_once(query: str, hint: str) -> None:
    page = page_of(DOCUMENT)
    with pytest.raises(ValueError, match=hint):
        page.css(query)
    with pytest.raises(ValueError, match=hint):
        page.css("div").css(query)


@pytest.mark.parametrize("query", ["li.next a", "a::text", ".price", "#x", "a["])
def test_css_in_xpath(query: str) -> None:
    with pytest.raises(ValueError, match="XPath" if query == "a[" else r"This is CSS: use css\("):
        page_of(DOCUMENT).xpath(query)


def test_nothing_is_serialised_that_is_not_asked_for() -> None:
    """The HTML of every element of a deep tree would be gigabytes."""
    depth = 400
    page = page_of("<div>" * depth + "x" * 100_000)
    everything = page.css("div")
    begin = time.process_time()
    assert len(everything) == depth
    assert repr(everything).startswith("<Selection of 400")
    assert everything.re_first("x+") == "x" * 100_000
    assert everything.text == "x" * 100_000
    assert len(everything.get() or "") > 100_000
    assert page.xpath("//div").get() == everything.get()
    assert time.process_time() - begin < 0.5


def test_more_than_parsel() -> None:
    page = page_of(
        "<svg><use xlink:href='#i'></use></svg><a @click=go href=/1>x</a><p class=x>1<p class=x>2<INPUT TYPE=checkbox>"
    )
    assert page.css("use::attr(xlink:href)").get() == "#i"
    assert page.css("a::attr('@click')").get() == "go"
    assert page.css("p:nth-child(2 of .x)::text").get() == "2"
    assert page.css("a:any-link::text").get() == "x"
    assert (
        page.css("body > *:first-of-type::text").getall() == page.css(":is(:not(:not(:first-of-type)))::text").getall()
    )
    assert len(page.css("[type=CHECKBOX]")) == 1


def test_xpath_from_a_comment() -> None:
    with pytest.raises(ValueError, match="_Comment"):
        page_of("<!--x-->").xpath("//comment()").xpath("..")


def test_paths_in_strings_are_no_xpath() -> None:
    page = page_of("<a href='/@ann'>1</a><a href='//x/text()'>2</a>")
    assert page.css("a[href='/@ann']::text").get() == "1"
    assert page.css('a[href^="//"]::text, a[href$="/text()"]::text').getall() == ["2"]
    assert page.css("a[title='::text, x']::text").getall() == []


def test_deep_pages_take_no_longer() -> None:
    """Checks whether elements lie within one another must not cost elements times depth."""
    page = page_of("<div>" * 500 + "<i><b>x<u></u></b></i>" * 20_000)
    begin = time.process_time()
    assert len(page.css("b::text").getall()) == 20_000
    assert len(page.css("b ::text").getall()) == 20_000
    assert len(page.css("div ::text").getall()) == 20_000
    assert len(page.css("div::text, b::text").getall()) == 20_000
    assert len(page.css("*::text").getall()) == 20_000
    assert time.process_time() - begin < 5


def test_conditions_on_ancestors() -> None:
    """lexbor looks only at the nearest element that has the name."""
    page = page_of(
        "<div id=a><div class=x id=b><p><a href=1>k</a></p></div></div><ul><li><li class=x><a href=2>l</a></ul>"
    )
    assert page.css("div:not(.x) a::attr(href)").getall() == ["1"]
    assert page.css(":not(p) a::attr(href)").getall() == ["1", "2"]
    assert page.css(":is(#a) a::attr(href), li:not(.x) ~ li a::attr(href)").getall() == ["1", "2"]
    assert page.css("div:has(p):not(.x) p > a").getall() == ['<a href="1">k</a>']
    assert page.css("body").css("div:not(.x) a::attr(href)").getall() == ["1"]
    assert page.css("#b").css("div:not(.x) a::attr(href)").getall() == []
    assert page.css("#a")[0].css("div:not(.x) p:not(.y) a::attr(href)").getall() == ["1"]
    assert "uttu" not in (page.css("html").get() or "")


def test_the_root_is_the_first_child() -> None:
    page = page_of("<!doctype html><!-- x --><html id=h><p>x")
    assert page.css("html:first-child:last-child:only-child::attr(id)").get() == "h"
    assert page.css("html:nth-child(2)").getall() == []


def test_any_element_below() -> None:
    page = page_of("<div id=a>x<b id=b>y</b></div>")
    assert page.css("div *::text").getall() == page.css("div ::text").getall() == ["x", "y"]
    assert page.css("div *::attr(id)").getall() == ["a", "b"]
    assert page.css("div > *::text").getall() == page.css("div * ::text").getall() == ["y"]


def test_has_class() -> None:
    page = page_of("<p class='a\n b\tc'>1</p><p class='ab'>2</p><p>3</p><p class=''>4</p>")
    assert page.xpath("//p[has-class('b')]/text()").getall() == ["1"]
    assert page.xpath("//p[has-class('a', 'c')]/text()").getall() == ["1"]
    assert page.xpath("//p[has-class('a b')]/text()").getall() == ["1"]
    assert page.xpath("//p[has-class('')]/text()").getall() == []
    for query in ("//p[has-class()]", "//p[has-class(.)]", "//p[has-class(1)]"):
        with pytest.raises(ValueError, match="has-class"):
            page.xpath(query)


def test_entities_in_scripts() -> None:
    page = page_of("""<script>{"foo":"bar &amp; &quot;baz&quot;"}</script>""")
    assert (
        page.xpath("//script/text()").re("{(.*)}")
        == page.css("script::text").re("{(.*)}")
        == ['"foo":"bar &amp; "baz""']
    )
    assert page.css("script").re_first("{(.*)}", replace_entities=False) == '"foo":"bar &amp; &quot;baz&quot;"'


def test_odd_documents() -> None:
    assert page_of("<!-- hello -->").xpath("//text()").getall() == []
    assert page_of("<root>la\0la</root>").xpath("//root/text()").get() == "lala"
    with pytest.raises(ValueError, match="XPath"):
        page_of("").xpath("//é[")
    assert page_of("<é>x</é><p title=é>y").xpath("//*[@title='é']/text()").get() == "y"


@pytest.mark.parametrize(
    "table",
    [
        "<table><tbody><tr><td>1<tr><td>2</tbody></table>",
        "<TABLE class=x><thead><tr><th>h</thead><tbody><tr><td><table><tbody><tr><td>1</table><td>2</table>",
        "<table><!-- <tr> --><colgroup span=2></colgroup><tbody><tr><td><script>'<tr>'</script>1</table>",
    ],
)
def test_tables_with_written_sections_are_parsed_once(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("uttu.spider.nodes._find_implied")
    page = page_of(f"<p>x</p>{table}")
    assert len(page.css("tbody")) == table.lower().count("<tbody")
    assert page.css("table > tr").getall() == []

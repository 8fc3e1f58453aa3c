"""Hostile HTML: every tree stays within the bounds, and ordinary pages are parsed as they are."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from itertools import count

import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from uttu.spider import html, html_rewriter
from uttu.testing.pages import page_of


def numbered(pattern: str, times: int) -> str:
    return "".join(pattern % number for number in range(times))


NESTED = (
    "div p b a font span nobr table select option optgroup svg math template button form section object ul li dl dd "
    "ruby rt h1 x-y center pre"
)
# Each makes about ``tags`` tags.
SHAPES: dict[str, Callable[[int], str]] = {
    **{
        f"nested {name}": lambda tags, name=name: f"<{name}>x" * tags  # type: ignore[misc]
        for name in NESTED.split()
    },
    "nested and closed": lambda tags: "<div>" * (tags // 2) + "x" + "</div>" * (tags // 2),
    "links in blocks": lambda tags: "<a href=x><div>" * (tags // 2),
    "formatting closed around blocks": lambda tags: "<b><div></b>" * (tags // 3),
    "spans closed around blocks": lambda tags: "<span><div></span>" * (tags // 3),
    "forms closed around blocks": lambda tags: "<form><div></form>" * (tags // 3),
    "ends out of scope": lambda tags: "<div><object></div></object>" * (tags // 4),
    "ends in comments": lambda tags: "<div><!--</div>-->" * (tags // 2),
    "ends of cells without a table": lambda tags: "<td><span></td>" * (tags // 3),
    "a comment in a style": lambda tags: "<style><!--</style>" + "<div>" * tags,
    "a style in SVG": lambda tags: "<svg><style>" + "<g>" * tags,
    "CDATA in SVG": lambda tags: "<svg>" + "<g><![CDATA[</g>]]>" * (tags // 2),
    "HTML in SVG": lambda tags: "<svg><section></section>" * (tags // 3),
    "tables in cells": lambda tags: "<table><tr><td>" * (tags // 3),
    "stray ends": lambda tags: "<div>" * (tags // 2) + "</x></p></b>" * (tags // 6),
    "items in lists": lambda tags: "<ul><li>" * (tags // 2),
    "formatting opened again": lambda tags: "<p>" + numbered("<b a=%d>", tags // 2) + "<p>x" * (tags // 2),
    "formatting left open": lambda tags: numbered("<p><font color=%d>x</p>", tags // 3),
    "formatting in a table": lambda tags: "<table>" + numbered("<i x%d>", tags // 2) + "<tr>x" * (tags // 2),
    "many bodies": lambda tags: numbered("<body a%d>", tags // 2) + numbered("<html b%d>", tags // 2),
    "many names of elements": lambda tags: "".join(f"<t{number}></t{number}>" for number in range(tags // 2)),
    "many names of attributes": lambda tags: numbered("<b a%d></b>", tags // 2),
    "many names of ends": lambda tags: numbered("</t%d>", tags),
    "many names in SVG": lambda tags: "<svg>" + numbered("<g%d/>", tags),
    "no tags": lambda tags: "<" * tags * 20,
    "siblings": lambda tags: "<a href=/x>x</a>" * (tags // 2),
    "comments": lambda tags: "<!---->" * tags,
    "bogus comments": lambda tags: "<!x><?y>" * (tags // 2),
}
ATTRIBUTES = {
    "bare": "a%d ",
    "quoted": 'a%d="x" ',
    "without spaces": "a%d=''",
    "with tags in them": "a%d='<b>' ",
    "with ends in them": "a%d='>' ",
    "after a stray quote": 'a%d x=y" ',
}


def depth_and_size(root: LexborNode) -> tuple[int, int]:
    deepest = size = 0
    stack = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        size += 1
        deepest = max(deepest, depth)
        child = node.first_child
        while child is not None:
            stack.append((child, depth + 1))
            child = child.next
    return deepest, size


@pytest.fixture
def low_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that small pages exceed, so that the shapes can be tried quickly."""
    for name, value in {"MAX_ELEMENTS": 3000, "_SMALL_BYTES": 0, "_MANY_TAGS": 100}.items():
        monkeypatch.setattr(html, name, value)
    for name, value in {"MAX_DEPTH": 40, "MAX_ELEMENTS": 3000}.items():
        monkeypatch.setattr(html_rewriter, name, value)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("low_bounds")
def test_hostile_shapes_become_small_trees(shape: str) -> None:
    tree = html.parse(SHAPES[shape](6000).encode())
    assert tree.root is not None
    depth, size = depth_and_size(tree.root)
    # A table adds <tbody> and <tr>, and the tree has <html>, <body> and a text.
    assert depth <= 3 * html_rewriter.MAX_DEPTH + 3, shape
    assert size <= 4 * html_rewriter.MAX_ELEMENTS, shape


@pytest.mark.parametrize("shape", SHAPES)
def test_hostile_shapes_take_linear_time(shape: str) -> None:
    few, many = 0.0, float("inf")
    for _ in range(3):  # other processes can make it longer, by cold caches and a slower clock
        few = seconds_of(SHAPES[shape](20_000))
        many = min(many, seconds_of(SHAPES[shape](60_000)))
        if many < 0.2 + 6 * few:
            return
    pytest.fail(f"20,000 tags take {few:.3f} s, 60,000 take {many:.3f} s")


def seconds_of(source: str) -> float:
    began = time.process_time()
    page = page_of(source)
    page.css("div a, p > b").getall()
    page.css("::text").getall()
    page.links()
    return time.process_time() - began


COMMENTS = {
    "alike": '<div class="comment"><b class="author">A</b><p>Text</p></div>',
    "alike, with several attributes": "<div><font color=red size='2'>A</font><i\nclass=icon>B</i ><p>Text</p></div>",
}


@pytest.mark.parametrize("kind", COMMENTS)
def test_formatting_elements_that_are_alike_need_no_survey(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(html, "TagSurvey")
    tree = html.parse((COMMENTS[kind] * 1500).encode())
    assert len(tree.tags("div")) == 1500


@pytest.mark.parametrize(
    "tag",
    [
        "<b a=%d>",
        '<b a="%d">',
        '<b a=">%d">',
        "<b a='>%d'>",
        '<b a=x" b=">%d">',
        '<b a=">" b=%d>',
        "<b/a=%d>",
        "<b a=`>%d>",
        "<b a='x'b=%d>",
        "<b =>%d a%d>",
    ],
)
def test_formatting_elements_that_differ_are_surveyed(tag: str) -> None:
    source = "".join(tag.replace("%d", str(number)) for number in range(1000)) + "<p>x" * 1000
    tree = html.parse(source.encode())
    assert tree.root is not None
    assert depth_and_size(tree.root)[1] < 200_000


async def test_the_loop_goes_on_while_a_large_page_is_parsed() -> None:
    page = page_of(SHAPES["nested div"](html_rewriter.MAX_ELEMENTS))
    beats = 0
    preparing = asyncio.ensure_future(page.prepare())
    while not preparing.done():
        beats += 1
        await asyncio.sleep(0)
    await preparing
    assert beats > 3
    assert page._cached_roots is not None


async def test_small_pages_and_other_types_are_not_parsed_ahead() -> None:
    for page in (page_of("<p>x"), page_of("x" * html.THREAD_BYTES * 2, content_type="application/json")):
        await page.prepare()
        assert page._cached_roots is None


@pytest.mark.parametrize("attribute", ATTRIBUTES.values(), ids=ATTRIBUTES)
@pytest.mark.parametrize("tag", ["<div %s>x", "<p></p %s>x", "<svg><g %s/>x"])
def test_many_attributes(tag: str, attribute: str) -> None:
    tree = html.parse((tag % numbered(attribute, 30_000) + "<h1>end</h1>").encode())
    assert tree.root is not None
    assert all(len(node.attributes) <= html_rewriter.MAX_ATTRIBUTES + 1 for node in tree.css("*"))


@pytest.mark.parametrize("each", [5, 30, 900])
def test_many_names_of_attributes_in_few_tags(each: int) -> None:
    numbers = count()
    tag = "<b %s></b>"
    body = "".join(tag % " ".join(f"a{next(numbers)}" for _ in range(each)) for _ in range(90_000 // each)).encode()
    tree = html.parse(body)
    names = {name for node in tree.css("b") for name in node.attributes}
    assert 1000 < len(names) <= html_rewriter.MAX_NAMES


@pytest.mark.parametrize("tag", [*sorted(html_rewriter.FORMATTING), b"B", b"STRONG"])
@pytest.mark.parametrize("space", ["", "\t", "\n", "/"])
def test_small_pages_that_grow(tag: bytes, space: str) -> None:
    """13 KB that become a million elements."""
    body = SHAPES["formatting opened again"](2000).replace("<b ", f"<{tag.decode()}{space or ' '}").encode()
    assert len(body) < 25_000
    tree = html.parse(body)
    assert len(tree.css("*")) < 4000
    assert len(tree.css("p")) == 1001


def test_text_and_links_of_deep_elements_stay() -> None:
    deep = "".join(f"<div><a href=/{number}>link {number}</a>" for number in range(20_000))
    page = page_of(f"<title>t</title>{deep}<p>end</p>")
    assert len(page.links()) == 20_000
    assert page.css("a::text").getall()[-1] == "link 19999"
    assert page.css("p").text == "end"
    assert page.css("title").text == "t"


def test_end_tags_are_not_counted_as_elements() -> None:
    page = page_of("<p>x</p>" * (html_rewriter.MAX_ELEMENTS - 1000))
    assert len(page.css("p")) == html_rewriter.MAX_ELEMENTS - 1000


def test_the_rest_of_an_endless_page_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    page = page_of("<b>begin</b>" + "<br>" * (html_rewriter.MAX_ELEMENTS + 1000) + "<i>end</i>")
    assert page.css("b").text == "begin"
    assert not page.css("i")
    assert "exceeds the bounds" in caplog.text


def ordinary_page(tags: int) -> str:
    numbers = count()
    rows = "".join(
        f"<tr><td>{next(numbers)}<td><a href='/{next(numbers)}'><i class=icon></i>a &amp; b</a><p>one<p>two "
        "<b>three</b><ul><li>x<li>y <em>z</em></ul><svg viewBox='0 0 1 1'><path d='M0'/><g><title>t</title></g></svg>"
        for _ in range(tags // 20)
    )
    script = "<script>if (a<b) document.write('<div><div>')</script><style>a>b {}</style><!-- <div> -->"
    return (
        f"<!doctype html><html><head><title>t</title>{script}</head><body><table>{rows}</table>{script}</body></html>"
    )


@pytest.mark.parametrize("tags", [100, 5_000, 60_000])
def test_ordinary_pages_are_parsed_as_they_are(tags: int) -> None:
    body = ordinary_page(tags).encode()
    tree, plain = html.parse(body), LexborHTMLParser(body)
    assert tree.html == plain.html
    assert not html_rewriter.TagSurvey(body, rewrite=False).exceeds


def test_rewritten_page_keeps_its_text() -> None:
    body = ordinary_page(2_000).encode()
    rewritten = b"".join(html_rewriter.TagSurvey(body, rewrite=True).pieces)
    plain = LexborHTMLParser(body)
    tree = LexborHTMLParser(rewritten)
    for query in ("a", "p", "li", "td", "title", "script"):
        assert [node.text() for node in tree.css(query)] == [node.text() for node in plain.css(query)], query


PIECES = (
    "<div>|</div>|<p>|</p>|<b>|</b>|<b a=%d>|<i x%d>|</i>|<font c=%d>|<a href=%d>|</a>|<span>|</span>|<table>|</table>|"
    "<tr>|</tr>|<td>|</td>|<th>|<tbody>|<caption>|<colgroup>|<ul>|</ul>|<li>|</li>|<dl>|<dd>|</dd>|<select>|</select>|"
    "<option>|<optgroup>|<svg>|</svg>|<math>|</math>|<g>|</g>|<g/>|<mi>|<title>|</title>|<desc>|<foreignObject>|"
    "</foreignObject>|<template>|</template>|<object>|</object>|<button>|</button>|<form>|</form>|<nobr>|<section>|"
    "</section>|<h1>|</h1>|<style>|</style>|<script>|</script>|<textarea>|</textarea>|<!--|-->|<![CDATA[|]]>|<br>|<hr>|"
    "x|<body a%d>|</body>|<html b%d>|<ruby>|<rt>|<noscript>|<pre>|<em q=%d>|<u z%d>"
)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.usefixtures("low_bounds")
def test_random_patterns_become_small_trees(seed: int) -> None:
    chance = random.Random(seed)
    parts = []
    for _ in range(3):
        pattern = "".join(chance.choice(PIECES.split("|")) for _ in range(chance.randint(1, 6)))
        parts += [pattern.replace("%d", str(number)) for number in range(chance.choice((1, 30, 1500)))]
    tree = html.parse("".join(parts).encode())
    if tree.root is not None:
        depth, size = depth_and_size(tree.root)
        assert depth <= 4 * html_rewriter.MAX_DEPTH, parts[0]
        assert size <= 20 * html_rewriter.MAX_ELEMENTS, parts[0]


@pytest.mark.parametrize("written", [str, str.upper])
def test_large_pages_have_their_tables_templates_and_base(written: Callable[[str], str]) -> None:
    many = "<p>x</p>" * html._FEW_TAGS
    table, template, base = map(written, ("<table><tr><td>1", "<template><q>1</q></template>", "<base "))
    assert page_of(f"{many}{table}").css("table > tr > td::text").getall() == ["1"]
    assert page_of(f"{many}<i title=''>{table}").css("table > tr > td::text").getall() == ["1"]
    assert page_of(f"{many}{template}").css("template > q::text").getall() == ["1"]
    assert page_of(f"{many}{base}href='/x/'>").urljoin("y") == "http://example.org/x/y"


def test_absent_elements_of_a_large_page() -> None:
    for source, absent in {
        "": html.SOUGHT,
        "<TaBle>": {"base", "template"},
        "<font x><tem><basefont>": {"table"},
    }.items():
        tree = html.parse(("<p>x</p>" * html._FEW_TAGS + source).encode())
        assert isinstance(tree, html._SearchedParser)
        assert tree._absent == absent


@pytest.mark.parametrize(
    "piece", ["<table><!-- ", "<table><script>", "<table>x", "</tbody><!-- --", "<table><tbody><!-- "]
)
def test_tables_are_checked_in_linear_time(piece: str) -> None:
    source = piece * 7_000 + "x" * 4_000_000 + "-->"
    began = time.process_time()
    page_of(source).css("table > tr").getall()
    assert time.process_time() - began < 2

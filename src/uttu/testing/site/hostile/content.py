"""HTML that is cheap to send and expensive to read: deep nesting, large counts, large sizes, meaningless bytes."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from uttu.testing.site.hostile.model import Kind, page
from uttu.testing.site.message import Incoming, Reply, html

_MILLION: Final = 1_000_000
_MB: Final = 1024 * 1024
_BIG: Final = 15 * _MB  # just below the default max_body
_HEAD: Final = b"<!doctype html><title>Hostile</title><body>"

# Elements that can be nested. Those that an element of the same name closes contain another element.
_NESTING: Final = {
    "div": "<div>",
    "span": "<span>",
    "b": "<b>",
    "font": "<font>",
    "a": "<a href=x><div>",
    "ul": "<ul><li>",
    "dl": "<dl><dd>",
    "blockquote": "<blockquote>",
    "section": "<section>",
    "table": "<table><tr><td>",
    "template": "<template>",
    "svg": "<svg><g>",
    "math": "<math><mrow>",
    "object": "<object>",
    "button": "<div><button>",
    "select": "<select><div>",
    "label": "<label>",
    "fieldset": "<fieldset>",
    "details": "<details>",
    "ruby": "<ruby><rt>",
    "heading": "<h1><div>",
    "form": "<form><div>",
    "nobr": "<nobr><div>",
    "custom": "<x-y>",
    "frameset": "<frameset>",
    "noscript": "<noscript>",
    "marquee": "<marquee>",
    "formatting": "<b><i><u><s><em><strong><big><small>",
}


def _content(
    name: str,
    about: str,
    make: Callable[[], bytes | str],
    *,
    handler: str = "look",
    content_type: str = "text/html; charset=utf-8",
    ends: str = "done|dead",
    endless: bool = False,
) -> Kind:
    return Kind(
        name=f"content/{name}",
        about=about,
        reply=page(make, content_type),
        handler=handler,
        ends=ends,
        endless=endless,
    )


def _nested() -> Iterator[Kind]:
    for name, tags in _NESTING.items():
        sizes = (1000, 80_000, _MILLION) if name in ("div", "span", "b") else (80_000,)
        for size in sizes:
            pieces = size // tags.count("<")
            yield _content(
                f"nested-{name}-{size // 1000}k",
                f"{size:,} nested {tags}",
                lambda tags=tags, pieces=pieces: _HEAD + tags.encode() * pieces,  # type: ignore[misc]
            )
    yield Kind(
        name="content/nested-gzip",
        about="80,000 nested <div> in 600 bytes of gzip",
        reply=page(lambda: gzip.compress(b"<div>" * 80_000), "text/html", ("Content-Encoding", "gzip")),
    )
    yield _content("nested-closed", "80,000 nested <div>, all closed", lambda: b"<div>" * 80_000 + b"</div>" * 80_000)
    yield _content(
        "nested-links",
        "20,000 nested <div>, each with a link",
        lambda: "".join(f"<div><a href=/{number}>x</a>" for number in range(20_000)),
    )
    yield _content(
        "nested-text-html",
        "the HTML of every element of a deep tree",
        lambda: b"<div>text" * 20_000,
        handler="every_html",
    )
    yield _content(
        "nested-text", "the text of every element of a deep tree", lambda: b"<div>text" * 20_000, handler="every_text"
    )
    yield _content("nested-follow", "80,000 nested <div>, then a link", _deep_link, handler="follow")
    yield _content("nested-xpath", "80,000 nested <div>, read by XPath", _deep_link, handler="xpath")


def _deep_link() -> bytes:
    return b"<div>" * 80_000 + b"<a href=/next>next</a>"


def _formatting() -> Iterator[Kind]:
    for count in (100, 1000):
        yield _content(
            f"formatting-{count}",
            f"{count:,} unclosed <b> with distinct attributes, reopened in {count:,} blocks",
            lambda count=count: "".join(f"<b a{n}=x>" for n in range(count)) + "<p>x" * count,  # type: ignore[misc]
        )
    yield _content(
        "adoption", "20,000 misnested <a><p></a>", lambda: b"<a href=x><p><b><i></a></p>" * 20_000, ends="done"
    )
    yield _content("foster", "20,000 elements that a table throws out", lambda: b"<table><b><p>x</table>" * 20_000)
    yield _content("foster-open", "links in 20,000 open tables", lambda: b"<table><a href=x>y" * 20_000)
    yield _content("stray-ends", "a million </p>, each of which makes an element", lambda: b"</p>" * _MILLION)
    yield _content("stray-br", "a million </br>", lambda: b"</br>" * _MILLION)


def _counts() -> Iterator[Kind]:
    yield _content("attributes-1m", "a million attributes on one element", lambda: _attributes(_MILLION))
    yield _content("attributes-50k", "50,000 attributes on one element", lambda: _attributes(50_000))
    yield _content(
        "attributes-same", "a million attributes of one name", lambda: b"<div " + b"a=1 " * _MILLION + b">x</div>"
    )
    yield _content(
        "attributes-read", "50,000 attributes, asked for as a dict", lambda: _attributes(50_000), handler="attributes"
    )
    yield _content(
        "classes", "300,000 classes on one element", lambda: "<p class='" + " ".join(f"c{n}" for n in range(300_000))
    )
    for name, tags in {
        "i": "<i></i>",
        "br": "<br>",
        "p": "<p>",
        "div": "<div></div>",
        "comment": "<!---->",
        "input": "<input>",
        "h1": "<h1>x</h1>",
        "li": "<li>",
        "form": "<form></form>",
        "style": "<style></style>",
    }.items():
        yield _content(
            f"siblings-{name}",
            f"a million {tags}",
            lambda tags=tags: _HEAD + tags.encode() * _MILLION,  # type: ignore[misc]
        )
    yield _content("cells", "a table of 300,000 cells", lambda: b"<table><tr>" + b"<td>x" * 300_000)
    yield _content("rows", "a table of 300,000 rows", lambda: b"<table>" + b"<tr><td>x" * 300_000)
    yield _content(
        "colspan", "10,000 cells of a million columns", lambda: b"<table>" + b"<td colspan=1000000>" * 10_000
    )
    yield _content("options", "300,000 options", lambda: b"<select>" + b"<option>x" * 300_000)
    yield _content("templates", "300,000 templates", lambda: b"<template><p>x</template>" * 300_000)
    yield _content("svg", "an SVG of 300,000 shapes", lambda: b"<svg>" + b"<path d=M0/>" * 300_000)
    yield _content("meta", "200,000 <meta>", lambda: b"<meta name=a content=b>" * 200_000)
    yield _content(
        "bases", "200,000 <base>", lambda: b"<base href=/a/>" * 200_000 + b"<a href=x>x</a>", handler="follow"
    )
    yield _content("bodies", "300,000 <body> with attributes", lambda: b"<body a=1>" * 300_000)
    yield _content("iframes", "300,000 iframes", lambda: b"<iframe src=x></iframe>" * 300_000)


def _attributes(count: int) -> str:
    return "<div " + " ".join(f"a{number}=1" for number in range(count)) + ">x</div>"


def _links() -> Iterator[Kind]:
    def links(count: int, form: str = "<a href=/{0}>") -> Callable[[], str]:
        return lambda: "".join(form.format(number) for number in range(count))

    yield _content("links-10k", "10,000 links", links(10_000), handler="follow", endless=True)
    yield _content("links-300k", "300,000 links", links(300_000), handler="follow", endless=True)
    yield _content("links-1m", "a million links", links(_MILLION), handler="follow", endless=True)
    yield _content("links-1m-found", "a million links, listed", links(_MILLION), handler="links")
    yield _content("links-1m-queried", "a million links, found by a selector", links(_MILLION), handler="hrefs")
    yield _content("links-same", "a million times the same link", links(_MILLION, "<a href=/x>"), handler="follow")
    yield _content(
        "links-fragments",
        "900,000 links that differ by fragment",
        links(900_000, "<a href=/x#{0}>"),
        handler="follow",
    )
    yield _content(
        "links-hosts",
        "100,000 links to as many hosts",
        links(100_000, "<a href=//h{0}.invalid/>"),
        handler="follow",
        endless=True,
    )
    yield _content(
        "links-long",
        "10,000 links of 1,500 characters",
        links(10_000, "<a href=/{0}?" + "x" * 1480 + ">"),
        handler="follow",
        endless=True,
    )
    yield _content(
        "links-huge", "10 links of a megabyte", links(10, "<a href=/{0}?" + "x" * _MB + ">"), handler="follow"
    )
    yield _content(
        "links-dots", "a link with 500,000 times ../", lambda: "<a href=" + "../" * 500_000 + ">", handler="follow"
    )
    yield _content(
        "links-percent", "a link of 300,000 escapes", lambda: "<a href=/" + "%41" * 300_000 + ">", handler="follow"
    )
    yield _content(
        "links-unicode",
        "30,000 links of CJK",
        links(30_000, "<a href=/{0}" + "漢" * 100 + ">"),
        handler="follow",
        endless=True,
    )
    yield _content(
        "links-bad", "300,000 links that lead nowhere", links(300_000, "<a href='http://[{0}/'>"), handler="follow"
    )
    yield _content(
        "links-mail", "300,000 mailto links", links(300_000, "<a href=mailto:a{0}@b.example>"), handler="follow"
    )
    yield _content("areas", "100,000 areas", links(100_000, "<area href=/{0}>"), handler="links")
    yield _content(
        "links-ports", "60,000 links to as many ports", links(60_000, "<a href='//127.79.255.1:{0}/'>"), handler="links"
    )
    yield _content(
        "refresh",
        "10,000 <meta refresh>",
        links(10_000, "<meta http-equiv=refresh content='0;url=/r{0}'>"),
        handler="look",
    )


def _sizes() -> Iterator[Kind]:
    yield _content("text", "15 MB of text", lambda: b"<p>" + b"text " * (_BIG // 5))
    yield _content("comment", "a comment of 15 MB", lambda: b"<!--" + b"x" * _BIG)
    yield _content("comment-dashes", "a comment of 15 MB of dashes", lambda: b"<!--" + b"-" * _BIG)
    yield _content("script", "a script of 15 MB", lambda: b"<script>" + b"<!--<script>" * (_BIG // 12))
    yield _content("style", "a style of 15 MB", lambda: b"<style>" + b"a{}" * (_BIG // 3))
    yield _content("title", "a title of 15 MB", lambda: b"<title>" + b"x" * _BIG)
    yield _content("textarea", "a textarea of 15 MB", lambda: b"<textarea>" + b"<p>" * (_BIG // 3))
    yield _content("plaintext", "15 MB after <plaintext>", lambda: b"<plaintext>" + b"<p>" * (_BIG // 3))
    yield _content("attribute", "an attribute of 15 MB", lambda: b"<p a='" + b"x" * _BIG + b"'>")
    yield _content("name", "a tag name of 15 MB", lambda: b"<" + b"x" * _BIG + b">")
    yield _content("unclosed-tag", "15 MB of an unclosed tag", lambda: b"<p " + b"a " * (_BIG // 2))
    yield _content("doctype", "a doctype of 10 MB", lambda: b"<!doctype " + b"x" * (10 * _MB) + b">")
    yield _content("whitespace", "15 MB of blanks", lambda: b" " * _BIG)
    yield _content("one-line", "15 MB of words without a tag", lambda: b"word" * (_BIG // 4))
    yield _content("too-large", "17 MB, past the limit", lambda: b"x" * (17 * _MB), ends="dead: too_large")
    yield _content("entities", "3 million &amp;", lambda: b"&amp;" * (3 * _MILLION))
    yield _content("entities-long", "400,000 long entities", lambda: b"&CounterClockwiseContourIntegral;" * 400_000)
    yield _content("entities-numeric", "a million &#x10FFFF;", lambda: b"&#x10FFFF;" * _MILLION)
    yield _content("entities-digits", "a reference of 10 MB of digits", lambda: b"&#" + b"9" * (10 * _MB) + b";")
    yield _content("ampersands", "15 MB of &", lambda: b"&" * _BIG)
    yield _content("angles", "10 MB of <", lambda: b"<" * (10 * _MB))
    yield _content("bogus-comments", "5 MB of <!", lambda: b"<!>" * (5 * _MB // 3))
    yield _content("instructions", "300,000 processing instructions", lambda: b"<?x y?>" * 300_000)
    yield _content("cdata", "300,000 CDATA sections in SVG", lambda: b"<svg>" + b"<![CDATA[x]]>" * 300_000)
    yield _content("quotes", "10 MB of quotes in a tag", lambda: b"<p " + b"'\"=" * (10 * _MB // 3))
    yield _content("nulls", "10 MB of NUL bytes", lambda: bytes(10 * _MB))
    yield _content("nulls-in-tags", "tags with NUL bytes", lambda: b"<d\0iv a\0=\0b>\0" * 300_000)
    yield _content("controls", "4 MB of control characters", lambda: bytes(range(1, 32)) * (4 * _MB // 31))
    yield _content("random", "4 MB of random bytes", lambda: Random(1).randbytes(4 * _MB))
    yield _content("random-tags", "1 MB of random tags", _random_tags)
    yield _content("empty", "an empty body", lambda: b"", ends="done")
    yield _content("pdf-lie", "random bytes that claim to be HTML", lambda: b"%PDF-1.7\n" + Random(2).randbytes(_MB))
    yield _content(
        "type-huge", "a Content-Type of 60 KB", lambda: b"<p>x", content_type="text/html; charset=" + "x" * 60_000
    )
    yield _content(
        "type-parameters",
        "a Content-Type of 10,000 parameters",
        lambda: b"<p>x",
        content_type="text/html" + ";a=b" * 10_000,
    )
    yield _content("type-nonsense", "a Content-Type of nonsense", lambda: b"<p>x", content_type=";;;=;\t/,charset==")


def _random_tags() -> str:
    random = Random(3)
    names = (
        "div",
        "p",
        "b",
        "a",
        "table",
        "tr",
        "td",
        "svg",
        "select",
        "template",
        "form",
        "i",
        "math",
        "html",
        "body",
    )
    return "".join(f"<{'/' if random.random() < 0.4 else ''}{random.choice(names)}>" for _ in range(150_000))


def _grown(incoming: Incoming) -> Reply:
    """A page with links to pages like it. Every URL gives another page."""
    if incoming.path == "/robots.txt":
        return None
    return html("More", "".join(f'<a href="{incoming.path.rstrip("/")}/{n}">{n}</a>' for n in range(100)))


KINDS: Final = (
    *_nested(),
    *_formatting(),
    *_counts(),
    *_links(),
    *_sizes(),
    Kind(
        name="content/links-tree",
        about="every page has 100 links to pages like it",
        reply=_grown,
        handler="follow",
        endless=True,
    ),
)

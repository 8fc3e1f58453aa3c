"""Pages that are XML: feeds, sitemaps, answers of APIs."""

from __future__ import annotations

import asyncio
import re
import time
from html.entities import name2codepoint

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu import Page
from uttu.spider import html, xml
from uttu.testing.pages import page_of

ATOM = "http://www.w3.org/2005/Atom"

RSS = f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- a feed -->
<rss version="2.0" xmlns:atom="{ATOM}" xmlns:dc="http://purl.org/dc/elements/1.1/">
<channel><title>News</title><link>http://example.org/</link><atom:link rel="self" href="http://example.org/rss"/>
<item><title>One &amp; only</title><link>http://example.org/1</link>
<description><![CDATA[<p>a < b &amp; c</p>]]></description>
<dc:creator>Ann</dc:creator><guid isPermaLink="false">x1</guid></item>
<item><title>Deux&nbsp;&eacute;</title><link>/2</link><description/><enclosure url="http://example.org/2.mp3"/></item>
</channel></rss>"""

FEED = f"""<feed xmlns="{ATOM}"><title>Blog</title><link href="/"/>
<entry><title>First</title><link href="/first"/><id>urn:1</id></entry>
<entry><title type="html"><![CDATA[<b>Second</b>]]></title><link href="/second"/></entry></feed>"""

URLSET = """<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>http://example.org/a</loc></url>
<url><loc> http://example.org/b </loc></url></urlset>"""


def rss(content_type: str = "application/rss+xml") -> Page:
    return page_of(RSS, "http://example.org/rss", content_type=content_type)


def test_rss() -> None:
    page = rss()
    assert page.xpath("//item/link/text()").getall() == ["http://example.org/1", "/2"]
    assert page.css("item link::text").getall() == ["http://example.org/1", "/2"]
    assert page.xpath("//item[1]/description/text()").get() == "<p>a < b &amp; c</p>"
    assert page.css("item > title::text").getall() == ["One & only", "Deux\xa0é"]
    assert page.xpath("//enclosure/@url").get() == "http://example.org/2.mp3"
    assert page.css("guid").attrib == {"isPermaLink": "false"}
    assert page.css("guid::attr(isPermaLink)").get() == "false"
    assert page.css("item").text.startswith("One & only")
    prefixes = f'xmlns:atom="{ATOM}" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    assert page.css("item:nth-of-type(2) > link").get() == f"<link {prefixes}>/2</link>"


def test_css_and_xpath_mix() -> None:
    page = rss()
    assert page.css("item").xpath("./title/text()").getall() == ["One & only", "Deux\xa0é"]
    assert page.xpath("//item").css("link::text").getall() == ["http://example.org/1", "/2"]
    assert [item.css("link::text").get() for item in page.css("item")] == ["http://example.org/1", "/2"]
    assert page.xpath("//link")[0].xpath("..").xpath("name()").get() == "channel"
    assert page.css("item ::text").getall()[0] == "One & only"
    assert page.css("title::text, enclosure::attr(url)").getall() == [
        "News",
        "One & only",
        "Deux\xa0é",
        "http://example.org/2.mp3",
    ]


def test_namespaces_can_be_given() -> None:
    page = rss()
    assert page.xpath("//a:link/@href", namespaces={"a": ATOM}).get() == "http://example.org/rss"
    with pytest.raises(ValueError, match="Undefined namespace prefix"):
        page.xpath("//dc:creator")
    page.register_namespace("dc", "http://purl.org/dc/elements/1.1/")
    assert page.xpath("//dc:creator/text()").get() == "Ann"
    assert page.css("dc|creator::text").get() == "Ann"
    assert page.css("item").xpath("./dc:creator/text()").getall() == ["Ann"]


def test_a_default_namespace() -> None:
    page = page_of(FEED, "http://example.org/", content_type="application/atom+xml")
    assert page.xpath("//entry").getall() == []
    assert page.xpath("//a:entry/a:title/text()", namespaces={"a": ATOM}).getall() == ["First", "<b>Second</b>"]
    assert page.css("entry > title::text").getall() == ["First", "<b>Second</b>"]
    assert page.css("entry:first-of-type link::attr(href)").get() == "/first"
    assert (
        page.css("entry").get()
        == f'<entry xmlns="{ATOM}"><title>First</title><link href="/first"/><id>urn:1</id></entry>'
    )
    page.remove_namespaces()
    assert page.xpath("//entry/title/text()").getall() == ["First", "<b>Second</b>"]
    assert page.css("entry > title::text").getall() == ["First", "<b>Second</b>"]
    assert page.css("entry id").get() == "<id>urn:1</id>"


def test_items_that_have_a_guid_in_place_of_a_link() -> None:
    items = (
        "<item><guid>http://example.org/1</guid></item>"
        '<item><guid isPermaLink="true"> http://example.org/2 </guid></item>'
        '<item><guid isPermaLink="False">http://example.org/3</guid></item>'
        "<item><guid>tag:example.org,4</guid></item>"
        "<item><link>http://example.org/5</link><guid>http://example.org/6</guid></item>"
    )
    feed = f'<rss version="2.0"><channel><title>News</title>{items}</channel></rss>'
    page = page_of(feed, content_type="application/rss+xml")
    wanted = [f"http://example.org/{number}" for number in (1, 2, 5)]
    assert page.links() == wanted
    assert [request.url for request in page.follow_all()] == wanted
    assert [entry.url for entry in page.sitemap().pages] == wanted


def test_links() -> None:
    assert rss().links() == [
        "http://example.org/",
        "http://example.org/rss",
        "http://example.org/1",
        "http://example.org/2",
    ]
    assert rss().links("item link") == ["http://example.org/1", "http://example.org/2"]
    feed = page_of(FEED, "http://example.org/x", content_type="application/atom+xml")
    assert feed.links("entry > link") == ["http://example.org/first", "http://example.org/second"]
    assert [each.url for each in feed.follow_all()] == [
        f"http://example.org/{name}" for name in ("", "first", "second")
    ]
    assert [each.url for each in feed.follow_all("entry link")] == [
        "http://example.org/first",
        "http://example.org/second",
    ]
    request = rss().follow(rss().xpath("//item/link"))
    assert request is not None
    assert request.url == "http://example.org/1"
    sitemap = page_of(URLSET, content_type="text/xml")
    assert sitemap.links() == ["http://example.org/a", "http://example.org/b"]
    assert sitemap.follow_all("loc")[1].url == "http://example.org/b"


@pytest.mark.parametrize(
    "content_type",
    [
        "application/rss+xml",
        "application/xml",
        "text/xml; charset=utf-8",
        "TEXT/XML",
        "application/atom+xml",
        "text/plain",
        "application/octet-stream",
        "",
        "text/html",
        "text/html; charset=utf-8",
    ],
)
def test_feeds_are_xml_whatever_they_are_served_as(content_type: str) -> None:
    assert rss(content_type).xpath("//item/link/text()").getall() == ["http://example.org/1", "/2"]
    assert page_of(FEED, content_type=content_type).css("entry title::text").get() == "First"


@pytest.mark.parametrize(
    ("document", "content_type", "is_xml"),
    [
        ("<?xml version='1.0'?><data><link>x</link></data>", "application/xml", True),
        ("<data><link>x</link></data>", "text/xml", True),
        ("<data><link>x</link></data>", "application/vnd.api+xml", True),
        ("<?xml version='1.0'?><data><link>x</link></data>", "", True),
        ("<?xml version='1.0'?><data><link>x</link></data>", "text/plain", True),
        ("\ufeff<?xml version='1.0'?><data><link>x</link></data>", "text/plain", True),
        ("<data><link>x</link></data>", "text/html", False),
        ("<?xml version='1.0'?><data><link>x</link></data>", "text/html", True),
        ("<?xml version='1.0'?>\n<s:Envelope xmlns:s='s'><link>x</link></s:Envelope>", "text/html;charset=utf8", True),
        ("<?xml version='1.0'?><div><link>x</link></div>", "text/html", False),
        ("<?xml version='1.0'?><!DOCTYPE html><data><link>x</link></data>", "text/html", False),
        ("<?xml version='1.0'?>no element", "text/html", False),
        ("<?xml version='1.0'?><data><link>x</link></data>", "application/xhtml+xml", False),
        ("<?xml version='1.0'?><!DOCTYPE html><html><head><link>x</head></html>", "text/html", False),
        ("<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><link>x", "application/xhtml+xml", False),
        ("<html xmlns='http://www.w3.org/1999/xhtml'><link>x</html>", "application/xml", False),
        ("<!DOCTYPE html><p><link>x", "application/xml", False),
        ("<link>x", "", False),
    ],
)
def test_xml_or_html(document: str, content_type: str, is_xml: bool) -> None:
    assert (page_of(document, content_type=content_type).xpath("//link/text()").get() == "x") is is_xml


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "beginning", ["<!DOCTYPE " + "[]" * 1000, "<!DOCTYPE x [" * 300, "<!--" * 1000, "<?xml ?>" * 400]
)
def test_long_beginning_takes_linear_time(beginning: str) -> None:
    assert page_of(beginning, content_type="application/xml").xpath("//link").get() is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1251"])
def test_encodings(encoding: str) -> None:
    word = "слово" if encoding == "windows-1251" else "café"
    name = "utf-8" if encoding == "utf-8-sig" else encoding
    body = f'<?xml version="1.0" encoding="{name}"?><a><b>{word}</b></a>'.encode(encoding)
    assert page_of(body, content_type="application/xml").xpath("//b/text()").get() == word


def test_broken_xml_is_repaired_or_empty() -> None:
    assert page_of("<a><b>x</a>", content_type="text/xml").xpath("//b/text()").get() == "x"
    for body in ("", "   ", "no markup", "<", "<?xml version='1.0'?>", "\0\0"):
        page = page_of(body, content_type="text/xml")
        assert page.xpath("//a").getall() == []
        assert page.css("a").getall() == []
        assert page.links() == []


def test_nothing_is_expanded_or_loaded() -> None:
    bomb = (
        '<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx">'
        + "".join(f'<!ENTITY x{n} "{f"&x{n - 1};" * 10 if n else "&x;" * 10}">' for n in range(12))
        + "]><a><b>&x11;</b><c>&f;</c></a>"
    )
    begin = time.process_time()
    page = page_of(
        bomb.replace("<!ENTITY x ", '<!ENTITY f SYSTEM "file:///etc/hostname"><!ENTITY x ', 1), content_type="text/xml"
    )
    assert len(page.xpath("//b").get() or "") < 1000
    assert page.xpath("string(//c)").get() == ""
    assert time.process_time() - begin < 1


def test_links_are_relative_to_xml_base() -> None:
    feed = """<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://b.example/blog/">
        <entry><link href="1"/></entry>
        <entry xml:base="2024/"><link href="2"/></entry>
        <entry xml:base="mailto:a"><link href="3"/><a xml:base="/y/" href="mailto:b"/></entry>
        <entry><link xml:base="http://c.example/x/" href="4"/></entry></feed>"""
    page = page_of(feed, "http://cdn.example/feed", content_type="application/atom+xml")
    urls = [
        "http://b.example/blog/1",
        "http://b.example/blog/2024/2",
        "http://b.example/blog/3",
        "http://c.example/x/4",
    ]
    assert page.links() == urls
    assert [request.url for request in page.follow_all(page.css("entry > link"))] == urls
    assert page.urljoin("x") == "http://b.example/blog/x"
    page.remove_namespaces()
    assert [request.url for request in page.follow_all(page.xpath("//entry/link"))] == urls
    assert page_of('<rss xml:base="">x</rss>', content_type="text/xml").urljoin("a") == "http://example.org/a"


def test_the_links_of_items_without_a_link() -> None:
    feed = """<?xml version="1.0"?><rss><channel>
        <item><guid>http://a.example/1</guid></item>
        <item><guid isPermaLink=" False ">http://a.example/no</guid></item>
        <item><guid>1234</guid></item>
        <item><guid>http://a.example/no</guid><link>http://a.example/2</link></item>
        <entry><id>http://a.example/3</id></entry><entry><id>urn:1</id></entry>
        </channel></rss>"""
    assert page_of(feed, content_type="text/xml").links() == [f"http://a.example/{number}" for number in (1, 2, 3)]


async def test_a_large_document_is_parsed_in_a_thread() -> None:
    page = page_of("<rss>" + "<item>&lt;p&gt;</item>" * (html.THREAD_BYTES // 10), content_type="application/rss+xml")
    beats = 0
    preparing = asyncio.ensure_future(page.prepare())
    while not preparing.done():
        beats += 1
        await asyncio.sleep(0)
    await preparing
    assert beats > 3
    assert page._cached_document is not None


@pytest.mark.parametrize(
    "piece", ["<b/>x", "<b a='x' b='x' c='x' d='x' e='x'/>", "<b>&#0;</b>", "&undeclared;", "<!---->", "</b>"]
)
@pytest.mark.parametrize("start", ["<a>", "<!DOCTYPE a [<!ENTITY undeclared 'x'>]><a>"])
def test_a_document_is_cut_off_after_too_much_markup(
    start: str, piece: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(xml, "MAX_MARKUP", 1000)
    monkeypatch.setattr(xml, "_WINDOW", 100)
    page = page_of(start + piece * 5000, content_type="text/xml")
    assert float(page.xpath("count(//node() | //@*)").get("0")) < 3000
    assert "Cutting an XML document" in caplog.text


def test_escaped_text_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml, "MAX_MARKUP", 1000)
    page = page_of("<a>" + "&lt;&amp;&quot;" * 5000 + "</a>", content_type="text/xml")
    assert len(page.xpath("//a/text()").get("")) == 15_000


_pieces = st.sampled_from(
    [
        "&nbsp;",
        "&eacute;",
        "&lt;",
        "&amp;",
        "&thetasym;",
        "&unknown;",
        "&",
        ";",
        "&nbsp",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "<?",
        "?>",
        "<b>",
        "x",
        " " * 20,
        "nbsp;",
    ]
)


@given(st.lists(_pieces, max_size=40).map("".join), st.integers(65, 160))
def test_references_are_found_across_windows(text: str, window: int) -> None:
    numbers = {"lt": "&#60;", "amp": "&#38;"}

    def replace(found: re.Match[str]) -> str:
        if not found["reference"]:
            return found[0]
        name = found["name"]
        if name in numbers:
            return numbers[name]
        return chr(name2codepoint[name]) if name in name2codepoint else "&#38;" + found[0][1:]

    literals = r"<!\[CDATA\[(?s:.*?)(?:\]\]>|\Z)|<!--(?s:.*?)(?:-->|\Z)|<\?(?s:.*?)(?:\?>|\Z)"
    expected = re.sub(rf"{literals}|(?P<reference>&(?:(?P<name>[A-Za-z]+);)?)", replace, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xml, "_WINDOW", window)
        assert xml._rewrite_references(text) == expected


@pytest.mark.parametrize(
    "error", ["AT&T &", "<br>", "&unknown;", "&#0;", "<a href=x/>", "&nbsp;", "<b></i></b>", "<![CDATA[&]]>"]
)
def test_references_after_an_error_are_kept(error: str) -> None:
    """libxml2 drops all named references after the first error of a document."""
    page = page_of(
        f"<rss><channel><title>{error}</title><item><link>http://a.example/?a=1&amp;b=2</link><t>&lt;x&gt; &apos;</t>"
        '</item><item><link href="/?c=&quot;&amp;d"/></item></channel></rss>',
        content_type="application/rss+xml",
    )
    assert page.links() == ["http://a.example/?a=1&b=2", "http://example.org/?c=%22&d"]
    assert page.css("t::text").get() == "<x> '"


def test_bare_ampersands_are_text() -> None:
    page = page_of(
        "<rss><item><title>AT&T R&D & more &foo; &amp ok</title><link>http://a.example/?a=1&b=2&copy=3</link>"
        '<a href="?x&y&amp;z"/><?php a && b?><d><![CDATA[a & b &nbsp;]]></d></item></rss>',
        content_type="text/xml",
    )
    assert page.css("title::text").get() == "AT&T R&D & more &foo; &amp ok"
    assert page.css("link::text").get() == "http://a.example/?a=1&b=2&copy=3"
    assert page.css("a::attr(href)").get() == "?x&y&z"
    assert page.xpath("//processing-instruction()").get() == "<?php a && b?>"
    assert page.css("d::text").get() == "a & b &nbsp;"


@pytest.mark.parametrize(
    ("doctype", "own"),
    [
        ('<!DOCTYPE rss PUBLIC "-//Netscape//DTD RSS 0.91//EN" "http://example.org/rss.dtd">', "&own;"),
        ("<!DOCTYPE rss [<!ENTITY own 'a>b'> <!ENTITY % p 'x'>] >", "a>b"),
        ("<!DOCTYPE rss>", "&own;"),
    ],
)
def test_html_entities_in_documents_with_a_doctype(doctype: str, own: str) -> None:
    page = page_of(f"{doctype}<rss><t>caf&eacute; &amp; &own;.</t></rss>", content_type="text/xml")
    assert page.xpath("string(//t)").get() == f"café & {own}."

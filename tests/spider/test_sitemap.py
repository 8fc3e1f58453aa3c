"""Sitemaps: every form, every kind of breakage, and no input that raises or swells."""

from __future__ import annotations

import gzip
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uttu.spider import sitemap
from uttu.spider.sitemap import Sitemap, SitemapEntry, parse_sitemap, read_sitemap
from uttu.spider.spider import sitemap_handler
from uttu.testing.pages import page_of

URL = "https://example.com/maps/sitemap.xml"
NS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def pages(body: bytes | str) -> list[str]:
    return [page.url for page in parse_sitemap(body.encode() if isinstance(body, str) else body, URL).pages]


def urlset(*locations: str) -> str:
    return f"<urlset {NS}>" + "".join(f"<url><loc>{loc}</loc></url>" for loc in locations) + "</urlset>"


@pytest.mark.parametrize("namespace", [NS, "", 'xmlns="http://www.google.com/schemas/sitemap/0.84"'])
def test_a_urlset(namespace: str) -> None:
    body = f"""<?xml version="1.0" encoding="UTF-8"?>
        <urlset {namespace} xmlns:image="i" xmlns:xhtml="x" xmlns:news="n">
          <url>
            <xhtml:link rel="alternate" hreflang="de" href="https://example.com/de"/>
            <image:image><image:loc>https://example.com/i.png</image:loc></image:image>
            <news:news><news:publication_date>2001-01-01</news:publication_date><loc>/wrong</loc></news:news>
            <loc>
              https://example.com/a?b=1&amp;c=2
            </loc>
            <lastmod>2024-05-06</lastmod><changefreq>Daily</changefreq><priority>0.8</priority>
          </url>
          <url><loc>/b</loc><priority>high</priority><lastmod/></url>
          <url><loc>c</loc><priority>7</priority></url>
          <url><loc>mailto:x@example.com</loc></url>
          <url><loc></loc></url>
          <url/>
        </urlset>"""
    assert parse_sitemap(body.encode(), URL) == Sitemap(
        pages=(
            SitemapEntry("https://example.com/a?b=1&c=2", "2024-05-06", 0.8, "daily"),
            SitemapEntry("https://example.com/b"),
            SitemapEntry("https://example.com/maps/c"),
        )
    )


def test_an_index() -> None:
    body = f"""<sitemapindex {NS}>
        <sitemap><loc>/1.xml.gz</loc><lastmod>2020</lastmod></sitemap><sitemap><loc>2.xml</loc></sitemap>
        </sitemapindex>"""
    assert parse_sitemap(body.encode(), URL) == Sitemap(
        sitemaps=("https://example.com/1.xml.gz", "https://example.com/maps/2.xml")
    )


def test_rss() -> None:
    body = """<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>
        <link>https://example.com/</link><atom:link rel="self" href="/feed"/>
        <image><url>https://example.com/logo.png</url><link>https://example.com/</link></image>
        <item><title>t</title><link>https://example.com/1</link><pubDate>Mon, 01 Jan 2024</pubDate></item>
        <item><atom:link href="/2"/></item>
        <item><title>no link</title></item>
        </channel></rss>"""
    assert parse_sitemap(body.encode(), URL).pages == (
        SitemapEntry("https://example.com/1", "Mon, 01 Jan 2024"),
        SitemapEntry("https://example.com/2"),
    )


def test_atom() -> None:
    body = """<feed xmlns="http://www.w3.org/2005/Atom"><link href="https://example.com/"/>
        <entry>
          <link rel="self" href="/self"/><link rel="alternate" href="/a?x=1&amp;y=2"/><updated>2024</updated>
        </entry>
        <entry><link href="/b"/></entry></feed>"""
    assert parse_sitemap(body.encode(), URL).pages == (
        SitemapEntry("https://example.com/a?x=1&y=2", "2024"),
        SitemapEntry("https://example.com/b"),
    )


def test_plain_text() -> None:
    assert pages("\ufeffhttps://example.com/a\r\n\n  HTTP://example.com/b  \nnot a url\nftp://example.com/c\n") == [
        "https://example.com/a",
        "http://example.com/b",
    ]


def test_encodings() -> None:
    body = '<?xml version="1.0" encoding="{}"?>' + urlset("/é?a=1&amp;b=2")
    wanted = ["https://example.com/%C3%A9?a=1&b=2"]
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "iso-8859-1"):
        assert pages(body.format(encoding.removesuffix("-sig")).encode(encoding)) == wanted, encoding
    assert pages("  \n" + body.format("utf-8")) == wanted


@pytest.mark.parametrize(
    "body",
    [
        "<urlset><url><loc>/a</loc><url><loc>/b</loc></url></urlset>",
        "<urlset><url><loc>/a</url><url><loc>/b</loc></url></urlset>",
        "<urlset><url><loc>/a</lok></url><url><loc>/b</loc></url></urlset>",
        "<urlset><url><loc>/a</loc></url><url><loc>/b</loc><lastmod>20",
        "<urlset><url><loc>/a</loc></url>\x01<url><loc>/b</loc></url><url><loc>/trunca",
        "<urlset><url><loc>/a</loc><x:y>z</x:y></url><url q><loc>/b</loc></url></urlset>",
        '<?xml version="1.0" encoding="no-such"?><urlset><url><loc>/a</loc></url><url><loc>/b</loc></url></urlset>',
    ],
)
def test_broken_sitemap_gives_readable_entries(body: str) -> None:
    assert pages(body) == ["https://example.com/a", "https://example.com/b"]


def test_references_survive_breakage() -> None:
    body = urlset("/a?x=1&y=2", "/b", "/c?x=1&amp;y=2&#38;z=&#x33;", "<![CDATA[/d?x=1&y=2]]>", "/e&nbsp;")
    body = body.replace("/b</loc>", "/b</lok>")
    assert pages(body) == [
        "https://example.com/a?x=1&y=2",
        "https://example.com/b",
        "https://example.com/c?x=1&y=2&z=3",
        "https://example.com/d?x=1&y=2",
        "https://example.com/e&nbsp;",
    ]


def test_entities_are_not_expanded() -> None:
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    doctype = f'<!DOCTYPE u [<!ENTITY l0 "lol"><!ENTITY f SYSTEM "file:///etc/hostname">{laughs}]>'
    assert pages(doctype + urlset("/a&l9;", "/b&f;", "/c")) == [
        "https://example.com/a&l9;",
        "https://example.com/b&f;",
        "https://example.com/c",
    ]


def test_gzip_variants() -> None:
    body = urlset("/a", "/b").encode()
    wanted = ["https://example.com/a", "https://example.com/b"]
    packed = gzip.compress(body)
    assert pages(packed) == wanted
    assert pages(gzip.compress(packed)) == wanted
    assert pages(gzip.compress(body[:40]) + gzip.compress(body[40:])) == wanted
    assert pages(packed + b"\0" * 100) == wanted
    assert pages(packed[:-8]) == wanted, "the checksum is missing"
    assert pages(packed[:12]) == []
    long = gzip.compress("\n".join(f"https://example.com/{i * 7919 % 100_003}" for i in range(50_000)).encode())
    assert len(pages(long[: len(long) // 2])) > 10_000


def test_bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sitemap, "MAX_BYTES", 1_000_000)
    bomb = gzip.compress(b"https://example.com/a\n" + b" " * 50_000_000)
    assert pages(bomb) == ["https://example.com/a"]
    assert sum(map(len, sitemap._unpack(bomb))) == 1_000_000
    assert pages(gzip.compress(bomb)) == ["https://example.com/a"]
    assert pages(gzip.compress(b"") * 100_000) == []
    with monkeypatch.context() as patched:
        patched.setattr(sitemap, "MAX_EVENTS", 1000)
        for unit in ("<x/>", "x<!---->", "&amp;", "&#38;", "&"):
            assert pages("<urlset><x>" + unit * 100_000 + "</x>" + urlset("/a")) == [], unit
        assert pages("\n" * 100_000 + "https://example.com/a\n") == ["https://example.com/a"], "a slice of space"
        assert pages("x\n" * 100_000 + "https://example.com/a\n") == []
    with monkeypatch.context() as patched:
        patched.setattr(sitemap, "MAX_TEXT", 10_000)
        long = "https://example.com/" + "x" * 1000 + "/"
        assert len(parse_sitemap(urlset(*"abcdefghijklmnopq").encode(), long).pages) == 10
    monkeypatch.setattr(sitemap, "MAX_ENTRIES", 10)
    assert len(pages("https://example.com/a\n" * 100)) == 10
    assert len(pages(urlset(*["/a"] * 100))) == 10


def test_long_fields_are_ignored() -> None:
    long = "/" + "x" * sitemap.MAX_FIELD
    assert pages(urlset(long, "/a", long[1:])) == ["https://example.com/a", f"https://example.com/maps/{long[1:]}"]
    assert pages(f"https://example.com{long}\nhttps://example.com/a") == ["https://example.com/a"]
    assert pages(f"{long * 9}\nhttps://example.com/a") == ["https://example.com/a"]


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ("<guid>https://example.com/1</guid>", ["https://example.com/1"]),
        ("<guid isPermaLink='true'>https://example.com/1</guid>", ["https://example.com/1"]),
        ("<guid isPermaLink='false'>https://example.com/1</guid>", []),
        ("<guid isPermaLink=' False '>https://example.com/1</guid>", []),
        ("<guid>urn:uuid:60a76c80</guid>", []),
        ("<guid>1234</guid>", []),
        ("<guid>https://example.com/1</guid><link>https://example.com/2</link>", ["https://example.com/2"]),
        ("<link/><guid>https://example.com/1</guid>", ["https://example.com/1"]),
    ],
)
def test_items_with_only_a_guid(item: str, found: list[str]) -> None:
    assert pages(f"<rss><channel><item><title>t</title>{item}</item></channel></rss>") == found


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("<id>https://example.com/1</id>", ["https://example.com/1"]),
        ("<id>urn:uuid:60a76c80</id>", []),
        ("<id>https://example.com/1</id><link href='https://example.com/2'/>", ["https://example.com/2"]),
    ],
)
def test_entries_with_only_an_id(entry: str, found: list[str]) -> None:
    assert pages(f"<feed xmlns='http://www.w3.org/2005/Atom'><entry>{entry}</entry></feed>") == found


def test_links_are_relative_to_xml_base() -> None:
    feed = """<feed xml:base="https://b.example/blog/"><link href="self"/>
        <entry><link href="1"/></entry>
        <entry xml:base="2024/"><title xml:base="http://no.example/">t</title><link href="2"/></entry>
        <entry><link xml:base="/x/" href="3"/></entry>
        <entry xml:base="mailto:a"><link href="4"/></entry>
        <item xml:base="/rss/"><link>5</link></item>
        <entry><link href="https://c.example/6"/></entry></feed>"""
    assert pages(feed) == [
        "https://b.example/blog/1",
        "https://b.example/blog/2024/2",
        "https://b.example/x/3",
        "https://b.example/blog/4",
        "https://b.example/rss/5",
        "https://c.example/6",
    ]
    assert pages("<rss><channel xml:base='/x/'/><item><link>1</link></item></rss>") == ["https://example.com/maps/1"]


@pytest.mark.parametrize("size", [7, 11, 50])
def test_slices_may_end_anywhere(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "https://example.com/a\r\nhttps://example.com/é\nhttps://example.com/c"
    xml = '<?xml version="1.0"?>' + urlset(
        "/a?x=1&y=2&amp;z=3",
        "<![CDATA[/b?x=1&y=]]&gt;2]]>",
        "/c&#38;&#x26;&nbsp;",
        "<![CDATA[/d]]>",
        "/é",
        "/f&#60;&lt;",
    )
    bodies = [text.encode(), xml.encode(), xml.encode("utf-16"), xml.encode("utf-16-le"), xml.encode("utf-16-be")]
    bodies += [gzip.compress(body) for body in bodies] + [gzip.compress(gzip.compress(bodies[1]))]
    whole = [parse_sitemap(body, URL) for body in bodies]
    assert [len(found.pages) for found in whole] == [3, 6, 6, 6, 6, 3, 6, 6, 6, 6, 6]
    monkeypatch.setattr(sitemap, "SLICE", size)
    monkeypatch.setattr(sitemap, "_GZIP_CHUNK", size)
    assert [parse_sitemap(body, URL) for body in bodies] == whole


HOSTILE = {
    "ampersands": b"<urlset><url><loc>%s",
    "entities": b"<!DOCTYPE u [<!ENTITY a 'xxxxxxxxxx'>]><urlset><url><loc>%s",
    "declarations": b"<!DOCTYPE u [%s]><urlset/>",
    "CDATA": b"<urlset><url><loc>%s",
    "elements": b"<urlset>%s",
    "entries": b"<urlset>%s",
    "nested": b"%s",
    "stray ends": b"<urlset>%s",
    "lines": b"%s",
    "UTF-16": b"\xff\xfe%s",
}
UNITS = [
    b"&",
    b"&a;",
    b"<!ENTITY e 'x'>",
    b"<![CDATA[x]]>",
    b"<![CDATA[",
    b"<x/>",
    b"<url><loc>/a</loc></url>",
    b"<a>",
    b"</a>",
    b"https://example.com/a\n",
    b"&\0",
    b"<!---->",
    b"x",
    b"<url a='&b;'>",
]


@pytest.mark.parametrize("template", HOSTILE.values(), ids=HOSTILE)
def test_hostile_sitemaps_take_linear_time(template: bytes) -> None:
    for unit in UNITS:
        spent = []
        for size in (100_000, 400_000):
            body = template % (unit * (size // len(unit)))
            began = time.process_time()
            parse_sitemap(body, URL)
            spent.append(time.process_time() - began)
        assert spent[1] < 0.2 + 12 * spent[0], (unit, spent)


@pytest.mark.parametrize("unit", [b"&", b"<![CDATA[x]]>", b"x<!---->", b"<x/>"])
def test_hostile_sitemaps_take_little_memory(unit: bytes) -> None:
    body = b"<urlset><url><loc>" + unit * (1_000_000 // len(unit))
    tracemalloc.start()
    for _ in read_sitemap(body, URL):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * 2**20


def test_many_entities_take_linear_time() -> None:
    body = gzip.compress(b"<urlset><url><loc>https://example.com/a</loc></url><url><loc>" + b"&" * 50_000_000, 9)
    assert len(body) < 60_000
    assert pages(body) == ["https://example.com/a"]


async def test_the_loop_goes_on_between_the_slices_of_a_sitemap() -> None:
    """Fifty thousand entries, as many as the standard allows."""
    urls = [f"https://example.com/{number}?a=1&amp;b=2" for number in range(50_000)]
    turns = 0
    found = []
    async for requests in sitemap_handler(page_of(urlset(*urls), URL)):
        turns += 1
        found += requests
        assert len(requests) < 2000
    assert turns > 30
    assert [request.url for request in found] == [url.replace("&amp;", "&") for url in urls]


@pytest.mark.parametrize(
    "body", [b"", b"<", b"<html><body>404</body></html>", b"\x1f\x8b", b"\xff\xfe", b"\x00" * 10, b"{}"]
)
def test_garbage_is_empty(body: bytes) -> None:
    assert parse_sitemap(body, URL) == Sitemap()


def test_invalid_base_keeps_absolute_links() -> None:
    assert parse_sitemap(urlset("/a", "https://example.com/b").encode(), "nowhere").pages == (
        SitemapEntry("https://example.com/b"),
    )


PIECES = st.sampled_from(
    [
        "<urlset>",
        "<url>",
        "<loc>",
        "</loc>",
        "</url>",
        "</urlset>",
        "<sitemap>",
        "</sitemap>",
        "<item>",
        "<link>",
        "</link>",
        "<link href='/a'/>",
        "/a",
        "https://example.com/x",
        "&",
        "&amp;",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "<?",
        "<!DOCTYPE",
        " ",
        "\x00",
        "é",
        "\n",
        "<x:y z='",
    ]
)


@settings(deadline=None)
@given(st.one_of(st.binary(), st.lists(PIECES).map(lambda pieces: "".join(pieces).encode())), st.text(max_size=20))
def test_no_input_raises(body: bytes, url: str) -> None:
    for variant in (body, b"<urlset>" + body, gzip.compress(body), b"\xff\xfe" + body, b"\x1f\x8b\x08" + body):
        for base in (URL, url):
            found = parse_sitemap(variant, base)
            assert all(page.url.startswith(("http://", "https://")) for page in found.pages)


@settings(deadline=None)
@given(
    st.lists(st.from_regex(r"/[a-z0-9/?=&;%-]{0,30}", fullmatch=True).filter(lambda path: not path.startswith("//")))
)
def test_sitemap_round_trip(paths: list[str]) -> None:
    escaped = [path.replace("&", "&amp;") for path in paths]
    wanted = ["https://example.com" + path for path in paths]
    assert pages(urlset(*escaped)) == wanted
    assert pages(gzip.compress(urlset(*escaped).encode())) == wanted

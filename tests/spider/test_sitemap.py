"""Sitemaps: every form, every kind of breakage, and no input that raises or swells."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.spider import sitemap
from weft.spider.sitemap import Sitemap, SitemapEntry, parse_sitemap

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
def test_what_can_be_read_of_a_broken_one_is(body: str) -> None:
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


def test_gzip_whole_doubled_strung_together_and_cut() -> None:
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
    assert len(sitemap._unpacked(bomb)) == 1_000_000
    assert pages(gzip.compress(b"") * 100_000) == []
    monkeypatch.setattr(sitemap, "MAX_ELEMENTS", 1000)
    assert pages("<urlset>" + "<x/>" * 100_000 + urlset("/a")) == []
    monkeypatch.setattr(sitemap, "MAX_ENTRIES", 10)
    assert len(pages("https://example.com/a\n" * 100)) == 10


@pytest.mark.parametrize(
    "body", [b"", b"<", b"<html><body>404</body></html>", b"\x1f\x8b", b"\xff\xfe", b"\x00" * 10, b"{}"]
)
def test_garbage_is_empty(body: bytes) -> None:
    assert parse_sitemap(body, URL) == Sitemap()


def test_a_base_that_is_no_url_leaves_absolute_ones() -> None:
    assert parse_sitemap(urlset("/a", "https://example.com/b").encode(), "nowhere").pages == (
        SitemapEntry("https://example.com/b"),
    )


PIECES = st.sampled_from(
    ["<urlset>", "<url>", "<loc>", "</loc>", "</url>", "</urlset>", "<sitemap>", "</sitemap>", "<item>", "<link>",
     "</link>", "<link href='/a'/>", "/a", "https://example.com/x", "&", "&amp;", "<![CDATA[", "]]>", "<!--", "-->",
     "<?", "<!DOCTYPE", " ", "\x00", "é", "\n", "<x:y z='"]
)  # fmt: skip


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
def test_what_was_written_is_read(paths: list[str]) -> None:
    escaped = [path.replace("&", "&amp;") for path in paths]
    wanted = ["https://example.com" + path for path in paths]
    assert pages(urlset(*escaped)) == wanted
    assert pages(gzip.compress(urlset(*escaped).encode())) == wanted

"""Sitemaps: entities, loops, a million entries, entries of 100 KB, bombs."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Final

from uttu.testing.site.hostile import documents
from uttu.testing.site.hostile.codings import bomb
from uttu.testing.site.hostile.model import Kind, Replier, page
from uttu.testing.site.message import TEXT, XML, Answer, Incoming, Reply

_OPEN: Final = '<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
_INDEX: Final = '<?xml version="1.0"?><sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
_MILLION: Final = 1_000_000
_MB: Final = 1024 * 1024
_FILE: Final = "/sitemap.xml"


def _entries(count: int, form: str = "/p{0}") -> str:
    return _OPEN + "".join(f"<url><loc>{form.format(number)}</loc></url>" for number in range(count)) + "</urlset>"


def _entity_file(count: int, uses: int) -> bytes:
    """``count`` entries that each reference an entity of 1 KB ``uses`` times. It compresses well."""
    entry = "<url><loc>/x</loc><lastmod>" + "&e;" * uses + "</lastmod></url>"
    doctype = f"<!DOCTYPE urlset [<!ENTITY e '{'x' * 1000}'>]>"
    return f"<?xml version='1.0'?>{doctype}<urlset>{entry * count}</urlset>".encode()


def _served(make: Callable[[], str | bytes], content_type: str = XML, *headers: tuple[str, str]) -> Replier:
    return page(make, content_type, *headers, path=_FILE)


def _index_forever(incoming: Incoming) -> Reply:
    """An index of two files, each of which is an index of two more."""
    if incoming.path == "/robots.txt":
        return None
    number = int(incoming.number("n", 1))
    files = "".join(f"<sitemap><loc>{_FILE}?n={number * 2 + more}</loc></sitemap>" for more in (0, 1))
    return Answer(f"{_INDEX}{files}</sitemapindex>".encode(), XML)


def _index_loop(incoming: Incoming) -> Reply:
    if incoming.path == "/robots.txt":
        return None
    files = f"<sitemap><loc>{_FILE}</loc></sitemap><sitemap><loc>/b.xml</loc></sitemap>"
    return Answer(f"{_INDEX}{files}</sitemapindex>".encode(), XML)


def _sitemap(name: str, about: str, reply: Replier, *, endless: bool = False, ends: str = "done|dead") -> Kind:
    return Kind(
        name=f"sitemaps/{name}", about=about, reply=reply, path=_FILE, handler="<sitemap>", endless=endless, ends=ends
    )


def _file(
    name: str, about: str, make: Callable[[], str | bytes], content_type: str = XML, *, endless: bool = False
) -> Kind:
    return _sitemap(name, about, _served(make, content_type), endless=endless)


KINDS: Final = (
    _file("laughs", "a billion laughs", lambda: documents.billion_laughs("urlset")),
    _file("quadratic", "an entity of 100 KB, used 50,000 times", lambda: documents.quadratic("urlset")),
    _file("entities", "50,000 entries with an entity of 1 KB", lambda: _entity_file(50_000, 1)),
    _file(
        "entities-gzip",
        "15 MB of entities in 50 KB",
        lambda: gzip.compress(_entity_file(15_000, 300)),
        "application/gzip",
    ),
    _file(
        "entities-loc",
        "entities within <loc>",
        lambda: (
            "<!DOCTYPE urlset [<!ENTITY e '"
            + "x" * 10_000
            + "'>]>"
            + "<urlset>"
            + "<url><loc>/&e;&e;</loc></url>" * 20_000
        ),
    ),
    _file("references", "3 million character references", lambda: _OPEN + "<url><loc>/" + "&#65;" * 3_000_000),
    _file("external", "an entity that is a local file", lambda: documents.external("file:///etc/passwd", "urlset")),
    _file("entries-50k", "50,000 entries", lambda: _entries(50_000), endless=True),
    _file("entries-300k", "300,000 entries", lambda: _entries(300_000), endless=True),
    _file("entries-same", "300,000 times the same entry", lambda: _entries(300_000, "/x")),
    _file("entries-large", "100 entries of 100 KB", lambda: _entries(100, "/{0}" + "x" * 100_000)),
    _file(
        "entries-lastmod",
        "100 entries with a date of 100 KB",
        lambda: _OPEN + f"<url><loc>/x</loc><lastmod>{'9' * 100_000}</lastmod></url>" * 100 + "</urlset>",
    ),
    _file("entries-bad", "300,000 entries that are not URLs", lambda: _entries(300_000, "http://[{0}")),
    _file("text", "a million lines of text", lambda: "".join(f"/p{n}\n" for n in range(_MILLION)), TEXT),
    _file(
        "text-urls",
        "200,000 URLs as text",
        lambda: "".join(f"http://127.79.255.1/{n}\n" for n in range(200_000)),
        TEXT,
        endless=True,
    ),
    _file("text-line", "a line of 10 MB", lambda: "http://127.79.255.1/" + "x" * (10 * _MB), TEXT),
    _file("deep", "80,000 nested elements", lambda: _OPEN + "<url>" * 80_000),
    _file("attributes", "300,000 attributes", lambda: "<urlset " + " ".join(f"a{n}='1'" for n in range(300_000)) + ">"),
    _file("siblings", "a million empty entries", lambda: _OPEN + "<url/>" * _MILLION + "</urlset>"),
    _file("comments", "15 MB of comments", lambda: _OPEN + "<!---->" * (2 * _MB) + "</urlset>"),
    _file("cut", "a file that ends in the middle", lambda: _entries(1000)[:20_000]),
    _file("html", "a page instead of a sitemap", lambda: "<html>" + "<p>x" * 100_000, "text/html"),
    _file("nulls", "10 MB of NUL bytes", lambda: bytes(10 * _MB)),
    _file("bomb-file", "a gzip file of 200 MB", lambda: bomb("gzip", 200), "application/gzip"),
    _file(
        "bomb-near",
        "a gzip file of 15 MB of entries",
        lambda: gzip.compress(_entries(300_000).encode()),
        "application/gzip",
        endless=True,
    ),
    _file(
        "members", "a gzip file of 200,000 members", lambda: gzip.compress(b"x", mtime=0) * 200_000, "application/gzip"
    ),
    _file(
        "rss",
        "a feed of 200,000 items",
        lambda: (
            "<rss><channel>" + "".join(f"<item><link>/{n}</link></item>" for n in range(200_000)) + "</channel></rss>"
        ),
        "application/rss+xml",
        endless=True,
    ),
    _sitemap(
        "bomb", "200 MB by Content-Encoding", _served(lambda: bomb("gzip", 200), XML, ("Content-Encoding", "gzip"))
    ),
    _sitemap("index-loop", "an index that names itself", _index_loop),
    _sitemap("index-tree", "an index of indexes, without end", _index_forever, endless=True),
    _file(
        "index-100k",
        "an index of 100,000 files",
        lambda: (
            _INDEX + "".join(f"<sitemap><loc>/s{n}.xml</loc></sitemap>" for n in range(100_000)) + "</sitemapindex>"
        ),
        endless=True,
    ),
)

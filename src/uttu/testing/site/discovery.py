"""Files that describe a host: robots.txt, sitemaps, feeds.

==============================  ==============================================================
``/robots.txt``                 as described by :class:`Site`
``/sitemap.xml``                index of the two kinds below
``/sitemap-pages-<k>.xml``      this host's ordinary pages, 1,000 a file, k from 0
``/sitemap-shop.xml.gz``        the products, gzip as a file (no Content-Encoding)
``/sitemap.txt``                this host's ordinary pages as lines, 50,000 at most
``/feed.rss``, ``/feed.atom``   the first 20 products
==============================  ==============================================================
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable
from typing import Final

from uttu.testing.site.catalogue import Product, product
from uttu.testing.site.message import TEXT, XML, Answer, Incoming, Reply, natural, redirect
from uttu.testing.site.model import Layout, Site

_PER_FILE: Final = 1000
_LINES: Final = 50_000
_NS: Final = "http://www.sitemaps.org/schemas/sitemap/0.9"
_DAY: Final = "2024-01-01"


def robots_text(site: Site, origin: str) -> str:
    """The default robots.txt of a host."""
    delay = "" if site.crawl_delay is None else f"Crawl-delay: {site.crawl_delay:g}\n"
    return f"User-agent: *\nDisallow: /private/\n{delay}\nSitemap: {origin}/sitemap.xml\n"


class Discovery:
    """Answers requests for these files, for each host of a site."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._site = layout.site
        self._robots_asked: Counter[int] = Counter()
        self._feed = [product(layout.site, sku) for sku in range(1, min(20, layout.site.products) + 1)]

    def reply(self, incoming: Incoming) -> Reply:
        host = incoming.host
        origin = self._layout.origins[host]
        match incoming.path:
            case "/robots.txt":
                return self._robots(host, origin)
            case "/sitemap.xml":
                files = [f"{origin}/sitemap-pages-{k}.xml" for k in range(-(-len(self._numbers(host)) // _PER_FILE))]
                return _sitemap("sitemapindex", "sitemap", [*files, f"{origin}/sitemap-shop.xml.gz"])
            case "/sitemap-shop.xml.gz":
                urls = (f"{origin}/shop/product/{sku}" for sku in range(1, self._site.products + 1))
                plain = _sitemap("urlset", "url", urls).body
                return Answer(gzip.compress(plain, mtime=0), "application/gzip")
            case "/sitemap.txt":
                lines = (self._layout.page_url(number) + "\n" for number in self._numbers(host)[:_LINES])
                return Answer("".join(lines).encode(), TEXT)
            case "/feed.rss":
                return _rss(origin, self._feed)
            case "/feed.atom":
                return _atom(origin, self._feed)
        return self._sitemap_of_pages(incoming)

    def _robots(self, host: int, origin: str) -> Answer:
        robots = self._site.robots
        answers = robots if isinstance(robots, tuple) else (robots,)
        answer = answers[min(self._robots_asked[host], len(answers) - 1)]
        self._robots_asked[host] += 1
        match answer:
            case None:
                return Answer(robots_text(self._site, origin).encode(), TEXT)
            case str(path) if path.startswith("/"):
                return redirect(path)
            case str(text):
                return Answer(text.encode(), TEXT)
            case status if 300 <= status < 400:
                return redirect("/odd/robots.txt", status)
            case status:
                return Answer(b"No robots.txt today.\n", TEXT, status)

    def _sitemap_of_pages(self, incoming: Incoming) -> Reply:
        path = incoming.path
        if not (path.startswith("/sitemap-pages-") and path.endswith(".xml")):
            return None
        number = natural(path.removeprefix("/sitemap-pages-").removesuffix(".xml"))
        if number is None:
            return None
        numbers = self._numbers(incoming.host)[number * _PER_FILE : (number + 1) * _PER_FILE]
        return _sitemap("urlset", "url", map(self._layout.page_url, numbers)) if numbers else None

    def _numbers(self, host: int) -> range:
        return range(host, self._site.pages, self._site.hosts)


def _sitemap(root: str, element: str, urls: Iterable[str]) -> Answer:
    entries = "".join(f"<{element}><loc>{url}</loc><lastmod>{_DAY}</lastmod></{element}>\n" for url in urls)
    return _xml(f'<{root} xmlns="{_NS}">\n{entries}</{root}>\n', XML)


def _rss(origin: str, feed: list[Product]) -> Answer:
    items = "".join(
        f"<item><title>{one.name}</title><link>{origin}{one.path}</link><guid>{origin}{one.path}</guid>"
        f"<description>{one.description}</description><pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate></item>\n"
        for one in feed
    )
    channel = f"<title>New in the shop</title><link>{origin}/shop/</link><description>New products</description>"
    return _xml(f'<rss version="2.0"><channel>{channel}\n{items}</channel></rss>\n', "application/rss+xml")


def _atom(origin: str, feed: list[Product]) -> Answer:
    stamp = f"<updated>{_DAY}T00:00:00Z</updated>"
    entries = "".join(
        f'<entry><title>{one.name}</title><link href="{origin}{one.path}"/><id>{origin}{one.path}</id>{stamp}'
        f"<summary>{one.description}</summary></entry>\n"
        for one in feed
    )
    head = f'<title>New in the shop</title><link href="{origin}/shop/"/><id>{origin}/feed.atom</id>{stamp}'
    return _xml(f'<feed xmlns="http://www.w3.org/2005/Atom">{head}\n{entries}</feed>\n', "application/atom+xml")


def _xml(text: str, content_type: str) -> Answer:
    return Answer(f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode(), content_type)

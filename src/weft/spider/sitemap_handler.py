"""The ready-made handler behind ``Spider(sitemap=…)``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from weft.model import Request
from weft.model.url import Joiner, origin_of
from weft.spider.page import Page

# Not a name that a function can have, so it never meets a user's handler.
SITEMAP = "<sitemap>"

_SITEMAP_LINE = re.compile(r"^\s*sitemap\s*:\s*(\S+)", re.IGNORECASE | re.MULTILINE)


def sitemap_request(start: Request) -> Request:
    """The request that finds the sitemap of ``start``: itself, or for the root of a site its robots.txt."""
    origin = origin_of(start.url)
    url = origin + "/robots.txt" if start.url == origin + "/" else start.url
    return msgspec.structs.replace(start, url=url, handler=SITEMAP)


def sitemap_handler(page: Page) -> Iterator[Request]:
    """Sitemaps lead to further sitemaps and to pages; a robots.txt that names none to the usual place."""
    if page.url.endswith("/robots.txt"):
        named = _SITEMAP_LINE.findall(page.text) or ["/sitemap.xml"]
        join = Joiner(page.url)
        yield from (_child(page, url, SITEMAP) for link in named if (url := join(link)))
        return
    found = page.sitemap()
    yield from (_child(page, url, SITEMAP) for url in found.sitemaps)
    yield from (_child(page, entry.url, "") for entry in found.pages)


def _child(page: Page, url: str, handler: str) -> Request:
    # A sitemap is a list of places to start, so its pages are as deep as it is.
    return Request(url=url, handler=handler, depth=page.depth)

"""The ready-made handler behind ``Spider(sitemap=…)``.

A site's robots.txt is no page: it is fetched once, with the site's rules, and may be absent. So a request for it
is settled by what is known of the rules (:func:`named_sitemaps`), and only what they name is visited.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from weft.model import Request
from weft.model.url import Joiner, origin_of
from weft.policy import robots
from weft.policy.robots import Robots
from weft.spider.page import Page

# Not a name that a function can have, so it never meets a user's handler.
SITEMAP = "<sitemap>"


def sitemap_request(start: Request) -> Request:
    """The request that finds the sitemap of ``start``: itself, or for the root of a site its robots.txt."""
    origin = origin_of(start.url)
    url = origin + "/robots.txt" if start.url == origin + "/" else start.url
    return msgspec.structs.replace(start, url=url, handler=SITEMAP)


def wants_robots(request: Request) -> bool:
    """Whether it asks for nothing but the sitemaps that a site's own robots.txt names."""
    return request.handler == SITEMAP and robots.is_robots(request.url)


def named_sitemaps(request: Request, rules: Robots) -> Iterator[Request]:
    """Those that a site's rules name, for a request for its robots.txt; the usual place if they name none."""
    join = Joiner(request.url)
    links = rules.sitemaps or ("/sitemap.xml",)
    return (_child(request, url, SITEMAP) for link in links if (url := join(link)))


def sitemap_handler(page: Page) -> Iterator[Request]:
    """Sitemaps lead to further sitemaps and to pages; a robots.txt that is not a site's own, to sitemaps."""
    if page.url.endswith("/robots.txt"):
        yield from named_sitemaps(page.request, robots.parse(page.response.body))
        return
    found = page.sitemap()
    yield from (_child(page.request, url, SITEMAP) for url in found.sitemaps)
    yield from (_child(page.request, entry.url, "") for entry in found.pages)


def _child(request: Request, url: str, handler: str) -> Request:
    # A sitemap is a list of places to start, so its pages are as deep as it is.
    return Request(url=url, handler=handler, depth=request.depth)

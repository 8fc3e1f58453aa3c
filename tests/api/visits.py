"""The addresses of all pages with sample data, and what people read on a page."""

from __future__ import annotations

from typing import Any

from lxml import html

_CRAWL = "/crawls/local/shop-prices"
PATHS = (
    "/",
    _CRAWL,
    f"{_CRAWL}?range=15m",
    f"{_CRAWL}/hosts",
    f"{_CRAWL}/errors",
    f"{_CRAWL}/errors?kind=http&message=HTTP+503",
    f"{_CRAWL}/requests",
    f"{_CRAWL}/requests?url=https://shop.example.org/old",
    f"{_CRAWL}/requests?url=https://shop.example.org/unknown",
    f"{_CRAWL}/items",
    f"{_CRAWL}/workers",
    f"{_CRAWL}/settings",
    f"{_CRAWL}/events",
    "/queues",
    "/queues/redis-10.0.0.5-6379-0",
    "/queues/rabbitmq-10.0.0.6/groups/indexer",
    "/queues/rabbitmq-10.0.0.6/groups/indexer?show=dead",
    "/jobs",
    "/jobs/tasks/8b1f0002-9d1e-4c2a-8a0f-77c0de1f0002",
    "/schedules",
    "/schedules?preview=0+6+*+*+*&span=7d",
    "/start",
    "/start?file=shop-prices.py",
    "/fetch",
    "/account",
    "/users",
    "/audit",
    "/login",
)
_SPOKEN = ("title", "placeholder", "aria-label", "data-confirm", "data-label", "alt", "data-live-text")


def parse_page(page: str) -> Any:
    """The document of a page."""
    return html.document_fromstring(page)


def read_texts(page: str) -> list[str]:
    """All texts of a page, also those in attributes that people see or hear."""
    tree = html.document_fromstring(page)
    found = [str(text).strip() for text in tree.itertext() if text.strip()]
    for element in tree.iter():
        found += [str(element.get(name)).strip() for name in _SPOKEN if element.get(name)]
    return found

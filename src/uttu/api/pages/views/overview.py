"""The overview: every crawl, the workers, the stores and brokers, and what is wrong right now."""

from __future__ import annotations

from uttu.api.pages.shapes import CrawlRow
from uttu.api.pages.views import Context, Visit
from uttu.model.crawl import CrawlState

_ROWS = 50


def _order(row: CrawlRow) -> tuple[bool, bool, float, str]:
    status = row.status
    return not status.alive, status.state is not CrawlState.RUNNING, 0 if status.alive else -status.active, status.name


async def show(visit: Visit) -> Context:
    """All crawls that match, those that run first; and the sums over all of them."""
    found = await visit.data.read_overview()
    match, after = visit.text("match"), visit.number("after", 0)
    crawls = [row for row in found.crawls if match.lower() in row.status.name.lower()]
    # Those at work by name, so that rows don't change places while one looks.
    crawls.sort(key=_order)
    return {
        "overview": found,
        "rows": crawls[after : after + _ROWS],
        "matching": len(crawls),
        "after": after,
        "following": after + _ROWS if after + _ROWS < len(crawls) else None,
        "match": match,
        "running": sum(row.status.alive and row.status.state is CrawlState.RUNNING for row in found.crawls),
        "rate": sum(row.rate for row in found.crawls if row.status.alive),
        "workers": sum(len(row.status.living) for row in found.crawls),
        "pending": sum(row.status.counts.work for row in found.crawls if row.status.alive),
        "items": sum(row.status.counts.items for row in found.crawls),
    }

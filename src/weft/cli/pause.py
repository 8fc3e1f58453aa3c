"""``weft pause``: let a crawl wait."""

from __future__ import annotations

from weft.cli.options import FrontierUrl
from weft.cli.targets import GivenCrawl


def pause(crawl: GivenCrawl, frontier: FrontierUrl = "") -> None:
    """Let all workers of a crawl finish what is in flight, and wait."""
    import asyncio

    from weft.cli import steering

    asyncio.run(steering.steer(crawl, frontier, steering.pause))

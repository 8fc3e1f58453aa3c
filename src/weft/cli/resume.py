"""``weft resume``: let a paused crawl go on."""

from __future__ import annotations

from weft.cli.options import FrontierUrl
from weft.cli.targets import GivenCrawl


def resume(crawl: GivenCrawl, frontier: FrontierUrl = "") -> None:
    """Let a paused crawl go on."""
    import asyncio

    from weft.cli import steering

    asyncio.run(steering.steer(crawl, frontier, steering.resume))

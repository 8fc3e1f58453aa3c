"""``weft stop``: end a crawl on all its workers."""

from __future__ import annotations

from weft.cli.options import FrontierUrl
from weft.cli.targets import GivenCrawl


def stop(crawl: GivenCrawl, frontier: FrontierUrl = "") -> None:
    """Let all workers of a crawl finish what is in flight, and end. The command that started it goes on with it."""
    import asyncio

    from weft.cli import steering

    asyncio.run(steering.steer(crawl, frontier, steering.stop))

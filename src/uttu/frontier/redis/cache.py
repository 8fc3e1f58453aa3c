"""What a process knows about the crawls on a server for a short time, so that listing them again is cheap.

It belongs to the catalog, and survives that a crawl is opened again.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Final

from uttu.frontier.redis.lanes import LaneIndex

# What was not used for this time is forgotten.
_FORGET_SECONDS: Final = 600.0


class CrawlCache:
    """What is known about one crawl."""

    def __init__(self) -> None:
        self.lanes = LaneIndex()
        self.grouped_at = -math.inf
        """When its dead letters had groups, by ``time.monotonic()``."""
        self.grouping: asyncio.Task[None] | None = None
        """Gives groups to its dead letters."""
        self.used_at = 0.0

    def close(self) -> None:
        self.lanes.close()
        if self.grouping is not None:
            self.grouping.cancel()


class CrawlCaches:
    """The caches of all crawls of a catalog, by the prefix of their keys."""

    def __init__(self) -> None:
        self._caches: dict[str, CrawlCache] = {}

    def find(self, prefix: str) -> CrawlCache:
        """Return the cache of a crawl. Forget those that nobody uses."""
        now = time.monotonic()
        for other, cache in list(self._caches.items()):
            if now - cache.used_at > _FORGET_SECONDS:
                cache.close()
                del self._caches[other]
        cache = self._caches.setdefault(prefix, CrawlCache())
        cache.used_at = now
        return cache

    def close(self) -> None:
        for cache in self._caches.values():
            cache.close()
        self._caches.clear()

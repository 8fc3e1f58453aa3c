"""How a crawl stands, in numbers."""

from __future__ import annotations

import msgspec


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Exact at one moment. Every admitted request is in one of the first five."""

    pending: int = 0
    leased: int = 0
    delayed: int = 0
    done: int = 0
    dead: int = 0
    items: int = 0
    bytes: int = 0

    @property
    def seen(self) -> int:
        return self.pending + self.leased + self.delayed + self.done + self.dead

    @property
    def work(self) -> int:
        """What is left to do; a crawl without work is finished."""
        return self.pending + self.leased + self.delayed

    @property
    def finished(self) -> bool:
        return self.work == 0

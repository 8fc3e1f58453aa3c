"""When a crawl has had enough."""

from __future__ import annotations

import msgspec

from weft.model import Counts


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """0 is no limit. Pages are exact over all workers; the others are noticed within a second."""

    pages: int = 0
    items: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def reached(self, counts: Counts, seconds: float) -> str | None:
        """The limit that was reached, in words."""
        if self.pages and counts.done + counts.dead >= self.pages:
            return f"limit of {self.pages:,} pages"
        if self.items and counts.items >= self.items:
            return f"limit of {self.items:,} items"
        if self.bytes and counts.bytes >= self.bytes:
            return f"limit of {self.bytes:,} bytes"
        if self.seconds and seconds >= self.seconds:
            return f"limit of {self.seconds:g} seconds"
        return None

"""Start a crawl: choose a spider file, then fill in the arguments that it declares."""

from __future__ import annotations

from typing import Final

from uttu.api.pages.translation import mark
from uttu.api.pages.views import Context, Visit, attempt

COMMON_SETTINGS: Final = {
    "max_pages": mark("Stop after this many pages; empty for no limit"),
    "max_depth": mark("Follow links this far from the start; empty for any"),
    "delay": mark("Seconds between two requests to one host"),
    "concurrency": mark("Pages in flight in one worker"),
}


async def show(visit: Visit) -> Context:
    """The spider files of the folder, and the form of the one that is chosen."""
    spiders = await visit.data.find_spiders()
    overview, _ = await attempt(visit.data.read_overview())
    chosen = visit.text("file")
    return {
        "spiders": spiders,
        "chosen": next((each for each in spiders if each.path == chosen), None),
        "stores": overview.stores if overview else [],
        "settings": COMMON_SETTINGS,
    }

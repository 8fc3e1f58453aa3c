"""Pages for one person's tasks: fetch a page, and change one's own password."""

from __future__ import annotations

from uttu.api.pages.views import Context, Visit


async def show_fetch(visit: Visit) -> Context:
    """The form. Sending it shows the page that was fetched."""
    return {"url": visit.text("url"), "fetched": None}


async def show_account(visit: Visit) -> Context:
    """The form to change one's own password."""
    return {"failed": ""}

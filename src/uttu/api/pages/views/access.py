"""Users, tokens, and the audit log."""

from __future__ import annotations

from typing import Final

from uttu.api.pages.shapes import Role
from uttu.api.pages.views import Context, Visit

_ROWS: Final = 100


async def show_users(visit: Visit) -> Context:
    """The users and tokens."""
    return {"users": await visit.data.read_users(), "roles": list(Role)}


async def show_audit(visit: Visit) -> Context:
    """Who did what, the latest first."""
    page = await visit.data.read_audit(_ROWS, visit.number("after", 0))
    return {"page": page, "after": visit.number("after", 0)}

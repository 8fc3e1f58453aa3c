"""Schedules: the next times on a time line, the last results, and a form to add one."""

from __future__ import annotations

import time
from typing import Final

from uttu.api.pages.charts import TimelineRow
from uttu.api.pages.translation import mark
from uttu.api.pages.views import Context, Visit

SPANS: Final = {
    "1h": (3600.0, mark("1 hour")),
    "1d": (86_400.0, mark("1 day")),
    "7d": (7 * 86_400.0, mark("7 days")),
}
_ROWS: Final = 50


async def show(visit: Visit) -> Context:
    """The schedules that match, those that are due next first."""
    match, after = visit.text("match"), visit.number("after", 0)
    span = visit.text("span") if visit.text("span") in SPANS else "1d"
    found = [row for row in await visit.data.read_schedules() if match.lower() in f"{row.name} {row.task}".lower()]
    found.sort(key=lambda row: (row.state == "paused", row.fires[0] if row.fires else float("inf"), row.name))
    rows = found[after : after + _ROWS]
    now = time.time()
    return {
        "rows": rows,
        "timeline": [TimelineRow(row.name, row.fires) for row in rows if row.state != "paused"],
        "start": now,
        "end": now + SPANS[span][0],
        "span": span,
        "spans": SPANS,
        "match": match,
        "after": after,
        "following": after + _ROWS if len(found) > after + _ROWS else None,
    }

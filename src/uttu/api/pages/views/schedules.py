"""Schedules: the next times on a time line, the last results, a form to add one, and a preview of its times."""

from __future__ import annotations

import time
from typing import Final

from uttu.api.pages.charts import TimelineRow
from uttu.api.pages.translation import mark
from uttu.api.pages.views import Context, Visit, attempt

SPANS: Final = {
    "1h": (3600.0, mark("1 hour")),
    "1d": (86_400.0, mark("1 day")),
    "7d": (7 * 86_400.0, mark("7 days")),
}
_ROWS: Final = 50
_PREVIEWED: Final = 10


async def show(visit: Visit) -> Context:
    """The schedules that match, those that are due next first."""
    match, after = visit.text("match"), visit.number("after", 0)
    span = visit.text("span") if visit.text("span") in SPANS else "1d"
    schedules = await visit.data.read_schedules(SPANS[span][0] / 3600)
    found = [row for row in schedules if match.lower() in f"{row.name} {row.task}".lower()]
    found.sort(key=lambda row: (row.state == "paused", row.next or float("inf"), row.name))
    rows = found[after : after + _ROWS]
    asked, zone = visit.text("preview", 500), visit.text("zone", 100) or "UTC"
    times, preview_error = await attempt(visit.data.preview_schedule(asked, _PREVIEWED, zone)) if asked else ([], "")
    now = time.time()
    return {
        "asked": asked,
        "zone": zone,
        "times": [moment.timestamp() for moment in times or []],
        "preview_error": preview_error,
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

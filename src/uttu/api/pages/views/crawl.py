"""A crawl: its header, its charts, and a tab each for hosts, errors, requests, items, workers, settings and events."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

from uttu.api.pages.charts import Series, TimeChart
from uttu.api.pages.formatting import format_bytes, format_duration, format_number, format_value
from uttu.api.pages.shapes import EventQuery, HistoryPoint, ItemPage, PageData, Role, StoreHealth
from uttu.api.pages.translation import Translator, mark
from uttu.api.pages.views import Context, Visit, attempt
from uttu.api.pages.words import make_alert
from uttu.api.problems import StillSearching
from uttu.errors import UttuError
from uttu.model.history import EventKind
from uttu.model.inspection import DeadQuery, LaneFilter, LaneQuery
from uttu.operations.fetch import parse_web_url

TABS: Final = {
    "": mark("Charts"),
    "hosts": mark("Hosts"),
    "errors": mark("Errors"),
    "requests": mark("Requests"),
    "items": mark("Items"),
    "workers": mark("Workers"),
    "settings": mark("Settings"),
    "events": mark("Events"),
}
RANGES: Final = {
    "15m": (900.0, mark("15 min")),
    "2h": (7200.0, mark("2 hours")),
    "1d": (86_400.0, mark("1 day")),
    "all": (60 * 86_400.0, mark("All")),
}
_POINTS: Final = 120
_ROWS: Final = 50
_COLUMNS: Final = 8
_SHORTEST_SECONDS: Final = 60.0


async def _header(visit: Visit, tab: str) -> Context:
    store, crawl = visit.params["store"], visit.params["crawl"]
    found = await visit.data.read_crawl(store, crawl)
    return {
        "store": store,
        "crawl": crawl,
        "status": found.details.status,
        "counts": found.details.status.counts,
        "progress": found.progress,
        "problems": [make_alert(store, problem) for problem in found.problems],
        "dead_kinds": found.details.dead_kinds,
        "trimmed": found.details.trimmed,
        "here": f"/crawls/{store}/{crawl}",
        "tab": tab,
        "tabs": TABS,
    }


def _choose_range(began: float) -> str:
    """The range that shows a crawl best: in two hours, a young one would be a few points at the edge."""
    return "15m" if time.time() - began < RANGES["15m"][0] else "2h"


async def show_charts(visit: Visit) -> Context:
    """Throughput, latency, status codes, items and errors over a range of time."""
    context = await _header(visit, "")
    chosen = visit.text("range") if visit.text("range") in RANGES else _choose_range(context["status"].facts.began)
    seconds, _ = RANGES[chosen]
    store, crawl = visit.params["store"], visit.params["crawl"]
    history, error = await attempt(visit.data.read_history(store, crawl, seconds, _POINTS))
    events, _ = await attempt(visit.data.read_events(store, crawl, EventQuery(limit=6)))
    points = history.points if history else []
    end = time.time()
    start = end - seconds
    if points:
        # A young crawl fills the chart, and "all" ends where the crawl did.
        end = points[-1].at if chosen == "all" else end
        start = min(max(start, points[0].at - points[0].seconds), end - _SHORTEST_SECONDS)
    return context | {
        "charts": build_charts(points, start, end, visit.t),
        "history_error": error,
        "others": _other_stores(visit),
        "range": chosen,
        "ranges": RANGES,
        "events": events.events if events else [],
    }


def _other_stores(visit: Visit) -> list[StoreHealth]:
    """Where an admin may move the crawl."""
    if not visit.user.role.allows(Role.ADMIN):
        return []
    return [each for each in visit.data.list_stores() if each.name != visit.params["store"]]


def build_charts(points: Sequence[HistoryPoint], start: float, end: float, t: Translator) -> list[TimeChart]:
    """The charts of a crawl. Where it did not run, lines have a gap."""
    known = list(_mark_gaps(points))
    times = [at for at, _ in known]

    def column(read: Callable[[HistoryPoint], float | None]) -> list[float | None]:
        return [None if point is None else read(point) for _, point in known]

    def per_second(number: float | None) -> str:
        return t("{n} /s", n=format_number(number))

    def chart(
        key: str, title: str, series: list[Series], show: Callable[[float | None], str], stacked: bool = False
    ) -> TimeChart:
        last = ", ".join(f"{each.name} {show(each.values[-1] if each.values else None)}" for each in series)
        return TimeChart(
            key=key,
            title=title,
            description=t("The latest values: {values}", values=last),
            times=times,
            series=series,
            start=start,
            end=end,
            empty=t("No samples in this range yet. A running crawl adds one every 10 s."),
            stacked=stacked,
            format=show,
        )

    classes = sorted({name for point in points for name in point.statuses})
    styles = {"2": "ok", "3": "info", "4": "warn", "5": "bad"}
    statuses = [
        Series(
            t("No answer") if name == "none" else name,
            styles.get(name[:1], "quiet"),
            column(lambda point, name=name: point.statuses.get(name, 0.0)),  # type: ignore[misc]
        )
        for name in classes
    ]
    return [
        chart(
            "pages",
            t("Throughput"),
            [
                Series(t("Pages"), "s1", column(lambda point: point.pages)),
                Series(t("Retries"), "s3", column(lambda point: point.retries)),
            ],
            per_second,
        ),
        chart(
            "latency",
            t("Latency"),
            [
                Series("p50", "s1", column(lambda point: point.latency_p50)),
                Series("p95", "s2", column(lambda point: point.latency_p95)),
            ],
            lambda seconds: format_duration(seconds, t),
        ),
        chart("statuses", t("Status codes"), statuses, per_second, stacked=True),
        chart(
            "items",
            t("Items and errors"),
            [
                Series(t("Items"), "s4", column(lambda point: point.items)),
                Series(t("Errors"), "bad", column(lambda point: point.errors)),
            ],
            per_second,
        ),
        chart("pending", t("Pending"), [Series(t("Pages"), "s5", column(lambda point: point.pending))], format_number),
        chart(
            "bytes",
            t("Download"),
            [Series(t("Body"), "s6", column(lambda point: point.bytes))],
            lambda size: t("{n} /s", n=format_bytes(size)),
        ),
    ]


def _mark_gaps(points: Sequence[HistoryPoint]) -> Iterator[tuple[float, HistoryPoint | None]]:
    """The points by time, and None at the beginning of each time that no point covers."""
    end = points[0].at if points else 0.0
    for point in points:
        if point.at - point.seconds > end + point.seconds / 2:
            yield end + 0.1, None
        yield point.at, point
        end = point.at


async def show_hosts(visit: Visit) -> Context:
    """Hosts and why each waits."""
    context = await _header(visit, "hosts")
    only = visit.text("only")
    chosen = LaneFilter(only) if only in list(LaneFilter) else LaneFilter.ALL
    query = LaneQuery(limit=_ROWS, after=visit.text("after"), match=visit.text("match"), only=chosen)
    page = await visit.data.read_lanes(visit.params["store"], visit.params["crawl"], query)
    return context | {
        "page": page,
        "waits": {lane.name: visit.data.describe_wait(lane) for lane in page.lanes},
        "most": max((lane.pending for lane in page.lanes), default=0),
        "query": query,
        "filters": list(LaneFilter),
    }


async def show_errors(visit: Visit) -> Context:
    """Dead letters: their groups, or those of one group."""
    context = await _header(visit, "errors")
    query = DeadQuery(
        limit=_ROWS,
        after=visit.text("after"),
        kind=visit.text("kind"),
        message=visit.text("message"),
        match=visit.text("match"),
    )
    found = await visit.data.read_dead_letters(visit.params["store"], visit.params["crawl"], query)
    return context | {
        "found": found,
        "query": query,
        "chosen": bool(query.kind or query.match or query.message),
        "most": max((group.count for group in found.groups), default=0),
    }


async def show_requests(visit: Visit) -> Context:
    """The whole story of one URL."""
    context = await _header(visit, "requests")
    asked = visit.text("url")
    url, explanation, error, searching = "", None, "", False
    if asked:
        try:
            url = parse_web_url(asked)
            explanation = await visit.data.explain(visit.params["store"], visit.params["crawl"], url)
        except StillSearching:
            searching = True
        except (ValueError, UttuError) as reason:
            error = str(reason)
    found = {"asked": asked, "url": url, "explanation": explanation, "error": error, "searching": searching}
    return context | found


async def show_items(visit: Visit) -> Context:
    """The latest items, as a table."""
    context = await _header(visit, "items")
    match, before = visit.text("match"), visit.number("after", 0)
    page = await visit.data.read_items(visit.params["store"], visit.params["crawl"], _ROWS, before, match)
    return context | {"page": page, "columns": page.columns[:_COLUMNS], "match": match, "after": before}


async def show_workers(visit: Visit) -> Context:
    """The workers: what each holds now, and the end of its log."""
    context = await _header(visit, "workers")
    workers = await visit.data.read_workers(visit.params["store"], visit.params["crawl"])
    return context | {"workers": sorted(workers, key=lambda worker: (not worker.alive, worker.name))}


async def show_settings(visit: Visit) -> Context:
    """The effective settings, and where each came from."""
    context = await _header(visit, "settings")
    match = visit.text("match").lower()
    values = await visit.data.read_settings(visit.params["store"], visit.params["crawl"])
    found = [each for each in values if match in each.name.lower() or match in each.source]
    keys, _ = await attempt(visit.data.read_crawl_keys(visit.params["store"], visit.params["crawl"]))
    # What someone chose comes before what nobody did.
    return context | {
        "values": sorted(found, key=lambda each: each.source == "default"),
        "match": match,
        "keys": keys or [],
    }


async def show_events(visit: Visit) -> Context:
    """What happened, the latest first. Pages go back in time by position."""
    context = await _header(visit, "events")
    kind = visit.text("kind")
    query = EventQuery(
        limit=_ROWS,
        before=visit.number("after", 0),
        kind=EventKind(kind) if kind in list(EventKind) else None,
    )
    page = await visit.data.read_events(visit.params["store"], visit.params["crawl"], query)
    return context | {
        "events": page.events,
        "kinds": list(EventKind),
        "kind": query.kind,
        "following": page.next or None,
    }


_DOWNLOAD_ROWS = 1000


async def read_download(data: PageData, store: str, crawl: str, before: int, match: str) -> ItemPage:
    """A page of items for a download."""
    return await data.read_items(store, crawl, _DOWNLOAD_ROWS, before, match)


async def download_items(
    data: PageData, store: str, crawl: str, form: str, match: str, page: ItemPage
) -> AsyncIterator[str]:
    """Yield all items that match as lines of JSON or CSV, the newest first, page by page.

    The columns of a CSV file are those of its first page, ``page``.
    """
    columns = None
    while True:
        if form == "jsonl":
            yield "".join(json.dumps(item.value, ensure_ascii=False, default=str) + "\n" for item in page.items)
        else:
            text = io.StringIO()
            writer = csv.writer(text)
            if columns is None:
                columns = page.columns
                writer.writerow(columns)
            for item in page.items:
                writer.writerow([_csv_cell(item.value.get(name)) for name in columns])
            yield text.getvalue()
        if not page.next:
            return
        page = await read_download(data, store, crawl, page.next, match)


def _csv_cell(value: object) -> str:
    """A cell that a spreadsheet does not take for a formula."""
    text = "" if value is None else format_value(value)
    return f"'{text}" if text[:1] in "=+-@\t\r" and text and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

"""``/metrics`` in Prometheus's text format, and ``/healthz``.

Labels are bounded: store, crawl, state, status class and group of a broker; never a URL or a host. At most
``_MOST_CRAWLS`` crawls of a store are shown, the most recently active ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from uttu import __version__
from uttu.api.context import Context
from uttu.api.data import buses, crawls
from uttu.errors import UttuError
from uttu.model.crawl import CrawlState
from uttu.operations.crawls import BrokenState, CrawlStatus

_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_MOST_CRAWLS: Final = 200
_MOST_GROUPS: Final = 200
_STATES: Final = (*CrawlState, *BrokenState)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the dashboard reaches its stores. ``stores``: ``ok`` or ``away`` for each."""

    status: str
    stores: dict[str, str]


async def show_health(request: Request, context: Context, given: object) -> Response:
    """Whether all stores can be reached: 200, or 503 and which one is away. Needs no login."""

    async def look(store: str) -> str:
        try:
            await context.read_names(store)
        except (UttuError, OSError):
            return "away"
        return "ok"

    found = dict(zip(context.stores, await asyncio.gather(*map(look, context.stores)), strict=True))
    is_well = all(state == "ok" for state in found.values())
    health = Health(status="ok" if is_well else "degraded", stores=found)
    return Response(msgspec.json.encode(health), 200 if is_well else 503, media_type="application/json")


async def show_metrics(request: Request, context: Context, given: object) -> Response:
    """Numbers of all crawls and brokers for Prometheus."""
    overview = await crawls.read_overview(context)
    page = _Page()
    page.add("uttu_build_info", "gauge", "The version of Uttu.", [({"version": __version__}, 1)])
    page.add(
        "uttu_store_up",
        "gauge",
        "Whether a store can be reached.",
        [({"store": each.name}, int(not each.error)) for each in overview.stores],
    )
    shown: list[tuple[str, CrawlStatus]] = []
    for store in context.stores:
        own = [row.status for row in overview.crawls if row.store == store]
        shown += [(store, status) for status in own[:_MOST_CRAWLS]]
    page.add_crawls(shown)
    groups = {}
    for each in overview.buses:
        if not each.error:
            groups[each.name] = (await buses.read_groups(context, each.name))[:_MOST_GROUPS]
    page.add(
        "uttu_bus_up",
        "gauge",
        "Whether a broker can be reached.",
        [({"bus": each.name}, int(not each.error)) for each in overview.buses],
    )
    rows = [({"bus": bus, "group": each.name}, each) for bus, found in groups.items() for each in found]
    lags = [(labels, group.lag) for labels, group in rows]
    page.add("uttu_bus_lag", "gauge", "Messages of a group that are not handled yet.", lags)
    page.add("uttu_bus_dead", "gauge", "Dead letters of a group.", [(labels, group.dead) for labels, group in rows])
    return Response(page.text(), media_type=_MEDIA_TYPE)


Values = Iterable[tuple[dict[str, str], float]]


class _Page:
    """Lines in the text format."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, kind: str, text: str, values: Values) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for labels, value in values:
            shown = ",".join(f'{key}="{_escape(each)}"' for key, each in labels.items())
            self._lines.append(f"{name}{{{shown}}} {value:.17g}")

    def add_crawls(self, crawls: list[tuple[str, CrawlStatus]]) -> None:
        def each(read: Any, **labels: str) -> list[tuple[dict[str, str], float]]:
            return [({"store": store, "crawl": crawl.name, **labels}, read(crawl)) for store, crawl in crawls]

        states = [pair for state in _STATES for pair in each(lambda c, s=state: int(c.state == s), state=str(state))]
        self.add("uttu_crawl_state", "gauge", "1 for the state that a crawl is in.", states)
        requests = [
            pair
            for name in ("pending", "leased", "delayed", "done", "dead")
            for pair in each(lambda c, n=name: getattr(c.counts, n), state=name)
        ]
        self.add("uttu_crawl_requests", "gauge", "Requests of a crawl by state.", requests)
        self.add("uttu_crawl_items_total", "counter", "Items of a crawl.", each(lambda c: c.counts.items))
        self.add("uttu_crawl_bytes_total", "counter", "Bytes that a crawl has fetched.", each(lambda c: c.counts.bytes))
        self.add("uttu_crawl_workers", "gauge", "Workers that report.", each(lambda c: len(c.living)))
        classes = [
            ({"store": store, "crawl": crawl.name, "class": name}, float(count))
            for store, crawl in crawls
            for name, count in _count_classes(crawl).items()
        ]
        self.add("uttu_crawl_responses_total", "counter", "Responses by class of their status code.", classes)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _count_classes(crawl: CrawlStatus) -> dict[str, int]:
    counts = dict.fromkeys(("none", "1xx", "2xx", "3xx", "4xx", "5xx"), 0)
    for _, report in crawl.workers.values():
        # As in the history of a crawl: fetches that got no response.
        counts["none"] += report.failed
        for status, count in report.statuses.items():
            name = f"{status[0]}xx" if status[:1] in "12345" and status != "" else "none"
            counts[name] += count
    return counts


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

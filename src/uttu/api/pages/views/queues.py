"""Queues: every broker with its topics, groups, lag and messages."""

from __future__ import annotations

import time

from uttu.api.pages.charts import Series, TimeChart
from uttu.api.pages.formatting import format_number, format_payload
from uttu.api.pages.views import Context, Visit, attempt
from uttu.operations.bus import dead_reason

_LINES = 6
_ROWS = 100


async def show_all(visit: Visit) -> Context:
    """The brokers."""
    return {"buses": await visit.data.read_buses()}


async def show_bus(visit: Visit) -> Context:
    """One broker: its groups with their lag over time, its topics, and what only this kind of broker has."""
    bus, match = visit.params["bus"], visit.text("match")
    described = await visit.data.describe_bus(bus)
    groups, error = await attempt(visit.data.read_groups(bus))
    lags, _ = await attempt(visit.data.read_lags(bus))
    keys, _ = await attempt(visit.data.read_keys(bus)) if described.kind == "redis" else (None, "")
    found = [group for group in groups or [] if match.lower() in group.name.lower()]
    topics = [topic for topic in described.topics if match.lower() in topic.name.lower()]
    after = visit.number("after", 0)
    points, now = lags or [], time.time()
    largest = sorted(found, key=lambda group: -group.lag)[:_LINES]
    t = visit.t
    chart = TimeChart(
        key="lag",
        title=t("Lag by group"),
        description=t("How many messages each group has not handled yet"),
        times=[point.at for point in points],
        series=[
            Series(group.name, f"s{at + 1}", [point.lags.get(group.name) for point in points])
            for at, group in enumerate(largest)
        ],
        start=points[0].at if points else now - 900,
        end=max(now, points[-1].at if points else now),
        empty=t("No samples yet. The dashboard adds one every few seconds."),
        format=format_number,
    )
    return {
        "bus": bus,
        "address": next((each.address for each in await visit.data.read_buses() if each.name == bus), ""),
        "here": f"/queues/{bus}",
        "described": described,
        "groups": found[after : after + _ROWS],
        "following": after + _ROWS if len(found) > after + _ROWS else None,
        "topics": topics[:_ROWS],
        "hidden_topics": max(0, len(topics) - _ROWS),
        "groups_error": error,
        "keys": keys or [],
        "chart": chart,
        "match": match,
        "after": after,
    }


async def show_group(visit: Visit) -> Context:
    """The next messages of a group, or its dead letters."""
    bus, name = visit.params["bus"], visit.params["group"]
    dead = visit.text("show") == "dead"
    limit = max(1, visit.number("limit", 20, 200))
    groups = await visit.data.read_groups(bus)
    deliveries = await visit.data.peek_messages(bus, name, limit, dead)
    return {
        "bus": bus,
        "name": name,
        "here": f"/queues/{bus}",
        "group": next((group for group in groups if group.name == name), None),
        "dead": dead,
        "limit": limit,
        "messages": [(each, *format_payload(each.payload), dead_reason(each)) for each in deliveries],
    }

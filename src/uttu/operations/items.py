"""The items of a crawl: list and search the latest ones; export all that are stored now, or until the crawl ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from uttu.engine.aio import task_group
from uttu.engine.exporter import ItemFollower, check_distinct, export
from uttu.frontier.base import StoredItem
from uttu.frontier.catalog import CrawlStore
from uttu.model.inspection import MOST_SEARCHED
from uttu.operations import Report
from uttu.operations.crawls import record_action, select_crawl
from uttu.runtime import outputs
from uttu.runtime.factory import create_worker_name
from uttu.runtime.registry import create_sink, mask_target
from uttu.sinks.base import Sink

# Items are read in steps of this many, and one call has at most this many columns.
_STEP: Final = 500
_MOST_COLUMNS: Final = 50
# A search ends after this time, even if it has not looked at MOST_SEARCHED items.
_SEARCH_SECONDS: Final = 0.1


class ItemRow(msgspec.Struct, frozen=True):
    """An item of a crawl. ``url`` is its field of this name, if it has one; ``value`` has all its fields."""

    position: int
    id: str
    url: str
    value: dict[str, Any]


class ItemPage(msgspec.Struct, frozen=True):
    """Items of a crawl, the latest first.

    ``next`` is the ``before`` of the next page, 0 at the end; a page of a search may be short although there is a next.
    ``columns`` are the names of their fields, in the order of appearance.
    """

    items: list[ItemRow]
    next: int
    columns: list[str]


async def read_items(
    crawl: str,
    frontier: str,
    limit: int,
    before: int,
    match: str,
    report: Report,
    folder: Path = Path(),
) -> ItemPage:
    """A page of the items of a crawl that are in its store, the latest first.

    :param before: Only items before this position; 0 for the latest.
    :param match: A part of the item as JSON, in any case. One call looks at ``MOST_SEARCHED`` items at most, and for
        ``_SEARCH_SECONDS``.
    :raises StoreError: the store can't be reached, or has no such crawl.
    """
    needle = match.casefold()
    rows: list[ItemRow] = []
    async with select_crawl(crawl, frontier, report, folder) as found:
        looked, end = 0, time.monotonic() + _SEARCH_SECONDS
        while True:
            step = min(_STEP, MOST_SEARCHED - looked) if needle else min(_STEP, limit - len(rows))
            stored = await found.store.outbox.latest(step, before)
            for each in stored:
                before = each.position
                if needle in each.json.decode("utf-8", "replace").casefold():
                    rows.append(_make_row(each))
                if len(rows) == limit:
                    break
            looked += len(stored)
            over = len(stored) < step
            if len(rows) == limit or over or looked >= MOST_SEARCHED or (needle and time.monotonic() > end):
                break
            await asyncio.sleep(0)
        if not over or len(rows) == limit:
            over = not await found.store.outbox.latest(1, before)
    columns = list(dict.fromkeys(name for row in rows for name in row.value))
    return ItemPage(rows, 0 if over else before, columns[:_MOST_COLUMNS])


def _make_row(item: StoredItem) -> ItemRow:
    value = msgspec.json.decode(item.json)
    fields = value if isinstance(value, dict) else {"value": value}
    url = fields.get("url")
    return ItemRow(item.position, item.id, url if isinstance(url, str) else "", fields)


Following = Callable[[Callable[[], None]], None]
"""Called when an export begins to follow its crawl, with a function that ends it. The outputs are closed then."""


class ExportResult(msgspec.Struct, frozen=True):
    """The name of the crawl, and how many items went to each output. Passwords in outputs are masked."""

    crawl: str
    items: dict[str, int]


async def export_items(
    crawl: str,
    frontier: str,
    targets: Sequence[str],
    report: Report,
    *,
    follow: Following | None = None,
    overwrite: bool = False,
    by: str = "",
    folder: Path = Path(),
) -> ExportResult:
    """Write all items of a crawl so far, beginning with the first. Files that Uttu wrote before are replaced.

    :param targets: Outputs, as for ``-o``.
    :param follow: Go on until the crawl ends. An export that is cut short is continued by the next one.
    :param overwrite: Replace files that another program wrote.
    :param by: Who does it, for the history of the crawl.
    :raises UsageError: a target is invalid, or is a file that another program wrote.
    :raises StoreError: the store can't be reached, or has no such crawl.
    :raises SinkError: an output can't be written, or items have been removed from the store.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        store = found.store
        made = [create_sink(target, found.name, folder=folder) for target in targets]
        check_distinct(made)
        sinks = {mask_target(target): sink for target, sink in zip(targets, made, strict=True)}
        if not overwrite:
            facts = await store.ledger.facts()
            await outputs.check_outputs(made, found.catalog, facts, store if follow is not None else None, folder)
        await outputs.record_outputs(made, store, closed=False)
        if follow is not None:
            counts = await _follow_items(store, sinks, report, follow)
        else:
            counts = {
                target: await export(store.outbox, sink, store.ledger, create_worker_name())
                for target, sink in sinks.items()
            }
        await outputs.record_outputs(made, store, closed=True)
        await record_action(store, by, "export", outputs=", ".join(counts), items=max(counts.values(), default=0))
        return ExportResult(found.name, counts)


async def _follow_items(
    store: CrawlStore, sinks: Mapping[str, Sink], report: Report, follow: Following
) -> dict[str, int]:
    """Write items until the crawl ends. Returns how many went to each output."""
    followers = {
        target: ItemFollower(
            frontier=store.frontier,
            outbox=store.outbox,
            ledger=store.ledger,
            sink=sink,
            owner=create_worker_name(),
            waiting=partial(_report_waiting, report, target),
        )
        for target, sink in sinks.items()
    }

    def stop() -> None:
        for follower in followers.values():
            follower.stop()

    follow(stop)
    async with task_group() as group:
        moving = {target: group.create_task(follower.run()) for target, follower in followers.items()}
    return {target: task.result() for target, task in moving.items()}


def _report_waiting(report: Report, target: str, other: str) -> None:
    report(f"{target} is being written by {other}; waiting to take over")

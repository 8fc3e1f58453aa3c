"""Export the items of a crawl: all that are stored now, or until the crawl ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from uttu.engine.aio import task_group
from uttu.engine.exporter import ItemFollower, check_distinct, export
from uttu.frontier.catalog import CrawlStore
from uttu.operations import Report
from uttu.operations.crawls import select_crawl
from uttu.runtime import outputs
from uttu.runtime.factory import create_worker_name
from uttu.runtime.registry import create_sink, mask_target
from uttu.sinks.base import Sink

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
    folder: Path = Path(),
) -> ExportResult:
    """Write all items of a crawl so far, beginning with the first. Files that Uttu wrote before are replaced.

    :param targets: Outputs, as for ``-o``.
    :param follow: Go on until the crawl ends. An export that is cut short is continued by the next one.
    :param overwrite: Replace files that another program wrote.
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

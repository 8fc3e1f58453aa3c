"""Export the items of a crawl to sinks until the crawl ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from functools import partial

from uttu.engine.aio import task_group
from uttu.engine.exporter import ItemFollower
from uttu.errors import BY_SIGNAL
from uttu.frontier.catalog import CrawlStore
from uttu.operations import Report
from uttu.runtime.factory import create_worker_name
from uttu.sinks.base import Sink


async def follow_items(store: CrawlStore, sinks: Mapping[str, Sink], report: Report) -> tuple[dict[str, int], int]:
    """How many items went to each output, and the exit code."""
    received = 0
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

    def stop(number: int) -> None:
        nonlocal received
        received = number
        for follower in followers.values():
            follower.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    async with task_group() as group:
        moving = {target: group.create_task(follower.run()) for target, follower in followers.items()}
    return {target: task.result() for target, task in moving.items()}, BY_SIGNAL + received if received else 0


def _report_waiting(report: Report, target: str, other: str) -> None:
    report(f"{target} is written by {other}; waiting to take over")

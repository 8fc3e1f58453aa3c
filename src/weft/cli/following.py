"""Draining a crawl to outputs from outside of it, until it ends or a signal comes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from functools import partial

from weft.assembly import worker_name
from weft.cli.exits import BY_SIGNAL
from weft.cli.words import say
from weft.engine.follow import Follower
from weft.engine.tasks import task_group
from weft.frontier.depot import Store
from weft.sinks.base import Sink


async def follow(store: Store, sinks: Mapping[str, Sink]) -> tuple[dict[str, int], int]:
    """How many items went to each output, and the exit code."""
    received = 0
    followers = {
        target: Follower(
            frontier=store.frontier,
            outbox=store.outbox,
            ledger=store.ledger,
            sink=sink,
            owner=worker_name(),
            waiting=partial(_say_waiting, target),
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


def _say_waiting(target: str, other: str) -> None:
    say(f"{target} is written by {other}; waiting to take over")

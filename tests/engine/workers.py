"""A worker as most tests want it."""

from __future__ import annotations

import datetime

from uttu.clock import SystemClock
from uttu.engine.link_filter import LinkFilter
from uttu.engine.stats import WorkerStats
from uttu.engine.worker import IsOver, ProcessPage, Worker
from uttu.frontier.base import Frontier
from uttu.policy.scope import Scope
from uttu.policy.throttle import ConcurrencyController
from uttu.policy.traps import Traps


def worker_on(frontier: Frontier, visit: ProcessPage, is_over: IsOver, at_once: int = 8) -> Worker:
    return Worker(
        "w",
        frontier=frontier,
        visit=visit,
        link_filter=LinkFilter(Scope(), Traps(datetime.date(2026, 1, 1))),
        is_over=is_over,
        stats=WorkerStats(),
        controller=ConcurrencyController(at_once),
        lease_seconds=60,
        clock=SystemClock(),
    )

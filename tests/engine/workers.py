"""A worker as most tests want it."""

from __future__ import annotations

import datetime

from weft.clock import SystemClock
from weft.engine.gate import Gate
from weft.engine.stats import Stats
from weft.engine.worker import IsOver, Visit, Worker
from weft.frontier.base import Frontier
from weft.policy.concurrency import Gauge
from weft.policy.scope import Scope
from weft.policy.traps import Traps


def worker_on(frontier: Frontier, visit: Visit, is_over: IsOver, at_once: int = 8) -> Worker:
    return Worker(
        "w",
        frontier=frontier,
        visit=visit,
        gate=Gate(Scope(), Traps(datetime.date(2026, 1, 1))),
        is_over=is_over,
        stats=Stats(),
        gauge=Gauge(at_once),
        lease_seconds=60,
        clock=SystemClock(),
    )

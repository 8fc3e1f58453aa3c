"""The store under test: what the frontier contract needs from a backend's tests, and helpers for the tests.

A backend supplies one fixture, ``store``: an empty crawl that a test can open any number of times, and that is closed
and removed after the test::

    class RedisStore:
        def __init__(self, url, prefix):
            self.clock = FakeClock()
        async def frontier(self, rules): ...
        async def outbox(self): ...
        async def memo(self): ...
        async def ledger(self): ...
        async def inspector(self): ...
        async def history(self): ...

    @pytest.fixture
    async def store(): ...

    class TestRedis(FrontierContract):
        pass
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from uttu.frontier.base import Frontier, History, Inspector, Ledger, Memo, Outbox, Rules
from uttu.model import Done, Lease, Pace, Request
from uttu.model.inspection import DeadQuery, LaneQuery, count_kinds
from uttu.model.lease import DeadLetter, LaneState
from uttu.testing.clock import FakeClock

# No politeness, for tests of everything else. ``ahead`` is 0, so that due times are exact.
EASY = Rules(pace=Pace(0.0, 0), ahead=0.0)
HOST = "a.example"

# The smallest time step of the tests in seconds: exact in binary and in milliseconds.
TICK = 0.125


class StoreUnderTest(Protocol):
    """The store of one crawl. Everything opened on it shares ``clock`` and is closed after the test."""

    clock: FakeClock

    async def frontier(self, rules: Rules) -> Frontier:
        """Open a separate handle, as each worker does. The test may close it."""

    async def outbox(self) -> Outbox:
        """Open the outbox of the crawl."""

    async def memo(self) -> Memo:
        """Open the memo of the crawl."""

    async def ledger(self) -> Ledger:
        """Open the ledger of the crawl."""

    async def inspector(self) -> Inspector:
        """Open the inspector of the crawl."""

    async def history(self) -> History:
        """Open the history of the crawl."""


def page(number: int, host: str = HOST, **fields: Any) -> Request:
    """Return a request with this number in its URL."""
    return Request.to(f"https://{host}/{number}", **fields)


def pages(count: int, host: str = HOST) -> list[Request]:
    return [page(number, host) for number in range(count)]


def numbers(leases: Iterable[Lease]) -> list[int]:
    """Return the numbers of the leased pages."""
    return [int(lease.request.url.rpartition("/")[2]) for lease in leases]


def lanes(leases: Iterable[Lease]) -> list[str]:
    return [lease.lane for lease in leases]


async def lease_all(frontier: Frontier, worker: str = "w") -> list[int]:
    """Lease and finish pages one by one until none is due; return their numbers."""
    found: list[int] = []
    while leases := await frontier.lease(1, worker):
        found += numbers(leases)
        await frontier.settle([Done(lease=lease) for lease in leases])
    return found


async def list_lanes(inspector: Inspector, limit: int = 1000) -> list[LaneState]:
    """Return the first lanes with requests that are pending or in flight."""
    return (await inspector.lanes(LaneQuery(limit=limit))).lanes


async def list_dead(inspector: Inspector, limit: int = 1000) -> list[DeadLetter]:
    """Return the latest dead letters."""
    return (await inspector.dead(DeadQuery(limit=limit))).letters


async def count_dead_kinds(inspector: Inspector) -> dict[str, int]:
    return count_kinds(await inspector.dead_groups())

"""What the frontier's contract asks of a backend's tests, and the few words its tests are written in.

A backend supplies one fixture, ``store``: an empty crawl that can be opened as often as a test
likes, closed and removed when the test is over::

    class RedisStore:
        def __init__(self, url, prefix):
            self.clock = FakeClock()
        async def frontier(self, rules): ...
        async def outbox(self): ...
        async def memo(self): ...
        async def ledger(self): ...
        async def inspector(self): ...

    @pytest.fixture
    async def store(): ...

    class TestRedis(FrontierContract):
        pass
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from weft.frontier.base import Frontier, Inspector, Ledger, Memo, Outbox, Rules
from weft.model import Done, Lease, Pace, Request
from weft.testing.clock import FakeClock

# Without politeness: for tests of everything else. Nothing is leased ahead, so that turns are exact.
EASY = Rules(pace=Pace(0.0, 0), ahead=0.0)
HOST = "a.example"

# The smallest step of time in the tests: exact in binary and in milliseconds.
TICK = 0.125


class Store(Protocol):
    """One crawl's store. Everything opened on it shares ``clock`` and is closed after the test."""

    clock: FakeClock

    async def frontier(self, rules: Rules) -> Frontier:
        """A handle of its own, as each worker has. It may be closed by the test, too."""

    async def outbox(self) -> Outbox:
        """The items of the crawl."""

    async def memo(self) -> Memo:
        """The shared facts of the crawl."""

    async def ledger(self) -> Ledger:
        """What is known of the crawl as a whole."""

    async def inspector(self) -> Inspector:
        """A look into the crawl."""


def page(number: int, host: str = HOST, **fields: Any) -> Request:
    """A request that is known by its number."""
    return Request.to(f"https://{host}/{number}", **fields)


def pages(count: int, host: str = HOST) -> list[Request]:
    return [page(number, host) for number in range(count)]


def numbers(leases: Iterable[Lease]) -> list[int]:
    """The numbers of the leased pages."""
    return [int(lease.request.url.rpartition("/")[2]) for lease in leases]


def lanes(leases: Iterable[Lease]) -> list[str]:
    return [lease.lane for lease in leases]


async def drain(frontier: Frontier, worker: str = "w") -> list[int]:
    """Take and finish one page after the other, as far as it goes now; their numbers."""
    found: list[int] = []
    while leases := await frontier.lease(1, worker):
        found += numbers(leases)
        await frontier.settle([Done(lease=lease) for lease in leases])
    return found

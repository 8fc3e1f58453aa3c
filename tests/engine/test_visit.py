"""What a visit tells the worker's stats; what it does as a whole is tested in tests/crawl."""

from __future__ import annotations

import datetime

import pytest

from weft.clock import SystemClock
from weft.config import Settings
from weft.engine.gate import Gate
from weft.engine.robots import RobotsKeeper
from weft.engine.stats import Stats
from weft.engine.visit import Visitor
from weft.errors import BadResponse, FetchError, NetworkError, TLSError, TooLarge, TooSlow, UnknownHost
from weft.model import Lease, Pace, Request, Response
from weft.policy.scope import Scope
from weft.policy.traps import Traps
from weft.spider import Spider


class Failing:
    """Never has a response."""

    def __init__(self, error: FetchError) -> None:
        self._error = error

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        raise self._error

    async def close(self) -> None:
        pass


class NoMemo:
    """Must not be asked: robots.txt does not matter."""

    async def recall(self, key: str) -> bytes | None:
        raise AssertionError(key)

    async def remember(self, key: str, value: bytes, seconds: float) -> None:
        raise AssertionError(key)


@pytest.mark.parametrize(
    ("error", "strained"),
    [(NetworkError, 1), (TooSlow, 1), (TLSError, 1), (UnknownHost, 0), (TooLarge, 0), (BadResponse, 0)],
)
async def test_which_failures_are_signs_of_strain(error: type[FetchError], strained: int) -> None:
    async def hold(lane: str, seconds: float, reason: str) -> None: ...

    stats, clock, fetcher = Stats(), SystemClock(), Failing(error("no"))
    gate = Gate(Scope(), Traps(datetime.date(2026, 1, 1)))
    keeper = RobotsKeeper(
        fetcher=fetcher,
        gate=gate,
        names=None,
        memo=NoMemo(),
        user_agent="Weft",
        pace=Pace(0, 1),
        hold=hold,
        clock=clock,
    )
    visitor = Visitor(
        spider=Spider("test"), fetcher=fetcher, gate=gate, robots=keeper, names=None, hold=hold,
        is_held=lambda lease: True, settings=Settings(robots=False), stats=stats, clock=clock,
    )  # fmt: skip
    request = Request(url="http://example.org/")
    await visitor.visit(
        Lease(id=1, fingerprint=request.fingerprint, lane=request.lane, request=request, attempt=1, wait=0, deadline=0)
    )
    assert (stats.failed, stats.fetched) == (strained, 0)

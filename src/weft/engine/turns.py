"""Rounds of the event loop kept short, so that hosts are asked on time and answers noticed when they come.

A round of the loop runs everything that was ready when it began. If dozens of pages have arrived, their
handlers would all run in one round, some ten milliseconds, while requests that are due wait to be sent, and answers to
be seen; and a lane's delay counts from when its answer is seen. So only as many handlers begin in a round as fit into
a slice of time, by what they took before; the others wait in line. A crawl without delays has no use for it: long
rounds cost less.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

_MOST = 64


class Turns:
    """Asked before work that takes a while."""

    def __init__(self, seconds: float, now: Callable[[], float] = perf_counter) -> None:
        self._seconds = seconds
        self._now = now
        self._line: deque[asyncio.Future[None]] = deque()
        self._fit = 1  # so many fit into a round
        self._used = 0  # so many began in this one
        self._began: float | None = None

    async def wait(self) -> None:
        """Return when it is the caller's turn, in this round or a later one."""
        if self._began is None:
            self._loop = asyncio.get_running_loop()
            self._begin()
        if self._used < self._fit:
            self._used += 1
            return
        place = self._loop.create_future()
        self._line.append(place)
        await place

    def _begin(self) -> None:
        """A round, and see to its end."""
        self._began, self._used = self._now(), 0
        while self._line and self._used < self._fit:
            place = self._line.popleft()
            if not place.done():  # else its visit was cancelled
                place.set_result(None)
                self._used += 1
        self._loop.call_soon(self._end, self._began)

    def _end(self, began: float) -> None:
        if self._now() - began > self._seconds:
            self._fit = max(1, self._fit // 2)
        elif self._used >= self._fit:
            self._fit = min(self._fit + 1, _MOST)
        if self._used or self._line:
            self._begin()
        else:
            self._began = None  # nobody came: rest until somebody does

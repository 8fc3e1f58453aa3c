"""When the handler of a fetched page may start: there is memory for its tree, and time in this round of the event loop.

Memory. The tree of a page takes up to 20 times its bytes, for as long as its handler runs. So :class:`MemoryBudget`
lets only pages of ``ROOM_BYTES`` together have a tree at a time; others wait for their turn, in order. A page that is
larger waits until no other has one. Small pages, and those that are neither HTML nor XML nor JSON, never wait. A
handler that awaits something for minutes must not stop the large pages of all other hosts, so a page waits at most
``PATIENCE_SECONDS`` and then continues without the budget.

Time. A round of the event loop runs everything that was ready when it began. If dozens of pages have arrived, their
handlers would all run in one round, some ten milliseconds. Meanwhile requests that are due wait to be sent, and
responses to be seen; and a lane's delay counts from when its response is seen. So :class:`LoopBudget` lets only as many
handlers begin in a round as fit into a slice of time, by what they took before; the others queue. A crawl without
delays does not use it: long rounds cost less.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from time import perf_counter
from typing import Final

ROOM_BYTES: Final = 8 * 1024 * 1024
PATIENCE_SECONDS: Final = 30.0
_MAX_PER_ROUND: Final = 64


class MemoryBudget:
    """Bounds the bytes of the pages whose handlers run; others wait for their turn, in order."""

    def __init__(self, size: int = ROOM_BYTES, patience: float = PATIENCE_SECONDS) -> None:
        self._size = size
        self._left = size
        self._patience = patience
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def take(self, size: int) -> AsyncIterator[None]:
        """Hold ``size`` bytes during the block, or all if it is more."""
        taken = await self._enter(min(size, self._size))
        try:
            yield
        finally:
            self._left += taken
            self._admit()

    async def _enter(self, size: int) -> int:
        """Returns the bytes that were taken: ``size``, or 0 after ``patience`` seconds."""
        if not self._waiting and size <= self._left:
            self._left -= size
            return size
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            async with asyncio.timeout(self._patience):
                await turn
        except BaseException as error:
            if not turn.cancelled():  # the bytes were granted at the same moment
                self._left += size
            self._admit()
            if not isinstance(error, TimeoutError):
                raise
            return 0
        return size

    def _admit(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.done():
                if size > self._left:
                    return
                self._left -= size
                turn.set_result(None)
            self._waiting.popleft()


class LoopBudget:
    """Limits how many handlers begin in one round of the event loop to what fits into ``seconds``."""

    def __init__(self, seconds: float, now: Callable[[], float] = perf_counter) -> None:
        self._seconds = seconds
        self._now = now
        self._line: deque[asyncio.Future[None]] = deque()
        self._fit = 1  # how many handlers fit into a round
        self._used = 0  # how many have begun in this round
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
        """Begin a round: start waiting handlers, and schedule the end of the round."""
        self._began, self._used = self._now(), 0
        while self._line and self._used < self._fit:
            place = self._line.popleft()
            if not place.done():  # otherwise its page was cancelled
                place.set_result(None)
                self._used += 1
        self._loop.call_soon(self._end, self._began)

    def _end(self, began: float) -> None:
        if self._now() - began > self._seconds:
            self._fit = max(1, self._fit // 2)
        elif self._used >= self._fit:
            self._fit = min(self._fit + 1, _MAX_PER_ROUND)
        if self._used or self._line:
            self._begin()
        else:
            self._began = None  # no handler began: the next one starts a new round

"""What happens in a crawl, told on the bus to whoever listens.

    crawl.NAME.page     url, status, size, elapsed, depth: a page was fetched
    crawl.NAME.item     count: so many items were stored
    crawl.NAME.worker   worker, what (joined, left), pid, pages, items
    crawl.NAME.lane     lane, seconds, reason: nothing is asked of a host for so long
    crawl.NAME.state    state, reason: the crawl runs, is paused, stops, has ended

Best effort: telling costs the crawl next to nothing and never fails it. Events gather in memory and are sent a few
times a second, in order; while the broker is away, or too slow, those that find no room are dropped and counted. Those
that are few have the crawl as their key, and stay in order; pages and items may be handled by many at once.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from weft.bus.base import Bus, Message
from weft.bus.topics import word
from weft.clock import Clock
from weft.engine.tasks import called

_PAUSE_SECONDS: Final = 0.15
_MOST_WAITING: Final = 10_000
# So many at once, so that the loop's turns stay short.
_BATCH: Final = 100
# What is left at the end has so long to leave.
_LAST_SECONDS: Final = 2.0


class Events:
    """Tells of one process of a crawl, while its block is entered, on the bus that is attached."""

    def __init__(self, crawl: str, clock: Clock, bus: Bus | None = None) -> None:
        self.dropped = 0
        self._bus = bus
        self._crawl = crawl
        self._clock = clock
        self._topic = f"crawl.{word(crawl)}."
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def attach(self, bus: Bus) -> None:
        """Tell here from now on, and what has gathered."""
        self._bus = bus

    def page(self, url: str, status: int, size: int, elapsed: float, depth: int) -> None:
        self._tell("page", url=url, status=status, size=size, elapsed=elapsed, depth=depth)

    def items(self, count: int) -> None:
        self._tell("item", count=count)

    def worker(self, name: str, what: str, **more: int) -> None:
        self._tell("worker", worker=name, what=what, **more)

    def lane(self, lane: str, seconds: float, reason: str) -> None:
        self._tell("lane", lane=lane, seconds=seconds, reason=reason)

    def state(self, state: str, reason: str) -> None:
        self._tell("state", state=state, reason=reason)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="events")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._over.set()
        await asyncio.wait([self._task], timeout=_LAST_SECONDS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.dropped += len(self._waiting)
        self._waiting.clear()

    def _tell(self, kind: str, **fields: Any) -> None:
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.append((kind, {"crawl": self._crawl, "at": self._clock.time(), **fields}))
        else:
            self.dropped += 1

    async def _run(self) -> None:
        while not self._over.is_set() or (self._waiting and self._bus is not None):
            if self._waiting and self._bus is not None:
                await self._send(self._bus)
            if len(self._waiting) < _BATCH or self._bus is None:
                await called(self._over, _PAUSE_SECONDS)

    async def _send(self, bus: Bus) -> None:
        batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
        try:
            await bus.publish([self._message(kind, what) for kind, what in batch])
        except Exception:
            # Whatever it is, the crawl is not to suffer from it.
            self.dropped += len(batch)

    def _message(self, kind: str, what: dict[str, Any]) -> Message:
        key = "" if kind in ("page", "item") else self._crawl
        return Message(topic=self._topic + kind, payload=msgspec.json.encode(what), key=key)

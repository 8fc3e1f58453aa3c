"""Publish the events of a crawl on the bus.

    topic               fields                               published when
    crawl.NAME.page     url, status, size, elapsed, depth    a page was fetched
    crawl.NAME.item     count                                items were stored
    crawl.NAME.worker   worker, what, pid, pages, items      a worker joined or left
    crawl.NAME.lane     lane, seconds, reason                a lane is held for some seconds
    crawl.NAME.state    state, reason                        the crawl's state changed

Every event also has ``crawl`` and ``at`` (Unix time).

Delivery is best effort: events never fail a crawl. They collect in memory and are sent in order every
``_PAUSE_SECONDS``. While the broker is away or too slow, events beyond ``_MOST_WAITING`` are dropped and counted.
Worker, lane and state events have the crawl as their key, so consumers get them in order. Page and item events have no
key, so that many consumers can share them.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from uttu.bus.base import Bus, Message
from uttu.bus.topics import to_word
from uttu.clients.addresses import mask_logins
from uttu.clock import Clock
from uttu.engine.aio import wait_for_event
from uttu.model.crawl import CrawlState, Reason

_PAUSE_SECONDS: Final = 0.15
_MOST_WAITING: Final = 10_000
# The most events per publish, so that encoding them does not block the event loop for long.
_BATCH: Final = 100
# How long to wait at the end until the remaining events are sent.
_LAST_SECONDS: Final = 2.0


class Events:
    """Publishes the events of one process of a crawl, while its ``async with`` block runs and a bus is attached."""

    def __init__(self, crawl: str, clock: Clock, bus: Bus | None = None) -> None:
        self.dropped = 0
        self._bus = bus
        self._crawl = crawl
        self._clock = clock
        self._topic = f"crawl.{to_word(crawl)}."
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def attach(self, bus: Bus) -> None:
        """Publish on this bus from now on, also the events that have collected."""
        self._bus = bus

    def page(self, url: str, status: int, size: int, elapsed: float, depth: int) -> None:
        self._tell("page", url=mask_logins(url), status=status, size=size, elapsed=elapsed, depth=depth)

    def items(self, count: int) -> None:
        self._tell("item", count=count)

    def worker(self, name: str, what: str, **more: int) -> None:
        self._tell("worker", worker=name, what=what, **more)

    def lane(self, lane: str, seconds: float, reason: str) -> None:
        self._tell("lane", lane=lane, seconds=seconds, reason=mask_logins(reason))

    def state(self, state: CrawlState, reason: Reason) -> None:
        self._tell("state", state=state, reason=mask_logins(str(reason)))

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
                await wait_for_event(self._over, _PAUSE_SECONDS)

    async def _send(self, bus: Bus) -> None:
        batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
        try:
            await bus.publish([self._message(kind, what) for kind, what in batch])
        except Exception:
            # Events are best effort: no error of the bus may fail the crawl.
            self.dropped += len(batch)

    def _message(self, kind: str, what: dict[str, Any]) -> Message:
        key = "" if kind in ("page", "item") else self._crawl
        return Message(topic=self._topic + kind, payload=msgspec.json.encode(what), key=key)

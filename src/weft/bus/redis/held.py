"""What a subscriber has taken from the server and not ended yet: in a buffer, or with the handler."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from weft.bus.base import Delivery, Interest


class Held:
    """Filled by one task and emptied by another; at most ``prefetch`` deliveries if asked for ``room``."""

    def __init__(self, interest: Interest) -> None:
        self.is_paused = False
        self._prefetch = interest.prefetch
        self._worthwhile = max(1, interest.prefetch // 2)
        self._buffer: deque[Delivery] = deque()
        self._positions: set[str] = set()
        self._failure: Exception | None = None
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    def __contains__(self, position: str) -> bool:
        return position in self._positions

    async def room(self) -> int:
        """For how many more there is room, once asking is worth the way."""
        while True:
            room = self._prefetch - len(self._positions)
            if not self.is_paused and room > 0 and (room >= self._worthwhile or not self._buffer):
                return room
            self._emptied.clear()
            await self._emptied.wait()

    def add(self, deliveries: Sequence[Delivery]) -> None:
        self._buffer.extend(deliveries)
        self._positions.update([delivery.position for delivery in deliveries])
        if self._buffer:
            self._filled.set()

    async def take(self, limit: int) -> list[Delivery]:
        """:raises Exception: the one that it failed with."""
        while not self._buffer:
            if self._failure is not None:
                raise self._failure
            self._filled.clear()
            await self._filled.wait()
        self._emptied.set()
        return [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]

    def end(self, deliveries: Sequence[Delivery]) -> None:
        self._positions.difference_update([delivery.position for delivery in deliveries])
        self._emptied.set()

    def drop(self) -> None:
        """Forget what the handler does not have yet."""
        self.end(self._buffer)
        self._buffer.clear()

    def pause(self, paused: bool) -> None:
        self.is_paused = paused
        self._emptied.set()

    def fail(self, error: Exception) -> None:
        self._failure = error
        self._filled.set()

"""The contract of the two clients that are compared."""

from __future__ import annotations

from typing import Final, Protocol

BATCH: Final = 100
PAYLOAD: Final = b"x" * 300


class Client(Protocol):
    async def open(self, topic: str) -> None:
        """Connect, and create the queue or group, so that messages wait for a consumer."""

    async def publish(self, count: int) -> None:
        """Publish ``count`` messages, each batch confirmed before the next."""

    async def consume(self, count: int) -> float:
        """Consume and acknowledge ``count`` messages. Returns the seconds from the first to the last."""

    async def close(self) -> None: ...

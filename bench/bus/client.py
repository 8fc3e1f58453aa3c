"""What is compared: two ways to use a broker."""

from __future__ import annotations

from typing import Final, Protocol

BATCH: Final = 100
PAYLOAD: Final = b"x" * 300


class Client(Protocol):
    async def open(self, topic: str) -> None:
        """Connect, and see to it that what is published waits for a consumer."""

    async def publish(self, count: int) -> None:
        """So many messages, each batch confirmed before the next."""

    async def consume(self, count: int) -> float:
        """So many messages, acknowledged; returns the seconds from when the first came until the last did."""

    async def close(self) -> None: ...

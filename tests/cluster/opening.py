"""Connections of a test, closed at its end, also if it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from uttu.cluster import Coordinator
from uttu.testing.contracts.coordinator import OpenCluster


@asynccontextmanager
async def opening(connect: Callable[[], Awaitable[Coordinator]]) -> AsyncIterator[OpenCluster]:
    """A function that opens another connection with ``connect``."""
    opened: list[Coordinator] = []

    async def open_another() -> Coordinator:
        opened.append(await connect())
        return opened[-1]

    try:
        yield open_another
    finally:
        for each in opened:
            await each.close()

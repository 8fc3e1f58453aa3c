"""Buses on Redis, for tests."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from uttu.bus.redis import RedisBus


class Buses:
    """See :class:`uttu.testing.contracts.broker.Broker`: each test has a bus of its own name, and leaves nothing."""

    prefix = "t"

    def __init__(self, url: str, options: str = "") -> None:
        self.url = f"{url}{'&' if '?' in url else '?'}bus=test-{secrets.token_hex(4)}{options}"
        self._buses: list[RedisBus] = []

    async def connect(self, options: str = "") -> RedisBus:
        bus = await RedisBus.connect(self.url + options)
        self._buses.append(bus)
        return bus

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()

    async def forget(self) -> None:
        """Close all, and leave nothing."""
        await self.close()
        bus = await self.connect()
        for group in await bus.groups():
            await bus.purge(group.name, forget=True)


@asynccontextmanager
async def buses_at(url: str, options: str = "") -> AsyncIterator[Buses]:
    """Closed at the end; ``options`` begin with ``&``."""
    buses = Buses(url, options)
    try:
        yield buses
    finally:
        await buses.close()

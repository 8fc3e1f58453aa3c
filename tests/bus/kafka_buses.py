"""Buses on one Kafka cluster, closed in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from uttu.bus.kafka import KafkaBus
from uttu.testing.contracts.broker import PATIENCE


class Buses:
    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"t{uuid4().hex[:8]}"
        self._buses: list[KafkaBus] = []

    async def connect(self) -> KafkaBus:
        bus = await KafkaBus.connect(self.url)
        self._buses.append(bus)
        return bus

    async def close(self) -> None:
        # A test that failed may leave a handler that waits for ever.
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*[bus.close() for bus in self._buses])

    async def forget(self) -> None:
        """The groups of this test; topics stay, as they do with Kafka."""
        bus = await KafkaBus.connect(self.url)
        for group in await bus.groups():
            if group.name.startswith(self.prefix):
                await bus.purge(group.name, forget=True)
        await bus.close()


@asynccontextmanager
async def buses_at(url: str, **options: object) -> AsyncIterator[Buses]:
    """Few partitions, and a subscriber that died is given up soon, but not one that is slow, or whose broker is."""
    given = {"partitions": 3, "session": 6, **options}
    buses = Buses(f"{url}?{'&'.join(f'{name}={value}' for name, value in given.items())}")
    try:
        yield buses
    finally:
        await buses.close()

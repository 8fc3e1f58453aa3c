"""The bus on RabbitMQ, with both types of queues."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from uttu.bus.base import Bus
from uttu.bus.rabbitmq import RabbitBus
from uttu.testing.contracts.bus import BusContract


class OneRabbit:
    def __init__(self, url: str) -> None:
        self.prefix = f"t{uuid4().hex[:8]}"
        self._url = url
        self._buses: list[Bus] = []

    async def connect(self) -> Bus:
        bus = await RabbitBus.connect(self._url)
        self._buses.append(bus)
        return bus

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()
        last = await RabbitBus.connect(self._url)
        for group in await last.groups():
            if group.name.startswith(self.prefix):
                await last.purge(group.name, forget=True)
        await last.close()


@pytest.fixture(params=["quorum", "classic"])
async def broker(request: pytest.FixtureRequest, rabbitmq_url: str) -> AsyncIterator[OneRabbit]:
    broker = OneRabbit(f"{rabbitmq_url}{'&' if '?' in rabbitmq_url else '?'}queues={request.param}")
    yield broker
    await broker.close()


class TestRabbit(BusContract):
    pass

"""The bus within one process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from uttu.bus.base import Bus
from uttu.bus.memory import MemoryBroker, MemoryBus
from uttu.testing.contracts.bus import BusContract


class OneProcess:
    prefix = "t"

    def __init__(self) -> None:
        self._broker = MemoryBroker()
        self._buses: list[Bus] = []

    async def connect(self) -> Bus:
        bus = MemoryBus(self._broker)
        self._buses.append(bus)
        return bus

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()


@pytest.fixture
async def broker() -> AsyncIterator[OneProcess]:
    broker = OneProcess()
    yield broker
    await broker.close()


class TestMemory(BusContract):
    pass

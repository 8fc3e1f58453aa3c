"""What the bus's contract asks of a backend's tests, and the few words its tests are written in.

A backend supplies one fixture, ``broker``::

    class RabbitBroker:
        prefix = "t1a2b3"            # a word of its own for each test: brokers are shared
        async def connect(self): ... # a bus of its own, as each program has; closed after the test

    @pytest.fixture
    async def broker(): ...

    class TestRabbit(BusContract):
        pass
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import pytest

from weft.bus.base import Bus, Capability, Delivery, Interest, Message, Where

PATIENCE = 30.0
"""Seconds until something that must happen is taken to have failed."""


class Broker(Protocol):
    prefix: str

    async def connect(self) -> Bus:
        """A new connection to the one broker."""


class Inbox:
    """A handler that keeps what it gets; it can be told to wait, and to fail."""

    def __init__(self, failing: Callable[[Delivery], bool] = lambda delivery: False) -> None:
        self.deliveries: list[Delivery] = []
        self.begun: list[Delivery] = []
        self.batches: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self._failing = failing
        self._changed = asyncio.Event()

    async def __call__(self, deliveries: list[Delivery]) -> None:
        self.begun += deliveries
        self.batches.append(len(deliveries))
        self._changed.set()
        await self.open.wait()
        for delivery in deliveries:
            if self._failing(delivery):
                raise RuntimeError(f"{delivery.payload.decode()} is bad")
        self.deliveries += deliveries
        self._changed.set()

    async def until(self, condition: Callable[[Inbox], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    async def count(self, number: int) -> None:
        """Until so many are handled."""
        await self.until(lambda inbox: len(inbox.deliveries) >= number)

    @property
    def texts(self) -> list[str]:
        return [delivery.payload.decode() for delivery in self.deliveries]


async def eventually(condition: Callable[[], object]) -> None:
    """Until an awaitable condition of the broker's own making holds: it tells nobody, so it is asked."""
    async with asyncio.timeout(PATIENCE):
        while True:
            result = condition()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return
            await asyncio.sleep(0.05)


def needs(bus: Bus, capability: Capability) -> None:
    """What the broker has declared to lack is not asked of it."""
    if capability not in bus.capabilities:
        pytest.skip(f"this broker lacks {capability.name}")


def message(topic: str, text: str = "", **fields: object) -> Message:
    return Message(topic=topic, payload=text.encode(), **fields)  # type: ignore[arg-type]


def interest(*topics: str, group: str = "", where: Where | None = None, **fields: object) -> Interest:
    return Interest(topics=topics, group=group, where=where, **fields)  # type: ignore[arg-type]

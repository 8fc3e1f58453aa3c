"""The fixture that the tests of the bus contract need, and the helper functions that they use.

A backend supplies one fixture, ``broker``::

    class RabbitBroker:
        prefix = "t1a2b3"            # a new word for each test, because tests share the server
        async def connect(self): ... # a new bus, as another program would open it; closed after the test

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

from uttu.bus.base import Bus, Capability, Delivery, HeaderFilter, Message, SubscribeOptions

PATIENCE = 30.0
"""Seconds to wait for an event before a test fails."""


class Broker(Protocol):
    """The value of the fixture ``broker``."""

    prefix: str
    """The first word of all topics and groups of a test."""

    async def connect(self) -> Bus:
        """Open a new connection to the broker."""


class Inbox:
    """A handler that records its deliveries. Clear ``open`` to make it wait.

    :param failing: the handler raises ``RuntimeError`` for deliveries for which this returns true.
    """

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
        """Wait until ``condition`` is true; it is checked at each change of the inbox."""
        async with asyncio.timeout(PATIENCE):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    async def count(self, number: int) -> None:
        """Wait until at least ``number`` messages are handled."""
        await self.until(lambda inbox: len(inbox.deliveries) >= number)

    @property
    def texts(self) -> list[str]:
        return [delivery.payload.decode() for delivery in self.deliveries]


async def eventually(condition: Callable[[], object]) -> None:
    """Poll ``condition``, a function or coroutine function, until it is true; for changes that no event announces."""
    async with asyncio.timeout(PATIENCE):
        while True:
            result = condition()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return
            await asyncio.sleep(0.05)


def needs(bus: Bus, capability: Capability) -> None:
    """Skip the test if the bus does not declare the capability."""
    if capability not in bus.capabilities:
        pytest.skip(f"this broker lacks {capability.name}")


def message(topic: str, text: str = "", **fields: object) -> Message:
    """Create a message with ``text`` as payload."""
    return Message(topic=topic, payload=text.encode(), **fields)  # type: ignore[arg-type]


def subscribe_to(
    *topics: str, group: str = "", where: HeaderFilter | None = None, **fields: object
) -> SubscribeOptions:
    """Create the options of a subscription to ``topics``."""
    return SubscribeOptions(topics=topics, group=group, where=where, **fields)  # type: ignore[arg-type]

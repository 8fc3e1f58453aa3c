"""Uttu's bus as a client of the benchmark."""

from __future__ import annotations

import asyncio
import time

from bench.bus.client import BATCH, PAYLOAD

from uttu.bus.base import Bus, Delivery, Message, SubscribeOptions
from uttu.runtime.registry import open_bus


class UttuBus:
    def __init__(self, url: str) -> None:
        self._url = url
        self._bus: Bus
        self._options: SubscribeOptions

    async def open(self, topic: str) -> None:
        self._bus = await open_bus(self._url)
        self._options = SubscribeOptions(topics=(topic,), group=f"{topic}.g", batch=BATCH)
        await (await self._bus.subscribe(self._options, _nothing)).close()

    async def publish(self, count: int) -> None:
        (topic,) = self._options.topics
        for first in range(0, count, BATCH):
            keys = range(first, first + BATCH)
            await self._bus.publish([Message(topic=topic, payload=PAYLOAD, key=str(key)) for key in keys])

    async def consume(self, count: int) -> float:
        left, first, done = count, 0.0, asyncio.Event()

        async def handler(deliveries: list[Delivery]) -> None:
            nonlocal left, first
            first = first or time.monotonic()
            for each in deliveries:
                each.payload, each.key, each.headers  # noqa: B018  (read them, as the bare client does)
            left -= len(deliveries)
            if left <= 0:
                done.set()

        subscription = await self._bus.subscribe(self._options, handler)
        await done.wait()
        seconds = time.monotonic() - first
        await subscription.close()
        return seconds

    async def close(self) -> None:
        await self._bus.close()


async def _nothing(deliveries: list[Delivery]) -> None:
    raise AssertionError("nothing has been published yet")

"""Tells listeners when no broker can be reached, and when one can again.

The driver says when all connections are down, which may also be because they were not used; so before it is believed,
the brokers are asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from weft.bus.base import Connection, Listener

_ASK_SECONDS: Final = 1.0


class Watch:
    def __init__(self, admin: AdminClient, brokers: str) -> None:
        self._admin = admin
        self._brokers = brokers
        self._listeners: list[Listener] = []
        self._loop = asyncio.get_running_loop()
        self._asking: asyncio.Task[None] | None = None
        self._closed = False

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def trouble(self, error: KafkaError) -> None:
        """What the driver tells, in any thread."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._doubt)

    async def close(self) -> None:
        self._closed = True
        if self._asking:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        self._tell(Connection.CLOSED, "closed")

    def _doubt(self) -> None:
        if self._asking is None and not self._closed:
            self._asking = asyncio.create_task(self._ask(), name="ask for a Kafka broker")

    async def _ask(self) -> None:
        lost = False
        try:
            while True:
                try:
                    await asyncio.to_thread(self._admin.list_topics, timeout=_ASK_SECONDS)
                except KafkaException as error:
                    if not lost:
                        self._tell(Connection.LOST, f"no broker at {self._brokers} answers: {error.args[0].str()}")
                    lost = True
                    await asyncio.sleep(_ASK_SECONDS / 10)
                else:
                    break
        finally:
            self._asking = None
        if lost:
            self._tell(Connection.UP, f"a broker at {self._brokers} answers again")

    def _tell(self, state: Connection, why: str) -> None:
        for listener in self._listeners:
            listener(state, why)

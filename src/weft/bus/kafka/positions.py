"""What groups have committed, seen and set from outside of them.

The driver's admin client could do it, but it ends the whole process when a group's coordinator moves meanwhile (seen
with librdkafka 2.16, whose handler of the answer takes it that there is a consumer). So there is a consumer for each
group that was asked for, which never joins. They are kept, as groups are looked at again and again, and all of them are
used in one thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from weft.bus.kafka.address import Address
from weft.bus.kafka.errors import PASSING, code_of
from weft.bus.kafka.span import Place

_MOST_KEPT: Final = 50
_ASK_AGAIN: Final = 0.05


class Positions:
    """:raises KafkaException: from all methods."""

    def __init__(self, address: Address) -> None:
        self._settings = address.client() | {"enable.auto.commit": False}
        self._timeout = address.options.timeout
        self._thread = ThreadPoolExecutor(1, "weft kafka positions")
        self._consumers: dict[str, Consumer] = {}

    async def committed(self, group: str, places: Iterable[Place]) -> dict[Place, int]:
        """Where the group stands in those of these partitions that it has a position in."""
        wanted = [TopicPartition(*place) for place in places]
        if not wanted:
            return {}
        try:
            found = await self._do(group, lambda consumer: consumer.committed(wanted, self._timeout))
        except KafkaException as error:
            if code_of(error) == KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            raise
        return {(place.topic, place.partition): place.offset for place in found if place.offset >= 0}

    async def commit(self, group: str, positions: Mapping[Place, int]) -> None:
        """Not possible while the group has subscribers."""
        wanted = [TopicPartition(*place, offset) for place, offset in positions.items()]
        if wanted:
            await self._do(group, lambda consumer: consumer.commit(offsets=wanted, asynchronous=False))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def _do(self, group: str, what: Callable[[Consumer], list[TopicPartition]]) -> list[TopicPartition]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._patiently, group, what)

    def _patiently(self, group: str, what: Callable[[Consumer], list[TopicPartition]]) -> list[TopicPartition]:
        consumer = self._consumer(group)
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                answers = what(consumer)
                errors = [answer.error for answer in answers if answer.error is not None]
                if errors:
                    raise KafkaException(errors[0])
                return answers
            except KafkaException as error:
                if code_of(error) not in PASSING or time.monotonic() > deadline:
                    raise
            time.sleep(_ASK_AGAIN)

    def _consumer(self, group: str) -> Consumer:
        consumer = self._consumers.pop(group, None) or Consumer(self._settings | {"group.id": group})
        self._consumers[group] = consumer
        while len(self._consumers) > _MOST_KEPT:
            self._consumers.pop(next(iter(self._consumers))).close()
        return consumer

    def _close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

"""Read and set the committed offsets of a group without joining it, and read messages in ranges of offsets.

The driver's admin client has functions for offsets, but it aborts the process if the group's coordinator moves during
the call (seen with librdkafka 2.16, whose handler of the answer assumes a consumer). So :class:`CommittedOffsets` uses
one consumer per group, which never joins. It keeps the ``_MAX_CONSUMERS`` most recently used ones, all in one thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from uttu.bus.base import Delivery
from uttu.bus.kafka.codec import to_deliveries
from uttu.bus.kafka.partition import PartitionId
from uttu.clients.kafka import TRANSIENT, KafkaAddress, get_error_code

OffsetRange = tuple[int, int]
"""The first offset, and the offset after the last one."""


def count_offsets(offsets: OffsetRange) -> int:
    return max(0, offsets[1] - offsets[0])


def read_first(address: KafkaAddress, ranges: Mapping[PartitionId, OffsetRange], limit: int) -> list[Delivery]:
    """Return the first messages in these ranges, sorted by timestamp. Blocks.

    It uses a consumer that joins no group. After the address's ``timeout`` it returns the messages found by then.

    :raises KafkaException: a partition can't be read.
    """
    settings = {"group.id": f"uttu-{uuid4().hex}", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(address.client() | settings)
    deliveries: list[tuple[int, Delivery]] = []  # with their timestamps
    left = dict.fromkeys(ranges, limit)
    deadline = time.monotonic() + address.options.timeout
    try:
        consumer.assign([TopicPartition(*partition, first) for partition, (first, _) in ranges.items()])
        while left and time.monotonic() < deadline:
            for message in consumer.consume(limit, 0.05):
                partition = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if partition not in left:
                    continue
                if error is None:
                    position = f"{partition[0]}/{partition[1]}/{message.offset()}"
                    (delivery,) = to_deliveries([message], partition[0], [position])
                    deliveries.append((message.timestamp()[1], delivery))
                    left[partition] -= 1
                if error is not None or not left[partition]:
                    del left[partition]
    finally:
        consumer.close()
    return [delivery for _, delivery in sorted(deliveries, key=lambda pair: pair[0])][:limit]


_MAX_CONSUMERS: Final = 50
_RETRY_SECONDS: Final = 0.05


class CommittedOffsets:
    """Reads and sets committed offsets. ``_consumers`` belongs to its thread; the event loop calls the rest.

    :raises KafkaException: from every method, if Kafka refuses or does not answer within the address's ``timeout``.
    """

    def __init__(self, address: KafkaAddress) -> None:
        self._settings = address.client() | {"enable.auto.commit": False}
        self._timeout = address.options.timeout
        self._thread = ThreadPoolExecutor(1, "uttu kafka offsets")
        self._consumers: dict[str, Consumer] = {}

    async def committed(self, group: str, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """Return the committed offsets of a group; partitions without one are missing."""
        wanted = [TopicPartition(*partition) for partition in partitions]
        if not wanted:
            return {}
        try:
            answers = await self._run(group, lambda consumer: consumer.committed(wanted, self._timeout))
        except KafkaException as error:
            if get_error_code(error) == KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            raise
        return {(place.topic, place.partition): place.offset for place in answers if place.offset >= 0}

    async def commit(self, group: str, offsets: Mapping[PartitionId, int]) -> None:
        """Set the offsets of a group. Kafka refuses it while the group has subscribers (``IN_USE``)."""
        wanted = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        if wanted:
            await self._run(group, lambda consumer: consumer.commit(offsets=wanted, asynchronous=False))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def _run(self, group: str, call: Callable[[Consumer], list[TopicPartition]]) -> list[TopicPartition]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run_with_retries, group, call)

    def _run_with_retries(self, group: str, call: Callable[[Consumer], list[TopicPartition]]) -> list[TopicPartition]:
        consumer = self._get_consumer(group)
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                answers = call(consumer)
                errors = [answer.error for answer in answers if answer.error is not None]
                if errors:
                    raise KafkaException(errors[0])
                return answers
            except KafkaException as error:
                if get_error_code(error) not in TRANSIENT or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    def _get_consumer(self, group: str) -> Consumer:
        consumer = self._consumers.pop(group, None) or Consumer(self._settings | {"group.id": group})
        self._consumers[group] = consumer
        while len(self._consumers) > _MAX_CONSUMERS:
            self._consumers.pop(next(iter(self._consumers))).close()
        return consumer

    def _close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

"""The topics there are, and those that are made when they are first used.

Kafka could make topics by itself when something is sent to them, but many clusters do not, and the partitions would be
those of the brokers' settings.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from weft.bus.kafka.address import Address
from weft.bus.kafka.errors import DENIED, code_of, driver
from weft.bus.kafka.wire import INTERNAL
from weft.bus.topics import matches
from weft.errors import BusRefused, BusUnavailable

_LOOK_AGAIN: Final = 0.02


class Catalog:
    def __init__(self, address: Address, admin: AdminClient) -> None:
        self._address = address
        self._admin = admin
        self._known: set[str] = set()
        self._making = asyncio.Lock()

    async def ensure(self, topics: Iterable[str], partitions: int = 0) -> None:
        """Return when they are all there; ``partitions`` are those of the address unless given.

        :raises BusRefused: one is not, and may not be made.
        :raises BusUnavailable: Kafka does not answer.
        """
        if self._known.issuperset(topics):
            return
        async with self._making:
            wanted = set(topics) - self._known
            missing = wanted - (await self.partitions()).keys()
            await self._make(missing, partitions or self._address.options.partitions)
            if missing:
                await self._appear(missing)
            self._known |= wanted

    def forget(self, topics: Iterable[str]) -> None:
        """Look again whether they are there."""
        self._known.difference_update(topics)

    async def partitions(self) -> dict[str, int]:
        """All topics that can be used, and how many partitions they have.

        :raises BusUnavailable: Kafka does not answer.
        """
        return {name: len(topic.partitions) for name, topic in (await self._list()).items()}

    async def matching(self, patterns: tuple[str, ...]) -> dict[str, int]:
        """As :meth:`partitions`, of the topics that one of the patterns takes."""
        return {name: count for name, count in (await self.partitions()).items() if matches(patterns, name)}

    async def _make(self, topics: set[str], partitions: int) -> None:
        if not topics:
            return
        replication = self._address.options.replication or -1
        made = self._admin.create_topics(
            [NewTopic(topic, num_partitions=partitions, replication_factor=replication) for topic in sorted(topics)],
            operation_timeout=self._address.options.timeout,
        )
        for topic, future in made.items():
            with driver(self._address.brokers, f"the topic {topic} is not there and can't be made"):
                try:
                    await asyncio.wrap_future(future)
                except KafkaException as error:
                    code = code_of(error)
                    if code in DENIED:
                        raise BusRefused(
                            f"the topic {topic} is not there, and this user may not make it; let it be made by who "
                            f"may, with {partitions} partitions or as many as you like"
                        ) from error
                    if code != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise

    async def _appear(self, topics: set[str]) -> None:
        # The brokers hear of it a moment after the controller has made it.
        deadline = time.monotonic() + self._address.options.timeout
        while True:
            led = {
                name
                for name, topic in (await self._list()).items()
                if topic.partitions and all(partition.leader >= 0 for partition in topic.partitions.values())
            }
            if topics <= led:
                return
            if time.monotonic() > deadline:
                missing = ", ".join(sorted(topics - led))
                raise BusUnavailable(f"{missing} was made, but no broker at {self._address.brokers} leads it")
            await asyncio.sleep(_LOOK_AGAIN)

    async def _list(self) -> dict[str, Any]:
        with driver(self._address.brokers, "can't list the topics"):
            found = await asyncio.to_thread(self._admin.list_topics, timeout=self._address.options.timeout)
        return {
            name: topic
            for name, topic in found.topics.items()
            if name not in INTERNAL and (topic.error is None or topic.error.code() == KafkaError.LEADER_NOT_AVAILABLE)
        }

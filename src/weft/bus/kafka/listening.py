"""Reads for a subscriber without a group: all partitions, from where they end now, with nothing kept by Kafka."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from weft.bus.base import Interest
from weft.bus.kafka.address import Address
from weft.bus.kafka.reader import Reader, Taker
from weft.bus.kafka.wire import INTERNAL
from weft.bus.topics import matches

_LOOK_SECONDS: Final = 1.0


class Listening(Reader):
    """``ends`` are the partitions there are, with the offset to begin at. Later ones are read from their beginning."""

    def __init__(
        self, address: Address, interest: Interest, taker: Taker, trouble: Any, ends: Mapping[tuple[str, int], int]
    ) -> None:
        # The driver wants the name of a group, which is never used.
        settings = {"group.id": f"weft-{uuid4().hex}", "error_cb": trouble}
        super().__init__(address, settings, taker, prefetch=interest.prefetch, where=interest.where)
        self._topics = interest.topics
        self._ends = ends
        self._looked = time.monotonic()

    def begin(self) -> None:
        self.take([TopicPartition(topic, partition, offset) for (topic, partition), offset in self._ends.items()])

    def tend(self) -> None:
        """Look for topics and partitions that are new."""
        if time.monotonic() < self._looked + _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        try:
            found = self.consumer.list_topics(timeout=_LOOK_SECONDS).topics
        except KafkaException:  # no broker answers; they are there next time
            return
        new = [
            TopicPartition(name, partition, OFFSET_BEGINNING)
            for name, topic in found.items()
            if topic.error is None and name not in INTERNAL and matches(self._topics, name)
            for partition in topic.partitions
            if (name, partition) not in self.lanes
        ]
        if new:
            self.take(new)

    def leave(self) -> None:
        """Nothing was committed, and there is no group."""

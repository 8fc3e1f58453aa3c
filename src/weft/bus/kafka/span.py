"""Parts of partitions, and a look at what is in them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from weft.bus.base import Delivery
from weft.bus.kafka.address import Address
from weft.bus.kafka.wire import deliveries_of

Place = tuple[str, int]
"""A topic, and the number of a partition of it."""

Span = tuple[int, int]
"""From the one offset to before the other."""


def size(span: Span) -> int:
    return max(0, span[1] - span[0])


def first_of(address: Address, spans: Mapping[Place, Span], limit: int) -> list[Delivery]:
    """The first messages in these parts by their time, read by a consumer of no group. Blocks.

    :raises KafkaException: they can't be read.
    """
    settings = {"group.id": f"weft-{uuid4().hex}", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(address.client() | settings)
    found: list[tuple[int, Delivery]] = []
    left = dict.fromkeys(spans, limit)
    deadline = time.monotonic() + address.options.timeout
    try:
        consumer.assign([TopicPartition(*place, begin) for place, (begin, _) in spans.items()])
        while left and time.monotonic() < deadline:
            for message in consumer.consume(limit, 0.05):
                place = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if place not in left:
                    continue
                if error is None:
                    (taken,) = deliveries_of([message], place[0], [f"{place[0]}/{place[1]}/{message.offset()}"])
                    found.append((message.timestamp()[1], taken))
                    left[place] -= 1
                if error is not None or not left[place]:
                    del left[place]
    finally:
        consumer.close()
    return [taken for _, taken in sorted(found, key=lambda pair: pair[0])][:limit]

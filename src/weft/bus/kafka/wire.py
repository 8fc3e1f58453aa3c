"""How a message looks on Kafka.

The topic is Kafka's, the key its key, the payload its value. Headers are Kafka's, with a few of ours among them:

    weft-id       the message's id, if it was published with one
    weft-topic    of a dead letter: where it came from
    weft-reason   of a dead letter: why

The id of any other is its place: topic, partition and offset. No two have the same, and it costs nothing to carry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from weft.bus.base import Delivery, Message
from weft.bus.subscription import REASON

if TYPE_CHECKING:
    from confluent_kafka import Message as Raw

_ID: Final = "weft-id"
_TOPIC: Final = "weft-topic"

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
"""Kafka's own topics, which look like any."""


Headers = list[tuple[str, str | bytes | None]]
Record = tuple[str, bytes, str | None, Headers]
"""What the driver takes: topic, value, key, headers."""


def dead_topic(group: str) -> str:
    """Where a group's dead letters are. Two dots, so that no topic of ours is called so, and no pattern takes it."""
    return f"{group}..dead"


def is_dead_topic(topic: str) -> bool:
    return topic.endswith("..dead")


def record(message: Message) -> Record:
    headers: Headers = [(_ID, message.id.encode())] if message.id else []
    if message.headers:
        headers += [(name, value.encode()) for name, value in message.headers.items()]
    return message.topic, message.payload, message.key or None, headers


def dead_record(group: str, delivery: Delivery, reason: str) -> Record:
    _, value, key, headers = record(delivery)
    headers = [pair for pair in headers if pair[0] != REASON]
    headers += [(_TOPIC, delivery.topic.encode()), (REASON, reason.encode())]
    return dead_topic(group), value, key, headers


def deliveries_of(raws: Iterable[Raw], topic: str, positions: Iterable[str]) -> list[Delivery]:
    """Messages of one topic that were read at these positions."""
    return [
        _with_headers(raw, topic, position, carried)
        if (carried := raw.headers())
        else Delivery(
            topic=topic,
            payload=raw.value() or b"",
            key=key.decode("utf-8", "replace") if (key := raw.key()) else "",
            id=position,
            position=position,
        )
        for raw, position in zip(raws, positions, strict=True)
    ]


def _with_headers(raw: Raw, topic: str, position: str, carried: Any) -> Delivery:
    headers = {name: value.decode("utf-8", "replace") if value else "" for name, value in carried}
    key = raw.key()
    return Delivery(
        id=headers.pop(_ID, "") or position,
        topic=headers.pop(_TOPIC, topic),
        payload=raw.value() or b"",
        key=key.decode("utf-8", "replace") if key else "",
        headers=headers,
        position=position,
    )

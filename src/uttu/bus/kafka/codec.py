"""Convert messages to and from records of Kafka.

Topic and key are those of the record, and the payload is its value. The record has the message's headers, and these:

    uttu-id       the message's id, if it was published with one
    uttu-topic    of a dead letter: the original topic
    uttu-reason   of a dead letter: the reason
    uttu-group    of a dead letter that was republished: the only group that takes it

A message without ``uttu-id`` gets its position as id: TOPIC/PARTITION/OFFSET. It is unique, and takes no space in the
record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from uttu.bus.base import REASON_HEADER, Delivery, Message

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

_ID: Final = "uttu-id"
_TOPIC: Final = "uttu-topic"
GROUP_HEADER: Final = "uttu-group"

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
"""Topics that Kafka itself uses; patterns must not match them."""


Headers = list[tuple[str, str | bytes | None]]
Record = tuple[str, bytes, str | None, Headers]
"""The arguments of the driver's ``produce``: topic, value, key, headers."""


def dead_topic(group: str) -> str:
    """Return the topic of a group's dead letters.

    The two dots make it invalid as a topic of the bus, so it can't collide with one, and no pattern matches it.
    """
    return f"{group}..dead"


def is_dead_topic(topic: str) -> bool:
    return topic.endswith("..dead")


def to_record(message: Message) -> Record:
    headers: Headers = [(_ID, message.id.encode())] if message.id else []
    if message.headers:
        headers += [(name, value.encode()) for name, value in message.headers.items()]
    return message.topic, message.payload, message.key or None, headers


def to_dead_record(group: str, delivery: Delivery, reason: str) -> Record:
    _, value, key, headers = to_record(delivery)
    headers = [pair for pair in headers if pair[0] != REASON_HEADER]
    headers += [(_TOPIC, delivery.topic.encode()), (REASON_HEADER, reason.encode())]
    return dead_topic(group), value, key, headers


def to_republished_record(group: str, letter: Delivery) -> Record:
    """Return a record with a dead letter for its topic, which only this group takes."""
    topic, value, key, headers = to_record(letter)
    headers = [pair for pair in headers if pair[0] not in (REASON_HEADER, GROUP_HEADER)]
    return topic, value, key, [*headers, (GROUP_HEADER, group.encode())]


def to_deliveries(records: Iterable[RawMessage], topic: str, positions: Iterable[str]) -> list[Delivery]:
    """Convert records of one topic, with the position of each."""
    return [
        _to_delivery(record, topic, position, headers)
        if (headers := record.headers())
        else Delivery(
            topic=topic,
            payload=record.value() or b"",
            key=key.decode("utf-8", "replace") if (key := record.key()) else "",
            id=position,
            position=position,
        )
        for record, position in zip(records, positions, strict=True)
    ]


def _to_delivery(record: RawMessage, topic: str, position: str, pairs: Any) -> Delivery:
    headers = {name: value.decode("utf-8", "replace") if value else "" for name, value in pairs}
    key = record.key()
    return Delivery(
        id=headers.pop(_ID, "") or position,
        topic=headers.pop(_TOPIC, topic),
        payload=record.value() or b"",
        key=key.decode("utf-8", "replace") if key else "",
        headers=headers,
        position=position,
    )

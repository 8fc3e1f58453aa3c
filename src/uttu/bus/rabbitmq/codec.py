"""Convert messages to and from AMQP.

    routing key     the topic
    body            the payload
    message_id      the id
    priority        the priority, if not 0
    headers         the message's headers, and these:
      uttu-key      the key, if there is one
      uttu-topic    the topic of a message that was published directly to a queue: a retry or a dead letter
      uttu-attempt  the attempt of the first delivery of a retry or a dead letter
      uttu-reason   the reason of a dead letter

Other programs can publish to the exchange with the topic as routing key; they need no headers.

``Delivery.attempt`` is ``uttu-attempt`` (1 if missing), plus one if the broker sets the flag ``redelivered``. The
broker sets it after a subscriber died, but also after one was closed, and after a ``peek``. It is a flag and not a
count, so all of these together add at most one attempt.
"""

from __future__ import annotations

from typing import Final

from aiormq import spec
from aiormq.abc import ArgumentsType, DeliveredMessage

from uttu.bus.base import REASON_HEADER, Delivery, Message

_KEY: Final = "uttu-key"
_TOPIC: Final = "uttu-topic"
_ATTEMPT: Final = "uttu-attempt"
_DEATHS: Final = "x-death"
_DELIVERY_COUNT: Final = "x-delivery-count"
_UTTU_HEADERS: Final = frozenset({_KEY, _TOPIC, _ATTEMPT})
_BROKER_HEADERS: Final = (_DEATHS, "x-first-death-", "x-last-death-", _DELIVERY_COUNT, "x-acquired-count")

_LONGEST_NAME: Final = 128  # bytes of a header's name; the driver would truncate it silently
_LONGEST_ID: Final = 255  # bytes
_PERSISTENT: Final = 2  # delivery mode


def to_properties(message: Message) -> spec.Basic.Properties:
    """Return the AMQP properties of a message to publish.

    :raises ValueError: the id or a header's name is longer than AMQP allows.
    """
    headers: ArgumentsType = dict(message.headers)
    for name in headers:
        if len(name.encode()) > _LONGEST_NAME:
            raise ValueError(f"The name of a header is longer than {_LONGEST_NAME} bytes: {name:.40}…")
    if len(message.id.encode()) > _LONGEST_ID:
        raise ValueError(f"The id of a message is longer than {_LONGEST_ID} bytes: {message.id:.40}…")
    if message.key:
        headers[_KEY] = message.key
    return spec.Basic.Properties(
        headers=headers, message_id=message.id, delivery_mode=_PERSISTENT, priority=message.priority or None
    )


def to_moved_properties(delivery: Delivery, attempt: int, reason: str = "") -> spec.Basic.Properties:
    """Return the properties of a message that is published directly to a queue, as a retry or a dead letter."""
    result = to_properties(delivery)
    assert result.headers is not None
    result.headers |= {_TOPIC: delivery.topic, _ATTEMPT: attempt}
    if reason:
        result.headers[REASON_HEADER] = reason
    return result


def to_delivery(message: DeliveredMessage, position: str = "", *, dead: bool = False) -> Delivery:
    """Convert a message from the broker.

    :param dead: it comes from a queue of dead letters. If the broker itself dead-lettered it, the reason is taken from
        the header ``x-death``.
    """
    properties = message.header.properties
    table = properties.headers or {}
    headers = {
        name: _to_text(value)
        for name, value in table.items()
        if name not in _UTTU_HEADERS and not name.startswith(_BROKER_HEADERS)
    }
    deaths = table.get(_DEATHS)
    death = deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}
    if dead and death and REASON_HEADER not in headers:
        headers[REASON_HEADER] = f"dead-lettered by the broker: {_to_text(death.get('reason'))}"
    topics = death.get("routing-keys")
    topic = table.get(_TOPIC) or (topics[0] if isinstance(topics, list) and topics else message.routing_key)
    attempt = table.get(_ATTEMPT)
    return Delivery(
        topic=_to_text(topic),
        payload=message.body,
        key=_to_text(table.get(_KEY, "")),
        headers=headers,
        id=properties.message_id or "",
        priority=properties.priority or 0,
        attempt=(attempt if isinstance(attempt, int) else 1) + bool(message.redelivered and not dead),
        position=position,
    )


def count_deliveries(message: DeliveredMessage) -> int:
    """Return how many times the broker delivered the message before; 0 in classic queues, which don't count."""
    count = (message.header.properties.headers or {}).get(_DELIVERY_COUNT)
    return count if isinstance(count, int) else 0


def _to_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return bytes(value).decode(errors="replace") if isinstance(value, (bytes, bytearray)) else str(value)

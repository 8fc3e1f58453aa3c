"""How a message looks on the broker.

    routing key     the topic
    body            the payload
    message_id      the id
    priority        the priority, if not 0
    headers         the headers, as they are; and of our own
      weft-key      the key, if there is one
      weft-topic    the topic, of what was put straight into a queue: what is tried again, and dead letters
      weft-attempt  which attempt it is when it is handed out for the first time, if not 1

A program that is not Weft publishes to the exchange with the topic as routing key, and nothing else is needed.

The attempt is that header, and one more if the broker says that it has handed out this very message before. It says so
after the end of a subscriber, but also after one that was closed, or a look at the queue (``peek``); how often does not
count, so that these take one attempt at most.
"""

from __future__ import annotations

from typing import Final

from aiormq import spec
from aiormq.abc import ArgumentsType, DeliveredMessage

from weft.bus.base import Delivery, Message
from weft.bus.subscription import REASON

_KEY: Final = "weft-key"
_TOPIC: Final = "weft-topic"
_ATTEMPT: Final = "weft-attempt"
_DEATHS: Final = "x-death"
_HANDED_OUT: Final = "x-delivery-count"
_OURS: Final = frozenset({_KEY, _TOPIC, _ATTEMPT})
_BROKERS: Final = (_DEATHS, "x-first-death-", "x-last-death-", _HANDED_OUT, "x-acquired-count")

_LONGEST_NAME: Final = 128  # beyond which the driver would cut it
_LONGEST_ID: Final = 255
_PERSISTENT: Final = 2


def properties(message: Message) -> spec.Basic.Properties:
    """:raises ValueError: a name is longer than the protocol allows."""
    headers: ArgumentsType = dict(message.headers)
    for name in headers:
        if len(name.encode()) > _LONGEST_NAME:
            raise ValueError(f"the name of a header has at most {_LONGEST_NAME} bytes: {name:.40}…")
    if len(message.id.encode()) > _LONGEST_ID:
        raise ValueError(f"an id has at most {_LONGEST_ID} bytes: {message.id:.40}…")
    if message.key:
        headers[_KEY] = message.key
    return spec.Basic.Properties(
        headers=headers, message_id=message.id, delivery_mode=_PERSISTENT, priority=message.priority or None
    )


def moved(delivery: Delivery, attempt: int, reason: str = "") -> spec.Basic.Properties:
    """For what is put straight into a queue, to be tried again or as a dead letter."""
    result = properties(delivery)
    assert result.headers is not None
    result.headers |= {_TOPIC: delivery.topic, _ATTEMPT: attempt}
    if reason:
        result.headers[REASON] = reason
    return result


def delivery(message: DeliveredMessage, position: str = "", *, dead: bool = False) -> Delivery:
    """What the broker handed out."""
    found = message.header.properties
    table = found.headers or {}
    headers = {
        name: _text(value) for name, value in table.items() if name not in _OURS and not name.startswith(_BROKERS)
    }
    deaths = table.get(_DEATHS)
    death = deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}
    if dead and death and REASON not in headers:
        headers[REASON] = f"given up by the broker: {_text(death.get('reason'))}"
    topics = death.get("routing-keys")
    topic = table.get(_TOPIC) or (topics[0] if isinstance(topics, list) and topics else message.routing_key)
    attempt = table.get(_ATTEMPT)
    return Delivery(
        topic=_text(topic),
        payload=message.body,
        key=_text(table.get(_KEY, "")),
        headers=headers,
        id=found.message_id or "",
        priority=found.priority or 0,
        attempt=(attempt if isinstance(attempt, int) else 1) + bool(message.redelivered and not dead),
        position=position,
    )


def handed_out(message: DeliveredMessage) -> int:
    """How often it was handed out before, as far as the broker counts: in quorum queues."""
    count = (message.header.properties.headers or {}).get(_HANDED_OUT)
    return count if isinstance(count, int) else 0


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return bytes(value).decode(errors="replace") if isinstance(value, (bytes, bytearray)) else str(value)

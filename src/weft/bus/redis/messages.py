"""Messages as bytes.

    4 bytes   the length of the next
    msgpack   topic, key, headers, id
    the rest  the payload

The payload stands apart so that operations can look at the rest: Redis's msgpack knows no binary strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from weft.bus.base import Delivery, Interest, Message, Where
from weft.bus.subscription import REASON


class _Definition(msgspec.Struct, array_like=True):
    """Of a group: the same bytes for the same interest."""

    topics: list[str]
    headers: list[str]
    any: bool


_pack = msgspec.msgpack.Encoder().encode
_about = msgspec.msgpack.Decoder(tuple[str, str, dict[str, str], str]).decode
_length = int.from_bytes
_definition = msgspec.msgpack.Decoder(_Definition).decode


def packed(message: Message) -> bytes:
    about = _pack((message.topic, message.key, message.headers, message.id))
    return b"%b%b%b" % (len(about).to_bytes(4, "big"), about, message.payload)


def unpacked(text: bytes, position: str, attempt: int = 1) -> Delivery:
    end = 4 + _length(text[:4], "big")
    topic, key, headers, name = _about(text[4:end])
    return Delivery(
        topic=topic, payload=text[end:], key=key, headers=headers, id=name, attempt=attempt, position=position
    )


def deliveries(entries: Iterable[Sequence[Any]]) -> list[Delivery]:
    """From entries of a stream: the id of each, and its fields and their values in turn."""
    found = []
    for position, fields in entries:
        if not fields:
            continue  # it was deleted while it was held
        delivery = unpacked(fields[1], position.decode(), int(fields[3]) if len(fields) > 2 else 1)
        if len(fields) > 4:
            delivery.headers[REASON] = fields[5].decode(errors="replace")
        found.append(delivery)
    return found


def defined(interest: Interest) -> bytes:
    """What a group takes."""
    where = interest.where or Where({})
    headers = [text for pair in sorted(where.headers.items()) for text in pair]
    return _pack(_Definition(sorted(set(interest.topics)), headers, where.any))


def topics_of(definition: bytes) -> tuple[str, ...]:
    return tuple(_definition(definition).topics)

"""Encode and decode messages and the definitions of groups.

A message is stored as bytes:

    4 bytes   length of the msgpack part, big-endian
    msgpack   array of topic, key, headers, id
    the rest  the payload

The payload is outside the msgpack part because the operations in ``lua/`` decode that part to read topic and headers,
and the msgpack library of Redis does not support binary strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from uttu.bus.base import REASON_HEADER, Delivery, HeaderFilter, Message, SubscribeOptions


class _GroupDefinition(msgspec.Struct, array_like=True):
    """The topics and the header filter of a group.

    ``headers`` has names and values in turn. All parts are sorted, so equal subscriptions have equal bytes, and the
    server can compare them.
    """

    topics: list[str]
    headers: list[str]
    any: bool


_pack = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(tuple[str, str, dict[str, str], str]).decode
_decode_definition = msgspec.msgpack.Decoder(_GroupDefinition).decode


def encode_message(message: Message) -> bytes:
    header = _pack((message.topic, message.key, message.headers, message.id))
    return b"%b%b%b" % (len(header).to_bytes(4, "big"), header, message.payload)


def decode_message(body: bytes, position: str, attempt: int = 1) -> Delivery:
    end = 4 + int.from_bytes(body[:4], "big")
    topic, key, headers, message_id = _decode_header(body[4:end])
    return Delivery(
        topic=topic, payload=body[end:], key=key, headers=headers, id=message_id, attempt=attempt, position=position
    )


def decode_entries(entries: Iterable[Sequence[Any]]) -> list[Delivery]:
    """Decode entries of a stream: pairs of the entry's id and its fields, names and values in turn."""
    deliveries = []
    for position, fields in entries:
        if not fields:
            continue  # the entry was deleted (XDEL) while it was pending
        delivery = decode_message(fields[1], position.decode(), int(fields[3]) if len(fields) > 2 else 1)
        if len(fields) > 4:
            delivery.headers[REASON_HEADER] = fields[5].decode(errors="replace")
        deliveries.append(delivery)
    return deliveries


def encode_definition(options: SubscribeOptions) -> bytes:
    """Encode the topics and the header filter of a subscription."""
    where = options.where or HeaderFilter({})
    headers = [text for pair in sorted(where.headers.items()) for text in pair]
    return _pack(_GroupDefinition(sorted(set(options.topics)), headers, where.any))


def decode_topics(definition: bytes) -> tuple[str, ...]:
    return tuple(_decode_definition(definition).topics)

"""Read lines from a file or a pipe as they arrive, and convert messages from and to lines of JSON.

The output of a subscriber can be published again. A payload that is JSON is written as it is, in the field ``payload``.
Any other payload is in the field ``text``, or in ``base64`` if it is not UTF-8.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import msgspec

from uttu.bus.base import REASON_HEADER, Delivery, Message, check_message
from uttu.bus.topics import check_topic
from uttu.errors import UttuError

# Bytes per read; about a thousand URLs.
_CHUNK = 64 * 1024


def describe_source(file: str) -> str:
    """The name of a source in messages."""
    return "standard input" if file == "-" else file


@contextlib.contextmanager
def open_source(file: str) -> Iterator[int]:
    """Open a file and return its descriptor; ``-`` is standard input.

    :raises UttuError: it can't be opened.
    """
    if file == "-":
        yield sys.stdin.fileno()
        return
    try:
        source = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UttuError(f"{file}: {error.strerror}") from error
    try:
        yield source
    finally:
        os.close(source)


async def read_lines(source: int) -> AsyncIterator[list[bytes]]:
    """Yield lists of complete lines as they arrive.

    :raises UttuError: the source can't be read.
    """
    rest = b""
    while chunk := await _read_chunk(source):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _read_chunk(source: int) -> bytes:
    """Read up to ``_CHUNK`` bytes as soon as there are any; empty at the end."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(source, ready.set)
    except PermissionError:
        pass  # a regular file: epoll refuses it, and reading it does not wait
    else:
        try:
            await ready.wait()
        finally:
            loop.remove_reader(source)
    try:
        return os.read(source, _CHUNK)
    except OSError as error:
        raise UttuError(f"Cannot read standard input: {error.strerror}") from error


_EXCERPT_LENGTH: Final = 120


class MessageTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that the command line sets for all messages."""

    topic: str = ""
    key: str = ""
    headers: dict[str, str] = {}
    id: str = ""
    priority: int = 0
    delay: float = 0.0

    def check(self) -> None:
        """:raises ValueError: the topic is not a valid name."""
        if self.topic:
            check_topic(self.topic)

    def message(self, payload: bytes) -> Message:
        """Make a message with this payload.

        :raises ValueError: the payload is not JSON, or a field is invalid.
        """
        message = Message(payload=_check_json(payload), **msgspec.structs.asdict(self))
        check_message(message)
        return message


class _WrittenMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message as JSON. ``attempt`` and ``position``, which belong to a delivery, are accepted and ignored."""

    topic: str | None = None
    payload: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    base64: str | None = None
    key: str | None = None
    headers: dict[str, str] = {}
    id: str | None = None
    priority: int | None = None
    delay: float | None = None
    attempt: int = 1
    position: str = ""


def parse_message(line: bytes, template: MessageTemplate) -> Message:
    """Parse a JSON object into a message; missing fields come from the template.

    :raises ValueError: it is not a valid message; the message says why.
    """
    try:
        written = msgspec.json.decode(line, type=_WrittenMessage)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{_excerpt(line)} is not a message: {error}") from error
    given = {name: getattr(written, name) for name in ("topic", "key", "id", "priority", "delay")}
    fields = msgspec.structs.asdict(template) | {name: value for name, value in given.items() if value is not None}
    headers = template.headers | {name: value for name, value in written.headers.items() if name != REASON_HEADER}
    if not fields["topic"]:
        raise ValueError(f"{_excerpt(line)} has no topic, and none was given")
    message = Message(payload=_parse_payload(written, line), **fields | {"headers": headers})
    check_message(message)
    return message


def _parse_payload(written: _WrittenMessage, line: bytes) -> bytes:
    if payload := bytes(written.payload):
        return payload
    if written.text is not None:
        return written.text.encode()
    try:
        return base64.b64decode(written.base64 or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{_excerpt(line)} has a payload that is not Base64: {error}") from error


def _check_json(payload: bytes) -> bytes:
    payload = payload.strip()
    try:
        msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{_excerpt(payload)} is not JSON: {error}") from error
    return payload


def delivery_dict(delivery: Delivery) -> dict[str, Any]:
    """A delivery as a dict, as it is printed."""
    return {
        "topic": delivery.topic,
        "id": delivery.id,
        "key": delivery.key,
        "headers": delivery.headers,
        "attempt": delivery.attempt,
        **_payload_fields(delivery.payload),
    }


def format_delivery(delivery: Delivery) -> str:
    return msgspec.json.encode(delivery_dict(delivery)).decode()


def _payload_fields(payload: bytes) -> dict[str, Any]:
    # JSON payloads are reformatted without line feeds, so that a message is one line.
    try:
        msgspec.json.decode(payload)
        return {"payload": msgspec.Raw(msgspec.json.format(payload, indent=-1))}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return {"text": payload.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}


def _excerpt(line: bytes) -> str:
    text = repr(line[:_EXCERPT_LENGTH].decode(errors="replace"))
    return text + "…" if len(line) > _EXCERPT_LENGTH else text

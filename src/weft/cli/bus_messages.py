"""Messages as JSON, in and out.

What a subscriber prints can be published again. A payload that is JSON stands there as it is; one that is not is told
apart by its name: ``text``, or ``base64`` where it is not even UTF-8.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec

from weft.bus.base import Delivery, Message, check_message
from weft.bus.subscription import REASON

_SHOWN: Final = 120


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says of all messages."""

    topic: str = ""
    key: str = ""
    headers: dict[str, str] = {}
    id: str = ""
    priority: int = 0
    delay: float = 0.0

    def message(self, payload: bytes) -> Message:
        """:raises ValueError: the payload is not JSON, or the rest makes no message; says why."""
        message = Message(payload=_checked_json(payload), **msgspec.structs.asdict(self))
        check_message(message)
        return message


class _Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole message as it is read; what tells of a delivery is passed over."""

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


def whole_message(line: bytes, template: Template) -> Message:
    """A message from a JSON object with its fields; what it lacks is the template's.

    :raises ValueError: it is none; says why.
    """
    try:
        written = msgspec.json.decode(line, type=_Written)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{_shown(line)} is not a message: {error}") from error
    given = {name: getattr(written, name) for name in ("topic", "key", "id", "priority", "delay")}
    fields = msgspec.structs.asdict(template) | {name: value for name, value in given.items() if value is not None}
    headers = template.headers | {name: value for name, value in written.headers.items() if name != REASON}
    if not fields["topic"]:
        raise ValueError(f"{_shown(line)} has no topic, and none was given")
    message = Message(payload=_payload_of(written, line), **fields | {"headers": headers})
    check_message(message)
    return message


def _payload_of(written: _Written, line: bytes) -> bytes:
    if payload := bytes(written.payload):
        return payload
    if written.text is not None:
        return written.text.encode()
    try:
        return base64.b64decode(written.base64 or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{_shown(line)} has a payload that is not Base64: {error}") from error


def _checked_json(payload: bytes) -> bytes:
    payload = payload.strip()
    try:
        msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{_shown(payload)} is not JSON: {error}") from error
    return payload


def as_dict(delivery: Delivery) -> dict[str, Any]:
    """A delivery as it is printed."""
    return {
        "topic": delivery.topic,
        "id": delivery.id,
        "key": delivery.key,
        "headers": delivery.headers,
        "attempt": delivery.attempt,
        **_printed(delivery.payload),
    }


def as_line(delivery: Delivery) -> str:
    return msgspec.json.encode(as_dict(delivery)).decode()


def _printed(payload: bytes) -> dict[str, Any]:
    # In any case without line feeds, so that a message stays one line.
    try:
        msgspec.json.decode(payload)
        return {"payload": msgspec.Raw(msgspec.json.format(payload, indent=-1))}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return {"text": payload.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}


def _shown(line: bytes) -> str:
    text = repr(line[:_SHOWN].decode(errors="replace"))
    return text + "…" if len(line) > _SHOWN else text

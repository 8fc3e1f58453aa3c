"""Publish messages to a bus, and convert messages from and to JSON.

The output of a subscriber can be published again. A payload that is JSON is written as it is, in the field ``payload``.
Any other payload is in the field ``text``, or in ``base64`` if it is not UTF-8. Messages are sent in batches of
``_BATCH_SIZE``, each confirmed by the broker, up to the first entry that is not a message.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from uttu import settings
from uttu.bus.base import REASON_HEADER, Bus, Delivery, Group, Message, check_message
from uttu.bus.topics import matches
from uttu.errors import BusError, UsageError
from uttu.operations import Report, format_count
from uttu.operations.lines import describe_source, open_source, read_lines
from uttu.runtime.registry import connect_bus


@contextlib.asynccontextmanager
async def connect_configured_bus(url: str) -> AsyncIterator[Bus]:
    """Connect to the bus at ``url``, or to the one in the settings if it is empty.

    :raises ConfigError: the address is invalid.
    :raises BusError: the broker can't be reached, or refuses the connection.
    """
    async with connect_bus(resolve_bus_url(url)) as bus:
        yield bus


def resolve_bus_url(url: str) -> str:
    """What was given, or what is set.

    :raises UsageError: neither is.
    """
    found = url or settings.load_bus()
    if not found:
        raise UsageError("say which bus: --bus URL, or the setting bus in uttu.toml or UTTU_BUS")
    return found


_EXCERPT_LENGTH: Final = 120


class MessageTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that the command line sets for all messages."""

    topic: str = ""
    key: str = ""
    headers: dict[str, str] = {}
    id: str = ""
    priority: int = 0
    delay: float = 0.0

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


_BATCH_SIZE = 100


class PublishResult(msgspec.Struct):
    """How many messages the broker confirmed. ``bad``: an entry was not a message; those after it were not sent."""

    confirmed: int = 0
    bad: bool = False


async def publish_messages(
    url: str,
    template: MessageTemplate,
    payloads: Sequence[str],
    file: str,
    report: Report,
    *,
    whole: bool,
    max_lag: int | None,
) -> PublishResult:
    """Send all of them, up to the first that is no message, which is reported.

    Payloads from the command line are checked before anything is sent.

    :param whole: Entries are whole messages (:func:`parse_message`), not payloads.
    :param max_lag: Wait while a consumer group is behind by more messages than this; None for no limit.
    :raises UttuError: the bus can't be used, or the file can't be read.
    """
    published = PublishResult()
    given = _parse_entries(
        [payload.encode() for payload in payloads], "argument", 1, template, whole, published, report
    )
    if published.bad:
        return published
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(open_source(file)) if file else None
        async with connect_configured_bus(url) as bus:
            publisher = _Publisher(bus, max_lag, published, report)
            await publisher.send(given)
            if source is not None:
                first = 1
                async for lines in read_lines(source):
                    where = f"{describe_source(file)}, line"
                    await publisher.send(_parse_entries(lines, where, first, template, whole, published, report))
                    if published.bad:
                        break
                    first += len(lines)
    return published


def _parse_entries(
    entries: Sequence[bytes],
    where: str,
    first: int,
    template: MessageTemplate,
    whole: bool,
    published: PublishResult,
    report: Report,
) -> list[Message]:
    messages = []
    for at, entry in enumerate(entries, first):
        if entry.strip() or where == "argument":
            try:
                messages.append(parse_message(entry, template) if whole else template.message(entry))
            except ValueError as error:
                report(f"uttu: {where} {at}: {error}")
                published.bad = True
                break
    return messages


class _Publisher:
    def __init__(self, bus: Bus, max_lag: int | None, published: PublishResult, report: Report) -> None:
        self._bus = bus
        self._max_lag = max_lag
        self._published = published
        self._report = report
        self._said = False

    async def send(self, messages: Sequence[Message]) -> None:
        for at in range(0, len(messages), _BATCH_SIZE):
            batch = messages[at : at + _BATCH_SIZE]
            try:
                if self._max_lag is not None:
                    await wait_for_capacity(
                        self._bus, {message.topic for message in batch}, self._max_lag, self._say_waiting
                    )
                await self._bus.publish(batch)
            except BusError:
                if self._published.confirmed:
                    self._report(f"{format_count(self._published.confirmed, 'message')} confirmed before")
                raise
            self._published.confirmed += len(batch)

    def _say_waiting(self, group: Group) -> None:
        if not self._said:
            self._report(f"waiting: the group {group.name} is behind by {format_count(group.lag, 'message')}")
        self._said = True


_FIRST_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 1.0


async def wait_for_capacity(
    bus: Bus, topics: Collection[str], max_lag: int, waiting: Callable[[Group], None] = lambda group: None
) -> None:
    """Return once no group that takes one of the topics lags by more than ``max_lag`` messages.

    ``waiting`` is called with the group that is furthest behind, at each look. A group whose topics the
    broker does not know counts. What others publish between this look and what is done after it is not seen.

    :raises BusError: the groups can't be looked at.
    """
    pause = _FIRST_LOOK_SECONDS
    while True:
        behind = [group for group in await bus.groups() if group.lag > max_lag and _is_subscribed(group, topics)]
        if not behind:
            return
        waiting(max(behind, key=lambda group: group.lag))
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_LOOK_SECONDS)


def _is_subscribed(group: Group, topics: Collection[str]) -> bool:
    patterns = group.topics
    return patterns is None or any(matches(patterns, topic) for topic in topics)

"""Messages from the command line, a file or a pipe to a bus, in batches."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from weft.bus.backlog import room
from weft.bus.base import Bus, Group, Message
from weft.cli.bus_messages import Template, whole_message
from weft.cli.bus_open import bus_at
from weft.cli.lines import named_file, read_lines, source_of
from weft.cli.words import number, say
from weft.errors import BusError

_BATCH = 100


class Published(msgspec.Struct):
    """What came of it. ``bad``: something was no message, and what followed it was not sent."""

    confirmed: int = 0
    bad: bool = False


async def publish_all(
    url: str, template: Template, payloads: Sequence[str], file: str, *, whole: bool, max_lag: int | None
) -> Published:
    """Send all of them, up to the first that is no message, which is named on standard error.

    What is given on the command line is looked at before anything is sent.

    :raises WeftError: the bus can't be used, or the file can't be read.
    """
    published = Published()
    given = _read([payload.encode() for payload in payloads], "argument", 1, template, whole, published)
    if published.bad:
        return published
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(source_of(file)) if file else None
        async with bus_at(url) as bus:
            publisher = _Publisher(bus, max_lag, published)
            await publisher.send(given)
            if source is not None:
                first = 1
                async for lines in read_lines(source):
                    where = f"{named_file(file)}, line"
                    await publisher.send(_read(lines, where, first, template, whole, published))
                    if published.bad:
                        break
                    first += len(lines)
    return published


def _read(
    entries: Sequence[bytes], where: str, first: int, template: Template, whole: bool, published: Published
) -> list[Message]:
    messages = []
    for at, entry in enumerate(entries, first):
        if entry.strip() or where == "argument":
            try:
                messages.append(whole_message(entry, template) if whole else template.message(entry))
            except ValueError as error:
                say(f"weft: {where} {at}: {error}")
                published.bad = True
                break
    return messages


class _Publisher:
    def __init__(self, bus: Bus, max_lag: int | None, published: Published) -> None:
        self._bus = bus
        self._max_lag = max_lag
        self._published = published
        self._said = False

    async def send(self, messages: Sequence[Message]) -> None:
        for at in range(0, len(messages), _BATCH):
            batch = messages[at : at + _BATCH]
            try:
                if self._max_lag is not None:
                    await room(self._bus, {message.topic for message in batch}, self._max_lag, self._say_waiting)
                await self._bus.publish(batch)
            except BusError:
                if self._published.confirmed:
                    say(f"{number(self._published.confirmed, 'message')} confirmed before")
                raise
            self._published.confirmed += len(batch)

    def _say_waiting(self, group: Group) -> None:
        if not self._said:
            say(f"waiting: the group {group.name} is behind by {number(group.lag, 'message')}")
        self._said = True

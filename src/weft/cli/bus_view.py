"""How groups and messages are shown: a table for people, a line of JSON each for programs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.live import Live

from weft.bus.base import Bus, Delivery, Group
from weft.bus.subscription import REASON
from weft.cli.bus_messages import as_dict, as_line
from weft.cli.tables import Screen, drawn
from weft.cli.words import say

_LOOK_SECONDS = 1.0
_SHOWN = 200
_HEAD = ("group", "lag", "ready", "held", "delayed", "dead", "subscribers", "topics")
_NUMBERS = _HEAD[1:7]


def show_groups(groups: Sequence[Group], as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        for group in groups:
            _print_line(_group_dict(group))
    elif groups:
        Screen().table(_HEAD, [_row(group) for group in groups], _NUMBERS)
    else:
        say("no groups")


async def watch_group(bus: Bus, name: str, as_json: bool) -> None:
    """Once a second, until it is cancelled."""
    if as_json or not sys.stdout.isatty():
        while True:
            show_groups(await bus.groups(name), True)
            sys.stdout.flush()
            await asyncio.sleep(_LOOK_SECONDS)
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            live.update(drawn(_HEAD, [_row(group) for group in await bus.groups(name)], _NUMBERS), refresh=True)
            await asyncio.sleep(_LOOK_SECONDS)


def show_messages(messages: Sequence[Delivery], as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        for message in messages:
            print(as_line(message))
    elif messages:
        dead = any(REASON in message.headers for message in messages)
        head = ("id", "topic", "key", "attempt", "payload", *(["reason"] if dead else []))
        rows = [(*_cells(message), *([message.headers.get(REASON, "")] if dead else [])) for message in messages]
        Screen().table(head, rows, ("attempt",))
    else:
        say("no messages")


def _group_dict(group: Group) -> dict[str, Any]:
    fields = msgspec.structs.asdict(group)
    return {"name": fields.pop("name"), "lag": group.lag, **fields}


def _row(group: Group) -> tuple[str, ...]:
    known = (group.lag, group.ready, group.unacknowledged, group.delayed, group.dead, group.subscribers)
    numbers = ["?" if each is None else f"{each:,}" for each in known]
    return (group.name, *numbers, "?" if group.topics is None else " ".join(group.topics))


def _cells(message: Delivery) -> tuple[str, ...]:
    shown = as_dict(message)
    payload = shown.get("payload", shown.get("text", shown.get("base64", "")))
    text = payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()
    return message.id, message.topic, message.key, str(message.attempt), text[:_SHOWN]


def _print_line(value: Any) -> None:
    print(msgspec.json.encode(value).decode())

"""Message brokers: their groups and topics, and looking at, publishing and deleting messages."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import Annotated, Any, Final

import msgspec

from uttu.api.context import LONG_SECONDS, Context
from uttu.api.problems import BadParameters
from uttu.clients.addresses import mask_password
from uttu.errors import UttuError
from uttu.operations import bus as operations
from uttu.operations.bus import BusDescription, Delivery, Group, PublishResult
from uttu.operations.lines import MessageTemplate, delivery_dict

LAG_SECONDS: Final = 10.0
_LAG_POINTS: Final = 360
_MOST_GROUPS: Final = 200
Count = Annotated[int, msgspec.Meta(ge=1, le=500)]


class BusHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that the dashboard watches. ``error`` is empty if it answers."""

    name: str
    kind: str
    address: str
    groups: int = 0
    lag: int = 0
    dead: int = 0
    error: str = ""


class PeekedMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message in a queue. One of ``payload`` (JSON), ``text`` and ``base64`` is its payload."""

    topic: str
    id: str = ""
    key: str = ""
    headers: dict[str, str] = {}
    attempt: int = 1
    payload: Any = None
    text: str | None = None
    base64: str | None = None
    reason: str | None = None
    """Why it is a dead letter."""


class LagPoint(msgspec.Struct, frozen=True):
    """The lag of the groups of a broker at one moment."""

    at: float
    lags: dict[str, int]


class Number(msgspec.Struct, frozen=True):
    """How many messages were affected."""

    count: int


async def read_buses(context: Context) -> list[BusHealth]:
    """All brokers that the dashboard watches; one that is away has an ``error``."""
    return list(await asyncio.gather(*(_read_health(context, bus) for bus in context.buses)))


async def _read_health(context: Context, bus: str) -> BusHealth:
    url = context.bus_url(bus)
    health = BusHealth(name=bus, kind=_kind(url), address=mask_password(url))
    try:
        groups = await read_groups(context, bus)
    except (UttuError, OSError) as error:
        return msgspec.structs.replace(health, error=str(error))
    return msgspec.structs.replace(
        health,
        groups=len(groups),
        lag=sum(group.lag for group in groups),
        dead=sum(group.dead for group in groups),
    )


def _kind(url: str) -> str:
    scheme = url.partition(":")[0].lower().partition("+")[0]
    return {"amqp": "rabbitmq", "amqps": "rabbitmq", "kafkas": "kafka", "rediss": "redis"}.get(scheme, scheme)


async def describe_bus(context: Context, bus: str) -> BusDescription:
    """A broker in detail: its version, topics, and what only this kind of broker has."""
    return await context.read_broker("bus", bus, operations.describe_bus)


async def read_groups(context: Context, bus: str) -> list[Group]:
    """The groups of a broker with their lag."""
    return await context.read_broker("groups", bus, operations.read_groups)


async def read_lags(context: Context, bus: str) -> list[LagPoint]:
    """The lag of all groups over the last hour, as the dashboard has seen it since it started."""
    context.bus_url(bus)
    return [LagPoint(at, lags) for at, lags in context.lags.get(bus, ())]


async def watch_lags(context: Context) -> None:
    """Record the lag of all brokers every ``LAG_SECONDS``, until it is cancelled."""
    while True:
        for bus in context.buses:
            with contextlib.suppress(UttuError, OSError):
                groups = await read_groups(context, bus)
                points = context.lags.setdefault(bus, deque(maxlen=_LAG_POINTS))
                points.append((time.time(), {group.name: group.lag for group in groups[:_MOST_GROUPS]}))
        await asyncio.sleep(LAG_SECONDS)


async def peek_messages(
    context: Context, bus: str, group: str, limit: Count = 20, dead: bool = False
) -> list[PeekedMessage]:
    """The next messages of a group, or its dead letters, without consuming them."""
    found = await peek_deliveries(context, bus, group, limit, dead)
    return [PeekedMessage(reason=operations.dead_reason(message), **delivery_dict(message)) for message in found]


async def peek_deliveries(context: Context, bus: str, group: str, limit: int, dead: bool) -> list[Delivery]:
    """As :func:`peek_messages`, as the bus has them."""
    return await context.read_broker(
        ("peek", group, limit, dead), bus, lambda url: operations.peek_messages(url, group, limit, dead=dead)
    )


async def publish_message(
    context: Context,
    bus: str,
    topic: str,
    payload: str,
    key: str = "",
    headers: dict[str, str] = {},  # noqa: B006
    text: bool = False,
    by: str = "",
) -> PublishResult:
    """Publish one message. ``payload`` is JSON as text; with ``text`` it is sent as it is, whatever it is."""
    refused: list[str] = []
    try:
        template = MessageTemplate(topic=topic, key=key, headers=dict(headers))
        template.check()
    except ValueError as error:
        raise BadParameters(str(error)) from error
    if not topic:
        raise BadParameters("Give a topic")
    # A whole message may have its payload as text.
    given = msgspec.json.encode({"text": payload}).decode() if text else payload
    published = await context.change_broker(
        bus,
        operations.publish_messages(
            context.bus_url(bus), template, [given], "", refused.append, whole=text, max_lag=None
        ),
    )
    if published.bad:
        raise BadParameters("; ".join(refused).removeprefix("uttu: argument 1: ") or "The payload is not JSON")
    return published


async def purge_group(
    context: Context, bus: str, group: str, dead: bool = False, forget: bool = False, by: str = ""
) -> Number:
    """Delete the waiting messages of a group, its dead letters, or the group itself."""
    url = context.bus_url(bus)
    return Number(await context.change_broker(bus, operations.purge_group(url, group, dead=dead, forget=forget)))


async def republish_dead(
    context: Context,
    bus: str,
    group: str,
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000,
    by: str = "",
) -> Number:
    """Return dead letters of a group to it, the oldest first."""
    url = context.bus_url(bus)
    return Number(await context.change_broker(bus, operations.republish_dead(url, group, limit), LONG_SECONDS))

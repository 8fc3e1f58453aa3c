"""The Bus on Redis; :mod:`uttu.bus.redis` describes its keys.

All changes are operations in ``lua/``, which run on the server. A background task sends a PING every ``_PING_SECONDS``,
so that listeners hear of a lost server also while the bus is idle.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from uttu.bus.backend import BaseBus, group_not_found
from uttu.bus.base import (
    Bus,
    BusAdmin,
    BusDescription,
    Capability,
    Cell,
    Delivery,
    DetailTable,
    Group,
    Message,
    SubscribeOptions,
    TopicState,
)
from uttu.bus.redis.codec import decode_entries, decode_topics, encode_message
from uttu.bus.redis.connection import BrokerConnection, cancel_and_wait
from uttu.bus.redis.consumer import RedisBroadcastConsumer, RedisGroupConsumer
from uttu.clients import ConnectionListener, ConnectionState
from uttu.errors import BusError, BusRefused

_CAPABILITIES: Final = frozenset(
    {Capability.REDELIVERY, Capability.DELAY, Capability.SERVER_FILTER, Capability.FIXED_GROUPS}
)
# Maximum size of one call: Redis runs one call at a time, so a larger one would delay all other clients.
_CALL_MESSAGES: Final = 1_000
_CALL_BYTES: Final = 4_000_000
_PING_SECONDS: Final = 5.0


class RedisBus(BaseBus):
    """See :class:`uttu.bus.base.Bus`. Create it with :meth:`connect`.

    The bus is ``DURABLE`` if the server writes an append-only file (``appendonly yes``). The server applies the header
    filters of groups; subscribers without a group filter messages after they receive them.
    """

    def __init__(self, server: BrokerConnection) -> None:
        super().__init__()
        self.capabilities = _CAPABILITIES | ({Capability.DURABLE} if server.is_durable else set())
        self._server = server
        self._pinging = asyncio.create_task(self._ping_regularly())

    @classmethod
    async def connect(cls, url: str) -> RedisBus:
        """Connect to the server of a ``redis://`` URL; :mod:`uttu.clients.redis.address` has all forms.

        :raises BusUnavailable: the server can't be reached.
        :raises BusRefused: the server refuses the login, or is unsuitable.
        :raises ConfigError: the URL is malformed.
        """
        return cls(await BrokerConnection.connect(url))

    async def groups(self, *names: str) -> list[Group]:
        states = await self._operate("groups", *names)
        groups = [_to_group(*state) for state in states]
        if missing := set(names) - {group.name for group in groups}:
            raise group_not_found(min(missing))
        return sorted(groups, key=lambda group: group.name)

    async def peek(self, group: str, limit: int = 10, *, dead: bool = False) -> list[Delivery]:
        entries = await self._operate("peek", group, limit, int(dead))
        if entries is None:
            raise group_not_found(group)
        return decode_entries(entries)

    async def purge(self, group: str, *, dead: bool = False, forget: bool = False) -> int:
        purged, more = 0, 1
        while more:
            answer = await self._operate("purge", group, "all" if forget else "dead" if dead else "waiting")
            if answer is None:
                raise group_not_found(group)
            count, more = answer
            purged += count
        return purged

    async def describe(self) -> BusDescription:
        self._check_open()
        groups = await self.groups()
        version, nodes = await self._server.version()
        rows: list[tuple[Cell, ...]] = []
        for group in groups:
            sizes = await self._operate("sizes", group.name)
            for kind, (messages, size) in zip(("ready", "delayed", "dead"), sizes or (), strict=False):
                rows.append((group.name, kind, messages, size))
        patterns = sorted({pattern for group in groups for pattern in group.topics or ()})
        return BusDescription(
            kind="redis",
            version=version,
            nodes=nodes,
            topics=[TopicState(name=pattern) for pattern in patterns],
            tables=[DetailTable(title="Keys", columns=("group", "kind", "messages", "bytes"), rows=rows)],
        )

    async def republish(self, group: str, limit: int) -> int:
        moved = 0
        while moved < limit:
            answer = await self._operate("republish", group, min(limit - moved, _CALL_MESSAGES))
            if answer is None:
                raise group_not_found(group)
            moved += answer
            if answer < _CALL_MESSAGES:
                break
        return moved

    def listen(self, listener: ConnectionListener) -> None:
        self._server.listeners.add(listener)

    async def close(self) -> None:
        self._server.is_closing = True  # from now on, calls to an unavailable server fail at once
        await super().close()

    async def _send(self, messages: Sequence[Message]) -> None:
        bodies = [encode_message(message) for message in messages]
        for message, body in zip(messages, bodies, strict=True):
            if len(body) > self._server.max_bytes:
                raise BusRefused(
                    f"The message {message.id} has {len(body)} bytes, and the server accepts at most "
                    f"{self._server.max_bytes}. Make it smaller, or raise proto-max-bulk-len"
                )
        for call in _split_calls(messages, bodies):
            await self._server.operate("publish", *call, seconds=self._server.options.timeout, relief=False)

    async def _open_consumer(self, options: SubscribeOptions) -> RedisGroupConsumer | RedisBroadcastConsumer:
        if options.group:
            return await RedisGroupConsumer.join(self._server, options)
        return await RedisBroadcastConsumer.open(self._server, options)

    async def _disconnect(self) -> None:
        await cancel_and_wait(self._pinging)
        await self._server.close()
        self._server.listeners.notify(ConnectionState.CLOSED, "closed")

    async def _operate(self, operation: str, *arguments: Any) -> Any:
        self._check_open()
        return await self._server.operate(operation, *arguments, seconds=self._server.options.timeout)

    async def _ping_regularly(self) -> None:
        """Send a PING every ``_PING_SECONDS``, to notice an outage while the bus is idle."""
        while True:
            await asyncio.sleep(_PING_SECONDS)
            with contextlib.suppress(BusError):  # the next operation of a caller raises it
                await self._server.ping()


def _to_group(
    name: bytes, definition: bytes, ready: int, held: int, delayed: int, dead: int, subscribers: int
) -> Group:
    return Group(
        name=name.decode(),
        topics=decode_topics(definition),
        ready=ready,
        unacknowledged=held,
        delayed=delayed,
        dead=dead,
        subscribers=subscribers,
    )


def _split_calls(messages: Sequence[Message], bodies: Sequence[bytes]) -> Iterator[list[Any]]:
    """Split messages into calls of ``publish`` (see ``lua/3_publish.lua``), and yield the arguments of each call.

    A call has up to ``_CALL_MESSAGES`` messages and about ``_CALL_BYTES`` bytes. Consecutive messages with the same
    topic and delay form a run: topic, delay in milliseconds, number of messages, messages.
    """
    first = 0
    while first < len(bodies):
        last, size = first, 0
        while last < len(bodies) and last - first < _CALL_MESSAGES and (last == first or size < _CALL_BYTES):
            size += len(bodies[last])
            last += 1
        call: list[Any] = []
        for (topic, delay), run in groupby(range(first, last), lambda n: (messages[n].topic, messages[n].delay)):
            run_bodies = [bodies[number] for number in run]
            call += [topic, round(delay * 1000), len(run_bodies), *run_bodies]
        yield call
        first = last


_: type[Bus] = RedisBus
_admin: type[BusAdmin] = RedisBus

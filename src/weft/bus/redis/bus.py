"""The bus itself; see :mod:`weft.bus.redis` for its keys."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from weft.bus.base import (
    Bus,
    Capability,
    Connection,
    Delivery,
    Group,
    Handler,
    Interest,
    Listener,
    Message,
    Subscription,
    checked,
    ids,
    require,
)
from weft.bus.redis.member import Member
from weft.bus.redis.messages import deliveries, packed, topics_of
from weft.bus.redis.onlooker import Onlooker
from weft.bus.redis.server import Server, stopped
from weft.bus.subscription import Pump
from weft.errors import BusError, BusRefused

_CAPABILITIES: Final = frozenset(
    {Capability.REDELIVERY, Capability.DELAY, Capability.SERVER_FILTER, Capability.FIXED_GROUPS}
)
# No call is so large that others wait long for it.
_CALL_MESSAGES: Final = 1_000
_CALL_BYTES: Final = 4_000_000
_PING_SECONDS: Final = 5.0


class RedisBus:
    """See :class:`weft.bus.base.Bus`. Open it with :meth:`connect`.

    ``DURABLE`` it is if the server writes what it is told to disk (``appendonly yes``). Filters on headers are applied
    by the server for groups; subscribers without a group apply them themselves.
    """

    def __init__(self, server: Server) -> None:
        self.capabilities = _CAPABILITIES | ({Capability.DURABLE} if server.is_durable else set())
        self._server = server
        self._pumps: set[Pump] = set()
        self._is_closed = False
        self._new_id = ids()
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def connect(cls, url: str) -> RedisBus:
        """:raises BusUnavailable: it can't be reached.
        :raises BusRefused: it can't be used.
        :raises ConfigError: the URL is none.
        """
        return cls(await Server.connect(url))

    async def publish(self, messages: Sequence[Message]) -> None:
        self._check_open()
        ready = [checked(message, self.capabilities, self._new_id) for message in messages]
        texts = [packed(message) for message in ready]
        for message, text in zip(ready, texts, strict=True):
            if len(text) > self._server.largest:
                raise BusRefused(
                    f"the message {message.id} has {len(text)} bytes; the server takes {self._server.largest} at most "
                    "(proto-max-bulk-len)"
                )
        for call in _calls(ready, texts):
            await self._server.operate("publish", *call, seconds=self._server.options.timeout, relief=False)

    async def subscribe(self, interest: Interest, handler: Handler) -> Subscription:
        self._check_open()
        if interest.start == "earliest":
            require(Capability.REPLAY, self.capabilities)
        source = await (Member.join if interest.group else Onlooker.begin)(self._server, interest)
        pump = Pump(interest, handler, source, self._pumps.discard)
        self._pumps.add(pump)
        return pump

    async def groups(self, *names: str) -> list[Group]:
        states = await self._ask("groups", *names)
        found = [_group(*state) for state in states]
        if missing := set(names) - {group.name for group in found}:
            raise _no_group(min(missing))
        return sorted(found, key=lambda group: group.name)

    async def peek(self, group: str, limit: int = 10, *, dead: bool = False) -> list[Delivery]:
        entries = await self._ask("peek", group, limit, int(dead))
        if entries is None:
            raise _no_group(group)
        return deliveries(entries)

    async def purge(self, group: str, *, dead: bool = False, forget: bool = False) -> int:
        purged, more = 0, 1
        while more:
            answer = await self._ask("purge", group, "all" if forget else "dead" if dead else "waiting")
            if answer is None:
                raise _no_group(group)
            count, more = answer
            purged += count
        return purged

    def listen(self, listener: Listener) -> None:
        self._server.listen(listener)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._server.is_closing = True
        await asyncio.gather(*[pump.close() for pump in self._pumps])
        await stopped(self._watching)
        await self._server.close()
        self._server.tell(Connection.CLOSED, "closed")

    async def _ask(self, operation: str, *arguments: Any) -> Any:
        self._check_open()
        return await self._server.operate(operation, *arguments, seconds=self._server.options.timeout)

    async def _watch(self) -> None:
        """Notice that the server is away also when nothing is asked of it."""
        while True:
            await asyncio.sleep(_PING_SECONDS)
            with contextlib.suppress(BusError):  # those who ask for something are told
                await self._server.ping()

    def _check_open(self) -> None:
        if self._is_closed:
            raise BusError("the bus is closed")


def _no_group(name: str) -> BusRefused:
    return BusRefused(f"there is no group {name}")


def _group(name: bytes, definition: bytes, ready: int, held: int, delayed: int, dead: int, subscribers: int) -> Group:
    return Group(
        name=name.decode(),
        topics=topics_of(definition),
        ready=ready,
        unacknowledged=held,
        delayed=delayed,
        dead=dead,
        subscribers=subscribers,
    )


def _calls(messages: Sequence[Message], texts: Sequence[bytes]) -> Iterator[list[Any]]:
    """The arguments of each call: runs of messages of the same topic and delay."""
    first = 0
    while first < len(texts):
        last, size = first, 0
        while last < len(texts) and last - first < _CALL_MESSAGES and (last == first or size < _CALL_BYTES):
            size += len(texts[last])
            last += 1
        call: list[Any] = []
        for (topic, delay), run in groupby(range(first, last), lambda n: (messages[n].topic, messages[n].delay)):
            same = [texts[number] for number in run]
            call += [topic, round(delay * 1000), len(same), *same]
        yield call
        first = last


_: type[Bus] = RedisBus

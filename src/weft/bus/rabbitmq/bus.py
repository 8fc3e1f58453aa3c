"""The Bus on RabbitMQ; see the package and :mod:`weft.bus.base`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from aiormq.abc import AbstractChannel

from weft.bus.base import (
    Bus,
    Capability,
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
from weft.bus.rabbitmq.address import Address, parse
from weft.bus.rabbitmq.errors import Different, NotFound
from weft.bus.rabbitmq.layout import MARK, TAKES, Layout, no_group, takes, topics
from weft.bus.rabbitmq.link import Link
from weft.bus.rabbitmq.management import Management, Queue
from weft.bus.rabbitmq.peek import look
from weft.bus.rabbitmq.publisher import Publisher
from weft.bus.rabbitmq.source import RabbitSource
from weft.bus.rabbitmq.wire import delivery
from weft.bus.subscription import Pump
from weft.errors import BusError, BusRefused

_ALWAYS: Final = frozenset(
    {Capability.DURABLE, Capability.REDELIVERY, Capability.SERVER_FILTER, Capability.FIXED_GROUPS}
)


class RabbitBus:
    """See :class:`weft.bus.base.Bus`. Made by :meth:`connect`."""

    def __init__(self, address: Address, link: Link) -> None:
        self._queues = address.options.queues
        self.capabilities = _ALWAYS | {Capability.PRIORITY} if self._queues == "classic" else _ALWAYS
        self._link = link
        self._layout = Layout(address.options)
        self._publisher = Publisher(link, self._layout)
        self._management = Management(address, lambda: link.node)
        self._pumps: set[Pump] = set()
        self._closed = False
        self._new_id = ids()

    @classmethod
    async def connect(cls, url: str) -> RabbitBus:
        """:raises ConfigError: the URL is wrong.
        :raises BusError: no node can be reached, or one says no.
        """
        address = parse(url)
        link = await Link.open(address)
        bus = cls(address, link)
        try:
            await link.errand(bus._layout.declare)
        except BaseException:
            await link.close()
            raise
        return bus

    async def publish(self, messages: Sequence[Message]) -> None:
        self._check_open()
        await self._publisher.send([checked(message, self.capabilities, self._new_id) for message in messages])

    async def subscribe(self, interest: Interest, handler: Handler) -> Subscription:
        self._check_open()
        if interest.start == "earliest":
            require(Capability.REPLAY, self.capabilities)
        try:
            source = await RabbitSource.open(self._link, self._layout, interest)
        except Different as different:
            raise await self._explained(different, interest) from different
        pump = Pump(interest, handler, source, self._pumps.discard)
        self._pumps.add(pump)
        return pump

    async def groups(self, *names: str) -> list[Group]:
        self._check_open()
        if names:
            return [await self._group(name, await self._look_up(name)) for name in sorted(set(names))]
        found = {self._layout.group(queue.name): queue for queue in await self._management.queues()}
        groups = []
        for name in sorted(group for group in found if group):
            with contextlib.suppress(BusRefused):  # it may be forgotten by now
                groups.append(await self._group(name, found[name]))
        return groups

    async def peek(self, group: str, limit: int = 10, *, dead: bool = False) -> list[Delivery]:
        self._check_open()
        queue = self._layout.queue(group, dead=dead)

        try:
            seen = await self._link.errand(lambda channel: look(channel, queue, limit), confirms=True)
        except NotFound as error:
            raise no_group(group) from error
        return [delivery(message, dead=dead) for message in seen]

    async def purge(self, group: str, *, dead: bool = False, forget: bool = False) -> int:
        self._check_open()

        async def clear(channel: AbstractChannel) -> int:
            if forget:
                return await self._layout.forget(channel, group)
            return (await channel.queue_purge(self._layout.queue(group, dead=dead))).message_count or 0

        try:
            return await self._link.errand(clear)
        except NotFound as error:
            raise no_group(group) from error

    def listen(self, listener: Listener) -> None:
        self._link.listen(listener)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*[pump.close() for pump in self._pumps])
        await self._link.close()

    async def _group(self, name: str, known: Queue | None) -> Group:
        async def count(channel: AbstractChannel) -> tuple[int, int, int]:
            ready, subscribers = await self._layout.count(channel, self._layout.queue(name))
            return ready, subscribers, (await self._layout.count(channel, self._layout.queue(name, dead=True)))[0]

        try:
            ready, subscribers, dead = await self._link.errand(count)
        except NotFound as error:
            raise no_group(name) from error
        words = known and known.arguments.get(TAKES)
        return Group(
            name=name,
            topics=topics(str(words)) if words else None,
            ready=ready,
            unacknowledged=known.messages_unacknowledged if known else None,
            dead=dead,
            subscribers=subscribers,
        )

    async def _explained(self, different: Different, interest: Interest) -> BusRefused:
        """Why a group can't be subscribed to, which is there as something else."""
        group = interest.group
        known = await self._look_up(group)
        if different.argument == MARK:
            others = known.arguments.get(TAKES) if known else "other topics, or by another filter"
            return BusRefused(
                f"the group {group} takes {others}, not {takes(interest)}; use another name, or forget the group first"
            )
        kind = known and known.arguments.get("x-queue-type", "classic")
        if kind and kind != self._queues:
            return BusRefused(
                f"the queue {self._layout.queue(group)} of the group {group} is of type {kind}, not {self._queues}; "
                f"use another name, or write ?queues={kind}"
            )
        return different

    async def _look_up(self, name: str) -> Queue | None:
        try:
            return (await self._management.queues(self._layout.queue(name)))[0]
        except BusRefused:
            return None

    def _check_open(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")


_: type[Bus] = RabbitBus

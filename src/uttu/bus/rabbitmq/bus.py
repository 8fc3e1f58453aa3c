"""The Bus on RabbitMQ; :mod:`uttu.bus.rabbitmq.topology` describes its exchanges and queues.

AMQP has no command to read a message without consuming it. So ``peek`` gets messages and requeues them, and they return
to their places in the queue. A quorum queue counts each of these deliveries, and dead-letters a message after
``DELIVERY_LIMIT``. So ``peek`` replaces a message with ``DELIVERY_LIMIT_NEAR`` deliveries by a copy at the end of the
queue, whose count starts at 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Final
from urllib.parse import quote

import msgspec
from aiormq import spec
from aiormq.abc import AbstractChannel, DeliveredMessage

from uttu.bus.base import (
    Bus,
    Capability,
    Delivery,
    Group,
    Handler,
    Message,
    SubscribeOptions,
    Subscription,
    make_id_generator,
    prepare_message,
    require_capability,
)
from uttu.bus.consumer import ConsumerLoop
from uttu.bus.rabbitmq.codec import count_deliveries, to_delivery, to_moved_properties
from uttu.bus.rabbitmq.consumer import RabbitConsumer
from uttu.bus.rabbitmq.producer import RabbitProducer
from uttu.bus.rabbitmq.topology import (
    DELIVERY_LIMIT_NEAR,
    DESCRIPTION_ARGUMENT,
    SIGNATURE_ARGUMENT,
    Topology,
    describe_subscription,
    group_not_found,
    parse_topics,
)
from uttu.clients import ConnectionListener
from uttu.clients.addresses import mask_password
from uttu.clients.amqp.address import AmqpAddress, parse_address
from uttu.clients.amqp.connection import AmqpConnection
from uttu.clients.amqp.errors import DeclarationMismatch, EntityNotFound
from uttu.errors import BusError, BusRefused


async def peek_queue(channel: AbstractChannel, queue: str, limit: int) -> list[DeliveredMessage]:
    """Return the next messages of a queue, and requeue them. The channel must have publisher confirms."""
    seen: list[DeliveredMessage] = []
    while len(seen) < limit:
        message = await channel.basic_get(queue)
        if isinstance(message.delivery, spec.Basic.GetEmpty):
            break
        seen.append(message)
    if worn := [message for message in seen if count_deliveries(message) >= DELIVERY_LIMIT_NEAR]:
        await asyncio.gather(*[_republish(channel, queue, message) for message in worn])
    if len(worn) < len(seen):
        await channel.basic_nack(seen[-1].delivery_tag or 0, multiple=True, requeue=True)
    return seen


async def _republish(channel: AbstractChannel, queue: str, message: DeliveredMessage) -> None:
    copy = to_delivery(message)
    attempt = copy.attempt - bool(message.redelivered)
    await channel.basic_publish(copy.payload, routing_key=queue, properties=to_moved_properties(copy, attempt))
    await channel.basic_ack(message.delivery_tag or 0)


_CAPABILITIES: Final = frozenset(
    {Capability.DURABLE, Capability.REDELIVERY, Capability.SERVER_FILTER, Capability.FIXED_GROUPS}
)


class RabbitBus:
    """See :class:`uttu.bus.base.Bus`. Create it with :meth:`connect`.

    ``PRIORITY`` needs classic queues (``?queues=classic``). Listing all groups needs the management API.
    """

    def __init__(self, address: AmqpAddress, link: AmqpConnection) -> None:
        self._queues = address.options.queues
        self.capabilities = _CAPABILITIES | {Capability.PRIORITY} if self._queues == "classic" else _CAPABILITIES
        self._link = link
        self._layout = Topology(address.options)
        self._publisher = RabbitProducer(link, self._layout)
        self._management = ManagementApi(address, lambda: link.node)
        self._subscriptions: set[ConsumerLoop] = set()
        self._closed = False
        self._new_id = make_id_generator()

    @classmethod
    async def connect(cls, url: str) -> RabbitBus:
        """Connect to the server of an ``amqp://`` URL, and declare the exchanges.

        :raises ConfigError: the URL is malformed.
        :raises BusUnavailable: no node can be reached.
        :raises BusRefused: a node refuses the login, the vhost or the declaration.
        """
        address = parse_address(url)
        link = await AmqpConnection.open(address)
        bus = cls(address, link)
        try:
            await link.with_channel(bus._layout.declare)
        except BaseException:
            await link.close()
            raise
        return bus

    async def publish(self, messages: Sequence[Message]) -> None:
        self._check_open()
        await self._publisher.send([prepare_message(message, self.capabilities, self._new_id) for message in messages])

    async def subscribe(self, options: SubscribeOptions, handler: Handler) -> Subscription:
        self._check_open()
        if options.start == "earliest":
            require_capability(Capability.REPLAY, self.capabilities)
        try:
            source = await RabbitConsumer.open(self._link, self._layout, options)
        except DeclarationMismatch as different:
            raise await self._explain_mismatch(different, options) from different
        pump = ConsumerLoop(options, handler, source, self._subscriptions.discard)
        self._subscriptions.add(pump)
        return pump

    async def groups(self, *names: str) -> list[Group]:
        self._check_open()
        if names:
            return [await self._group(name, await self._look_up(name)) for name in sorted(set(names))]
        found = {self._layout.group(queue.name): queue for queue in await self._management.queues()}
        groups = []
        for name in sorted(group for group in found if group):
            with contextlib.suppress(BusRefused):  # the group may have been deleted in the meantime
                groups.append(await self._group(name, found[name]))
        return groups

    async def peek(self, group: str, limit: int = 10, *, dead: bool = False) -> list[Delivery]:
        self._check_open()
        queue = self._layout.queue(group, dead=dead)

        try:
            seen = await self._link.with_channel(lambda channel: peek_queue(channel, queue, limit), confirms=True)
        except EntityNotFound as error:
            raise group_not_found(group) from error
        return [to_delivery(message, dead=dead) for message in seen]

    async def purge(self, group: str, *, dead: bool = False, forget: bool = False) -> int:
        self._check_open()

        async def clear(channel: AbstractChannel) -> int:
            if forget:
                return await self._layout.forget(channel, group)
            return (await channel.queue_purge(self._layout.queue(group, dead=dead))).message_count or 0

        try:
            return await self._link.with_channel(clear)
        except EntityNotFound as error:
            raise group_not_found(group) from error

    def listen(self, listener: ConnectionListener) -> None:
        self._link.listen(listener)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*[pump.close() for pump in self._subscriptions])
        await self._link.close()

    async def _group(self, name: str, known: QueueInfo | None) -> Group:
        async def count(channel: AbstractChannel) -> tuple[int, int, int]:
            ready, subscribers = await self._layout.count(channel, self._layout.queue(name))
            return ready, subscribers, (await self._layout.count(channel, self._layout.queue(name, dead=True)))[0]

        try:
            ready, subscribers, dead = await self._link.with_channel(count)
        except EntityNotFound as error:
            raise group_not_found(name) from error
        words = known and known.arguments.get(DESCRIPTION_ARGUMENT)
        return Group(
            name=name,
            topics=parse_topics(str(words)) if words else None,
            ready=ready,
            unacknowledged=known.messages_unacknowledged if known else None,
            dead=dead,
            subscribers=subscribers,
        )

    async def _explain_mismatch(self, different: DeclarationMismatch, options: SubscribeOptions) -> BusRefused:
        """Return an error that says in which way the group's existing queue differs from the subscription."""
        group = options.group
        known = await self._look_up(group)
        if different.argument == SIGNATURE_ARGUMENT:
            others = known.arguments.get(DESCRIPTION_ARGUMENT) if known else "other topics, or by another filter"
            return BusRefused(
                f"the group {group} takes {others}, not {describe_subscription(options)}; "
                "use another name, or forget the group first"
            )
        kind = known and known.arguments.get("x-queue-type", "classic")
        if kind and kind != self._queues:
            return BusRefused(
                f"the queue {self._layout.queue(group)} of the group {group} is of type {kind}, not {self._queues}; "
                f"use another name, or write ?queues={kind}"
            )
        return different

    async def _look_up(self, name: str) -> QueueInfo | None:
        try:
            return (await self._management.queues(self._layout.queue(name)))[0]
        except BusRefused:
            return None

    def _check_open(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")


_: type[Bus] = RabbitBus


_MANAGEMENT_SECONDS: Final = 5.0
_QUEUE_COLUMNS: Final = "name,arguments,messages_unacknowledged"


class QueueInfo(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, object] = {}
    messages_unacknowledged: int = 0


class ManagementApi:
    """RabbitMQ's management API, for what the protocol itself does not say. Its numbers are some seconds old
    (``collect_statistics_interval``).

    ``node`` is asked for the one that is connected: without an option, its API is tried.
    """

    def __init__(self, address: AmqpAddress, node: Callable[[], tuple[str, int]]) -> None:
        self._address = address
        self._node = node
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=address.tls())
        )

    async def queues(self, name: str = "") -> list[QueueInfo]:
        """All queues of the vhost, or the one of this name.

        :raises BusRefused: the management API can't be reached. The message says what it needs.
        """
        base, user, password = self._address.management_url(self._node())
        path = f"/api/queues/{quote(self._address.vhost, safe='')}" + (f"/{quote(name, safe='')}" if name else "")
        login = b64encode(f"{user}:{password}".encode()).decode()
        request = urllib.request.Request(
            f"{base}{path}?columns={_QUEUE_COLUMNS}", headers={"Authorization": f"Basic {login}"}
        )
        try:
            body = await asyncio.to_thread(self._read, request)
            return (
                [msgspec.json.decode(body, type=QueueInfo)] if name else msgspec.json.decode(body, type=list[QueueInfo])
            )
        except (OSError, HTTPException, ValueError, msgspec.DecodeError) as error:
            raise BusRefused(
                f"RabbitMQ lists its queues only by its management API, and {mask_password(base)} can't be used: "
                f"{error}; enable the plugin rabbitmq_management, or say where it is: ?management=http://USER:PASSWORD@HOST:PORT"
            ) from error

    def _read(self, request: urllib.request.Request) -> bytes:
        with self._opener.open(request, timeout=_MANAGEMENT_SECONDS) as response:
            content: bytes = response.read()
        return content

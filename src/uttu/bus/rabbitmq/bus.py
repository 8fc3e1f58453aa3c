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
from collections.abc import Sequence
from http.client import HTTPException
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec
from aiormq import spec
from aiormq.abc import AbstractChannel, DeliveredMessage

from uttu.bus.backend import BaseBus, group_mismatch, group_not_found
from uttu.bus.base import (
    Bus,
    BusAdmin,
    BusDescription,
    Capability,
    Delivery,
    DetailTable,
    Group,
    Message,
    SubscribeOptions,
    TopicState,
    without_reason,
)
from uttu.bus.rabbitmq.codec import count_deliveries, to_delivery, to_moved_properties
from uttu.bus.rabbitmq.consumer import RabbitConsumer
from uttu.bus.rabbitmq.producer import RabbitProducer
from uttu.bus.rabbitmq.topology import (
    DELIVERY_LIMIT_NEAR,
    DESCRIPTION_ARGUMENT,
    SIGNATURE_ARGUMENT,
    Topology,
    describe_subscription,
    parse_topics,
)
from uttu.clients import ConnectionListener
from uttu.clients.addresses import mask_password
from uttu.clients.amqp.address import AmqpAddress, parse_address
from uttu.clients.amqp.connection import AmqpConnection, DeclarationMismatch, EntityNotFound
from uttu.errors import BusRefused


async def peek_queue(channel: AbstractChannel, queue: str, limit: int) -> list[DeliveredMessage]:
    """Return the next messages of a queue, and requeue them. The channel must have publisher confirms."""
    messages: list[DeliveredMessage] = []
    while len(messages) < limit:
        message = await channel.basic_get(queue)
        if isinstance(message.delivery, spec.Basic.GetEmpty):
            break
        messages.append(message)
    if near_limit := [message for message in messages if count_deliveries(message) >= DELIVERY_LIMIT_NEAR]:
        await asyncio.gather(*[_republish(channel, queue, message) for message in near_limit])
    if len(near_limit) < len(messages):
        await channel.basic_nack(messages[-1].delivery_tag or 0, multiple=True, requeue=True)
    return messages


async def _republish(channel: AbstractChannel, queue: str, message: DeliveredMessage) -> None:
    copy = to_delivery(message)
    attempt = copy.attempt - bool(message.redelivered)
    await channel.basic_publish(copy.payload, routing_key=queue, properties=to_moved_properties(copy, attempt))
    await channel.basic_ack(message.delivery_tag or 0)


_CAPABILITIES: Final = frozenset(
    {Capability.DURABLE, Capability.REDELIVERY, Capability.SERVER_FILTER, Capability.FIXED_GROUPS}
)


class RabbitBus(BaseBus):
    """See :class:`uttu.bus.base.Bus`. Create it with :meth:`connect`.

    ``PRIORITY`` needs classic queues (``?queues=classic``). Listing all groups needs the management API.
    """

    def __init__(self, address: AmqpAddress, connection: AmqpConnection) -> None:
        super().__init__()
        self._queue_type = address.options.queues
        self.capabilities = _CAPABILITIES | {Capability.PRIORITY} if self._queue_type == "classic" else _CAPABILITIES
        self._connection = connection
        self._topology = Topology(address.options)
        self._producer = RabbitProducer(connection, self._topology)
        self._management = ManagementApi(connection)

    @classmethod
    async def connect(cls, url: str) -> RabbitBus:
        """Connect to the server of an ``amqp://`` URL, and declare the exchanges.

        :raises ConfigError: the URL is malformed.
        :raises BusUnavailable: no node can be reached.
        :raises BusRefused: a node refuses the login, the vhost or the declaration.
        """
        address = parse_address(url)
        connection = await AmqpConnection.open(address)
        bus = cls(address, connection)
        try:
            await connection.with_channel(bus._topology.declare)
        except BaseException:
            await connection.close()
            raise
        return bus

    async def groups(self, *names: str) -> list[Group]:
        self._check_open()
        if names:
            return [await self._read_group(name, await self._find_queue(name)) for name in sorted(set(names))]
        queues = {self._topology.group(queue.name): queue for queue in await self._management.queues()}
        groups = []
        for name in sorted(group for group in queues if group):
            with contextlib.suppress(BusRefused):  # the group may have been deleted in the meantime
                groups.append(await self._read_group(name, queues[name]))
        return groups

    async def peek(self, group: str, limit: int = 10, *, dead: bool = False) -> list[Delivery]:
        self._check_open()
        queue = self._topology.queue(group, dead=dead)
        try:
            messages = await self._connection.with_channel(
                lambda channel: peek_queue(channel, queue, limit), confirms=True
            )
        except EntityNotFound as error:
            raise group_not_found(group) from error
        return [to_delivery(message, dead=dead) for message in messages]

    async def purge(self, group: str, *, dead: bool = False, forget: bool = False) -> int:
        self._check_open()

        async def clear(channel: AbstractChannel) -> int:
            if forget:
                return await self._topology.delete_group(channel, group)
            return (await channel.queue_purge(self._topology.queue(group, dead=dead))).message_count or 0

        try:
            return await self._connection.with_channel(clear)
        except EntityNotFound as error:
            raise group_not_found(group) from error

    async def describe(self) -> BusDescription:
        self._check_open()
        try:
            overview = await self._management.overview()
            exchanges, bindings = await self._management.exchanges(), await self._management.bindings()
            queues = await self._management.queues()
        except BusRefused as error:
            return BusDescription(kind="rabbitmq", nodes=(str(self._connection.node),), note=str(error))
        topics = sorted({binding.routing_key for binding in bindings if binding.source == self._topology.exchange})
        return BusDescription(
            kind="rabbitmq",
            version=f"RabbitMQ {overview.rabbitmq_version}",
            nodes=(overview.node,),
            topics=[TopicState(name=topic) for topic in topics],
            tables=[
                DetailTable(
                    title="Exchanges",
                    columns=("name", "type", "durable"),
                    rows=[(each.name or "(default)", each.type, "yes" if each.durable else "no") for each in exchanges],
                ),
                DetailTable(
                    title="Bindings",
                    columns=("exchange", "routing key", "destination", "kind"),
                    rows=[
                        (each.source, each.routing_key, each.destination, each.destination_type)
                        for each in bindings
                        if each.source  # every queue is bound to the default exchange
                    ],
                ),
                DetailTable(
                    title="Queues",
                    columns=("name", "type", "ready", "unacknowledged", "consumers", "bytes"),
                    rows=[
                        (
                            each.name,
                            str(each.arguments.get("x-queue-type", "classic")),
                            each.messages_ready,
                            each.messages_unacknowledged,
                            each.consumers,
                            each.message_bytes,
                        )
                        for each in queues
                    ],
                ),
            ],
        )

    async def republish(self, group: str, limit: int) -> int:
        self._check_open()
        source, target = self._topology.queue(group, dead=True), self._topology.queue(group)

        async def move(channel: AbstractChannel) -> int:
            await self._topology.count(channel, target)
            moved = 0
            while moved < limit:
                message = await channel.basic_get(source)
                if isinstance(message.delivery, spec.Basic.GetEmpty):
                    break
                letter = to_delivery(message, dead=True)
                letter = msgspec.structs.replace(letter, headers=without_reason(letter.headers))
                await channel.basic_publish(
                    letter.payload, routing_key=target, properties=to_moved_properties(letter, attempt=1)
                )
                await channel.basic_ack(message.delivery_tag or 0)
                moved += 1
            return moved

        try:
            return await self._connection.with_channel(move, confirms=True)
        except EntityNotFound as error:
            raise group_not_found(group) from error

    def listen(self, listener: ConnectionListener) -> None:
        self._connection.listen(listener)

    async def _send(self, messages: Sequence[Message]) -> None:
        await self._producer.send(messages)

    async def _open_consumer(self, options: SubscribeOptions) -> RabbitConsumer:
        try:
            return await RabbitConsumer.open(self._connection, self._topology, options)
        except DeclarationMismatch as mismatch:
            raise await self._explain_mismatch(mismatch, options) from mismatch

    async def _disconnect(self) -> None:
        await self._connection.close()

    async def _read_group(self, name: str, info: QueueInfo | None) -> Group:
        async def count(channel: AbstractChannel) -> tuple[int, int, int]:
            ready, subscribers = await self._topology.count(channel, self._topology.queue(name))
            return ready, subscribers, (await self._topology.count(channel, self._topology.queue(name, dead=True)))[0]

        try:
            ready, subscribers, dead = await self._connection.with_channel(count)
        except EntityNotFound as error:
            raise group_not_found(name) from error
        description = info and info.arguments.get(DESCRIPTION_ARGUMENT)
        return Group(
            name=name,
            topics=parse_topics(str(description)) if description else None,
            ready=ready,
            unacknowledged=info.messages_unacknowledged if info else None,
            dead=dead,
            subscribers=subscribers,
        )

    async def _explain_mismatch(self, mismatch: DeclarationMismatch, options: SubscribeOptions) -> BusRefused:
        """Return an error that says how the group's existing queue differs from the subscription."""
        group = options.group
        info = await self._find_queue(group)
        if mismatch.argument == SIGNATURE_ARGUMENT:
            existing = info.arguments.get(DESCRIPTION_ARGUMENT) if info else "other topics, or has another filter"
            return group_mismatch(group, str(existing), describe_subscription(options))
        queue_type = info and info.arguments.get("x-queue-type", "classic")
        if queue_type and queue_type != self._queue_type:
            return BusRefused(
                f"The queue {self._topology.queue(group)} of the group {group} has the type {queue_type}, not "
                f"{self._queue_type}. Use another group name, or set ?queues={queue_type} in the address"
            )
        return mismatch

    async def _find_queue(self, name: str) -> QueueInfo | None:
        """Return the queue of a group; None if it does not exist, or the management API can't be used."""
        try:
            return (await self._management.queues(self._topology.queue(name)))[0]
        except BusRefused:
            return None


_: type[Bus] = RabbitBus
_admin: type[BusAdmin] = RabbitBus


_MANAGEMENT_SECONDS: Final = 5.0


class QueueInfo(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, object] = {}
    messages_ready: int = 0
    messages_unacknowledged: int = 0
    consumers: int = 0
    message_bytes: int = 0


class ExchangeInfo(msgspec.Struct, frozen=True):
    name: str
    type: str = ""
    durable: bool = False


class BindingInfo(msgspec.Struct, frozen=True):
    source: str
    destination: str
    destination_type: str = ""
    routing_key: str = ""


class ServerInfo(msgspec.Struct, frozen=True):
    rabbitmq_version: str = ""
    node: str = ""


T = TypeVar("T")
_COLUMNS: Final = ",".join(
    sorted({field for info in (QueueInfo, ExchangeInfo, BindingInfo, ServerInfo) for field in info.__struct_fields__})
)


class ManagementApi:
    """RabbitMQ's management API, which lists queues; AMQP can't. Its numbers are some seconds old
    (``collect_statistics_interval``).

    Without the option ``management`` in the address, it uses the API of the connected node.

    :raises BusRefused: from every method: the management API can't be reached. The message says what it needs.
    """

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._address = address = connection.address
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=address.tls())
        )

    async def queues(self, name: str = "") -> list[QueueInfo]:
        """Return all queues of the vhost, or the one with this name."""
        if name:
            return [await self._get(f"queues/{self._vhost}/{quote(name, safe='')}", QueueInfo)]
        return await self._get(f"queues/{self._vhost}", list[QueueInfo])

    async def exchanges(self) -> list[ExchangeInfo]:
        return await self._get(f"exchanges/{self._vhost}", list[ExchangeInfo])

    async def bindings(self) -> list[BindingInfo]:
        return await self._get(f"bindings/{self._vhost}", list[BindingInfo])

    async def overview(self) -> ServerInfo:
        return await self._get("overview", ServerInfo)

    @property
    def _vhost(self) -> str:
        return quote(self._address.vhost, safe="")

    async def _get(self, path: str, kind: type[T]) -> T:
        base, user, password = self._address.management_url(self._connection.node)
        login = b64encode(f"{user}:{password}".encode()).decode()
        request = urllib.request.Request(
            f"{base}/api/{path}?columns={_COLUMNS}", headers={"Authorization": f"Basic {login}"}
        )
        try:
            return msgspec.json.decode(await asyncio.to_thread(self._read, request), type=kind)
        except (OSError, HTTPException, ValueError, msgspec.DecodeError) as error:
            raise BusRefused(
                f"Cannot use RabbitMQ's management API at {mask_password(base)}: {error}. Enable the "
                "plugin rabbitmq_management, or set its address: ?management=http://USER:PASSWORD@HOST:PORT"
            ) from error

    def _read(self, request: urllib.request.Request) -> bytes:
        with self._opener.open(request, timeout=_MANAGEMENT_SECONDS) as response:
            content: bytes = response.read()
        return content

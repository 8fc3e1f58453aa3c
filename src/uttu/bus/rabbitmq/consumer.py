"""One subscriber on RabbitMQ: a channel on which the broker delivers up to ``prefetch`` messages.

When the channel is lost, the broker requeues its unacknowledged messages, and the consumer opens a new channel. The
position of a delivery is SESSION-TAG; SESSION counts the channels. Deliveries of a former channel are not acknowledged:
the broker delivers these messages again.

A message that crashes the process of its subscriber raises the delivery count of all messages that the subscriber
holds, and at ``DELIVERY_LIMIT`` the broker would dead-letter all of them. So if the first message on an idle channel
has ``DELIVERY_LIMIT_NEAR`` deliveries, the consumer changes to a channel with a prefetch of 1 (``_careful``). It
changes back when a message with fewer deliveries comes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Final

from aiormq.abc import AbstractChannel, DeliveredMessage

from uttu.bus.backend import group_deleted
from uttu.bus.base import Delivery, SubscribeOptions
from uttu.bus.rabbitmq.codec import count_deliveries, to_delivery, to_moved_properties
from uttu.bus.rabbitmq.topology import DELIVERY_LIMIT_NEAR, Topology
from uttu.clients.amqp.connection import (
    ANSWER_SECONDS,
    RETRY_SECONDS,
    AmqpConnection,
    ConnectionLost,
    EntityNotFound,
    close_channel,
    map_errors,
)
from uttu.errors import BusError, BusRefused

_MAX_PREFETCH: Final = 65_535  # AMQP has 16 bits for it
_SET_UP_SECONDS: Final = 20.0  # for opening a channel, and for the declarations on it


class RabbitConsumer:
    """See :class:`uttu.bus.backend.Consumer`. Create it with :meth:`open`."""

    def __init__(self, connection: AmqpConnection, topology: Topology, options: SubscribeOptions) -> None:
        self._connection = connection
        self._topology = topology
        self._options = options
        self._ready: deque[Delivery] = deque()
        self._arrived = asyncio.Event()
        self._error: BusError | None = None
        self._session = 0  # counts the channels
        self._careful = False  # the prefetch is 1; see the module
        self._held: dict[int, None] = {}  # unacknowledged delivery tags, in order
        self._retries: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._replace = asyncio.Event()  # replace the current channel
        self._was_cancelled = False  # by the broker: check whether the queue still exists
        self._channel: AbstractChannel
        self._replacing: asyncio.Task[None]

    @classmethod
    async def open(cls, connection: AmqpConnection, topology: Topology, options: SubscribeOptions) -> RabbitConsumer:
        """Declare the queue, and start to consume.

        :raises BusUnavailable: the broker does not answer within the address's ``timeout``.
        :raises BusRefused: the group exists with other topics or another filter, or access is denied.
        """
        consumer = cls(connection, topology, options)
        try:
            async with asyncio.timeout(connection.address.options.timeout):
                await consumer._set_up()
        except TimeoutError:
            raise connection.time_out("the subscription did not start") from None
        consumer._replacing = asyncio.create_task(
            consumer._replace_lost_channels(), name=f"channel of {options.group or 'a subscriber'}"
        )
        return consumer

    async def receive(self, limit: int) -> list[Delivery]:
        while not self._ready:
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        await self._ack(deliveries)

    async def retry(self, deliveries: Sequence[Delivery], delay: float) -> None:
        retry = asyncio.create_task(self._retry_later(deliveries, delay))
        self._retries.add(retry)
        retry.add_done_callback(self._retries.discard)

    async def dead_letter(self, deliveries: Sequence[Delivery], reason: str) -> None:
        await self._move(deliveries, self._topology.queue(self._options.group, dead=True), 0, reason)

    def set_paused(self, paused: bool) -> None:
        """Do nothing: the broker sends at most ``prefetch`` messages while none is acknowledged."""

    async def close(self) -> None:
        self._closing.set()
        await asyncio.gather(*self._retries, return_exceptions=True)
        self._replacing.cancel()
        await asyncio.gather(self._replacing, return_exceptions=True)
        await close_channel(self._channel)

    async def _replace_lost_channels(self) -> None:
        try:
            while True:
                await self._wait_until_lost()
                self._ready.clear()
                self._held = {}
                await close_channel(self._channel)
                if self._was_cancelled:
                    await self._check_queue()
                    self._was_cancelled = False
                await self._set_up()
        except Exception as error:
            self._error = error if isinstance(error, BusError) else BusError(f"{type(error).__name__}: {error}")
            self._arrived.set()

    async def _wait_until_lost(self) -> None:
        replace = asyncio.ensure_future(self._replace.wait())
        try:
            await asyncio.wait([self._channel.closing, replace], return_when=asyncio.FIRST_COMPLETED)
        finally:
            replace.cancel()

    async def _set_up(self) -> None:
        while True:
            connection = await self._connection.connection()
            try:
                with map_errors():
                    async with asyncio.timeout(_SET_UP_SECONDS):
                        channel = await connection.channel(publisher_confirms=True)
                    try:
                        async with asyncio.timeout(_SET_UP_SECONDS):
                            await self._consume(channel)
                    except BaseException:
                        await close_channel(channel)
                        raise
                return
            except ConnectionLost:
                await asyncio.sleep(RETRY_SECONDS)

    async def _consume(self, channel: AbstractChannel) -> None:
        await self._topology.declare(channel)
        if self._options.group:
            queue = await self._topology.declare_group(channel, self._options)
        else:
            queue = await self._topology.declare_broadcast(channel, self._options)
        prefetch = 1 if self._careful else min(self._options.prefetch, _MAX_PREFETCH)
        await channel.basic_qos(prefetch_count=prefetch)
        self._session += 1
        self._ready.clear()
        session, self._held, self._channel = self._session, {}, channel
        replace = self._replace = asyncio.Event()

        async def receive(message: DeliveredMessage) -> None:
            tag = message.delivery_tag
            if tag is None or session != self._session or replace.is_set():
                return
            if not self._held and self._careful != (count_deliveries(message) >= DELIVERY_LIMIT_NEAR):
                self._careful = not self._careful
                replace.set()
                return
            self._held[tag] = None
            self._ready.append(to_delivery(message, f"{session}-{tag}"))
            self._arrived.set()

        def cancel(frame: object) -> None:
            self._was_cancelled = True
            replace.set()

        channel.on_consumer_cancel_callbacks.add(cancel)
        await channel.basic_consume(queue, receive)

    async def _check_queue(self) -> None:
        """Check whether the group's queue still exists, after the broker has cancelled the consumer.

        The queue was deleted, or its node is down for the moment.

        :raises BusRefused: the queue was deleted.
        """

        async def count(channel: AbstractChannel) -> None:
            await self._topology.count(channel, self._topology.queue(self._options.group))

        if self._options.group:
            try:
                await self._connection.with_channel(count)
            except EntityNotFound as error:
                raise group_deleted(self._options.group) from error

    async def _retry_later(self, deliveries: Sequence[Delivery], delay: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._closing.wait()
        await self._move(deliveries, self._topology.queue(self._options.group), 1)

    async def _move(self, deliveries: Sequence[Delivery], queue: str, extra_attempts: int, reason: str = "") -> None:
        """Publish copies to the queue, and acknowledge the originals when the copies are confirmed.

        :param extra_attempts: added to the attempt of each copy.
        """
        tags, channel = self._held_tags(deliveries), self._channel
        held = [each for each in deliveries if _tag(each) in tags]
        try:
            with map_errors():
                async with asyncio.timeout(ANSWER_SECONDS):
                    await asyncio.gather(
                        *[
                            channel.basic_publish(
                                each.payload,
                                routing_key=queue,
                                properties=to_moved_properties(each, each.attempt + extra_attempts, reason),
                            )
                            for each in held
                        ]
                    )
        except (ConnectionLost, BusRefused):
            await close_channel(channel)  # the broker requeues the originals and delivers them again
        else:
            await self._ack(held)

    def _held_tags(self, deliveries: Sequence[Delivery]) -> set[int]:
        """Return the tags of those deliveries that this channel has not acknowledged."""
        prefix = f"{self._session}-"
        return {tag for each in deliveries if each.position.startswith(prefix) and (tag := _tag(each)) in self._held}

    async def _ack(self, deliveries: Sequence[Delivery]) -> None:
        tags, channel, last = self._held_tags(deliveries), self._channel, 0
        for tag in self._held:
            if tag not in tags:
                break
            last = tag
        for tag in tags:
            del self._held[tag]
        try:
            with map_errors():
                # Without a timeout the driver would wait without limit if the connection is lost at this moment.
                async with asyncio.timeout(ANSWER_SECONDS):
                    if last:
                        await channel.basic_ack(last, multiple=True)
                    for tag in sorted(tag for tag in tags if tag > last):
                        await channel.basic_ack(tag, wait=False)
        except ConnectionLost:
            await close_channel(channel)  # the broker requeues the messages and delivers them again


def _tag(delivery: Delivery) -> int:
    return int(delivery.position.partition("-")[2])

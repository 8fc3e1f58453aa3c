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

from uttu.bus.base import Delivery, SubscribeOptions
from uttu.bus.rabbitmq.codec import count_deliveries, to_delivery, to_moved_properties
from uttu.bus.rabbitmq.topology import DELIVERY_LIMIT_NEAR, Topology
from uttu.clients.amqp.connection import ANSWER_SECONDS, RETRY_SECONDS, AmqpConnection, close_channel
from uttu.clients.amqp.errors import ConnectionLost, EntityNotFound, map_errors
from uttu.errors import BusError, BusRefused

_MAX_PREFETCH: Final = 65_535  # AMQP has 16 bits for it
_SET_UP_SECONDS: Final = 20.0  # for opening a channel, and for the declarations on it


class RabbitConsumer:
    """See :class:`uttu.bus.consumer.Consumer`. Create it with :meth:`open`."""

    def __init__(self, link: AmqpConnection, layout: Topology, options: SubscribeOptions) -> None:
        self._link = link
        self._layout = layout
        self._options = options
        self._ready: deque[Delivery] = deque()
        self._arrived = asyncio.Event()
        self._error: BusError | None = None
        self._session = 0  # counts the channels
        self._careful = False  # the prefetch is 1; see the module
        self._held: dict[int, None] = {}  # unacknowledged delivery tags, in order
        self._retries: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._leaving = asyncio.Event()  # replace the current channel
        self._doubtful = False  # the broker cancelled the consumer: check whether the queue exists
        self._channel: AbstractChannel
        self._keeper: asyncio.Task[None]

    @classmethod
    async def open(cls, link: AmqpConnection, layout: Topology, options: SubscribeOptions) -> RabbitConsumer:
        """Declare the queue, and start to consume.

        :raises BusUnavailable: the broker does not answer within the address's ``timeout``.
        :raises BusRefused: the group exists with other topics or another filter, or access is denied.
        """
        source = cls(link, layout, options)
        try:
            async with asyncio.timeout(link.address.options.timeout):
                await source._set_up()
        except TimeoutError:
            raise link.too_late("the subscription is not in force") from None
        source._keeper = asyncio.create_task(source._keep(), name=f"channel of {options.group or 'a subscriber'}")
        return source

    async def receive(self, limit: int) -> list[Delivery]:
        while not self._ready:
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    async def done(self, deliveries: Sequence[Delivery]) -> None:
        await self._answer(deliveries)

    async def again(self, deliveries: Sequence[Delivery], after: float) -> None:
        retry = asyncio.create_task(self._retry(deliveries, after))
        self._retries.add(retry)
        retry.add_done_callback(self._retries.discard)

    async def bury(self, deliveries: Sequence[Delivery], reason: str) -> None:
        await self._move(deliveries, self._layout.queue(self._options.group, dead=True), 0, reason)

    def hold(self, paused: bool) -> None:
        """Do nothing: the broker sends at most ``prefetch`` messages while none is acknowledged."""

    async def close(self) -> None:
        self._closing.set()
        await asyncio.gather(*self._retries, return_exceptions=True)
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        await close_channel(self._channel)

    async def _keep(self) -> None:
        try:
            while True:
                await self._until_lost()
                self._ready.clear()
                self._held = {}
                await close_channel(self._channel)
                if self._doubtful:
                    await self._check_queue()
                    self._doubtful = False
                await self._set_up()
        except Exception as error:
            self._error = error if isinstance(error, BusError) else BusError(f"{type(error).__name__}: {error}")
            self._arrived.set()

    async def _until_lost(self) -> None:
        leaving = asyncio.ensure_future(self._leaving.wait())
        try:
            await asyncio.wait([self._channel.closing, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()

    async def _set_up(self) -> None:
        while True:
            connection = await self._link.connection()
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
        await self._layout.declare(channel)
        if self._options.group:
            queue = await self._layout.declare_group(channel, self._options)
        else:
            queue = await self._layout.declare_alone(channel, self._options)
        prefetch = 1 if self._careful else min(self._options.prefetch, _MAX_PREFETCH)
        await channel.basic_qos(prefetch_count=prefetch)
        self._session += 1
        self._ready.clear()
        session, self._held, self._channel = self._session, {}, channel
        leaving = self._leaving = asyncio.Event()

        async def arrived(message: DeliveredMessage) -> None:
            tag = message.delivery_tag
            if tag is None or session != self._session or leaving.is_set():
                return
            if not self._held and self._careful != (count_deliveries(message) >= DELIVERY_LIMIT_NEAR):
                self._careful = not self._careful
                leaving.set()
                return
            self._held[tag] = None
            self._ready.append(to_delivery(message, f"{session}-{tag}"))
            self._arrived.set()

        def cancelled(frame: object) -> None:
            self._doubtful = True
            leaving.set()

        channel.on_consumer_cancel_callbacks.add(cancelled)
        await channel.basic_consume(queue, arrived)

    async def _check_queue(self) -> None:
        """Check whether the group's queue still exists, after the broker has cancelled the consumer.

        The queue was deleted, or its node is down for the moment.

        :raises BusRefused: the queue was deleted.
        """

        async def look(channel: AbstractChannel) -> None:
            await self._layout.count(channel, self._layout.queue(self._options.group))

        if self._options.group:
            try:
                await self._link.with_channel(look)
            except EntityNotFound as error:
                raise BusRefused(f"the group {self._options.group} was forgotten") from error

    async def _retry(self, deliveries: Sequence[Delivery], after: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(after):
                await self._closing.wait()
        await self._move(deliveries, self._layout.queue(self._options.group), 1)

    async def _move(self, deliveries: Sequence[Delivery], queue: str, more: int, reason: str = "") -> None:
        """Publish copies to the queue, and acknowledge the originals when the copies are confirmed.

        :param more: how many attempts to add to each copy.
        """
        tags, channel = self._still_held(deliveries), self._channel
        held = [each for each in deliveries if _tag(each) in tags]
        try:
            with map_errors():
                async with asyncio.timeout(ANSWER_SECONDS):
                    await asyncio.gather(
                        *[
                            channel.basic_publish(
                                each.payload,
                                routing_key=queue,
                                properties=to_moved_properties(each, each.attempt + more, reason),
                            )
                            for each in held
                        ]
                    )
        except (ConnectionLost, BusRefused):
            await close_channel(channel)  # the broker requeues the originals and delivers them again
        else:
            await self._answer(held)

    def _still_held(self, deliveries: Sequence[Delivery]) -> set[int]:
        mine = f"{self._session}-"
        return {tag for each in deliveries if each.position.startswith(mine) and (tag := _tag(each)) in self._held}

    async def _answer(self, deliveries: Sequence[Delivery]) -> None:
        tags, channel, last = self._still_held(deliveries), self._channel, 0
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

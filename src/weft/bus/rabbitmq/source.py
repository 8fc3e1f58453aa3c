"""A subscriber: one channel, on which the broker hands out ``prefetch`` messages at most.

When the channel is lost, what was held is the broker's again, and all is set up anew on another. Answers for what came
over a former channel are left out: its messages are handed out again anyway.

A message that kills its subscribers would take along to the dead letters all that they hold with it each time. So when
the first to come was handed out often before, messages are taken one at a time until that is over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Final

from aiormq.abc import AbstractChannel, DeliveredMessage

from weft.bus.base import Delivery, Interest
from weft.bus.rabbitmq.errors import Lost, NotFound, driver
from weft.bus.rabbitmq.layout import NEAR, Layout
from weft.bus.rabbitmq.link import PAUSE_SECONDS, STALLED_SECONDS, Link, close
from weft.bus.rabbitmq.wire import delivery, handed_out, moved
from weft.errors import BusError, BusRefused

_MOST_PREFETCHED: Final = 65_535
_SET_UP_SECONDS: Final = 20.0


class RabbitSource:
    """See :class:`weft.bus.subscription.Source`. Made by :meth:`open`."""

    def __init__(self, link: Link, layout: Layout, interest: Interest) -> None:
        self._link = link
        self._layout = layout
        self._interest = interest
        self._ready: deque[Delivery] = deque()
        self._arrived = asyncio.Event()
        self._error: BusError | None = None
        self._session = 0  # the number of the channel
        self._careful = False
        self._held: dict[int, None] = {}  # the tags of what is not answered for, in order
        self._retries: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._leaving = asyncio.Event()  # this channel
        self._doubtful = False  # whether the queue is there at all
        self._channel: AbstractChannel
        self._keeper: asyncio.Task[None]

    @classmethod
    async def open(cls, link: Link, layout: Layout, interest: Interest) -> RabbitSource:
        """:raises BusError: it can't be had."""
        source = cls(link, layout, interest)
        try:
            async with asyncio.timeout(link.address.options.timeout):
                await source._set_up()
        except TimeoutError:
            raise link.too_late("the subscription is not in force") from None
        source._keeper = asyncio.create_task(source._keep(), name=f"channel of {interest.group or 'a subscriber'}")
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
        await self._move(deliveries, self._layout.queue(self._interest.group, dead=True), 0, reason)

    def hold(self, paused: bool) -> None:
        """Nothing to do: no more than the prefetch comes while nothing is answered for."""

    async def close(self) -> None:
        self._closing.set()
        await asyncio.gather(*self._retries, return_exceptions=True)
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        await close(self._channel)

    async def _keep(self) -> None:
        try:
            while True:
                await self._until_lost()
                self._ready.clear()
                self._held = {}
                await close(self._channel)
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
                with driver():
                    channel = await connection.channel(publisher_confirms=True)
                    try:
                        async with asyncio.timeout(_SET_UP_SECONDS):
                            await self._consume(channel)
                    except BaseException:
                        await close(channel)
                        raise
                return
            except Lost:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _consume(self, channel: AbstractChannel) -> None:
        await self._layout.declare(channel)
        if self._interest.group:
            queue = await self._layout.declare_group(channel, self._interest)
        else:
            queue = await self._layout.declare_alone(channel, self._interest)
        prefetch = 1 if self._careful else min(self._interest.prefetch, _MOST_PREFETCHED)
        await channel.basic_qos(prefetch_count=prefetch)
        self._session += 1
        self._ready.clear()
        session, self._held, self._channel = self._session, {}, channel
        leaving = self._leaving = asyncio.Event()

        async def arrived(message: DeliveredMessage) -> None:
            tag = message.delivery_tag
            if tag is None or session != self._session or leaving.is_set():
                return
            if not self._held and self._careful != (handed_out(message) >= NEAR):
                self._careful = not self._careful
                leaving.set()
                return
            self._held[tag] = None
            self._ready.append(delivery(message, f"{session}-{tag}"))
            self._arrived.set()

        def cancelled(frame: object) -> None:
            self._doubtful = True
            leaving.set()

        channel.on_consumer_cancel_callbacks.add(cancelled)
        await channel.basic_consume(queue, arrived)

    async def _check_queue(self) -> None:
        """The broker has ended the subscription: the queue was deleted, or its node went away and comes back."""

        async def look(channel: AbstractChannel) -> None:
            await self._layout.count(channel, self._layout.queue(self._interest.group))

        if self._interest.group:
            try:
                await self._link.errand(look)
            except NotFound as error:
                raise BusRefused(f"the group {self._interest.group} was forgotten") from error

    async def _retry(self, deliveries: Sequence[Delivery], after: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(after):
                await self._closing.wait()
        await self._move(deliveries, self._layout.queue(self._interest.group), 1)

    async def _move(self, deliveries: Sequence[Delivery], queue: str, more: int, reason: str = "") -> None:
        """Put copies into the queue; once they are confirmed the originals are done."""
        tags, channel = self._still_held(deliveries), self._channel
        held = [each for each in deliveries if _tag(each) in tags]
        try:
            with driver():
                async with asyncio.timeout(STALLED_SECONDS):
                    await asyncio.gather(
                        *[
                            channel.basic_publish(
                                each.payload, routing_key=queue, properties=moved(each, each.attempt + more, reason)
                            )
                            for each in held
                        ]
                    )
        except (Lost, BusRefused):
            await close(channel)  # the broker has them again, and hands them out
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
        with contextlib.suppress(Lost), driver():
            if last:
                await channel.basic_ack(last, multiple=True)
            for tag in sorted(tag for tag in tags if tag > last):
                await channel.basic_ack(tag, wait=False)


def _tag(delivery: Delivery) -> int:
    return int(delivery.position.partition("-")[2])

"""Sends messages, and sends again what the broker has not confirmed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final, cast

from aiormq import Channel, spec
from aiormq.abc import ConfirmationFrameType
from aiormq.exceptions import DeliveryError

from weft.bus.base import Message
from weft.bus.rabbitmq.errors import Different, Lost, NotFound, driver
from weft.bus.rabbitmq.layout import Layout
from weft.bus.rabbitmq.link import PAUSE_SECONDS, STALLED_SECONDS, Link, close
from weft.bus.rabbitmq.wire import properties
from weft.errors import BusRefused

Letter = tuple[Message, spec.Basic.Properties]
Answer = ConfirmationFrameType | None

_too_large: Final = re.compile(r"message size (\d+) is larger than configured max size (\d+)").search


class Publisher:
    """All publishers of a bus share one channel: their messages go out in the order of their calls."""

    def __init__(self, link: Link, layout: Layout) -> None:
        self._link = link
        self._layout = layout
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, messages: Sequence[Message]) -> None:
        """Returns when all are confirmed.

        :raises BusUnavailable: the time is up.
        :raises BusRefused: the broker does not take them.
        """
        left: list[Letter] = [(message, properties(message)) for message in messages]
        refused = ""
        what = "no answer"
        try:
            async with asyncio.timeout(self._link.address.options.timeout):
                while left:
                    try:
                        left, refused = await self._try(await self.open(), left)
                    except Lost as lost:
                        what = str(lost)
                    if left:
                        await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            count = f"{len(left)} of {len(messages)} messages are not confirmed"
            if refused:
                raise BusRefused(f"{count}: {refused}") from None
            raise self._link.too_late(f"{count}; {what}") from None

    async def open(self) -> Channel:
        """:raises Lost: try again. :raises BusRefused: the exchange is there as something else, or not allowed."""
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                connection = await self._link.connection()
                with driver():
                    channel = cast(Channel, await connection.channel(publisher_confirms=True))
                    await self._layout.declare(channel)
                self._channel = channel
            return self._channel

    async def _try(self, channel: Channel, letters: list[Letter]) -> tuple[list[Letter], str]:
        """Those that were not confirmed, and why the broker refused them, if it did."""
        exchange = self._layout.exchange
        sending = [
            asyncio.ensure_future(
                channel.basic_publish(
                    message.payload, exchange=exchange, routing_key=message.topic, properties=props, wait=False
                )
            )
            for message, props in letters
        ]
        try:
            answers = await self._answers(channel, sending)
        finally:
            for each in sending:
                each.cancel()
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if not errors:
            return [], ""
        left = [letter for letter, answer in zip(letters, answers, strict=True) if isinstance(answer, BaseException)]
        if isinstance(errors[0], DeliveryError):
            # A channel goes on to refuse what it met without a leader, even when there is one again.
            self._leave(channel)
            return left, f"the broker does not take them: {errors[0]}"
        try:
            with driver():
                raise errors[0]
        except (Lost, NotFound):  # an exchange that is gone is declared with the next channel
            return left, ""
        except Different as different:
            _check_size(str(different), left)
            return left, ""  # the channel is gone for another's message

    async def _answers(
        self, channel: Channel, sending: Sequence[asyncio.Future[Answer]]
    ) -> list[Answer | BaseException]:
        """What became of each. A channel on which nothing more is confirmed is left: when the node that leads a queue
        dies, what is published before another leads is neither kept nor refused."""
        everything = asyncio.gather(*sending, return_exceptions=True)
        answered = -1
        while not everything.done():
            await asyncio.wait([everything], timeout=STALLED_SECONDS)
            before, answered = answered, sum(each.done() for each in sending)
            if answered == before and not await self._is_blocked(channel, everything):
                self._leave(channel)
                for each in sending:
                    each.cancel()
                break
        return list(await everything)

    async def _is_blocked(self, channel: Channel, everything: asyncio.Future[Any]) -> bool:
        """Whether the broker takes nothing for being short of memory or disk; if so, returns when that is over."""
        ready = asyncio.ensure_future(channel.connection.ready())
        try:
            await asyncio.wait([ready], timeout=0)
            if ready.done():
                return False
            either: list[asyncio.Future[Any]] = [ready, everything]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return True
        finally:
            ready.cancel()

    def _leave(self, channel: Channel) -> None:
        if self._channel is channel:
            self._channel = None
        closing = asyncio.create_task(close(channel))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _check_size(text: str, letters: list[Letter]) -> None:
    found = _too_large(text)
    if not found:
        raise BusRefused(text)
    for message, _ in letters:
        if len(message.payload) == int(found[1]):
            raise BusRefused(
                f"a message of {found[1]} bytes to {message.topic} is too large: the broker takes {found[2]} at most"
            )

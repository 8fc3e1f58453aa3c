"""Publish messages to RabbitMQ with publisher confirms, and repeat those that the broker has not confirmed.

A message may be published twice if its confirmation was lost. A channel is replaced if it is lost, if the broker
rejects a message (basic.nack), or if no confirmation comes for ``ANSWER_SECONDS``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final, cast

from aiormq import Channel, spec
from aiormq.abc import ConfirmationFrameType
from aiormq.exceptions import DeliveryError

from uttu.bus.base import Message
from uttu.bus.rabbitmq.codec import to_properties
from uttu.bus.rabbitmq.topology import Topology
from uttu.clients.amqp.connection import (
    ANSWER_SECONDS,
    RETRY_SECONDS,
    AmqpConnection,
    ConnectionLost,
    DeclarationMismatch,
    EntityNotFound,
    close_channel,
    map_errors,
)
from uttu.errors import BusRefused

OutgoingMessage = tuple[Message, spec.Basic.Properties]
Confirmation = ConfirmationFrameType | None

_find_too_large: Final = re.compile(r"message size (\d+) is larger than configured max size (\d+)").search


class RabbitProducer:
    """The producer of a bus. All callers share one channel, so messages go out in the order of the calls."""

    def __init__(self, connection: AmqpConnection, topology: Topology) -> None:
        self._connection = connection
        self._topology = topology
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, messages: Sequence[Message]) -> None:
        """Publish messages; return when all are confirmed.

        :raises BusUnavailable: not all are confirmed within the address's ``timeout``.
        :raises BusRefused: the broker rejects messages until the ``timeout``, or one is too large.
        """
        left: list[OutgoingMessage] = [(message, to_properties(message)) for message in messages]
        rejection = ""
        reason = "no answer"
        try:
            async with asyncio.timeout(self._connection.address.options.timeout):
                while left:
                    try:
                        left, rejection = await self._publish(await self.open(), left)
                    except ConnectionLost as lost:
                        reason = str(lost)
                    if left:
                        await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            count = f"{len(left)} of {len(messages)} messages were not confirmed"
            if rejection:
                raise BusRefused(f"{count}: {rejection}") from None
            raise self._connection.time_out(f"{count}; {reason}") from None

    async def open(self) -> Channel:
        """Return the shared channel; open it and declare the exchanges if necessary.

        :raises ConnectionLost: try again.
        :raises BusRefused: the exchange exists with other properties, or access is denied.
        """
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                connection = await self._connection.connection()
                with map_errors():
                    channel = cast(Channel, await connection.channel(publisher_confirms=True))
                    await self._topology.declare(channel)
                self._channel = channel
            return self._channel

    async def _publish(self, channel: Channel, messages: list[OutgoingMessage]) -> tuple[list[OutgoingMessage], str]:
        """Publish once. Return the messages that were not confirmed, and the broker's reason if it rejected them."""
        exchange = self._topology.exchange
        sending = [
            asyncio.ensure_future(
                channel.basic_publish(
                    message.payload, exchange=exchange, routing_key=message.topic, properties=props, wait=False
                )
            )
            for message, props in messages
        ]
        try:
            answers = await self._wait_for_confirmations(channel, sending)
        finally:
            for each in sending:
                each.cancel()
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if not errors:
            return [], ""
        left = [message for message, answer in zip(messages, answers, strict=True) if isinstance(answer, BaseException)]
        if isinstance(errors[0], DeliveryError):
            # If a quorum queue has no leader, the broker rejects messages, and it continues to do so on this channel
            # after a new leader is elected.
            self._replace(channel)
            return left, f"RabbitMQ rejects them: {errors[0]}"
        try:
            with map_errors():
                raise errors[0]
        except (ConnectionLost, EntityNotFound):  # a deleted exchange is declared again with the next channel
            return left, ""
        except DeclarationMismatch as error:
            _check_size(str(error), left)
            return left, ""  # the broker closed the channel because of a message of another caller

    async def _wait_for_confirmations(
        self, channel: Channel, sending: Sequence[asyncio.Future[Confirmation]]
    ) -> list[Confirmation | BaseException]:
        """Wait for the confirmation or the error of each message.

        If ``ANSWER_SECONDS`` pass without a confirmation, cancel the rest and replace the channel: when the leader of a
        queue dies, messages published before the election of another are neither confirmed nor rejected.
        """
        everything = asyncio.gather(*sending, return_exceptions=True)
        answered = -1
        while not everything.done():
            await asyncio.wait([everything], timeout=ANSWER_SECONDS)
            before, answered = answered, sum(each.done() for each in sending)
            if answered == before and not await self._is_blocked(channel, everything):
                self._replace(channel)
                for each in sending:
                    each.cancel()
                break
        return list(await everything)

    async def _is_blocked(self, channel: Channel, everything: asyncio.Future[Any]) -> bool:
        """Return whether the broker blocks publishers because memory or disk is short; if so, wait until that ends."""
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

    def _replace(self, channel: Channel) -> None:
        """Stop using a channel, and close it in the background."""
        if self._channel is channel:
            self._channel = None
        closing = asyncio.create_task(close_channel(channel))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _check_size(text: str, messages: list[OutgoingMessage]) -> None:
    """:raises BusRefused: the broker closed the channel for a message in ``messages``, or not because of a size."""
    match = _find_too_large(text)
    if not match:
        raise BusRefused(text)
    for message, _ in messages:
        if len(message.payload) == int(match[1]):
            raise BusRefused(
                f"The message to {message.topic} has {match[1]} bytes, and RabbitMQ accepts at most {match[2]}. "
                "Make it smaller, or raise max_message_size"
            )

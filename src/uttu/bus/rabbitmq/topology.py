"""The exchanges and queues of a bus. EXCHANGE is the name of the bus (option ``exchange``, ``uttu`` by default).

    exchange EXCHANGE                topic, durable: receives all published messages
    queue    EXCHANGE.GROUP          durable, quorum or classic: the messages of a group; one binding per topic
    queue    EXCHANGE.GROUP:dead     durable, of the same type: the group's dead letters
    exchange EXCHANGE.GROUP:where    headers, durable: between EXCHANGE and the queue if the group has a filter
    exchange EXCHANGE:dead           direct, durable: routes messages that the broker dead-letters to the right queue
    queue    amq.gen-…               exclusive, auto-delete: a subscriber without a group
    exchange EXCHANGE:where.…        headers, auto-delete: the filter of such a subscriber

All subscribers of a group must have the same topics and filter. The broker checks this when a subscriber declares the
queue: it refuses other values of an argument, but it compares only arguments that it knows. So the check uses
``x-dead-letter-routing-key`` (``SIGNATURE_ARGUMENT``), whose value Uttu may choose freely: it contains a hash of the
topics and the filter, and the queue of dead letters is bound with the same key. ``x-uttu-takes``
(``DESCRIPTION_ARGUMENT``) has topics and filter as text, for messages and for ``groups``.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final
from uuid import uuid4

import msgspec
from aiormq.abc import AbstractChannel, ArgumentsType

from uttu.bus.base import HeaderFilter, SubscribeOptions
from uttu.clients.amqp.address import AmqpOptions
from uttu.clients.amqp.connection import map_errors

DESCRIPTION_ARGUMENT: Final = "x-uttu-takes"
SIGNATURE_ARGUMENT: Final = "x-dead-letter-routing-key"
MAX_PRIORITY: Final = 9
DELIVERY_LIMIT: Final = 20
"""How many times a quorum queue delivers a message without an acknowledgement before it dead-letters it."""
DELIVERY_LIMIT_NEAR: Final = DELIVERY_LIMIT // 2
"""From this count on, consumers take such a message alone, and ``peek`` replaces it by a copy."""

_UNLIMITED: Final = 1_000_000_000


class Topology:
    """Names, declares, counts and deletes the exchanges and queues of a bus."""

    def __init__(self, options: AmqpOptions) -> None:
        self.exchange = options.exchange
        self._type = options.queues
        self._dead_exchange = f"{options.exchange}:dead"

    def queue(self, group: str, *, dead: bool = False) -> str:
        """Return the name of a group's queue, or of the queue of its dead letters."""
        return f"{self.exchange}.{group}:dead" if dead else f"{self.exchange}.{group}"

    def group(self, queue: str) -> str | None:
        """Return the group of a queue, or None for other queues and for dead letters."""
        prefix, _, group = queue.partition(".")
        return group if prefix == self.exchange and group and ":" not in group else None

    async def declare(self, channel: AbstractChannel) -> None:
        """Declare the two exchanges of the bus."""
        await channel.exchange_declare(self.exchange, exchange_type="topic", durable=True)
        await channel.exchange_declare(self._dead_exchange, exchange_type="direct", durable=True)

    async def declare_group(self, channel: AbstractChannel, options: SubscribeOptions) -> str:
        """Declare the queues, the filter and the bindings of a group; return the name of its queue.

        If the group exists with other topics or another filter, the broker refuses with a mismatch of
        ``SIGNATURE_ARGUMENT``.
        """
        queue, dead = self.queue(options.group), self.queue(options.group, dead=True)
        await channel.queue_declare(queue, durable=True, arguments=self._arguments(options))
        await channel.queue_declare(dead, durable=True, arguments=self._dead_arguments())
        await channel.queue_bind(dead, self._dead_exchange, _signature(options))
        where = f"{queue}:where"
        if options.where is not None:
            await channel.exchange_declare(where, exchange_type="headers", durable=True, internal=True)
        await self._bind(channel, queue, where, options)
        return queue

    async def declare_broadcast(self, channel: AbstractChannel, options: SubscribeOptions) -> str:
        """Declare the queue of a subscriber without a group; return its name."""
        declared = await channel.queue_declare("", exclusive=True, auto_delete=True)
        queue, where = declared.queue or "", f"{self.exchange}:where.{uuid4().hex}"
        if options.where is not None:
            await channel.exchange_declare(where, exchange_type="headers", auto_delete=True, internal=True)
        await self._bind(channel, queue, where, options)
        return queue

    async def count(self, channel: AbstractChannel, queue: str) -> tuple[int, int]:
        """Return the number of waiting messages and of subscribers of a queue.

        :raises EntityNotFound: the queue does not exist.
        """
        with map_errors():
            declared = await channel.queue_declare(queue, passive=True)
        return declared.message_count or 0, declared.consumer_count or 0

    async def delete_group(self, channel: AbstractChannel, group: str) -> int:
        """Delete the queues and the filter of a group; return the number of deleted messages.

        :raises EntityNotFound: the group does not exist.
        """
        await self.count(channel, self.queue(group))
        await channel.exchange_delete(f"{self.queue(group)}:where")
        deleted = [await channel.queue_delete(self.queue(group, dead=dead)) for dead in (False, True)]
        return sum(answer.message_count or 0 for answer in deleted)

    async def _bind(self, channel: AbstractChannel, queue: str, where: str, options: SubscribeOptions) -> None:
        if options.where is not None:
            await channel.queue_bind(queue, where, arguments=_match_arguments(options.where))
        for topic in options.topics:
            if options.where is not None:
                await channel.exchange_bind(where, self.exchange, topic)
            else:
                await channel.queue_bind(queue, self.exchange, topic)

    def _arguments(self, options: SubscribeOptions) -> ArgumentsType:
        arguments: ArgumentsType = {
            "x-queue-type": self._type,
            "x-dead-letter-exchange": self._dead_exchange,
            SIGNATURE_ARGUMENT: _signature(options),
            DESCRIPTION_ARGUMENT: describe_subscription(options),
        }
        if self._type == "classic":
            return arguments | {"x-max-priority": MAX_PRIORITY}
        return arguments | {
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }

    def _dead_arguments(self) -> ArgumentsType:
        if self._type == "classic":
            return {"x-queue-type": "classic"}
        # RabbitMQ 4 has a default delivery limit, and each peek at the dead letters counts as a delivery.
        return {"x-queue-type": "quorum", "x-delivery-limit": _UNLIMITED}


def _match_arguments(where: HeaderFilter) -> ArgumentsType:
    # A headers exchange ignores headers that start with "x-", except with any-with-x or all-with-x.
    with_x = "-with-x" if any(name.startswith("x-") for name in where.headers) else ""
    return {**where.headers, "x-match": ("any" if where.any else "all") + with_x}


def describe_subscription(options: SubscribeOptions) -> str:
    """Return topics and filter as text. Two subscriptions have the same text exactly if they are equal."""
    text = " ".join(sorted(set(options.topics)))
    if options.where is None:
        return text
    headers = msgspec.json.encode(dict(sorted(options.where.headers.items()))).decode()
    return f"{text} where {'any' if options.where.any else 'all'} of {headers}"


def parse_topics(description: str) -> tuple[str, ...]:
    """Return the topics in the text of :func:`describe_subscription`."""
    return tuple(description.partition(" where ")[0].split())


def _signature(options: SubscribeOptions) -> str:
    return f"{options.group} {sha256(describe_subscription(options).encode()).hexdigest()[:16]}"

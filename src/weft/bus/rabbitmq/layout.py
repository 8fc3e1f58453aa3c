"""What a bus has on the broker; EXCHANGE is the bus's name, ``weft`` unless told otherwise.

    exchange EXCHANGE                topic, durable: everything is published to it
    queue    EXCHANGE.GROUP          durable, quorum or classic: what waits for a group, bound by each of its topics
    queue    EXCHANGE.GROUP:dead     durable, of the same type: the group's dead letters
    exchange EXCHANGE.GROUP:where    headers, durable: stands between the two if the group has a filter
    exchange EXCHANGE:dead           direct, durable: leads what the broker itself gives up to the group's dead letters
    queue    amq.gen-…               exclusive, goes with its subscriber: one without a group
    exchange EXCHANGE:where.…        headers, goes with that queue: its filter

A group's topics and filter must be compared by the broker when another subscriber declares the queue, and of a queue's
arguments it compares only those it knows. One that it knows, and leaves to us, is the routing key for what it gives up:
it is made from what the group takes, and the dead letters are bound by it. ``x-weft-takes`` says it in words.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final
from uuid import uuid4

import msgspec
from aiormq.abc import AbstractChannel, ArgumentsType

from weft.bus.base import Interest, Where
from weft.bus.rabbitmq.address import Options
from weft.bus.rabbitmq.errors import driver
from weft.errors import BusRefused

TAKES: Final = "x-weft-takes"
MARK: Final = "x-dead-letter-routing-key"
MAX_PRIORITY: Final = 9
HANDED_OUT: Final = 20
"""So often a quorum queue hands out a message that nobody answers for; then it is a dead letter."""
NEAR: Final = HANDED_OUT // 2
"""From here on such a message is treated with care."""

_UNLIMITED: Final = 1_000_000_000


class Layout:
    """The names, and how it all is declared."""

    def __init__(self, options: Options) -> None:
        self.exchange = options.exchange
        self._type = options.queues
        self._dead_exchange = f"{options.exchange}:dead"

    def queue(self, group: str, *, dead: bool = False) -> str:
        return f"{self.exchange}.{group}:dead" if dead else f"{self.exchange}.{group}"

    def group(self, queue: str) -> str | None:
        """Whose queue it is; None if it is no group's."""
        prefix, _, group = queue.partition(".")
        return group if prefix == self.exchange and group and ":" not in group else None

    async def declare(self, channel: AbstractChannel) -> None:
        """The bus itself."""
        await channel.exchange_declare(self.exchange, exchange_type="topic", durable=True)
        await channel.exchange_declare(self._dead_exchange, exchange_type="direct", durable=True)

    async def declare_group(self, channel: AbstractChannel, interest: Interest) -> str:
        """The queue of a group; in force, with all that belongs to it, when this returns.

        That it takes something else is refused for the argument ``MARK``.
        """
        queue, dead = self.queue(interest.group), self.queue(interest.group, dead=True)
        await channel.queue_declare(queue, durable=True, arguments=self._arguments(interest))
        await channel.queue_declare(dead, durable=True, arguments=self._dead_arguments())
        await channel.queue_bind(dead, self._dead_exchange, _mark(interest))
        where = f"{queue}:where"
        if interest.where is not None:
            await channel.exchange_declare(where, exchange_type="headers", durable=True, internal=True)
        await self._bind(channel, queue, where, interest)
        return queue

    async def declare_alone(self, channel: AbstractChannel, interest: Interest) -> str:
        """The queue of a subscriber without a group."""
        declared = await channel.queue_declare("", exclusive=True, auto_delete=True)
        queue, where = declared.queue or "", f"{self.exchange}:where.{uuid4().hex}"
        if interest.where is not None:
            await channel.exchange_declare(where, exchange_type="headers", auto_delete=True, internal=True)
        await self._bind(channel, queue, where, interest)
        return queue

    async def count(self, channel: AbstractChannel, queue: str) -> tuple[int, int]:
        """How many messages wait in it, and how many subscribers it has.

        :raises NotFound: there is no such queue.
        """
        with driver():
            found = await channel.queue_declare(queue, passive=True)
        return found.message_count or 0, found.consumer_count or 0

    async def forget(self, channel: AbstractChannel, group: str) -> int:
        """Delete all that a group has; how many messages that were."""
        await self.count(channel, self.queue(group))
        await channel.exchange_delete(f"{self.queue(group)}:where")
        deleted = [await channel.queue_delete(self.queue(group, dead=dead)) for dead in (False, True)]
        return sum(answer.message_count or 0 for answer in deleted)

    async def _bind(self, channel: AbstractChannel, queue: str, where: str, interest: Interest) -> None:
        if interest.where is not None:
            await channel.queue_bind(queue, where, arguments=_match(interest.where))
        for topic in interest.topics:
            if interest.where is not None:
                await channel.exchange_bind(where, self.exchange, topic)
            else:
                await channel.queue_bind(queue, self.exchange, topic)

    def _arguments(self, interest: Interest) -> ArgumentsType:
        arguments: ArgumentsType = {
            "x-queue-type": self._type,
            "x-dead-letter-exchange": self._dead_exchange,
            MARK: _mark(interest),
            TAKES: takes(interest),
        }
        if self._type == "classic":
            return arguments | {"x-max-priority": MAX_PRIORITY}
        return arguments | {
            "x-delivery-limit": HANDED_OUT,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }

    def _dead_arguments(self) -> ArgumentsType:
        if self._type == "classic":
            return {"x-queue-type": "classic"}
        # Newer brokers have a limit where none is set, and each look at a dead letter counts.
        return {"x-queue-type": "quorum", "x-delivery-limit": _UNLIMITED}


def no_group(group: str) -> BusRefused:
    return BusRefused(f"there is no group {group}")


def _match(where: Where) -> ArgumentsType:
    # Headers that begin with "x-" are left out, unless told.
    with_x = "-with-x" if any(name.startswith("x-") for name in where.headers) else ""
    return {**where.headers, "x-match": ("any" if where.any else "all") + with_x}


def takes(interest: Interest) -> str:
    """What a subscriber takes, in words; the same for what is the same, and for nothing else."""
    text = " ".join(sorted(set(interest.topics)))
    if interest.where is None:
        return text
    headers = msgspec.json.encode(dict(sorted(interest.where.headers.items()))).decode()
    return f"{text} where {'any' if interest.where.any else 'all'} of {headers}"


def topics(words: str) -> tuple[str, ...]:
    """Those in what :func:`takes` says."""
    return tuple(words.partition(" where ")[0].split())


def _mark(interest: Interest) -> str:
    return f"{interest.group} {sha256(takes(interest).encode()).hexdigest()[:16]}"

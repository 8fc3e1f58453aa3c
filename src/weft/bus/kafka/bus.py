"""A Bus on Kafka.

    topic        Kafka's topic of that name, made when it is first published or subscribed to
    group        Kafka's consumer group of that name
    key          decides on the partition, so that its messages stay in order
    GROUP..dead  the topic of a group's dead letters, with one partition

A group is made with all its positions committed, before the first subscriber joins: so it misses nothing from then on,
and is there although it has read nothing. Its position in the topic of its dead letters, which is never read, is there
for a group whose patterns do not match a topic yet. What has no position, because the topic or the partition is newer
than the group, is read from its beginning.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

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
    check_message,
    check_wishes,
)
from weft.bus.kafka.address import Address, parse
from weft.bus.kafka.catalog import Catalog
from weft.bus.kafka.errors import LOGIN, the_error, told
from weft.bus.kafka.listening import Listening
from weft.bus.kafka.member import Member
from weft.bus.kafka.overview import Overview
from weft.bus.kafka.sender import Sender
from weft.bus.kafka.source import KafkaSource
from weft.bus.kafka.watch import Watch
from weft.bus.kafka.wire import dead_topic, record
from weft.bus.subscription import Pump
from weft.bus.topics import check_topic, is_pattern
from weft.errors import BusError, BusRefused, ConfigError

_CAPABILITIES: Final = frozenset({Capability.DURABLE, Capability.ORDER_BY_KEY, Capability.REPLAY})
_CONNECT_SECONDS: Final = 10.0


class KafkaBus:
    """See :class:`weft.bus.base.Bus`."""

    capabilities = _CAPABILITIES

    def __init__(self, address: Address, admin: AdminClient) -> None:
        self._address = address
        self._watch = Watch(admin, address.brokers)
        self._catalog = Catalog(address, admin)
        self._overview = Overview(address, admin, self._catalog)
        self._sender = Sender(address, self._watch.trouble)
        self._pumps: set[Pump] = set()
        self._closed = False

    @classmethod
    async def connect(cls, url: str) -> Self:
        """:raises ConfigError: the URL can't be used.
        :raises BusUnavailable: no broker can be reached.
        :raises BusRefused: the login is not accepted.
        """
        address = parse(url)
        return cls(address, await asyncio.to_thread(_reach, address))

    async def publish(self, messages: Sequence[Message]) -> None:
        self._check_open()
        topics = {message.topic for message in messages}
        for topic in topics:
            check_topic(topic)
        for message in messages:
            if message.priority or message.delay:
                check_message(message)
                check_wishes(message, self.capabilities)
        if not messages:
            return
        await self._catalog.ensure(topics)
        try:
            await self._sender.send([record(message) for message in messages])
        except BusRefused:
            self._catalog.forget(topics)  # perhaps one was removed
            raise

    async def subscribe(self, interest: Interest, handler: Handler) -> Subscription:
        self._check_open()
        await self._catalog.ensure([topic for topic in interest.topics if not is_pattern(topic)])
        source = await (self._join(interest) if interest.group else self._follow(interest))
        pump = Pump(interest, handler, source, self._pumps.discard)
        self._pumps.add(pump)
        return pump

    async def groups(self, *names: str) -> list[Group]:
        self._check_open()
        return await self._overview.groups(*names)

    async def peek(self, group: str, limit: int = 10, *, dead: bool = False) -> list[Delivery]:
        self._check_open()
        return await self._overview.peek(group, limit, dead)

    async def purge(self, group: str, *, dead: bool = False, forget: bool = False) -> int:
        self._check_open()
        return await self._overview.purge(group, dead, forget)

    def listen(self, listener: Listener) -> None:
        self._watch.listen(listener)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*[pump.close() for pump in self._pumps])
        await asyncio.gather(self._sender.close(), self._overview.close())
        await self._watch.close()

    async def _join(self, interest: Interest) -> KafkaSource:
        there = await self._catalog.matching(interest.topics)
        await self._make_group(interest, there)
        source = KafkaSource(
            lambda taker: Member(self._address, interest, taker, self._watch.trouble), self._sender, interest.group
        )
        # Nobody joins for the sake of topics that are not there yet.
        await source.start(self._address.options.timeout if there else 0)
        return source

    async def _make_group(self, interest: Interest, there: dict[str, int]) -> None:
        group = interest.group
        mark = (dead_topic(group), 0)
        await self._catalog.ensure([mark[0]], partitions=1)
        known = await self._overview.positions(group)
        topics = {topic for topic, _ in known}
        # A topic that is named, and that the group has no position in, is new to it. Of those that a pattern takes
        # this can't be known: they may be newer than the group, so nothing of them may be left out.
        new = [topic for topic in there if not known or (topic in interest.topics and topic not in topics)]
        if not new and mark in known:
            return
        spans = await self._overview.spans([(topic, number) for topic in new for number in range(there[topic])])
        start = 0 if interest.start == "earliest" else 1
        # If others of the group are at work by now, it is theirs, and they have seen to it.
        await self._overview.move(group, {place: span[start] for place, span in spans.items()} | {mark: 0})

    async def _follow(self, interest: Interest) -> KafkaSource:
        there = await self._catalog.matching(interest.topics)
        spans = await self._overview.spans([(topic, number) for topic in there for number in range(there[topic])])
        ends = {place: end for place, (_, end) in spans.items()}
        source = KafkaSource(
            lambda taker: Listening(self._address, interest, taker, self._watch.trouble, ends), self._sender, ""
        )
        await source.start(0)
        return source

    def _check_open(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")


def _reach(address: Address) -> AdminClient:
    seen: list[KafkaError] = []
    try:
        admin = AdminClient(address.client() | {"error_cb": seen.append})
    except KafkaException as error:
        raise ConfigError(f"Kafka at {address.brokers} can't be used so: {the_error(error).str()}") from error
    deadline = time.monotonic() + min(address.options.timeout, _CONNECT_SECONDS)
    while True:
        try:
            admin.list_topics(timeout=min(1.0, address.options.timeout))
            return admin
        except KafkaException as error:
            admin.poll(0)
            for refusal in seen:
                if refusal.code() in LOGIN:
                    raise told(refusal, address.brokers, f"the login of {address.user or 'nobody'}") from error
            if time.monotonic() > deadline:
                last = seen[-1] if seen else the_error(error)
                raise told(last, address.brokers, "can't connect") from error


_: type[Bus] = KafkaBus

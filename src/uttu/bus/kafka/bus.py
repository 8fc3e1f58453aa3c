"""The Bus on Kafka.

    topic        the topic of that name, created at the first publish or subscribe
    group        the consumer group of that name
    key          determines the partition, so messages with the same key stay in order
    GROUP..dead  the topic of a group's dead letters, with one partition

``subscribe`` creates a group: it commits offsets for all partitions before the first subscriber joins. So the group
exists and misses no message, although it has read nothing. It also commits an offset in the topic of its dead letters,
which no subscriber reads: with it the group exists even if its patterns match no topic yet. A partition without an
offset is newer than the group, and is read from its beginning.

:class:`ConnectionMonitor` calls listeners when no broker answers. The driver reports ``_ALL_BROKERS_DOWN`` also when
idle connections were closed, so the monitor checks with a request to the brokers before it calls them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from uttu.bus.base import (
    Bus,
    Capability,
    Delivery,
    Group,
    Handler,
    Message,
    SubscribeOptions,
    Subscription,
    check_capabilities,
    check_message,
)
from uttu.bus.consumer import ConsumerLoop
from uttu.bus.kafka.admin import KafkaGroups, KafkaTopics
from uttu.bus.kafka.codec import dead_topic, to_record
from uttu.bus.kafka.consumer import BroadcastReader, GroupReader, KafkaConsumer
from uttu.bus.kafka.producer import KafkaProducer
from uttu.bus.topics import check_topic, is_pattern
from uttu.clients import ConnectionListener, ConnectionState
from uttu.clients.kafka import LOGIN, KafkaAddress, get_error, parse_address, to_bus_error
from uttu.errors import BusError, BusRefused, ConfigError

_ASK_SECONDS: Final = 1.0
_log = logging.getLogger("uttu.bus")


class ConnectionMonitor:
    """Calls listeners when the brokers stop answering, and when they answer again."""

    def __init__(self, admin: AdminClient, brokers: str) -> None:
        self._admin = admin
        self._brokers = brokers
        self._listeners: list[ConnectionListener] = []
        self._loop = asyncio.get_running_loop()
        self._asking: asyncio.Task[None] | None = None
        self._closed = False

    def listen(self, listener: ConnectionListener) -> None:
        self._listeners.append(listener)

    def trouble(self, error: KafkaError) -> None:
        """Handle an error of the driver (``error_cb``); called in any thread."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._doubt)

    async def close(self) -> None:
        self._closed = True
        if self._asking:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        self._tell(ConnectionState.CLOSED, "closed")

    def _doubt(self) -> None:
        if self._asking is None and not self._closed:
            self._asking = asyncio.create_task(self._ask(), name="ask for a Kafka broker")

    async def _ask(self) -> None:
        lost = False
        try:
            while True:
                try:
                    await asyncio.to_thread(self._admin.list_topics, timeout=_ASK_SECONDS)
                except (KafkaException, RuntimeError) as error:
                    if not lost:
                        why = get_error(error).str()
                        self._tell(ConnectionState.LOST, f"no broker at {self._brokers} answers: {why}")
                    lost = True
                    await asyncio.sleep(_ASK_SECONDS / 10)
                else:
                    break
        finally:
            self._asking = None
        if lost:
            self._tell(ConnectionState.UP, f"a broker at {self._brokers} answers again")

    def _tell(self, state: ConnectionState, why: str) -> None:
        _log.info("Kafka: %s: %s", state.value, why)
        for listener in self._listeners:
            listener(state, why)


_CAPABILITIES: Final = frozenset({Capability.DURABLE, Capability.ORDER_BY_KEY, Capability.REPLAY})
_CONNECT_SECONDS: Final = 10.0


class KafkaBus:
    """See :class:`uttu.bus.base.Bus`. Create it with :meth:`connect`."""

    capabilities = _CAPABILITIES

    def __init__(self, address: KafkaAddress, admin: AdminClient) -> None:
        self._address = address
        self._watch = ConnectionMonitor(admin, address.brokers)
        self._topics = KafkaTopics(address, admin)
        self._groups_admin = KafkaGroups(address, admin, self._topics)
        self._sender = KafkaProducer(address, self._watch.trouble)
        self._subscriptions: set[ConsumerLoop] = set()
        self._closed = False

    @classmethod
    async def connect(cls, url: str) -> Self:
        """Connect to the cluster of a ``kafka://`` URL.

        :raises ConfigError: the URL is malformed, or the driver rejects a setting.
        :raises BusUnavailable: no broker can be reached.
        :raises BusRefused: the login is not accepted.
        """
        address = parse_address(url)
        return cls(address, await asyncio.to_thread(_connect_admin, address))

    async def publish(self, messages: Sequence[Message]) -> None:
        self._check_open()
        topics = {message.topic for message in messages}
        for topic in topics:
            check_topic(topic)
        for message in messages:
            if message.priority or message.delay:
                check_message(message)
                check_capabilities(message, self.capabilities)
        if not messages:
            return
        await self._topics.ensure(topics)
        try:
            await self._sender.send([to_record(message) for message in messages])
        except BusRefused:
            self._topics.forget(topics)  # a topic may have been deleted: check again at the next publish
            raise

    async def subscribe(self, options: SubscribeOptions, handler: Handler) -> Subscription:
        self._check_open()
        await self._topics.ensure([topic for topic in options.topics if not is_pattern(topic)])
        source = await (self._join(options) if options.group else self._follow(options))
        pump = ConsumerLoop(options, handler, source, self._subscriptions.discard)
        self._subscriptions.add(pump)
        return pump

    async def groups(self, *names: str) -> list[Group]:
        self._check_open()
        return await self._groups_admin.groups(*names)

    async def peek(self, group: str, limit: int = 10, *, dead: bool = False) -> list[Delivery]:
        self._check_open()
        return await self._groups_admin.peek(group, limit, dead)

    async def purge(self, group: str, *, dead: bool = False, forget: bool = False) -> int:
        self._check_open()
        return await self._groups_admin.purge(group, dead, forget)

    def listen(self, listener: ConnectionListener) -> None:
        self._watch.listen(listener)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*[pump.close() for pump in self._subscriptions])
        await asyncio.gather(self._sender.close(), self._groups_admin.close())
        await self._watch.close()

    async def _join(self, options: SubscribeOptions) -> KafkaConsumer:
        there = await self._topics.matching(options.topics)
        await self._make_group(options, there)
        source = KafkaConsumer(
            lambda taker: GroupReader(self._address, options, taker, self._watch.trouble), self._sender, options.group
        )
        # Without a matching topic there is no assignment to wait for.
        await source.start(self._address.options.timeout if there else 0)
        return source

    async def _make_group(self, options: SubscribeOptions, there: dict[str, int]) -> None:
        group = options.group
        mark = (dead_topic(group), 0)
        await self._topics.ensure([mark[0]], partitions=1)
        known = await self._groups_admin.positions(group)
        topics = {topic for topic, _ in known}
        # A topic that is subscribed by name and has no committed offset is new to the group, so `start` applies to it.
        # A topic that matches a pattern may have been created after the group, so it must be read from its beginning.
        new = [topic for topic in there if not known or (topic in options.topics and topic not in topics)]
        if not new and mark in known:
            return
        spans = await self._groups_admin.spans([(topic, number) for topic in new for number in range(there[topic])])
        start = 0 if options.start == "earliest" else 1
        # move() fails if the group has subscribers by now; in that case they have committed the offsets.
        await self._groups_admin.move(group, {place: span[start] for place, span in spans.items()} | {mark: 0})

    async def _follow(self, options: SubscribeOptions) -> KafkaConsumer:
        there = await self._topics.matching(options.topics)
        spans = await self._groups_admin.spans([(topic, number) for topic in there for number in range(there[topic])])
        ends = {place: end for place, (_, end) in spans.items()}
        source = KafkaConsumer(
            lambda taker: BroadcastReader(self._address, options, taker, self._watch.trouble, ends), self._sender, ""
        )
        await source.start(0)
        return source

    def _check_open(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")


def _connect_admin(address: KafkaAddress) -> AdminClient:
    seen: list[KafkaError] = []
    try:
        admin = AdminClient(address.client() | {"error_cb": seen.append})
    except KafkaException as error:
        raise ConfigError(f"Kafka at {address.brokers} can't be used so: {get_error(error).str()}") from error
    deadline = time.monotonic() + min(address.options.timeout, _CONNECT_SECONDS)
    while True:
        try:
            admin.list_topics(timeout=min(1.0, address.options.timeout))
            return admin
        except KafkaException as error:
            admin.poll(0)
            for refusal in seen:
                if refusal.code() in LOGIN:
                    raise to_bus_error(refusal, address.brokers, f"the login of {address.user or 'nobody'}") from error
            if time.monotonic() > deadline:
                last = seen[-1] if seen else get_error(error)
                raise to_bus_error(last, address.brokers, "can't connect") from error


_: type[Bus] = KafkaBus

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

from uttu.bus.backend import BaseBus
from uttu.bus.base import (
    Bus,
    BusAdmin,
    BusDescription,
    Capability,
    Delivery,
    Group,
    Message,
    SubscribeOptions,
    check_capabilities,
    check_message,
)
from uttu.bus.kafka.admin import KafkaGroups, KafkaTopics
from uttu.bus.kafka.assignment import BroadcastReader, GroupReader
from uttu.bus.kafka.codec import dead_topic, to_record, to_republished_record
from uttu.bus.kafka.consumer import KafkaConsumer
from uttu.bus.kafka.partition import PartitionId
from uttu.bus.kafka.producer import KafkaProducer
from uttu.bus.topics import check_topic, is_pattern
from uttu.clients import ConnectionListener, ConnectionListeners, ConnectionState
from uttu.clients.kafka import LOGIN, KafkaAddress, get_error, parse_address, to_bus_error
from uttu.errors import BusRefused, ConfigError

_CHECK_SECONDS: Final = 1.0
_log = logging.getLogger("uttu.bus")


class ConnectionMonitor:
    """Calls listeners when the brokers stop answering, and when they answer again."""

    def __init__(self, admin: AdminClient, brokers: str) -> None:
        self._admin = admin
        self._brokers = brokers
        self._listeners = ConnectionListeners()
        self._loop = asyncio.get_running_loop()
        self._checking: asyncio.Task[None] | None = None
        self._is_closed = False

    def listen(self, listener: ConnectionListener) -> None:
        self._listeners.add(listener)

    def on_error(self, error: KafkaError) -> None:
        """Handle an error of the driver (``error_cb``); called in any thread."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._start_check)

    async def close(self) -> None:
        self._is_closed = True
        if self._checking:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
        self._report(ConnectionState.CLOSED, "closed")

    def _start_check(self) -> None:
        if self._checking is None and not self._is_closed:
            self._checking = asyncio.create_task(self._check_brokers(), name="check of the Kafka brokers")

    async def _check_brokers(self) -> None:
        is_lost = False
        try:
            while True:
                try:
                    await asyncio.to_thread(self._admin.list_topics, timeout=_CHECK_SECONDS)
                except (KafkaException, RuntimeError) as error:
                    if not is_lost:
                        self._report(
                            ConnectionState.LOST, f"No broker at {self._brokers} answers: {get_error(error).str()}"
                        )
                    is_lost = True
                    await asyncio.sleep(_CHECK_SECONDS / 10)
                else:
                    break
        finally:
            self._checking = None
        if is_lost:
            self._report(ConnectionState.UP, f"A broker at {self._brokers} answers again")

    def _report(self, state: ConnectionState, reason: str) -> None:
        _log.info("Kafka: %s: %s", state.value, reason)
        self._listeners.notify(state, reason)


_CAPABILITIES: Final = frozenset({Capability.DURABLE, Capability.ORDER_BY_KEY, Capability.REPLAY})
_CONNECT_SECONDS: Final = 10.0
_REPUBLISHED: Final = 500  # dead letters that are republished at once


class KafkaBus(BaseBus):
    """See :class:`uttu.bus.base.Bus`. Create it with :meth:`connect`."""

    capabilities = _CAPABILITIES

    def __init__(self, address: KafkaAddress, admin: AdminClient) -> None:
        super().__init__()
        self._address = address
        self._monitor = ConnectionMonitor(admin, address.brokers)
        self._topics = KafkaTopics(address, admin)
        self._groups = KafkaGroups(address, admin, self._topics)
        self._producer = KafkaProducer(address, self._monitor.on_error)

    @classmethod
    async def connect(cls, url: str) -> Self:
        """Connect to the cluster of a ``kafka://`` URL.

        :raises ConfigError: the URL is malformed, or the driver rejects a setting.
        :raises BusUnavailable: no broker can be reached.
        :raises BusRefused: the login is not accepted.
        """
        address = parse_address(url)
        return cls(address, await asyncio.to_thread(_connect_admin, address))

    async def groups(self, *names: str) -> list[Group]:
        self._check_open()
        return await self._groups.groups(*names)

    async def peek(self, group: str, limit: int = 10, *, dead: bool = False) -> list[Delivery]:
        self._check_open()
        return await self._groups.peek(group, limit, dead)

    async def purge(self, group: str, *, dead: bool = False, forget: bool = False) -> int:
        self._check_open()
        return await self._groups.purge(group, dead, forget)

    async def describe(self) -> BusDescription:
        self._check_open()
        return await self._groups.describe()

    async def republish(self, group: str, limit: int) -> int:
        self._check_open()
        moved = 0
        while moved < limit:
            letters = await self._groups.peek(group, min(limit - moved, _REPUBLISHED), dead=True)
            if not letters:
                break
            await self._topics.ensure({letter.topic for letter in letters})
            await self._producer.send([to_republished_record(group, letter) for letter in letters])
            await self._groups.delete_dead(group, letters)
            moved += len(letters)
        return moved

    def listen(self, listener: ConnectionListener) -> None:
        self._monitor.listen(listener)

    def _prepare(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Validate messages, each topic once. They need no ids: a message without one is identified by its position."""
        for topic in {message.topic for message in messages}:
            check_topic(topic)
        for message in messages:
            if message.priority or message.delay:
                check_message(message)
                check_capabilities(message, self.capabilities)
        return messages

    async def _send(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        topics = {message.topic for message in messages}
        await self._topics.ensure(topics)
        try:
            await self._producer.send([to_record(message) for message in messages])
        except BusRefused:
            self._topics.forget(topics)  # a topic may have been deleted: check again at the next publish
            raise

    async def _open_consumer(self, options: SubscribeOptions) -> KafkaConsumer:
        await self._topics.ensure([topic for topic in options.topics if not is_pattern(topic)])
        return await (self._join_group(options) if options.group else self._open_broadcast(options))

    async def _disconnect(self) -> None:
        await asyncio.gather(self._producer.close(), self._groups.close())
        await self._monitor.close()

    async def _join_group(self, options: SubscribeOptions) -> KafkaConsumer:
        existing = await self._topics.matching(options.topics)
        await self._create_group(options, existing)
        consumer = KafkaConsumer(
            lambda listener: GroupReader(self._address, options, listener, self._monitor.on_error),
            self._producer,
            options.group,
        )
        # Without a matching topic there is no assignment to wait for.
        await consumer.start(self._address.options.timeout if existing else 0)
        return consumer

    async def _create_group(self, options: SubscribeOptions, existing: dict[str, int]) -> None:
        """Commit offsets for partitions that are new to the group.

        :param existing: the topics that match, with their numbers of partitions.
        """
        group = options.group
        marker = (dead_topic(group), 0)
        await self._topics.ensure([marker[0]], partitions=1)
        committed = await self._groups.committed(group)
        committed_topics = {topic for topic, _ in committed}
        # A topic that is subscribed by name and has no committed offset is new to the group, so `start` applies to it.
        # A topic that matches a pattern may have been created after the group, so it must be read from its beginning.
        new = [
            topic for topic in existing if not committed or (topic in options.topics and topic not in committed_topics)
        ]
        if not new and marker in committed:
            return
        ranges = await self._groups.ranges(_list_partitions({topic: existing[topic] for topic in new}))
        start = 0 if options.start == "earliest" else 1
        # set_offsets() fails if the group has subscribers by now; in that case they have committed the offsets.
        await self._groups.set_offsets(group, {place: span[start] for place, span in ranges.items()} | {marker: 0})

    async def _open_broadcast(self, options: SubscribeOptions) -> KafkaConsumer:
        ranges = await self._groups.ranges(_list_partitions(await self._topics.matching(options.topics)))
        ends = {partition: end for partition, (_, end) in ranges.items()}
        consumer = KafkaConsumer(
            lambda listener: BroadcastReader(self._address, options, listener, self._monitor.on_error, ends),
            self._producer,
            "",
        )
        await consumer.start(0)
        return consumer


def _list_partitions(topics: dict[str, int]) -> list[PartitionId]:
    return [(topic, number) for topic, count in topics.items() for number in range(count)]


def _connect_admin(address: KafkaAddress) -> AdminClient:
    errors: list[KafkaError] = []
    try:
        admin = AdminClient(address.client() | {"error_cb": errors.append})
    except KafkaException as error:
        raise ConfigError(f"Kafka at {address.brokers}: invalid settings: {get_error(error).str()}") from error
    deadline = time.monotonic() + min(address.options.timeout, _CONNECT_SECONDS)
    while True:
        try:
            admin.list_topics(timeout=min(1.0, address.options.timeout))
            return admin
        except KafkaException as error:
            admin.poll(0)
            for refusal in errors:
                if refusal.code() in LOGIN:
                    user = address.user or "nobody"
                    raise to_bus_error(refusal, address.brokers, f"Cannot log in as {user}") from error
            if time.monotonic() > deadline:
                last = errors[-1] if errors else get_error(error)
                raise to_bus_error(last, address.brokers, "Cannot connect") from error


_: type[Bus] = KafkaBus
_admin: type[BusAdmin] = KafkaBus

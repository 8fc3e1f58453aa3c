"""Topics and groups of a Kafka cluster: create, list, count, peek and purge.

:class:`KafkaTopics` creates topics at their first use. Kafka can create a topic when a message is sent to it
(``auto.create.topics.enable``), but many clusters disable this, and the number of partitions would be the brokers'
default.

:class:`KafkaGroups` inspects and changes groups. A group's lag is the distance from its committed offsets to the ends
of its partitions. Kafka does not know how many messages subscribers hold, so these count as ready.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

import msgspec
from confluent_kafka import (
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from uttu.bus.backend import group_not_found
from uttu.bus.base import BusDescription, Delivery, DetailTable, Group, TopicState
from uttu.bus.kafka.codec import INTERNAL_TOPICS, dead_topic, is_dead_topic
from uttu.bus.kafka.offsets import CommittedOffsets, OffsetRange, count_offsets, read_first
from uttu.bus.kafka.partition import PartitionId
from uttu.bus.topics import matches
from uttu.clients.kafka import DENIED, IN_USE, KafkaAddress, Key, gather_answers, get_error_code, map_errors
from uttu.errors import BusRefused, BusUnavailable

_TOPIC_POLL_SECONDS: Final = 0.02


class KafkaTopics:
    """Creates and lists topics, and remembers which exist."""

    def __init__(self, address: KafkaAddress, admin: AdminClient) -> None:
        self._address = address
        self._admin = admin
        self._known: set[str] = set()
        self._creating = asyncio.Lock()

    async def ensure(self, topics: Iterable[str], partitions: int = 0) -> None:
        """Create the topics that do not exist; return when all of them have leaders.

        :param partitions: number of partitions of a new topic; 0 for the option in the address.
        :raises BusRefused: a topic does not exist, and creating it is refused.
        :raises BusUnavailable: Kafka does not answer.
        """
        if self._known.issuperset(topics):
            return
        async with self._creating:
            wanted = set(topics) - self._known
            missing = wanted - (await self.partitions()).keys()
            await self._create(missing, partitions or self._address.options.partitions)
            if missing:
                await self._wait_for_leaders(missing)
            self._known |= wanted

    def forget(self, topics: Iterable[str]) -> None:
        """Check at the next :meth:`ensure` whether these topics still exist."""
        self._known.difference_update(topics)

    async def partitions(self) -> dict[str, int]:
        """Return all topics, except Kafka's internal ones, with their numbers of partitions.

        :raises BusUnavailable: Kafka does not answer.
        """
        return {name: len(topic.partitions) for name, topic in (await self._list()).items()}

    async def metadata(self) -> Any:
        """Return the driver's metadata of the cluster: its brokers, topics and partitions.

        :raises BusUnavailable: Kafka does not answer.
        """
        with map_errors(self._address.brokers, "Cannot list the topics"):
            return await asyncio.to_thread(self._admin.list_topics, timeout=self._address.options.timeout)

    async def matching(self, patterns: tuple[str, ...]) -> dict[str, int]:
        """Like :meth:`partitions`, for the topics that match one of the patterns."""
        return {name: count for name, count in (await self.partitions()).items() if matches(patterns, name)}

    async def _create(self, topics: set[str], partitions: int) -> None:
        if not topics:
            return
        replication = self._address.options.replication or -1
        futures = self._admin.create_topics(
            [NewTopic(topic, num_partitions=partitions, replication_factor=replication) for topic in sorted(topics)],
            operation_timeout=self._address.options.timeout,
        )
        for topic, future in futures.items():
            with map_errors(self._address.brokers, f"Cannot create the topic {topic}"):
                try:
                    await asyncio.wrap_future(future)
                except KafkaException as error:
                    code = get_error_code(error)
                    if code in DENIED:
                        raise BusRefused(
                            f"The topic {topic} does not exist, and this user may not create it. Create it with "
                            f"another user, for example with {partitions} partitions"
                        ) from error
                    if code != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise

    async def _wait_for_leaders(self, topics: set[str]) -> None:
        # The controller creates a topic, and the brokers' metadata has it a moment later.
        deadline = time.monotonic() + self._address.options.timeout
        while True:
            with_leaders = {
                name
                for name, topic in (await self._list()).items()
                if topic.partitions and all(partition.leader >= 0 for partition in topic.partitions.values())
            }
            if topics <= with_leaders:
                return
            if time.monotonic() > deadline:
                missing = ", ".join(sorted(topics - with_leaders))
                raise BusUnavailable(f"Created {missing}, but no broker at {self._address.brokers} leads it")
            await asyncio.sleep(_TOPIC_POLL_SECONDS)

    async def _list(self) -> dict[str, Any]:
        return {
            name: topic
            for name, topic in (await self.metadata()).topics.items()
            if name not in INTERNAL_TOPICS
            and (topic.error is None or topic.error.code() == KafkaError.LEADER_NOT_AVAILABLE)
        }


_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_MEMBERS_SECONDS: Final = 1.0  # timeout of one request for the members of groups
_LEAVING_SECONDS: Final = 2.0  # how long to retry while a subscriber leaves the group
_GROUP_POLL_SECONDS: Final = 0.05


class GroupOffsets(msgspec.Struct, frozen=True):
    """A group's state on the brokers."""

    offsets: dict[PartitionId, int]
    """Its committed offsets, without the topic of its dead letters."""
    subscribers: int | None
    """None if not all brokers answered."""


class KafkaGroups:
    """Inspects, purges and deletes groups.

    :raises BusUnavailable: from every method, if Kafka does not answer.
    """

    def __init__(self, address: KafkaAddress, admin: AdminClient, topics: KafkaTopics) -> None:
        self._address = address
        self._admin = admin
        self._topics = topics
        self._offsets = CommittedOffsets(address)

    async def close(self) -> None:
        await self._offsets.close()

    async def committed(self, group: str) -> dict[PartitionId, int]:
        """Return the committed offsets of a group; empty if the group does not exist."""
        topics = await self._topics.partitions()
        partitions = [(topic, number) for topic, count in topics.items() for number in range(count)]
        with map_errors(self._address.brokers, f"Cannot read the offsets of the group {group}"):
            return await self._offsets.committed(group, partitions)

    async def set_offsets(self, group: str, offsets: Mapping[PartitionId, int]) -> bool:
        """Set a group's offsets; return False, without a change, if the group has subscribers."""
        with map_errors(self._address.brokers, f"Cannot set the offsets of the group {group}"):
            try:
                await self._offsets.commit(group, offsets)
            except KafkaException as error:
                if get_error_code(error) in IN_USE:
                    return False
                raise
        return True

    async def ranges(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, OffsetRange]:
        """Return the first and the end offset of each partition; partitions that do not exist are missing."""
        topics = await self._topics.partitions()
        existing = [(topic, number) for topic, number in partitions if number < topics.get(topic, 0)]
        firsts, ends = await asyncio.gather(
            self._list_offsets(existing, _EARLIEST), self._list_offsets(existing, _LATEST)
        )
        return {partition: (firsts[partition], end) for partition, end in ends.items() if partition in firsts}

    async def groups(self, *names: str) -> list[Group]:
        """See :meth:`uttu.bus.base.Bus.groups`. The topics are those with a committed offset.

        :raises BusRefused: a named group does not exist.
        """
        groups = await self._read_offsets(names, strict=bool(names))
        dead = {name: dead_topic(name) for name in groups}
        partitions = {partition for group in groups.values() for partition in group.offsets}
        ranges = await self.ranges(partitions | {(topic, 0) for topic in dead.values()})
        return [
            Group(
                name=name,
                topics=tuple(sorted({topic for topic, _ in group.offsets})),
                ready=_count_all(_waiting_ranges(group, ranges)),
                unacknowledged=0,
                dead=count_offsets(ranges.get((dead[name], 0), (0, 0))),
                subscribers=group.subscribers,
            )
            for name, group in sorted(groups.items())
        ]

    async def peek(self, group: str, limit: int, dead: bool) -> list[Delivery]:
        """See :meth:`uttu.bus.base.Bus.peek`.

        :raises BusRefused: the group does not exist.
        """
        offsets = (await self._read_offsets([group]))[group]
        if dead:
            ranges = await self.ranges([(dead_topic(group), 0)])
        else:
            ranges = _waiting_ranges(offsets, await self.ranges(offsets.offsets))
        ranges = {partition: span for partition, span in ranges.items() if count_offsets(span)}
        if not ranges or limit < 1:
            return []
        with map_errors(self._address.brokers, f"Cannot peek at the group {group}"):
            return await asyncio.to_thread(read_first, self._address, ranges, limit)

    async def purge(self, group: str, dead: bool, forget: bool) -> int:
        """Move the group's offsets to the end, delete its dead letters, or delete the group.

        :raises BusRefused: the group does not exist; or it has subscribers, and its offsets must change.
        """
        offsets = (await self._read_offsets([group]))[group]
        count = 0
        if not dead or forget:
            ranges = _waiting_ranges(offsets, await self.ranges(offsets.offsets))
            count += _count_all(ranges)
            if not forget:
                await self._skip_to(group, {partition: end for partition, (_, end) in ranges.items()})
        if dead or forget:
            ranges = await self.ranges([(dead_topic(group), 0)])
            count += _count_all(ranges)
            if not forget:
                await self._delete_records(ranges)
        if forget:
            await self._delete_group(group)
        return count

    async def delete_dead(self, group: str, letters: Sequence[Delivery]) -> None:
        """Delete dead letters, and all before them."""
        last = max(int(letter.position.rpartition("/")[2]) for letter in letters)
        await self._delete_records({(dead_topic(group), 0): (0, last + 1)})

    async def describe(self) -> BusDescription:
        """See :meth:`uttu.bus.base.BusAdmin.describe`."""
        metadata = await self._topics.metadata()
        topics = {name: topic for name, topic in sorted(metadata.topics.items()) if name not in INTERNAL_TOPICS}
        ranges = await self.ranges((name, number) for name, topic in topics.items() for number in topic.partitions)
        groups = await self._read_offsets((), strict=False)
        counted: Counter[str] = Counter()
        for (name, _), span in ranges.items():
            counted[name] += count_offsets(span)
        brokers = metadata.brokers.values()
        return BusDescription(
            kind="kafka",
            version=f"Kafka, cluster {metadata.cluster_id}",
            nodes=tuple(f"{broker.host}:{broker.port}" for broker in brokers),
            topics=[TopicState(name=name, messages=counted[name]) for name in topics if not is_dead_topic(name)],
            tables=[
                DetailTable(
                    title="Brokers",
                    columns=("broker", "address", "controller"),
                    rows=[
                        (each.id, f"{each.host}:{each.port}", "yes" if each.id == metadata.controller_id else "no")
                        for each in brokers
                    ],
                ),
                DetailTable(
                    title="Partitions",
                    columns=("topic", "partition", "leader", "replicas", "in sync", "first offset", "end offset"),
                    rows=[
                        (
                            name,
                            number,
                            partition.leader,
                            " ".join(map(str, partition.replicas)),
                            " ".join(map(str, partition.isrs)),
                            *ranges.get((name, number), (None, None)),
                        )
                        for name, topic in topics.items()
                        for number, partition in sorted(topic.partitions.items())
                    ],
                ),
                DetailTable(
                    title="Offsets of groups",
                    columns=("group", "topic", "partition", "committed", "end offset", "lag"),
                    rows=[
                        (name, *place, group.offsets[place], end, max(0, end - max(first, group.offsets[place])))
                        for name, group in sorted(groups.items())
                        for place, (first, end) in sorted(ranges.items())
                        if place in group.offsets
                    ],
                ),
            ],
        )

    async def _read_offsets(self, names: Sequence[str], strict: bool = True) -> dict[str, GroupOffsets]:
        """Return the state of these groups, or of all groups.

        :param strict: raise ``BusRefused`` if a group does not exist.
        """
        members = await self._count_members(names)
        wanted = names or list(members or ())
        committed = await asyncio.gather(*[self.committed(name) for name in wanted])
        standings = {
            name: GroupOffsets(
                {place: offset for place, offset in positions.items() if not is_dead_topic(place[0])},
                None if members is None else members.get(name, 0),
            )
            for name, positions in zip(wanted, committed, strict=True)
            if positions or name in (members or ())
        }
        missing = [name for name in wanted if name not in standings]
        if missing and strict:
            raise group_not_found(missing[0])
        return standings

    async def _count_members(self, names: Sequence[str]) -> dict[str, int] | None:
        """Return the number of subscribers of each group.

        If not all brokers answer: None if ``names`` are given; without names, the request is repeated up to the
        address's ``timeout``.

        ``describe_consumer_groups`` is not used: it asks the group's coordinator, and the driver aborts the process if
        the coordinator moves during the call.
        """
        deadline = time.monotonic() + self._address.options.timeout
        only = names[0] if len(names) == 1 else None
        with map_errors(self._address.brokers, "Cannot list the groups"):
            while True:
                try:
                    groups = await asyncio.to_thread(_list_groups, self._admin, only)
                    break
                except KafkaException:
                    if names:
                        return None
                    if time.monotonic() > deadline:
                        raise
        return {
            group.id: len(group.members)
            for group in groups
            if group.state != "Dead" and group.protocol_type in ("consumer", "")
        }

    async def _list_offsets(self, partitions: Iterable[PartitionId], spec: OffsetSpec) -> dict[PartitionId, int]:
        wanted = {TopicPartition(*partition): spec for partition in partitions}
        if not wanted:
            return {}
        with map_errors(self._address.brokers, "Cannot read the ends of the partitions"):
            answers = await self._call(lambda **options: self._admin.list_offsets(wanted, **options))
        return {(place.topic, place.partition): answer.offset for place, answer in answers.items()}

    async def _skip_to(self, group: str, ends: Mapping[PartitionId, int]) -> None:
        deadline = time.monotonic() + _LEAVING_SECONDS
        while ends and not await self.set_offsets(group, ends):
            # A subscriber that has just closed may still be listed as a member.
            if time.monotonic() > deadline:
                raise _group_in_use(group)
            await asyncio.sleep(_GROUP_POLL_SECONDS)

    async def _delete_records(self, ranges: Mapping[PartitionId, OffsetRange]) -> None:
        ends = [TopicPartition(*partition, end) for partition, (_, end) in ranges.items()]
        if ends:
            with map_errors(self._address.brokers, "Cannot delete the dead letters"):
                await self._call(lambda **options: self._admin.delete_records(ends, **options))

    async def _delete_group(self, group: str) -> None:
        deadline = time.monotonic() + _LEAVING_SECONDS
        with map_errors(self._address.brokers, f"Cannot delete the group {group}"):
            while True:
                try:
                    await self._call(lambda **options: self._admin.delete_consumer_groups([group], **options))
                    break
                except KafkaException as error:
                    if get_error_code(error) == KafkaError.GROUP_ID_NOT_FOUND:
                        break
                    if get_error_code(error) not in IN_USE:
                        raise
                    if time.monotonic() > deadline:
                        raise _group_in_use(group) from error
                await asyncio.sleep(_GROUP_POLL_SECONDS)
            topic = dead_topic(group)
            if topic in await self._topics.partitions():
                await self._call(lambda **options: self._admin.delete_topics([topic], **options))
            self._topics.forget([topic])

    async def _call(self, call: Callable[..., Mapping[Key, Future[Any]]]) -> dict[Key, Any]:
        timeout = self._address.options.timeout
        return await gather_answers(lambda: call(request_timeout=timeout), timeout)


def _list_groups(admin: AdminClient, group: str | None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its replacement can abort the process; see _count_members
        return admin.list_groups(group=group, timeout=_MEMBERS_SECONDS)


def _group_in_use(group: str) -> BusRefused:
    return BusRefused(
        f"The group {group} has subscribers, and Kafka changes a group only while it has none. Close them first"
    )


def _waiting_ranges(group: GroupOffsets, ranges: Mapping[PartitionId, OffsetRange]) -> dict[PartitionId, OffsetRange]:
    """Return the range from the committed offset to the end of each partition; deleted records are left out."""
    return {
        partition: (max(offset, ranges[partition][0]), ranges[partition][1])
        for partition, offset in group.offsets.items()
        if partition in ranges
    }


def _count_all(ranges: Mapping[PartitionId, OffsetRange]) -> int:
    return sum(map(count_offsets, ranges.values()))

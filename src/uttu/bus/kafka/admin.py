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

from uttu.bus.base import Delivery, Group
from uttu.bus.kafka.codec import INTERNAL_TOPICS, dead_topic, is_dead_topic
from uttu.bus.kafka.offsets import CommittedOffsets, OffsetRange, PartitionId, count_offsets, read_first
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
        self._making = asyncio.Lock()

    async def ensure(self, topics: Iterable[str], partitions: int = 0) -> None:
        """Create the topics that do not exist; return when all of them have leaders.

        :param partitions: number of partitions of a new topic; 0 for the option in the address.
        :raises BusRefused: a topic does not exist, and creating it is refused.
        :raises BusUnavailable: Kafka does not answer.
        """
        if self._known.issuperset(topics):
            return
        async with self._making:
            wanted = set(topics) - self._known
            missing = wanted - (await self.partitions()).keys()
            await self._make(missing, partitions or self._address.options.partitions)
            if missing:
                await self._appear(missing)
            self._known |= wanted

    def forget(self, topics: Iterable[str]) -> None:
        """Check at the next :meth:`ensure` whether these topics still exist."""
        self._known.difference_update(topics)

    async def partitions(self) -> dict[str, int]:
        """Return all topics, except Kafka's internal ones, with their numbers of partitions.

        :raises BusUnavailable: Kafka does not answer.
        """
        return {name: len(topic.partitions) for name, topic in (await self._list()).items()}

    async def matching(self, patterns: tuple[str, ...]) -> dict[str, int]:
        """Like :meth:`partitions`, for the topics that match one of the patterns."""
        return {name: count for name, count in (await self.partitions()).items() if matches(patterns, name)}

    async def _make(self, topics: set[str], partitions: int) -> None:
        if not topics:
            return
        replication = self._address.options.replication or -1
        made = self._admin.create_topics(
            [NewTopic(topic, num_partitions=partitions, replication_factor=replication) for topic in sorted(topics)],
            operation_timeout=self._address.options.timeout,
        )
        for topic, future in made.items():
            with map_errors(self._address.brokers, f"the topic {topic} is not there and can't be made"):
                try:
                    await asyncio.wrap_future(future)
                except KafkaException as error:
                    code = get_error_code(error)
                    if code in DENIED:
                        raise BusRefused(
                            f"the topic {topic} is not there, and this user may not make it; let it be made by who "
                            f"may, with {partitions} partitions or as many as you like"
                        ) from error
                    if code != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise

    async def _appear(self, topics: set[str]) -> None:
        # The controller creates a topic, and the brokers' metadata has it a moment later.
        deadline = time.monotonic() + self._address.options.timeout
        while True:
            led = {
                name
                for name, topic in (await self._list()).items()
                if topic.partitions and all(partition.leader >= 0 for partition in topic.partitions.values())
            }
            if topics <= led:
                return
            if time.monotonic() > deadline:
                missing = ", ".join(sorted(topics - led))
                raise BusUnavailable(f"{missing} was made, but no broker at {self._address.brokers} leads it")
            await asyncio.sleep(_TOPIC_POLL_SECONDS)

    async def _list(self) -> dict[str, Any]:
        with map_errors(self._address.brokers, "can't list the topics"):
            found = await asyncio.to_thread(self._admin.list_topics, timeout=self._address.options.timeout)
        return {
            name: topic
            for name, topic in found.topics.items()
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

    positions: dict[PartitionId, int]
    """Its committed offsets, without the topic of its dead letters."""
    subscribers: int | None
    """None if not all brokers answered."""


class KafkaGroups:
    """Inspects, purges and deletes groups.

    :raises BusUnavailable: from every method, if Kafka does not answer.
    """

    def __init__(self, address: KafkaAddress, admin: AdminClient, catalog: KafkaTopics) -> None:
        self._address = address
        self._admin = admin
        self._topics = catalog
        self._positions = CommittedOffsets(address)

    async def close(self) -> None:
        await self._positions.close()

    async def positions(self, group: str) -> dict[PartitionId, int]:
        """Return the committed offsets of a group; empty if the group does not exist."""
        there = await self._topics.partitions()
        places = [(topic, number) for topic, count in there.items() for number in range(count)]
        with map_errors(self._address.brokers, f"can't see the positions of the group {group}"):
            return await self._positions.committed(group, places)

    async def move(self, group: str, positions: Mapping[PartitionId, int]) -> bool:
        """Set a group's offsets; return False, without a change, if the group has subscribers."""
        with map_errors(self._address.brokers, f"can't set the positions of the group {group}"):
            try:
                await self._positions.commit(group, positions)
            except KafkaException as error:
                if get_error_code(error) in IN_USE:
                    return False
                raise
        return True

    async def spans(self, places: Iterable[PartitionId]) -> dict[PartitionId, OffsetRange]:
        """Return the first and the end offset of each partition; partitions that do not exist are missing."""
        there = await self._topics.partitions()
        kept = [place for place in places if place[1] < there.get(place[0], 0)]
        begins, ends = await asyncio.gather(self._offsets(kept, _EARLIEST), self._offsets(kept, _LATEST))
        return {place: (begins[place], end) for place, end in ends.items() if place in begins}

    async def groups(self, *names: str) -> list[Group]:
        """See :meth:`uttu.bus.base.Bus.groups`. The topics are those with a committed offset.

        :raises BusRefused: a named group does not exist.
        """
        found = await self._standings(names, strict=bool(names))
        dead = {name: dead_topic(name) for name in found}
        places = {place for standing in found.values() for place in standing.positions}
        spans = await self.spans(places | {(topic, 0) for topic in dead.values()})
        return [
            Group(
                name=name,
                topics=tuple(sorted({topic for topic, _ in standing.positions})),
                ready=sum(count_offsets(span) for span in _waiting_ranges(standing, spans).values()),
                unacknowledged=0,
                dead=count_offsets(spans.get((dead[name], 0), (0, 0))),
                subscribers=standing.subscribers,
            )
            for name, standing in sorted(found.items())
        ]

    async def peek(self, group: str, limit: int, dead: bool) -> list[Delivery]:
        """See :meth:`uttu.bus.base.Bus.peek`.

        :raises BusRefused: the group does not exist.
        """
        standing = (await self._standings([group]))[group]
        if dead:
            spans = await self.spans([(dead_topic(group), 0)])
        else:
            spans = _waiting_ranges(standing, await self.spans(standing.positions))
        spans = {place: span for place, span in spans.items() if count_offsets(span)}
        if not spans or limit < 1:
            return []
        with map_errors(self._address.brokers, f"can't look into the group {group}"):
            return await asyncio.to_thread(read_first, self._address, spans, limit)

    async def purge(self, group: str, dead: bool, forget: bool) -> int:
        """Move the group's offsets to the end, delete its dead letters, or delete the group.

        :raises BusRefused: the group does not exist; or it has subscribers, and its offsets must change.
        """
        standing = (await self._standings([group]))[group]
        count = 0
        if not dead or forget:
            spans = _waiting_ranges(standing, await self.spans(standing.positions))
            count += sum(count_offsets(span) for span in spans.values())
            if not forget:
                await self._skip(group, {place: end for place, (_, end) in spans.items()})
        if dead or forget:
            spans = await self.spans([(dead_topic(group), 0)])
            count += sum(count_offsets(span) for span in spans.values())
            if not forget:
                await self._empty(spans)
        if forget:
            await self._forget(group)
        return count

    async def _standings(self, names: Sequence[str], strict: bool = True) -> dict[str, GroupOffsets]:
        """Return the state of these groups, or of all groups.

        :param strict: raise ``BusRefused`` if a group does not exist.
        """
        members = await self._members(names)
        wanted = names or list(members or ())
        committed = await asyncio.gather(*[self.positions(name) for name in wanted])
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
            raise BusRefused(f"there is no group {missing[0]}")
        return standings

    async def _members(self, names: Sequence[str]) -> dict[str, int] | None:
        """Return the number of subscribers of each group.

        If not all brokers answer: None if ``names`` are given; without names, the request is repeated up to the
        address's ``timeout``.

        ``describe_consumer_groups`` is not used: it asks the group's coordinator, and the driver aborts the process if
        the coordinator moves during the call.
        """
        deadline = time.monotonic() + self._address.options.timeout
        one = names[0] if len(names) == 1 else None
        with map_errors(self._address.brokers, "can't list the groups"):
            while True:
                try:
                    found = await asyncio.to_thread(_list_groups, self._admin, one)
                    break
                except KafkaException:
                    if names:
                        return None
                    if time.monotonic() > deadline:
                        raise
        return {
            group.id: len(group.members)
            for group in found
            if group.state != "Dead" and group.protocol_type in ("consumer", "")
        }

    async def _offsets(self, places: Iterable[PartitionId], which: OffsetSpec) -> dict[PartitionId, int]:
        wanted = {TopicPartition(*place): which for place in places}
        if not wanted:
            return {}
        with map_errors(self._address.brokers, "can't see the ends of the partitions"):
            found = await self._ask(lambda **how: self._admin.list_offsets(wanted, **how))
        return {(place.topic, place.partition): answer.offset for place, answer in found.items()}

    async def _skip(self, group: str, ends: Mapping[PartitionId, int]) -> None:
        deadline = time.monotonic() + _LEAVING_SECONDS
        while ends and not await self.move(group, ends):
            # A subscriber that has just closed may still be listed as a member.
            if time.monotonic() > deadline:
                raise _group_in_use(group)
            await asyncio.sleep(_GROUP_POLL_SECONDS)

    async def _empty(self, spans: Mapping[PartitionId, OffsetRange]) -> None:
        places = [TopicPartition(*place, end) for place, (_, end) in spans.items()]
        if places:
            with map_errors(self._address.brokers, "can't remove the dead letters"):
                await self._ask(lambda **how: self._admin.delete_records(places, **how))

    async def _forget(self, group: str) -> None:
        deadline = time.monotonic() + _LEAVING_SECONDS
        with map_errors(self._address.brokers, f"can't forget the group {group}"):
            while True:
                try:
                    await self._ask(lambda **how: self._admin.delete_consumer_groups([group], **how))
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
                await self._ask(lambda **how: self._admin.delete_topics([topic], **how))
            self._topics.forget([topic])

    async def _ask(self, call: Callable[..., Mapping[Key, Future[Any]]]) -> dict[Key, Any]:
        timeout = self._address.options.timeout
        return await gather_answers(lambda: call(request_timeout=timeout), timeout)


def _list_groups(admin: AdminClient, group: str | None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its replacement can abort the process; see _members
        return admin.list_groups(group=group, timeout=_MEMBERS_SECONDS)


def _group_in_use(group: str) -> BusRefused:
    return BusRefused(
        f"the group {group} has subscribers, and Kafka changes a group only while it has none: close them first"
    )


def _waiting_ranges(standing: GroupOffsets, spans: Mapping[PartitionId, OffsetRange]) -> dict[PartitionId, OffsetRange]:
    """Return the range from the committed offset to the end of each partition; deleted records are left out."""
    return {
        place: (max(offset, spans[place][0]), spans[place][1])
        for place, offset in standing.positions.items()
        if place in spans
    }

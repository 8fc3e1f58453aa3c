"""How a reader gets its partitions: from a consumer group, or all of them.

    GroupReader       reads as a member of a consumer group, and commits its offsets
    BroadcastReader   reads all partitions from their end at the time of the subscription; commits nothing

Both are :class:`uttu.bus.kafka.reader.PartitionReader`, so all their state belongs to the holder of its lock.

Partitions of a group are assigned and revoked by the cooperative protocol: a rebalance does not interrupt the other
partitions. Before a partition is revoked, the handler may finish its messages of this partition. A message is handled
twice only if that takes longer than the address's ``timeout``, or if this process dies.

Commits are asynchronous. Each takes Kafka some milliseconds, so there is at most one in ``_COMMIT_SECONDS`` unless a
whole prefetch is done. Up to ``_UNCONFIRMED_PREFETCHES`` times the prefetch may be read without a confirmed commit, so
a fast handler does not wait for commits. Beyond that the thread commits synchronously.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from uttu.bus.base import SubscribeOptions
from uttu.bus.kafka.codec import INTERNAL_TOPICS
from uttu.bus.kafka.partition import AssignedPartition, PartitionId
from uttu.bus.kafka.reader import PartitionReader, Progress, ReaderListener
from uttu.bus.topics import is_pattern, matches, to_regex
from uttu.clients.kafka import KafkaAddress, get_error_code

ErrorCallback = Callable[[KafkaError], None]
"""Called with errors of the driver that belong to no call, in any thread."""

_HEARTBEAT_MS: Final = 500  # the answer to a heartbeat says that a rebalance has begun
_UNCONFIRMED_PREFETCHES: Final = 4  # messages read without a confirmed commit, as a multiple of the prefetch
_COMMIT_SECONDS: Final = 0.02  # shortest time between two commits while less than the prefetch is done
_COMMIT_TIMEOUT: Final = 5.0  # seconds after which an unanswered commit is repeated
_COMMIT_RETRY_SECONDS: Final = 0.2  # until the retry of a failed commit
_LAST_COMMIT_RETRY_SECONDS: Final = 0.02  # the same, for partitions that are being revoked

_REBALANCING: Final = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})
"""Errors of commits during a rebalance; Kafka accepts commits again afterwards."""

CommittedOffset = tuple[str, int, int]
"""A topic, the number of a partition and an offset."""


class GroupReader(PartitionReader):
    """Reads as a member of a consumer group."""

    def __init__(
        self, address: KafkaAddress, options: SubscribeOptions, listener: ReaderListener, on_error: ErrorCallback
    ) -> None:
        session_ms = int(address.options.session * 1000)
        settings = {
            "group.id": options.group,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": min(_HEARTBEAT_MS, session_ms // 3),
            "topic.blacklist": ",".join(f"^{name}$" for name in sorted(INTERNAL_TOPICS)),
            "on_commit": self._on_commit,
            "error_cb": on_error,
        }
        super().__init__(address, options, settings, listener)
        self._topics = [to_regex(topic) if is_pattern(topic) else topic for topic in options.topics]
        self._requested_freed = 0
        """The value of ``freed`` at the last requested commit."""
        self._confirmed_freed = 0
        """The value of ``freed`` at the last confirmed commit."""
        self._in_flight: frozenset[CommittedOffset] = frozenset()
        """The commit in flight. There is only one at a time: the driver's retries could reorder several."""
        self._in_flight_until = 0.0
        self._next_commit = 0.0
        self._retry_commit = 0.0
        """No commit before this time, because the last one has failed."""

    def begin(self) -> None:
        self.driver.subscribe(self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def allowed(self) -> int:
        """Return how many messages may be read: limited by the room and by unconfirmed commits.

        One less than ``_UNCONFIRMED_PREFETCHES`` allows, because a poll for events of the group may return a message.
        """
        unconfirmed = self.read_count - self._confirmed_freed
        return min(self.room, _UNCONFIRMED_PREFETCHES * self.prefetch - 1 - unconfirmed)

    def maintain(self) -> None:
        """If only unconfirmed commits prevent further reading, commit synchronously."""
        if self.allowed() < self.min_room <= self.room and time.monotonic() >= self._retry_commit:
            progress = self.mailbox.read_progress()
            self._requested_freed = progress.freed
            self._record_commit(self._commit_now(list(self.partitions.values()), progress) is None)

    def commit(self) -> bool:
        """Request a commit when a whole prefetch is done, or ``_COMMIT_SECONDS`` after the last request.

        Usually Kafka confirms it before the limit for unconfirmed messages is reached. Returns whether messages are
        done that no commit includes yet.
        """
        now, freed = time.monotonic(), self.mailbox.freed
        is_waiting = self._in_flight and now < self._in_flight_until
        is_time = freed - self._requested_freed >= self.prefetch or now >= self._next_commit
        if is_time and not is_waiting and now >= self._retry_commit:
            self._request_commit(now)
        return freed > self._requested_freed

    def leave(self) -> None:
        self._commit_last(list(self.partitions.values()))

    # Callbacks of the driver, inside a poll.

    def _on_assign(self, driver: Consumer, places: list[TopicPartition]) -> None:
        self.assign(places)

    def _on_revoke(self, driver: Consumer, places: list[TopicPartition]) -> None:
        partitions = self.remove(places)
        if self.is_in_loop:
            # The loop must not block, and the handler holds no message at this point. The asynchronous commit reaches
            # Kafka before the revocation, because both use the same connection.
            if offsets := _uncommitted_offsets(partitions, self.mailbox.read_progress()):
                with contextlib.suppress(KafkaException):
                    self.driver.commit(offsets=offsets, asynchronous=True)
        else:
            if not self.is_closing:
                released = threading.Event()
                self.post(self.listener.on_revoking, partitions, released)
                released.wait(self.address.options.timeout)
            self._commit_last(partitions)
        # Messages that are not committed now are delivered again, to the next owner of the partition.
        self.post(self.listener.on_revoked, partitions)

    def _on_lost(self, driver: Consumer, places: list[TopicPartition]) -> None:
        self.post(self.listener.on_revoked, self.remove(places))

    def _on_commit(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        if error is None:
            _mark_committed(self.partitions.values(), places)
        # Ignore the success of a commit that is not in flight any more: a later synchronous one has replaced it.
        if error is not None or _offset_set(places) == self._in_flight:
            self._record_commit(error is None and all(place.error is None for place in places))

    # Commits.

    def _request_commit(self, now: float) -> None:
        """Request an asynchronous commit; the driver calls :meth:`_on_commit` with the result."""
        progress = self.mailbox.read_progress()
        self._requested_freed = progress.freed
        self._next_commit, self._in_flight_until = now + _COMMIT_SECONDS, now + _COMMIT_TIMEOUT
        offsets = _uncommitted_offsets(self.partitions.values(), progress)
        if not offsets:
            self._record_commit(True)
            return
        self._in_flight = _offset_set(offsets)
        try:
            self.driver.commit(offsets=offsets, asynchronous=True)
        except KafkaException:
            self._record_commit(False)

    def _record_commit(self, is_confirmed: bool) -> None:
        """Record the result of the last commit."""
        self._in_flight = frozenset()
        if is_confirmed:
            self._confirmed_freed = self._requested_freed
        else:  # a rebalance is in progress, or the coordinator is unavailable
            self._retry_commit = time.monotonic() + _COMMIT_RETRY_SECONDS

    def _commit_last(self, partitions: Sequence[AssignedPartition]) -> None:
        """Commit before the partitions are revoked; retry during a rebalance for up to ``_COMMIT_TIMEOUT`` seconds."""
        deadline = time.monotonic() + _COMMIT_TIMEOUT
        while self._commit_now(partitions, self.mailbox.read_progress()) in _REBALANCING:
            if time.monotonic() >= deadline:
                return
            time.sleep(_LAST_COMMIT_RETRY_SECONDS)

    def _commit_now(self, partitions: Sequence[AssignedPartition], progress: Progress) -> int | None:
        """Commit synchronously. Return the error code, or None if Kafka has all positions now."""
        offsets = _uncommitted_offsets(partitions, progress)
        try:
            answers = self.driver.commit(offsets=offsets, asynchronous=False) if offsets else []
        except KafkaException as error:
            return get_error_code(error)
        _mark_committed(partitions, answers)
        return next((answer.error.code() for answer in answers if answer.error is not None), None)


def _uncommitted_offsets(partitions: Iterable[AssignedPartition], progress: Progress) -> list[TopicPartition]:
    return [
        TopicPartition(partition.topic, partition.number, position)
        for partition in partitions
        if (position := progress.positions.get(partition, -1)) > partition.committed
    ]


def _mark_committed(partitions: Iterable[AssignedPartition], places: Iterable[TopicPartition]) -> None:
    by_id = {partition.id: partition for partition in partitions}
    for place in places:
        if place.error is None and (partition := by_id.get((place.topic, place.partition))) is not None:
            partition.committed = max(partition.committed, place.offset)


def _offset_set(places: Iterable[TopicPartition]) -> frozenset[CommittedOffset]:
    """Convert to tuples with the offset; the driver's ``TopicPartition`` ignores the offset in comparisons."""
    return frozenset((place.topic, place.partition, place.offset) for place in places)


_DISCOVERY_SECONDS: Final = 1.0  # interval of the search for new partitions, and timeout of its request


class BroadcastReader(PartitionReader):
    """Reads all partitions of its topics from their end at the time of the subscription; joins no group.

    :param ends: the existing partitions, with the offset to start at. Partitions that are created later are read from
        their beginning.
    """

    def __init__(
        self,
        address: KafkaAddress,
        options: SubscribeOptions,
        listener: ReaderListener,
        on_error: ErrorCallback,
        ends: Mapping[PartitionId, int],
    ) -> None:
        # The driver requires a group id. The group is never joined, and nothing is committed to it.
        settings = {"group.id": f"uttu-{uuid4().hex}", "error_cb": on_error}
        super().__init__(address, options, settings, listener)
        self._topics = options.topics
        self._ends = ends
        self._searched = time.monotonic()

    def begin(self) -> None:
        self.assign([TopicPartition(topic, number, offset) for (topic, number), offset in self._ends.items()])

    def maintain(self) -> None:
        """Search for new topics and partitions every ``_DISCOVERY_SECONDS``."""
        if time.monotonic() < self._searched + _DISCOVERY_SECONDS:
            return
        self._searched = time.monotonic()
        try:
            topics = self.driver.list_topics(timeout=_DISCOVERY_SECONDS).topics
        except KafkaException:  # no broker answers; try again at the next search
            return
        new = [
            TopicPartition(name, number, OFFSET_BEGINNING)
            for name, topic in topics.items()
            if topic.error is None and name not in INTERNAL_TOPICS and matches(self._topics, name)
            for number in topic.partitions
            if (name, number) not in self.partitions
        ]
        if new:
            self.assign(new)

    def leave(self) -> None:
        """Do nothing: there are no commits and no group."""

"""The consumer of one subscriber on Kafka, in a group or without one.

    KafkaConsumer     implements ``Consumer`` in the event loop: tracks messages that are buffered, done or failed
    GroupReader       reads as a member of a consumer group, and commits its offsets
    BroadcastReader   reads all partitions from their end at the time of the subscription; commits nothing

A failed message is not kept in memory. Its partition is rewound to it, and read again after the delay. So no later
message of the partition overtakes it. The number of attempts is stored in this process only.

Partitions are assigned and revoked by the cooperative protocol: a rebalance does not interrupt the other partitions.
Before a partition is revoked, the handler may finish its messages of this partition. A message is handled twice only if
that takes longer than the address's ``timeout``, or if this process dies.

Commits are asynchronous. Each takes Kafka some milliseconds, so there is at most one in ``_COMMIT_SECONDS`` unless a
whole prefetch is done. Up to ``_UNCONFIRMED_PREFETCHES`` times the prefetch may be read without a confirmed commit, so
a fast handler does not wait for commits. Beyond that the thread commits synchronously.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from uttu.bus.base import Delivery, SubscribeOptions
from uttu.bus.kafka.codec import INTERNAL_TOPICS, to_dead_record
from uttu.bus.kafka.partition import PartitionBatch, PartitionState
from uttu.bus.kafka.producer import KafkaProducer
from uttu.bus.kafka.reader import PartitionReader, ReaderEvents
from uttu.bus.topics import is_pattern, matches, to_regex
from uttu.clients.kafka import KafkaAddress, get_error_code
from uttu.errors import BusError, BusUnavailable

_HEARTBEAT: Final = 500  # milliseconds; the answer tells a member that a rebalance has begun
_UNCONFIRMED_PREFETCHES: Final = 4  # messages read without a confirmed commit, as a multiple of the prefetch
_COMMIT_SECONDS: Final = 0.02  # shortest time between two commits while less than the prefetch is done
_COMMIT_PATIENCE: Final = 5.0  # seconds after which an unanswered commit is repeated
_COMMIT_AGAIN: Final = 0.2  # seconds until the retry of a failed commit
_COMMIT_SOON: Final = 0.02  # the same, for partitions that are being revoked

_REBALANCING: Final = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})
"""Errors of commits during a rebalance; Kafka accepts commits again afterwards."""

CommittedPosition = tuple[str, int, int]
"""A topic, the number of a partition and an offset."""


class GroupReader(PartitionReader):
    """Reads as a member of a consumer group."""

    def __init__(self, address: KafkaAddress, options: SubscribeOptions, taker: ReaderEvents, trouble: Any) -> None:
        session = int(address.options.session * 1000)
        settings = {
            "group.id": options.group,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session,
            "heartbeat.interval.ms": min(_HEARTBEAT, session // 3),
            "topic.blacklist": ",".join(f"^{name}$" for name in sorted(INTERNAL_TOPICS)),
            "on_commit": self._answered,
            "error_cb": trouble,
        }
        super().__init__(address, settings, taker, prefetch=options.prefetch, where=options.where)
        self._topics = [to_regex(topic) if is_pattern(topic) else topic for topic in options.topics]
        self._sure = 0
        """The value of ``freed`` at the last confirmed commit."""
        self._asked_for = 0
        """The value of ``freed`` at the last requested commit."""
        self._asked: frozenset[CommittedPosition] = frozenset()
        """The commit in flight. There is only one at a time: the driver's retries could reorder several."""
        self._asked_until = 0.0
        self._commit_after = 0.0
        self._commit_before = 0.0

    def begin(self) -> None:
        self.consumer.subscribe(self._topics, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)

    def allowed(self) -> int:
        """Return how many messages may be read: limited by the room and by unconfirmed commits.

        One less than ``_UNCONFIRMED_PREFETCHES`` allows, because a poll for events of the group may return a message.
        """
        return min(self.room, _UNCONFIRMED_PREFETCHES * self.prefetch - 1 - (self.taken - self._sure))

    def tend(self) -> None:
        """If only unconfirmed commits prevent further reading, commit synchronously."""
        if self.allowed() < self.enough <= self.room and time.monotonic() >= self._commit_after:
            self._asked_for = self.freed
            self._note(self._commit(list(self.lanes.values())) is None)

    def commit(self) -> bool:
        """Request a commit when a whole prefetch is done, or ``_COMMIT_SECONDS`` after the last request.

        Usually Kafka confirms it before the limit for unconfirmed messages is reached. Returns whether messages are
        done that no commit includes yet.
        """
        now = time.monotonic()
        under_way = self._asked and now < self._asked_until
        is_time = self.freed - self._asked_for >= self.prefetch or now >= self._commit_before
        if is_time and not under_way and now >= self._commit_after:
            self._ask(now)
        return self.freed > self._asked_for

    def leave(self) -> None:
        self._commit_at_last(list(self.lanes.values()))

    def _assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self.take(places)

    def _revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        lanes = self.drop(places)
        if self.is_in_loop:
            # The loop must not block, and the handler holds no message at this point. The asynchronous commit reaches
            # Kafka before the revocation, because both use the same connection.
            if done := _uncommitted_offsets(lanes):
                with contextlib.suppress(KafkaException):
                    self.consumer.commit(offsets=done, asynchronous=True)
        else:
            if not self.closing:
                released = threading.Event()
                self.tell(self.taker.revoked, lanes, released)
                released.wait(self.address.options.timeout)
            self._commit_at_last(lanes)
        # Messages that are not committed now are delivered again, to the next owner of the partition.
        self.tell(self.taker.gone, lanes)

    def _lose(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self.tell(self.taker.gone, self.drop(places))

    # Commits.

    def _ask(self, now: float) -> None:
        """Request an asynchronous commit; the driver calls :meth:`_answered` with the result."""
        self._asked_for = self.freed
        self._commit_before, self._asked_until = now + _COMMIT_SECONDS, now + _COMMIT_PATIENCE
        places = _uncommitted_offsets(self.lanes.values())
        if not places:
            self._note(True)
            return
        self._asked = _offset_set(places)
        try:
            self.consumer.commit(offsets=places, asynchronous=True)
        except KafkaException:
            self._note(False)

    def _answered(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        if error is None:
            _mark_committed(self.lanes.values(), places)
        # Ignore the success of a commit that is not in flight any more: a later synchronous one has replaced it.
        if error is not None or _offset_set(places) == self._asked:
            self._note(error is None and all(place.error is None for place in places))

    def _note(self, is_done: bool) -> None:
        """Record the result of the last commit."""
        self._asked = frozenset()
        if is_done:
            self._sure = self._asked_for
        else:  # a rebalance is in progress, or the coordinator is unavailable
            self._commit_after = time.monotonic() + _COMMIT_AGAIN

    def _commit_at_last(self, lanes: Sequence[PartitionState]) -> None:
        """Commit before the partitions are revoked; retry during a rebalance for up to ``_COMMIT_PATIENCE`` seconds."""
        deadline = time.monotonic() + _COMMIT_PATIENCE
        while self._commit(lanes) in _REBALANCING and time.monotonic() < deadline:
            time.sleep(_COMMIT_SOON)

    def _commit(self, lanes: Sequence[PartitionState]) -> int | None:
        """Commit synchronously. Return the error code, or None if Kafka has all positions now."""
        places = _uncommitted_offsets(lanes)
        try:
            answers = self.consumer.commit(offsets=places, asynchronous=False) if places else []
        except KafkaException as error:
            return get_error_code(error)
        _mark_committed(lanes, answers)
        return next((answer.error.code() for answer in answers if answer.error is not None), None)


def _uncommitted_offsets(lanes: Iterable[PartitionState]) -> list[TopicPartition]:
    return [
        TopicPartition(lane.topic, lane.partition, lane.position) for lane in lanes if lane.position > lane.committed
    ]


def _mark_committed(lanes: Iterable[PartitionState], places: Iterable[TopicPartition]) -> None:
    known = {(lane.topic, lane.partition): lane for lane in lanes}
    for place in places:
        if place.error is None and (lane := known.get((place.topic, place.partition))) is not None:
            lane.committed = max(lane.committed, place.offset)


def _offset_set(places: Iterable[TopicPartition]) -> frozenset[CommittedPosition]:
    """Convert to tuples with the offset; the driver's ``TopicPartition`` ignores the offset in comparisons."""
    return frozenset((place.topic, place.partition, place.offset) for place in places)


_LOOK_SECONDS: Final = 1.0  # interval of the search for new partitions, and timeout of its request


class BroadcastReader(PartitionReader):
    """Reads all partitions of its topics, without a group.

    :param ends: the existing partitions, with the offset to start at. Partitions that are created later are read from
        their beginning.
    """

    def __init__(
        self,
        address: KafkaAddress,
        options: SubscribeOptions,
        taker: ReaderEvents,
        trouble: Any,
        ends: Mapping[tuple[str, int], int],
    ) -> None:
        # The driver requires a group id. The group is never joined, and nothing is committed to it.
        settings = {"group.id": f"uttu-{uuid4().hex}", "error_cb": trouble}
        super().__init__(address, settings, taker, prefetch=options.prefetch, where=options.where)
        self._topics = options.topics
        self._ends = ends
        self._looked = time.monotonic()

    def begin(self) -> None:
        self.take([TopicPartition(topic, partition, offset) for (topic, partition), offset in self._ends.items()])

    def tend(self) -> None:
        """Search for new topics and partitions every ``_LOOK_SECONDS``."""
        if time.monotonic() < self._looked + _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        try:
            found = self.consumer.list_topics(timeout=_LOOK_SECONDS).topics
        except KafkaException:  # no broker answers; try again at the next search
            return
        new = [
            TopicPartition(name, partition, OFFSET_BEGINNING)
            for name, topic in found.items()
            if topic.error is None and name not in INTERNAL_TOPICS and matches(self._topics, name)
            for partition in topic.partitions
            if (name, partition) not in self.lanes
        ]
        if new:
            self.take(new)

    def leave(self) -> None:
        """Do nothing: there are no commits and no group."""


class KafkaConsumer:
    """See :class:`uttu.bus.consumer.Consumer`; also implements :class:`ReaderEvents`. Used in the event loop only.

    :param make: creates the reader; its argument is this consumer, which receives the reader's events.
    :param group: empty for a subscriber without a group.
    """

    def __init__(self, make: Callable[[KafkaConsumer], PartitionReader], sender: KafkaProducer, group: str) -> None:
        self._sender = sender
        self._group = group
        self._ready: deque[PartitionBatch] = deque()
        self._out: list[PartitionBatch] = []
        """The batches of the last :meth:`receive`."""
        self._lanes: dict[str, PartitionState] = {}
        self._leaving: list[tuple[Sequence[PartitionState], threading.Event]] = []
        self._changed = asyncio.Event()
        self._joined = asyncio.Event()
        self._error: BusError | None = None
        self._reader = make(self)

    async def start(self, wait: float) -> None:
        """Start to read.

        :param wait: seconds to wait for the first assignment of partitions; 0 to return at once.
        :raises BusError: there was no assignment in this time, or the reader has failed.
        """
        self._reader.start()
        if not wait:
            return
        try:
            async with asyncio.timeout(wait):
                await self._joined.wait()
        except BaseException as error:
            await self._reader.close()
            if not isinstance(error, TimeoutError):
                raise
            raise BusUnavailable(
                f"the group {self._group} on Kafka at {self._reader.address.brokers} did not let a subscriber in "
                f"within {wait:g} s; perhaps others of it do not answer"
            ) from error
        if self._error:
            raise self._error

    # Consumer: called by the consumer loop.

    async def receive(self, limit: int) -> list[Delivery]:
        while not (self._ready or self._fetch(limit)):
            if self._error:
                raise self._error
            self._changed.clear()
            self._reader.want()
            await self._changed.wait()
        taken: list[Delivery] = []
        self._out = []
        while self._ready and len(taken) < limit:
            run = self._ready.popleft()
            if len(run.offsets) > limit - len(taken):
                run, rest = run.cut(limit - len(taken))
                self._ready.appendleft(rest)
            taken += run.deliveries
            self._out.append(run)
            # A retried message is returned alone, and messages behind it are not returned before it.
            if run.is_retry or (self._ready and self._ready[0].is_retry):
                break
        return taken

    async def done(self, deliveries: Sequence[Delivery]) -> None:
        freed = 0
        for lane, offsets in self._by_lane(deliveries).items():
            freed += lane.end(offsets)
        self._release(freed)

    async def again(self, deliveries: Sequence[Delivery], after: float) -> None:
        failed = self._by_lane(deliveries)
        attempts = {delivery.position: delivery.attempt for delivery in deliveries}
        freed = 0
        for lane, offsets in failed.items():
            lane.attempts |= {offset: attempts[f"{lane.place}{offset}"] + 1 for offset in offsets}
            freed += lane.drop(offsets)
        freed += self._put_back(failed)
        for lane, offsets in failed.items():
            lane.epoch += 1
            self._reader.rewind(lane, min(offsets), lane.epoch)
            asyncio.get_running_loop().call_later(after, self._reader.go_on, lane, lane.epoch)
        self._release(freed)

    async def bury(self, deliveries: Sequence[Delivery], reason: str) -> None:
        # Skip messages of revoked partitions: their next owner reads them again.
        ours = [delivery for delivery in deliveries if self._by_lane([delivery])]
        while ours:
            try:
                await self._sender.send([to_dead_record(self._group, delivery, reason) for delivery in ours])
                break
            except BusUnavailable:  # send() has waited for the timeout already, so try again without a pause
                if self._error:
                    raise self._error from None
        await self.done(ours)

    def hold(self, paused: bool) -> None:
        self._reader.hold(paused)

    async def close(self) -> None:
        self._put_back(self._lanes.values())
        self._ready.clear()
        self._release(0)
        await self._reader.close()

    # ReaderEvents: called by the reader.

    def assigned(self, lanes: Sequence[PartitionState]) -> None:
        self._lanes |= {lane.name: lane for lane in lanes}
        self._joined.set()

    def arrived(self, runs: Sequence[PartitionBatch]) -> None:
        unwanted = 0
        for run in runs:
            if not self._is_ours(run.lane) or run.epoch != run.lane.epoch:
                unwanted += len(run.offsets)
                continue
            run.lane.arrive(run.offsets, run.seen)
            if run.lane.attempts:
                self._ready.extend(_split_with_attempts(run))
            elif run.offsets:
                self._ready.append(run)
        self._reader.free(unwanted)
        if self._ready:
            self._changed.set()

    def revoked(self, lanes: Sequence[PartitionState], released: threading.Event) -> None:
        freed = self._put_back(lanes)
        self._leaving.append((lanes, released))
        self._release(freed)

    def gone(self, lanes: Sequence[PartitionState]) -> None:
        freed = self._put_back(lanes)
        for lane in lanes:
            if self._is_ours(lane):
                del self._lanes[lane.name]
            freed += len(lane.pending)
        self._release(freed)

    def ended(self, error: BusError | None) -> None:
        self._error = error or BusError("the subscription is closed")
        self._joined.set()
        self._changed.set()

    # Helpers.

    def _fetch(self, limit: int) -> bool:
        """Take messages that the driver has fetched; return whether there are any."""
        self._reader.fetch(limit)
        return bool(self._ready)

    def _is_ours(self, lane: PartitionState) -> bool:
        return self._lanes.get(lane.name) is lane

    def _by_lane(self, deliveries: Sequence[Delivery]) -> dict[PartitionState, list[int]]:
        """Return the offsets of these deliveries by partition, without revoked partitions."""
        found: dict[PartitionState, list[int]] = defaultdict(list)
        out = [run for run in self._out if self._is_ours(run.lane)]
        if len(deliveries) == sum(len(run.offsets) for run in self._out):  # usually all of the last receive()
            for run in out:
                found[run.lane] += run.offsets
            return found
        wanted = {delivery.position for delivery in deliveries}
        for run in out:
            for delivery, offset in zip(run.deliveries, run.offsets, strict=True):
                if delivery.position in wanted:
                    found[run.lane].append(offset)
        return found

    def _put_back(self, lanes: Iterable[PartitionState]) -> int:
        """Drop buffered messages of these partitions; return how many."""
        these = set(lanes)
        dropped = [run for run in self._ready if run.lane in these]
        self._ready = deque(run for run in self._ready if run.lane not in these)
        return sum(run.lane.drop(run.offsets) for run in dropped)

    def _release(self, freed: int) -> None:
        """Report freed messages to the reader, and release revoked partitions without pending messages."""
        self._reader.free(freed)
        still = []
        for lanes, released in self._leaving:
            if any(lane.pending for lane in lanes):
                still.append((lanes, released))
            else:
                released.set()
        self._leaving = still


def _split_with_attempts(run: PartitionBatch) -> Iterator[PartitionBatch]:
    """Split a batch into single messages, each with its attempt."""
    for delivery, offset in zip(run.deliveries, run.offsets, strict=True):
        attempt = run.lane.attempts.get(offset, 1)
        yield PartitionBatch(run.lane, [msgspec.structs.replace(delivery, attempt=attempt)], [offset])

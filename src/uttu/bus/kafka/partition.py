"""The partitions that one subscriber reads: how the driver reads them, what the handler has done, and their messages.

    offsets   … done │ position … pending … read_to │ not read yet

All offsets below ``position`` are done and may be committed. If a message is done before an earlier one, ``position``
stays until the earlier one is done, too.

Two classes describe a partition, because two threads deal with it (see :mod:`uttu.bus.kafka.reader`):

    AssignedPartition   how the driver reads it; belongs to the holder of the reader's lock
    PartitionProgress   what the handler has done; belongs to the event loop

Messages are kept in batches of one partition (:class:`PartitionBatch`), so that a batch is counted and acknowledged at
once instead of message by message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress, groupby
from operator import itemgetter
from typing import Any

import msgspec
from confluent_kafka import KafkaError, Message

from uttu.bus.base import Delivery, SubscribeOptions
from uttu.bus.kafka.codec import GROUP_HEADER, to_deliveries

PartitionId = tuple[str, int]
"""A topic and the number of a partition."""


class AssignedPartition:
    """A partition from its assignment to its revocation; if it is assigned again, that is another object.

    ``topic``, ``number``, ``name`` and ``id`` never change, so every thread may read them. All other attributes belong
    to the holder of the lock of :class:`uttu.bus.kafka.reader.PartitionReader`.
    """

    __slots__ = ("committed", "epoch", "id", "is_paused", "is_rewound", "name", "number", "topic")

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        self.id: PartitionId = (topic, number)
        self.name = f"{topic}/{number}"
        self.epoch = 0
        """Number of rewinds so far; the epoch of the batches that are read now."""
        self.is_rewound = False
        """The partition was rewound, and is paused until the delay before the retry has passed."""
        self.is_paused = False
        """The driver has paused the partition."""
        self.committed = -1
        """The last committed position."""


class PartitionProgress:
    """What the handler has done in one partition. Belongs to the event loop."""

    __slots__ = ("attempts", "epoch", "pending", "position", "read_to")

    def __init__(self) -> None:
        self.pending: list[int] = []
        """Unacknowledged offsets in ascending order; a rewind removes the offsets that will be read again."""
        self.attempts: dict[int, int] = {}
        """Offset of each failed message → the number of its next attempt."""
        self.read_to = -1
        """All offsets below this have been read."""
        self.position = -1
        """All offsets below this are done."""
        self.epoch = 0
        """Number of rewinds requested; batches of an earlier epoch are dropped."""

    def add(self, offsets: Iterable[int], read_to: int) -> None:
        """Record offsets that were read. All others below ``read_to`` were filtered out, and count as done."""
        self.pending.extend(offsets)
        self.read_to = read_to
        self._advance()

    def acknowledge(self, offsets: Collection[int]) -> int:
        """Mark offsets as done; return how many of them were pending."""
        removed = self._remove(offsets)
        for offset in offsets if self.attempts else ():
            self.attempts.pop(offset, None)
        self._advance()
        return len(removed)

    def drop(self, offsets: Collection[int]) -> int:
        """Remove offsets that are not done and will be read again; return how many of them were pending."""
        removed = self._remove(offsets)
        if removed:
            self.read_to = min(self.read_to, *removed)
        return len(removed)

    def _remove(self, offsets: Collection[int]) -> Collection[int]:
        """Remove offsets from the pending ones; return those that were pending."""
        first = self.pending[: len(offsets)]
        if first == offsets:  # the usual case: the oldest pending messages, in order
            del self.pending[: len(offsets)]
            return first
        removed = set(offsets).intersection(self.pending)
        self.pending = [offset for offset in self.pending if offset not in removed]
        return removed

    def _advance(self) -> None:
        self.position = max(self.position, min(self.read_to, self.pending[0] if self.pending else self.read_to))


class PartitionBatch:
    """Consecutive messages of one partition, read in one epoch. Created by one thread and then passed to the other.

    :param read_to: the offset after the last message read, including messages that the header filter removed.
    """

    __slots__ = ("deliveries", "epoch", "offsets", "partition", "read_to")

    def __init__(
        self,
        partition: AssignedPartition,
        epoch: int,
        deliveries: list[Delivery],
        offsets: list[int],
        read_to: int = -1,
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        self.deliveries = deliveries
        self.offsets = offsets
        self.read_to = read_to

    @property
    def is_retry(self) -> bool:
        return self.deliveries[0].attempt > 1

    def split(self, count: int) -> tuple[PartitionBatch, PartitionBatch]:
        """Split the batch after ``count`` messages."""
        return (
            PartitionBatch(self.partition, self.epoch, self.deliveries[:count], self.offsets[:count]),
            PartitionBatch(self.partition, self.epoch, self.deliveries[count:], self.offsets[count:]),
        )

    def split_with_attempts(self, attempts: Mapping[int, int]) -> Iterator[PartitionBatch]:
        """Split the batch into single messages, each with its attempt; 1 for offsets that are not in ``attempts``."""
        for delivery, offset in zip(self.deliveries, self.offsets, strict=True):
            retried = msgspec.structs.replace(delivery, attempt=attempts.get(offset, 1))
            yield PartitionBatch(self.partition, self.epoch, [retried], [offset])


def split_by_partition(
    messages: Sequence[Message],
    partitions: Mapping[PartitionId, AssignedPartition],
    options: SubscribeOptions,
    on_error: Callable[[KafkaError], None],
) -> list[PartitionBatch]:
    """Convert messages of the driver into batches, one or more per partition.

    :param partitions: the assigned partitions; messages of others, which were revoked in the meantime, are dropped.
    :param options: drop messages that do not match the filter, and those that were republished for another group.
    :param on_error: called with each error that the driver returned in place of a message.
    """
    errors = [error for message in messages if (error := message.error())]
    if errors:
        for error in errors:
            on_error(error)
        messages = [message for message in messages if not message.error()]
    return [
        _to_batch(partition, group, options)
        for partition_id, group in _group_by_partition(messages)
        if (partition := partitions.get(partition_id)) is not None
    ]


def _group_by_partition(messages: Sequence[Message]) -> Iterator[tuple[Any, Sequence[Message]]]:
    ids = [(message.topic(), message.partition()) for message in messages]
    if ids and ids.count(ids[0]) == len(ids):  # the usual case: one partition
        yield ids[0], messages
        return
    for partition_id, pairs in groupby(zip(ids, messages, strict=True), itemgetter(0)):
        yield partition_id, [message for _, message in pairs]


def _to_batch(partition: AssignedPartition, messages: Sequence[Message], options: SubscribeOptions) -> PartitionBatch:
    offsets: list[int] = [message.offset() for message in messages]  # type: ignore[misc]
    prefix = f"{partition.name}/"
    deliveries = to_deliveries(messages, partition.topic, [f"{prefix}{offset}" for offset in offsets])
    read_to = offsets[-1] + 1
    where = options.where
    if where is not None or any(GROUP_HEADER in delivery.headers for delivery in deliveries if delivery.headers):
        matching = [
            (where is None or where.matches(delivery.headers))
            and delivery.headers.get(GROUP_HEADER, options.group) == options.group
            for delivery in deliveries
        ]
        deliveries, offsets = list(compress(deliveries, matching)), list(compress(offsets, matching))
    return PartitionBatch(partition, partition.epoch, deliveries, offsets, read_to)

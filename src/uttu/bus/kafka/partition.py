"""A partition that one subscriber reads: its progress, and batches of messages from it.

    offsets   … done │ position … pending … seen │ not read yet

All offsets below ``position`` are done and may be committed. If a message is done before an earlier one, ``position``
stays until the earlier one is done, too.

Threads: all attributes of :class:`PartitionState` belong to the event loop, except ``waiting``, ``reading``,
``committed`` and ``paused``: access those only while holding ``PartitionReader._driver``.

Messages are kept in batches of one partition (:class:`PartitionBatch`), so that a batch is counted and acknowledged at
once instead of message by message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress, groupby
from operator import itemgetter
from typing import Any

from confluent_kafka import KafkaError, Message

from uttu.bus.base import Delivery, HeaderFilter
from uttu.bus.kafka.codec import to_deliveries


class PartitionState:
    """The progress of one subscriber in one partition."""

    __slots__ = (
        "attempts",
        "committed",
        "epoch",
        "name",
        "partition",
        "paused",
        "pending",
        "place",
        "position",
        "reading",
        "seen",
        "topic",
        "waiting",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}/{partition}"
        self.place = f"{self.name}/"
        self.pending: list[int] = []
        """Unacknowledged offsets in ascending order; a rewind removes the offsets that will be read again."""
        self.attempts: dict[int, int] = {}
        """Offset of each failed message → the number of its next attempt."""
        self.seen = -1
        """All offsets below this have been read."""
        self.position = -1
        """All offsets below this are done."""
        self.epoch = 0
        """Number of rewinds; batches of an earlier epoch are dropped."""
        self.waiting = False
        """The partition was rewound and is paused until :meth:`PartitionReader.go_on`."""
        self.reading = 0
        """The epoch in which the reader reads at the moment."""
        self.committed = -1
        """The last committed position."""
        self.paused = False
        """The driver has paused the partition."""

    def arrive(self, offsets: Iterable[int], seen: int) -> None:
        """Record offsets that were read. All others below ``seen`` were filtered out, and count as done."""
        self.pending.extend(offsets)
        self.seen = seen
        self._settle()

    def end(self, offsets: Collection[int]) -> int:
        """Mark offsets as done; return how many of them were pending."""
        ended = self._remove(offsets)
        for offset in offsets if self.attempts else ():
            self.attempts.pop(offset, None)
        self._settle()
        return len(ended)

    def drop(self, offsets: Collection[int]) -> int:
        """Remove offsets that are not done and will be read again; return how many of them were pending."""
        dropped = self._remove(offsets)
        if dropped:
            self.seen = min(self.seen, *dropped)
        return len(dropped)

    def _remove(self, offsets: Collection[int]) -> Collection[int]:
        """Remove offsets from the pending ones; return those that were pending."""
        first = self.pending[: len(offsets)]
        if first == offsets:  # the usual case: the oldest pending messages, in order
            del self.pending[: len(offsets)]
            return first
        removed = set(offsets).intersection(self.pending)
        self.pending = [offset for offset in self.pending if offset not in removed]
        return removed

    def _settle(self) -> None:
        self.position = max(self.position, min(self.seen, self.pending[0] if self.pending else self.seen))


class PartitionBatch:
    """Consecutive messages of one partition.

    :param seen: the offset after the last message read, including messages that the header filter removed.
    """

    __slots__ = ("deliveries", "epoch", "lane", "offsets", "seen")

    def __init__(self, lane: PartitionState, deliveries: list[Delivery], offsets: list[int], seen: int = -1) -> None:
        self.lane = lane
        self.epoch = lane.reading
        self.deliveries = deliveries
        self.offsets = offsets
        self.seen = seen

    @property
    def is_retry(self) -> bool:
        return self.deliveries[0].attempt > 1

    def cut(self, count: int) -> tuple[PartitionBatch, PartitionBatch]:
        """Split the batch after ``count`` messages."""
        return (
            PartitionBatch(self.lane, self.deliveries[:count], self.offsets[:count]),
            PartitionBatch(self.lane, self.deliveries[count:], self.offsets[count:]),
        )


def split_by_partition(
    messages: Sequence[Message],
    lanes: Mapping[tuple[str, int], PartitionState],
    where: HeaderFilter | None,
    trouble: Callable[[KafkaError], None],
) -> list[PartitionBatch]:
    """Convert messages of the driver into batches, one or more per partition.

    :param lanes: the assigned partitions; messages of others, which were revoked in the meantime, are dropped.
    :param where: drop messages that do not match this filter.
    :param trouble: called with each error that the driver returned in place of a message.
    """
    errors = [error for message in messages if (error := message.error())]
    if errors:
        for error in errors:
            trouble(error)
        messages = [message for message in messages if not message.error()]
    return [
        _to_batch(lane, those, where)
        for place, those in _group_by_partition(messages)
        if (lane := lanes.get(place)) is not None
    ]


def _group_by_partition(messages: Sequence[Message]) -> Iterator[tuple[Any, Sequence[Message]]]:
    places = [(message.topic(), message.partition()) for message in messages]
    if places and places.count(places[0]) == len(places):  # the usual case: one partition
        yield places[0], messages
        return
    for place, pairs in groupby(zip(places, messages, strict=True), itemgetter(0)):
        yield place, [message for _, message in pairs]


def _to_batch(lane: PartitionState, messages: Sequence[Message], where: HeaderFilter | None) -> PartitionBatch:
    offsets: list[int] = [message.offset() for message in messages]  # type: ignore[misc]
    deliveries = to_deliveries(messages, lane.topic, [f"{lane.place}{offset}" for offset in offsets])
    seen = offsets[-1] + 1
    if where is not None:
        wanted = [where.matches(delivery.headers) for delivery in deliveries]
        deliveries, offsets = list(compress(deliveries, wanted)), list(compress(offsets, wanted))
    return PartitionBatch(lane, deliveries, offsets, seen)

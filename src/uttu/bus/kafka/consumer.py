"""The consumer of one subscriber on Kafka, in a group or without one. Everything here belongs to the event loop.

It tracks messages that are buffered, done or failed. A :class:`~uttu.bus.kafka.reader.PartitionReader` reads them, and
learns through its mailbox which ones are done.

A failed message is not kept in memory. Its partition is rewound to it, and read again after the delay. So no later
message of the partition overtakes it. The number of attempts is stored in this process only.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

from uttu.bus.base import Delivery
from uttu.bus.kafka.codec import to_dead_record
from uttu.bus.kafka.partition import AssignedPartition, PartitionBatch, PartitionProgress
from uttu.bus.kafka.producer import KafkaProducer
from uttu.bus.kafka.reader import PartitionReader
from uttu.errors import BusError, BusUnavailable


class KafkaConsumer:
    """See :class:`uttu.bus.backend.Consumer`; also implements :class:`uttu.bus.kafka.reader.ReaderListener`.

    Belongs to the event loop.

    :param create_reader: creates the reader; its argument is this consumer, which receives the reader's events.
    :param group: empty for a subscriber without a group.
    """

    def __init__(
        self, create_reader: Callable[[KafkaConsumer], PartitionReader], producer: KafkaProducer, group: str
    ) -> None:
        self._producer = producer
        self._group = group
        self._ready: deque[PartitionBatch] = deque()
        self._delivered: list[PartitionBatch] = []
        """The batches of the last :meth:`receive`."""
        self._progress: dict[AssignedPartition, PartitionProgress] = {}
        self._revoking: list[tuple[Sequence[AssignedPartition], threading.Event]] = []
        self._changed = asyncio.Event()
        self._assigned = asyncio.Event()
        self._error: BusError | None = None
        self._reader = create_reader(self)

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
                await self._assigned.wait()
        except BaseException as error:
            await self._reader.close()
            if not isinstance(error, TimeoutError):
                raise
            raise BusUnavailable(
                f"The group {self._group} on Kafka at {self._reader.address.brokers} assigned no partitions to a new "
                f"subscriber within {wait:g} s. Check whether its other subscribers still run"
            ) from error
        if self._error:
            raise self._error

    @property
    def held(self) -> int:
        """Number of messages that are buffered or delivered, and not done."""
        return sum(len(progress.pending) for progress in self._progress.values())

    # Consumer: called by the consumer loop.

    async def receive(self, limit: int) -> list[Delivery]:
        while not (self._ready or self._fetch(limit)):
            if self._error:
                raise self._error
            self._changed.clear()
            self._reader.request_messages()
            await self._changed.wait()
        deliveries: list[Delivery] = []
        self._delivered = []
        while self._ready and len(deliveries) < limit:
            batch = self._ready.popleft()
            if len(batch.offsets) > limit - len(deliveries):
                batch, rest = batch.split(limit - len(deliveries))
                self._ready.appendleft(rest)
            deliveries += batch.deliveries
            self._delivered.append(batch)
            # A retried message is returned alone, and messages behind it are not returned before it.
            if batch.is_retry or (self._ready and self._ready[0].is_retry):
                break
        return deliveries

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        freed = 0
        offsets_by_partition = self._group_offsets(deliveries)
        for partition, offsets in offsets_by_partition.items():
            freed += self._progress[partition].acknowledge(offsets)
        self._report(freed, offsets_by_partition)

    async def retry(self, deliveries: Sequence[Delivery], delay: float) -> None:
        failed = self._group_offsets(deliveries)
        attempts = {delivery.position: delivery.attempt for delivery in deliveries}
        freed = 0
        for partition, offsets in failed.items():
            progress = self._progress[partition]
            progress.attempts |= {offset: attempts[f"{partition.name}/{offset}"] + 1 for offset in offsets}
            freed += progress.drop(offsets)
        freed += self._drop_buffered(failed)
        for partition, offsets in failed.items():
            progress = self._progress[partition]
            progress.epoch += 1
            self._reader.rewind(partition, min(offsets), progress.epoch)
            asyncio.get_running_loop().call_later(delay, self._reader.resume, partition, progress.epoch)
        self._report(freed)

    async def dead_letter(self, deliveries: Sequence[Delivery], reason: str) -> None:
        # Skip messages of revoked partitions: their next owner reads them again.
        owned = [delivery for delivery in deliveries if self._group_offsets([delivery])]
        while owned:
            try:
                await self._producer.send([to_dead_record(self._group, delivery, reason) for delivery in owned])
                break
            except BusUnavailable:  # send() has waited for the timeout already, so try again without a pause
                if self._error:
                    raise self._error from None
        await self.acknowledge(owned)

    def set_paused(self, paused: bool) -> None:
        self._reader.set_paused(paused)

    async def close(self) -> None:
        self._drop_buffered(self._progress)
        self._ready.clear()
        self._report(0)
        await self._reader.close()

    # ReaderListener: called by the reader.

    def on_assigned(self, partitions: Sequence[AssignedPartition]) -> None:
        self._progress |= {partition: PartitionProgress() for partition in partitions}
        self._assigned.set()

    def on_messages(self, batches: Sequence[PartitionBatch]) -> None:
        dropped = 0
        positions: dict[AssignedPartition, int] = {}
        for batch in batches:
            progress = self._progress.get(batch.partition)
            if progress is None or batch.epoch != progress.epoch:
                dropped += len(batch.offsets)
                continue
            progress.add(batch.offsets, batch.read_to)
            positions[batch.partition] = progress.position
            if progress.attempts:
                self._ready.extend(batch.split_with_attempts(progress.attempts))
            elif batch.offsets:
                self._ready.append(batch)
        self._reader.mailbox.report_progress(dropped, positions)
        if self._ready:
            self._changed.set()

    def on_revoking(self, partitions: Sequence[AssignedPartition], released: threading.Event) -> None:
        freed = self._drop_buffered(partitions)
        self._revoking.append((partitions, released))
        self._report(freed)

    def on_revoked(self, partitions: Sequence[AssignedPartition]) -> None:
        freed = self._drop_buffered(partitions)
        for partition in partitions:
            if (progress := self._progress.pop(partition, None)) is not None:
                freed += len(progress.pending)
        self._report(freed)
        self._reader.mailbox.forget(partitions)

    def on_end(self, error: BusError | None) -> None:
        self._error = error or BusError("The subscription is closed")
        self._assigned.set()
        self._changed.set()

    # Helpers.

    def _fetch(self, limit: int) -> bool:
        """Take messages that the driver has fetched; return whether there are any."""
        self._reader.fetch(limit)
        return bool(self._ready)

    def _group_offsets(self, deliveries: Sequence[Delivery]) -> dict[AssignedPartition, list[int]]:
        """Return the offsets of these deliveries by partition, without revoked partitions."""
        grouped: dict[AssignedPartition, list[int]] = defaultdict(list)
        owned = [batch for batch in self._delivered if batch.partition in self._progress]
        if len(deliveries) == sum(len(batch.offsets) for batch in self._delivered):  # usually all of the last receive()
            for batch in owned:
                grouped[batch.partition] += batch.offsets
            return grouped
        wanted = {delivery.position for delivery in deliveries}
        for batch in owned:
            for delivery, offset in zip(batch.deliveries, batch.offsets, strict=True):
                if delivery.position in wanted:
                    grouped[batch.partition].append(offset)
        return grouped

    def _drop_buffered(self, partitions: Iterable[AssignedPartition]) -> int:
        """Drop buffered messages of these partitions; return how many."""
        chosen = set(partitions)
        dropped = [batch for batch in self._ready if batch.partition in chosen]
        self._ready = deque(batch for batch in self._ready if batch.partition not in chosen)
        return sum(self._progress[batch.partition].drop(batch.offsets) for batch in dropped)

    def _report(self, freed: int, changed: Iterable[AssignedPartition] = ()) -> None:
        """Report freed messages and the positions of changed partitions to the reader.

        Then release partitions that are being revoked and have no pending messages.
        """
        positions = {partition: self._progress[partition].position for partition in changed}
        self._reader.mailbox.report_progress(freed, positions)
        waiting = []
        for partitions, released in self._revoking:
            if any(partition in self._progress and self._progress[partition].pending for partition in partitions):
                waiting.append((partitions, released))
            else:
                released.set()
        self._revoking = waiting

"""What the driver has read, made into deliveries and put together by partitions.

By runs rather than one by one, because whoever takes them can then count and end them by the dozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaError, Message

from weft.bus.base import Delivery, Where
from weft.bus.kafka.lane import Lane
from weft.bus.kafka.wire import delivery


class Run:
    """Messages that follow each other in one partition; ``seen`` is past those that were filtered out, too."""

    __slots__ = ("deliveries", "epoch", "lane", "offsets", "seen")

    def __init__(self, lane: Lane, deliveries: list[Delivery], offsets: list[int]) -> None:
        self.lane = lane
        self.epoch = lane.reading
        self.deliveries = deliveries
        self.offsets = offsets
        self.seen = -1

    @property
    def was_tried(self) -> bool:
        return self.deliveries[0].attempt > 1

    def cut(self, count: int) -> tuple[Run, Run]:
        """The first so many, and the rest."""
        return (
            Run(self.lane, self.deliveries[:count], self.offsets[:count]),
            Run(self.lane, self.deliveries[count:], self.offsets[count:]),
        )


def runs_of(
    messages: Iterable[Message],
    lanes: Mapping[tuple[str, int], Lane],
    where: Where | None,
    trouble: Callable[[KafkaError], None],
) -> list[Run]:
    """What was read, by partitions: those of ``lanes``, as others were taken from us meanwhile. ``trouble`` is told of
    errors that came in the place of messages."""
    runs: list[Run] = []
    run: Run | None = None
    at_topic = at_partition = None
    for message in messages:
        if error := message.error():
            trouble(error)
            continue
        partition, topic = message.partition(), message.topic()
        if partition != at_partition or topic != at_topic:
            at_partition, at_topic = partition, topic
            lane = lanes.get((topic, partition))  # type: ignore[arg-type]
            run = Run(lane, [], []) if lane is not None else None
            if run is not None:
                runs.append(run)
        if run is None:  # the partition was taken from us while this was being read
            continue
        offset: int = message.offset()  # type: ignore[assignment]
        run.seen = offset + 1
        taken = delivery(message, run.lane.topic, run.lane.place, offset)
        if where is None or where.matches(taken.headers):
            run.deliveries.append(taken)
            run.offsets.append(offset)
    return runs

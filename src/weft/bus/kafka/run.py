"""What the driver has read, made into deliveries and put together by partitions.

By runs rather than one by one, because whoever takes them can then count and end them by the dozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress, groupby
from operator import itemgetter
from typing import Any

from confluent_kafka import KafkaError, Message

from weft.bus.base import Delivery, Where
from weft.bus.kafka.lane import Lane
from weft.bus.kafka.wire import deliveries_of


class Run:
    """Messages that follow each other in one partition; ``seen`` is past those that were filtered out, too."""

    __slots__ = ("deliveries", "epoch", "lane", "offsets", "seen")

    def __init__(self, lane: Lane, deliveries: list[Delivery], offsets: list[int], seen: int = -1) -> None:
        self.lane = lane
        self.epoch = lane.reading
        self.deliveries = deliveries
        self.offsets = offsets
        self.seen = seen

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
    messages: Sequence[Message],
    lanes: Mapping[tuple[str, int], Lane],
    where: Where | None,
    trouble: Callable[[KafkaError], None],
) -> list[Run]:
    """What was read, by partitions: those of ``lanes``, as others were taken from us meanwhile. ``trouble`` is told of
    errors that came in the place of messages."""
    errors = [error for message in messages if (error := message.error())]
    if errors:
        for error in errors:
            trouble(error)
        messages = [message for message in messages if not message.error()]
    return [_run(lane, those, where) for place, those in _by_place(messages) if (lane := lanes.get(place)) is not None]


def _by_place(messages: Sequence[Message]) -> Iterator[tuple[Any, Sequence[Message]]]:
    places = [(message.topic(), message.partition()) for message in messages]
    if places and places.count(places[0]) == len(places):  # all of one partition, as nearly always
        yield places[0], messages
        return
    for place, pairs in groupby(zip(places, messages, strict=True), itemgetter(0)):
        yield place, [message for _, message in pairs]


def _run(lane: Lane, messages: Sequence[Message], where: Where | None) -> Run:
    offsets: list[int] = [message.offset() for message in messages]  # type: ignore[misc]
    deliveries = deliveries_of(messages, lane.topic, [f"{lane.place}{offset}" for offset in offsets])
    seen = offsets[-1] + 1
    if where is not None:
        wanted = [where.matches(delivery.headers) for delivery in deliveries]
        deliveries, offsets = list(compress(deliveries, wanted)), list(compress(offsets, wanted))
    return Run(lane, deliveries, offsets, seen)

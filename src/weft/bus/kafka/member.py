"""Reads for a group: as one of its members, with its position kept by Kafka.

Partitions are taken and given up by the cooperative protocol, in which the others are read on meanwhile. Before one is
given up, the handler may end what it has of it: so a message is handled twice only if that takes too long, or if this
process dies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from weft.bus.base import Interest
from weft.bus.kafka.address import Address
from weft.bus.kafka.lane import Lane
from weft.bus.kafka.reader import Reader, Taker
from weft.bus.kafka.wire import INTERNAL
from weft.bus.topics import expression, is_pattern

_COMMIT_SECONDS: Final = 0.02  # while there is room, what is done is committed no more often: it is a question to Kafka
_COMMIT_PATIENCE: Final = 5.0
_COMMIT_AGAIN: Final = 0.2


class Member(Reader):
    def __init__(self, address: Address, interest: Interest, taker: Taker, trouble: Any) -> None:
        session = int(address.options.session * 1000)
        settings = {
            "group.id": interest.group,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session,
            "heartbeat.interval.ms": min(3000, session // 3),
            "topic.blacklist": ",".join(f"^{name}$" for name in sorted(INTERNAL)),
            "on_commit": self._answered,
            "error_cb": trouble,
        }
        super().__init__(address, settings, taker, prefetch=interest.prefetch, where=interest.where)
        self._topics = [expression(topic) if is_pattern(topic) else topic for topic in interest.topics]
        self._owed = 0
        """The room of those that are done, but not committed."""
        self._moved = False
        """Since the last commit something was done."""
        self._refused = False
        """So was the last commit."""
        self._under_way_until = 0.0
        self._commit_after = 0.0
        self._commit_before = 0.0

    def begin(self) -> None:
        self.consumer.subscribe(self._topics, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)

    def freed(self, count: int) -> None:
        self._owed += count
        self._moved = True

    def tend(self) -> None:
        """Commit what is done. Its room is free then, so no more than twice the prefetch is without Kafka's word.

        Kafka's word is not waited for, unless more is done before it has come, or it was no.
        """
        now = time.monotonic()
        full, under_way = self.room < self.enough, now < self._under_way_until
        if not self._moved or now < self._commit_after or (not full and (under_way or now < self._commit_before)):
            return
        self._commit_before = now + _COMMIT_SECONDS
        lanes = list(self.lanes.values())
        if self._commit(lanes) if under_way or self._refused else self._ask_to_commit(lanes):
            self._moved = self._refused = False
            self.room, self._owed = self.room + self._owed, 0
        else:  # the group is being shared out anew, or its coordinator is away
            self._commit_after = now + _COMMIT_AGAIN

    def leave(self) -> None:
        self._commit(list(self.lanes.values()))

    def _assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self.take(places)

    def _revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        lanes = self.drop(places)
        if not self.closing:
            released = threading.Event()
            self.tell(self._taker.revoked, lanes, released)
            released.wait(self.address.options.timeout)
        self._commit(lanes)  # if it fails, they come once more, to whoever reads them then
        self.tell(self._taker.gone, lanes)

    def _lose(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self.tell(self._taker.gone, self.drop(places))

    def _commit(self, lanes: Sequence[Lane]) -> bool:
        """Whether Kafka has all positions now."""
        places = _uncommitted(lanes)
        try:
            answers = self.consumer.commit(offsets=places, asynchronous=False) if places else []
        except KafkaException:
            return False
        self._note(lanes, answers)
        return all(answer.error is None for answer in answers)

    def _ask_to_commit(self, lanes: Sequence[Lane]) -> bool:
        """Whether it could be asked; it answers to :meth:`_answered`."""
        places = _uncommitted(lanes)
        try:
            if places:
                self.consumer.commit(offsets=places, asynchronous=True)
                self._under_way_until = time.monotonic() + _COMMIT_PATIENCE
        except KafkaException:
            return False
        return True

    def _answered(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        self._under_way_until = 0.0
        if error is None:
            self._note(self.lanes.values(), places)
        if error is not None or any(place.error is not None for place in places):
            self._moved = self._refused = True
            self._commit_after = time.monotonic() + _COMMIT_AGAIN

    def _note(self, lanes: Iterable[Lane], places: Sequence[TopicPartition]) -> None:
        known = {(lane.topic, lane.partition): lane for lane in lanes}
        for place in places:
            if place.error is None and (lane := known.get((place.topic, place.partition))) is not None:
                lane.committed = max(lane.committed, place.offset)


def _uncommitted(lanes: Iterable[Lane]) -> list[TopicPartition]:
    return [
        TopicPartition(lane.topic, lane.partition, lane.position) for lane in lanes if lane.position > lane.committed
    ]

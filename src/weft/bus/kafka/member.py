"""Reads for a group: as one of its members, with its position kept by Kafka.

Partitions are taken and given up by the cooperative protocol, in which the others are read on meanwhile. Before one is
given up, the handler may end what it has of it: so a message is handled twice only if that takes too long, or if this
process dies.

Commits are asked for, and the driver tells Kafka's word when it is next read from: seldom enough that they cost little,
as each takes Kafka some milliseconds, and with so much allowed meanwhile that a quick handler need not wait for them.
If too much is without Kafka's word already, it is waited for, in the thread.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from weft.bus.base import Interest
from weft.bus.kafka.address import Address
from weft.bus.kafka.errors import code_of
from weft.bus.kafka.lane import Lane
from weft.bus.kafka.reader import Reader, Taker
from weft.bus.kafka.wire import INTERNAL
from weft.bus.topics import expression, is_pattern

_HEARTBEAT: Final = 500  # milliseconds; by the answer to it a member hears that partitions are shared out anew
_UNSURE: Final = 4  # so many times the prefetch may have been read without Kafka's word
_COMMIT_SECONDS: Final = 0.02  # while less than the prefetch is done, it is committed no more often
_COMMIT_PATIENCE: Final = 5.0
_COMMIT_AGAIN: Final = 0.2
_COMMIT_SOON: Final = 0.02  # again, where the partitions are on their way to another

_SHARED_OUT: Final = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})
"""The group is being shared out anew, and commits are taken again when that is done."""

Position = tuple[str, int, int]
"""A topic, the number of a partition of it, an offset."""


class Member(Reader):
    def __init__(self, address: Address, interest: Interest, taker: Taker, trouble: Any) -> None:
        session = int(address.options.session * 1000)
        settings = {
            "group.id": interest.group,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session,
            "heartbeat.interval.ms": min(_HEARTBEAT, session // 3),
            "topic.blacklist": ",".join(f"^{name}$" for name in sorted(INTERNAL)),
            "on_commit": self._answered,
            "error_cb": trouble,
        }
        super().__init__(address, settings, taker, prefetch=interest.prefetch, where=interest.where)
        self._topics = [expression(topic) if is_pattern(topic) else topic for topic in interest.topics]
        self._sure = 0
        """How many were freed by the last commit that there is Kafka's word for, ..."""
        self._asked_for = 0
        """... and by the last one that was asked for."""
        self._asked: frozenset[Position] = frozenset()
        """The commit that is under way. One at a time: a driver that tries again might let them pass each other."""
        self._asked_until = 0.0
        self._commit_after = 0.0
        self._commit_before = 0.0

    def begin(self) -> None:
        self.consumer.subscribe(self._topics, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)

    def allowed(self) -> int:
        """With these, and one that a look at the driver may bring, it is no more than may be without Kafka's word."""
        return min(self.room, _UNSURE * self.prefetch - 1 - (self.taken - self._sure))

    def tend(self) -> None:
        """If nothing may be read for want of Kafka's word, wait for it."""
        if self.allowed() < self.enough <= self.room and time.monotonic() >= self._commit_after:
            self._asked_for = self.freed
            self._note(self._commit(list(self.lanes.values())) is None)

    def commit(self) -> bool:
        """Early enough for Kafka's word to come before it is needed."""
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
            # The handler has none of them, and the loop can't wait. Kafka hears of it before it hears that they are
            # free, as both take the same way.
            if done := _uncommitted(lanes):
                with contextlib.suppress(KafkaException):
                    self.consumer.commit(offsets=done, asynchronous=True)
        else:
            if not self.closing:
                released = threading.Event()
                self.tell(self.taker.revoked, lanes, released)
                released.wait(self.address.options.timeout)
            self._commit_at_last(lanes)
        # What is not committed now comes once more, to whoever reads it then.
        self.tell(self.taker.gone, lanes)

    def _lose(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self.tell(self.taker.gone, self.drop(places))

    # Commits.

    def _ask(self, now: float) -> None:
        """For a commit that is answered to :meth:`_answered`."""
        self._asked_for = self.freed
        self._commit_before, self._asked_until = now + _COMMIT_SECONDS, now + _COMMIT_PATIENCE
        places = _uncommitted(self.lanes.values())
        if not places:
            self._note(True)
            return
        self._asked = _exactly(places)
        try:
            self.consumer.commit(offsets=places, asynchronous=True)
        except KafkaException:
            self._note(False)

    def _answered(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        if error is None:
            _mark(self.lanes.values(), places)
        # If it is another, that was waited for since, its word has come already.
        if error is not None or _exactly(places) == self._asked:
            self._note(error is None and all(place.error is None for place in places))

    def _note(self, is_done: bool) -> None:
        """Kafka's word on the last commit."""
        self._asked = frozenset()
        if is_done:
            self._sure = self._asked_for
        else:  # the group is being shared out anew, or its coordinator is away
            self._commit_after = time.monotonic() + _COMMIT_AGAIN

    def _commit_at_last(self, lanes: Sequence[Lane]) -> None:
        """They go to another, who would get again what is not committed now."""
        deadline = time.monotonic() + _COMMIT_PATIENCE
        while self._commit(lanes) in _SHARED_OUT and time.monotonic() < deadline:
            time.sleep(_COMMIT_SOON)

    def _commit(self, lanes: Sequence[Lane]) -> int | None:
        """And wait for it. The error, unless Kafka has all positions now."""
        places = _uncommitted(lanes)
        try:
            answers = self.consumer.commit(offsets=places, asynchronous=False) if places else []
        except KafkaException as error:
            return code_of(error)
        _mark(lanes, answers)
        return next((answer.error.code() for answer in answers if answer.error is not None), None)


def _uncommitted(lanes: Iterable[Lane]) -> list[TopicPartition]:
    return [
        TopicPartition(lane.topic, lane.partition, lane.position) for lane in lanes if lane.position > lane.committed
    ]


def _mark(lanes: Iterable[Lane], places: Iterable[TopicPartition]) -> None:
    known = {(lane.topic, lane.partition): lane for lane in lanes}
    for place in places:
        if place.error is None and (lane := known.get((place.topic, place.partition))) is not None:
            lane.committed = max(lane.committed, place.offset)


def _exactly(places: Iterable[TopicPartition]) -> frozenset[Position]:
    """With their offsets, which the driver leaves out when it compares."""
    return frozenset((place.topic, place.partition, place.offset) for place in places)

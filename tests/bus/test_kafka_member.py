"""How much of what was handled can be without Kafka's word: never more than four times the prefetch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from weft.bus.base import Interest
from weft.bus.kafka import reader
from weft.bus.kafka.address import parse
from weft.bus.kafka.lane import Lane
from weft.bus.kafka.member import Member
from weft.bus.kafka.run import Run


class Kafka:
    """One partition without an end. A commit that is not waited for is answered when the test says so."""

    def __init__(self) -> None:
        self.next = 0
        self.committed = 0
        self.asked: list[list[TopicPartition]] = []
        self.answers: list[list[TopicPartition]] = []
        self.on_commit: Any = None

    def poll(self, timeout: float) -> Any:
        return self.consume(1, timeout)[0]

    def consume(self, count: int, timeout: float) -> list[Any]:
        while self.answers:
            self.on_commit(None, self.answers.pop(0))
        self.next += count
        return [Raw(offset) for offset in range(self.next - count, self.next)]

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        self.asked.append(offsets)
        while self.asked and not asynchronous:
            self.answer()
        return offsets

    def answer(self) -> None:
        """The first that was asked for."""
        if self.asked:
            self.committed = self.asked[0][0].offset
            self.answers.append(self.asked.pop(0))

    def pause(self, places: object) -> None: ...

    resume = incremental_assign = pause


class Raw:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> KafkaError | None:
        return None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def headers(self) -> None: ...

    key = value = headers


class Taker:
    def __init__(self) -> None:
        self.held: list[int] = []
        self.lane: Lane

    def assigned(self, lanes: Sequence[Lane]) -> None:
        (self.lane,) = lanes

    def arrived(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self.lane.arrive(run.offsets, run.seen)
            self.held += run.offsets


@given(st.integers(1, 30), st.lists(st.sampled_from(["fetch", "wait", "handle", "answer"]), max_size=60), st.data())
async def test_no_more_than_four_times_the_prefetch_is_without_kafkas_word(
    prefetch: int, steps: list[str], data: st.DataObject
) -> None:
    kafka, taker = Kafka(), Taker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_IDLE_SECONDS", 0)
        patch.setattr(Member, "tell", lambda self, what, *values: what(*values))
        interest = Interest(topics=("t",), group="g", prefetch=prefetch)
        member = Member(parse("kafka://localhost"), interest, taker, None)  # type: ignore[arg-type]
        member.consumer = kafka  # type: ignore[assignment]
        kafka.on_commit = member._answered
        member.take([TopicPartition("t", 0, 0)])
        handled = 0
        for step in [*steps, "wait"]:
            if step == "fetch":
                member.fetch(data.draw(st.integers(1, prefetch)))
            elif step == "wait":
                member.want()
                member._work()
            elif step == "answer":
                kafka.answer()
            elif taker.held:
                count = data.draw(st.integers(1, len(taker.held)))
                done, taker.held = taker.held[:count], taker.held[count:]
                member.free(taker.lane.end(done))
                handled += count
            assert len(taker.held) <= prefetch
            assert handled + len(taker.held) - kafka.committed <= 4 * prefetch

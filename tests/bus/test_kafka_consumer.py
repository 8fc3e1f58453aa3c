"""How much of what was handled can be without Kafka's word: never more than four times the prefetch, and nothing of
what is left to others in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from uttu.bus.base import SubscribeOptions
from uttu.bus.kafka.consumer import GroupReader
from uttu.bus.kafka.partition import PartitionBatch, PartitionState
from uttu.clients.kafka import parse_address

SHARED_OUT = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)

STEPS = ["fetch", "wait", "handle", "answer", "share out", "share out no more"]


class Kafka:
    """One partition without an end. A commit that is not waited for is answered when the test says so.

    While the group is shared out anew, commits are refused."""

    def __init__(self) -> None:
        self.next = 0
        self.committed = 0
        self.is_shared_out = False
        self.asked: list[list[TopicPartition]] = []
        self.answers: list[tuple[KafkaError | None, list[TopicPartition]]] = []
        self.on_commit: Any = None

    def poll(self, timeout: float) -> Any:
        return self.consume(1, timeout)[0]

    def consume(self, count: int, timeout: float) -> list[Any]:
        while self.answers:
            self.on_commit(*self.answers.pop(0))
        self.next += count
        return [Raw(offset) for offset in range(self.next - count, self.next)]

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        self.asked.append(offsets)
        while self.asked and not asynchronous:
            self.answer()
        if self.is_shared_out and not asynchronous:
            raise KafkaException(SHARED_OUT)
        return offsets

    def answer(self) -> None:
        """The first that was asked for."""
        if self.asked and self.is_shared_out:
            self.answers.append((SHARED_OUT, self.asked.pop(0)))
        elif self.asked:
            self.committed = self.asked[0][0].offset
            self.answers.append((None, self.asked.pop(0)))

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
        self.lane: PartitionState

    def assigned(self, lanes: Sequence[PartitionState]) -> None:
        (self.lane,) = lanes

    def arrived(self, runs: Sequence[PartitionBatch]) -> None:
        for run in runs:
            self.lane.arrive(run.offsets, run.seen)
            self.held += run.offsets


@contextmanager
def membership(prefetch: int) -> Iterator[tuple[GroupReader, Kafka, Taker]]:
    """One that hears the news at once, and has the partition."""
    kafka, taker = Kafka(), Taker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uttu.bus.kafka.reader._IDLE_SECONDS", 0)
        patch.setattr("uttu.bus.kafka.consumer._COMMIT_AGAIN", 0)
        patch.setattr(GroupReader, "tell", lambda self, what, *values: what(*values))
        options = SubscribeOptions(topics=("t",), group="g", prefetch=prefetch)
        member = GroupReader(parse_address("kafka://localhost"), options, taker, None)  # type: ignore[arg-type]
        member.consumer = kafka  # type: ignore[assignment]
        kafka.on_commit = member._answered
        member.take([TopicPartition("t", 0, 0)])
        yield member, kafka, taker


@given(st.integers(1, 30), st.lists(st.sampled_from(STEPS), max_size=60), st.data())
async def test_no_more_than_four_times_the_prefetch_is_without_kafkas_word(
    prefetch: int, steps: list[str], data: st.DataObject
) -> None:
    with membership(prefetch) as (member, kafka, taker):
        handled = 0
        for step in [*steps, "wait"]:
            if step == "fetch":
                member.fetch(data.draw(st.integers(1, prefetch)))
            elif step == "wait":
                member.want()
                member._work()
            elif step == "answer":
                kafka.answer()
            elif step.startswith("share out"):
                kafka.is_shared_out = step == "share out"
            elif taker.held:
                count = data.draw(st.integers(1, len(taker.held)))
                done, taker.held = taker.held[:count], taker.held[count:]
                member.free(taker.lane.end(done))
                handled += count
            assert len(taker.held) <= prefetch
            assert handled + len(taker.held) - kafka.committed <= 4 * prefetch


async def test_what_is_done_is_committed_by_one_who_leaves_while_the_group_is_shared_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with membership(10) as (member, kafka, taker):
        member.fetch(5)
        member.free(taker.lane.end(taker.held))
        kafka.is_shared_out = True
        waits = iter([True, True, False])

        def sleep(seconds: float) -> None:
            kafka.is_shared_out = next(waits)

        monkeypatch.setattr("time.sleep", sleep)
        member.leave()
        assert kafka.committed == 5
        assert list(waits) == []


async def test_one_who_leaves_does_not_wait_for_a_group_that_is_never_shared_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with membership(10) as (member, kafka, taker):
        member.fetch(5)
        member.free(taker.lane.end(taker.held))
        kafka.is_shared_out = True
        monkeypatch.setattr("uttu.bus.kafka.consumer._COMMIT_PATIENCE", 0.05)
        member.leave()
        assert kafka.committed == 0

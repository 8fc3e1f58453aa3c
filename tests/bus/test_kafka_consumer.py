"""Commits of a group's reader: at most four times the prefetch is handled without a confirmed commit, and a reader that
leaves in order commits everything that is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from uttu.bus.base import SubscribeOptions
from uttu.bus.kafka.assignment import GroupReader
from uttu.bus.kafka.partition import AssignedPartition, PartitionBatch, PartitionProgress
from uttu.clients.kafka import parse_address

REBALANCING = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)

STEPS = ["fetch", "wait", "handle", "answer", "rebalance", "end of the rebalance"]


class Kafka:
    """A driver with one endless partition. An asynchronous commit is answered when the test says so.

    During a rebalance, commits are refused."""

    def __init__(self) -> None:
        self.next = 0
        self.committed = 0
        self.is_rebalancing = False
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
        if self.is_rebalancing and not asynchronous:
            raise KafkaException(REBALANCING)
        return offsets

    def answer(self) -> None:
        """Answer the oldest commit."""
        if self.asked and self.is_rebalancing:
            self.answers.append((REBALANCING, self.asked.pop(0)))
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


class Listener:
    """Holds the messages that the reader reports, and acknowledges them."""

    def __init__(self) -> None:
        self.held: list[int] = []
        self.progress = PartitionProgress()
        self.partition: AssignedPartition
        self.reader: GroupReader

    def on_assigned(self, partitions: Sequence[AssignedPartition]) -> None:
        (self.partition,) = partitions

    def on_messages(self, batches: Sequence[PartitionBatch]) -> None:
        for batch in batches:
            self.progress.add(batch.offsets, batch.read_to)
            self.held += batch.offsets

    def acknowledge(self, count: int) -> None:
        done, self.held = self.held[:count], self.held[count:]
        freed = self.progress.acknowledge(done)
        self.reader.mailbox.report_progress(freed, {self.partition: self.progress.position})


@contextmanager
def group_reader(prefetch: int) -> Iterator[tuple[GroupReader, Kafka, Listener]]:
    """A reader that has the partition, and reports events at once."""
    kafka, listener = Kafka(), Listener()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uttu.bus.kafka.reader._IDLE_SECONDS", 0)
        patch.setattr("uttu.bus.kafka.assignment._COMMIT_RETRY_SECONDS", 0)
        patch.setattr(GroupReader, "post", lambda self, event, *values: event(*values))
        options = SubscribeOptions(topics=("t",), group="g", prefetch=prefetch)
        reader = GroupReader(parse_address("kafka://localhost"), options, listener, None)  # type: ignore[arg-type]
        reader.driver = kafka  # type: ignore[assignment]
        listener.reader = reader
        kafka.on_commit = reader._on_commit
        reader.assign([TopicPartition("t", 0, 0)])
        yield reader, kafka, listener


@given(st.integers(1, 30), st.lists(st.sampled_from(STEPS), max_size=60), st.data())
async def test_reader_limits_unconfirmed_messages_to_four_prefetches(
    prefetch: int, steps: list[str], data: st.DataObject
) -> None:
    with group_reader(prefetch) as (reader, kafka, listener):
        handled = 0
        for step in [*steps, "wait"]:
            if step == "fetch":
                reader.fetch(data.draw(st.integers(1, prefetch)))
            elif step == "wait":
                reader.request_messages()
                reader._work()
            elif step == "answer":
                kafka.answer()
            elif step.endswith("rebalance"):
                kafka.is_rebalancing = step == "rebalance"
            elif listener.held:
                count = data.draw(st.integers(1, len(listener.held)))
                listener.acknowledge(count)
                handled += count
            assert len(listener.held) <= prefetch
            assert handled + len(listener.held) - kafka.committed <= 4 * prefetch


async def test_reader_commits_before_it_leaves_during_a_rebalance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with group_reader(10) as (reader, kafka, listener):
        reader.fetch(5)
        listener.acknowledge(5)
        kafka.is_rebalancing = True
        waits = iter([True, True, False])

        def sleep(seconds: float) -> None:
            kafka.is_rebalancing = next(waits)

        monkeypatch.setattr("time.sleep", sleep)
        reader.leave()
        assert kafka.committed == 5
        assert list(waits) == []


async def test_reader_leaves_although_a_rebalance_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with group_reader(10) as (reader, kafka, listener):
        reader.fetch(5)
        listener.acknowledge(5)
        kafka.is_rebalancing = True
        monkeypatch.setattr("uttu.bus.kafka.assignment._COMMIT_TIMEOUT", 0.05)
        reader.leave()
        assert kafka.committed == 0

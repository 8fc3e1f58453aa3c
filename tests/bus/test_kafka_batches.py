"""What the driver has read, as runs of deliveries."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, Message

from uttu.bus.base import Delivery, HeaderFilter
from uttu.bus.kafka.partition import PartitionBatch, PartitionState, split_by_partition

LANES = {(topic, partition): PartitionState(topic, partition) for topic, partition in (("a", 0), ("a", 1), ("b", 1))}


def read(topic: str, partition: int, offset: int, **more: Any) -> Message:
    return Message(topic=topic, partition=partition, offset=offset, **more)


def shape(runs: list[PartitionBatch]) -> list[tuple[str, list[int], int]]:
    return [(run.lane.name, run.offsets, run.seen) for run in runs]


def made(messages: list[Message], where: HeaderFilter | None = None) -> list[PartitionBatch]:
    troubles: list[KafkaError] = []
    runs = split_by_partition(messages, LANES, where, troubles.append)
    assert troubles == []
    return runs


def test_a_run_is_of_one_partition_of_one_topic() -> None:
    messages = [read("a", 0, 3), read("a", 0, 5), read("a", 1, 7), read("b", 1, 8), read("a", 0, 6)]
    assert shape(made(messages)) == [("a/0", [3, 5], 6), ("a/1", [7], 8), ("b/1", [8], 9), ("a/0", [6], 7)]
    assert made([]) == []


def test_partitions_that_were_taken_from_us_are_left_out() -> None:
    assert shape(made([read("b", 0, 1), read("a", 0, 2), read("b", 0, 3)])) == [("a/0", [2], 3)]
    assert made([read("b", 0, 1)]) == []


def test_a_filter_leaves_out_messages_but_has_seen_them() -> None:
    messages = [read("a", 0, offset, headers=[("lang", lang)]) for offset, lang in enumerate((b"en", b"de", b"en"))]
    assert shape(made(messages, HeaderFilter({"lang": "de"}))) == [("a/0", [1], 3)]
    assert shape(made(messages, HeaderFilter({"lang": "fr"}))) == [("a/0", [], 3)]


def test_errors_in_the_place_of_messages_are_told() -> None:
    troubles: list[KafkaError] = []
    error = KafkaError(KafkaError._ALL_BROKERS_DOWN)
    runs = split_by_partition(
        [read("a", 0, 1), read("a", 0, 2, error=error), read("a", 0, 2)], LANES, None, troubles.append
    )
    assert shape(runs) == [("a/0", [1, 2], 3)]
    assert troubles == [error]


def test_the_place_is_the_id_of_what_has_none() -> None:
    (run,) = made(
        [read("a", 0, 1, value=b"v", key=b"k"), read("a", 0, 2, headers=[("uttu-id", b"mine"), ("lang", b"en")])]
    )
    assert run.deliveries == [
        Delivery(topic="a", payload=b"v", key="k", id="a/0/1", position="a/0/1"),
        Delivery(topic="a", headers={"lang": "en"}, id="mine", position="a/0/2"),
    ]

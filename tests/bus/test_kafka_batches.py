"""Messages of the driver as batches of deliveries."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, Message

from uttu.bus.base import Delivery, HeaderFilter, SubscribeOptions
from uttu.bus.kafka.partition import AssignedPartition, PartitionBatch, split_by_partition

PARTITIONS = {
    (topic, partition): AssignedPartition(topic, partition) for topic, partition in (("a", 0), ("a", 1), ("b", 1))
}


def record(topic: str, partition: int, offset: int, **more: Any) -> Message:
    return Message(topic=topic, partition=partition, offset=offset, **more)


def subscribe_to(where: HeaderFilter | None = None, group: str = "g") -> SubscribeOptions:
    return SubscribeOptions(topics=("#",), group=group, where=where)


def shape(batches: list[PartitionBatch]) -> list[tuple[str, list[int], int]]:
    return [(batch.partition.name, batch.offsets, batch.read_to) for batch in batches]


def split(messages: list[Message], where: HeaderFilter | None = None) -> list[PartitionBatch]:
    errors: list[KafkaError] = []
    batches = split_by_partition(messages, PARTITIONS, subscribe_to(where), errors.append)
    assert errors == []
    return batches


def test_batch_has_messages_of_one_partition() -> None:
    messages = [record("a", 0, 3), record("a", 0, 5), record("a", 1, 7), record("b", 1, 8), record("a", 0, 6)]
    assert shape(split(messages)) == [("a/0", [3, 5], 6), ("a/1", [7], 8), ("b/1", [8], 9), ("a/0", [6], 7)]
    assert split([]) == []


def test_messages_of_revoked_partitions_are_dropped() -> None:
    assert shape(split([record("b", 0, 1), record("a", 0, 2), record("b", 0, 3)])) == [("a/0", [2], 3)]
    assert split([record("b", 0, 1)]) == []


def test_filtered_messages_count_as_read() -> None:
    messages = [record("a", 0, offset, headers=[("lang", lang)]) for offset, lang in enumerate((b"en", b"de", b"en"))]
    assert shape(split(messages, HeaderFilter({"lang": "de"}))) == [("a/0", [1], 3)]
    assert shape(split(messages, HeaderFilter({"lang": "fr"}))) == [("a/0", [], 3)]


def test_republished_messages_are_for_their_group_alone() -> None:
    messages = [record("a", 0, 1, headers=[("uttu-group", b"g")]), record("a", 0, 2)]
    for group, offsets in (("g", [1, 2]), ("other", [2]), ("", [2])):
        batches = split_by_partition(messages, PARTITIONS, subscribe_to(group=group), lambda error: None)
        assert shape(batches) == [("a/0", offsets, 3)]


def test_errors_of_the_driver_are_reported() -> None:
    errors: list[KafkaError] = []
    error = KafkaError(KafkaError._ALL_BROKERS_DOWN)
    messages = [record("a", 0, 1), record("a", 0, 2, error=error), record("a", 0, 2)]
    batches = split_by_partition(messages, PARTITIONS, subscribe_to(), errors.append)
    assert shape(batches) == [("a/0", [1, 2], 3)]
    assert errors == [error]


def test_position_is_the_id_of_a_message_without_one() -> None:
    (batch,) = split(
        [record("a", 0, 1, value=b"v", key=b"k"), record("a", 0, 2, headers=[("uttu-id", b"mine"), ("lang", b"en")])]
    )
    assert batch.deliveries == [
        Delivery(topic="a", payload=b"v", key="k", id="a/0/1", position="a/0/1"),
        Delivery(topic="a", headers={"lang": "en"}, id="mine", position="a/0/2"),
    ]

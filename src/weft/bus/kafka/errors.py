"""The driver's errors, where they enter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from weft.errors import BusError, BusRefused, BusUnavailable

Key = TypeVar("Key")

_ASK_AGAIN: Final = 0.05

LOGIN: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)

DENIED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)

IN_USE: Final = frozenset(
    {KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.GROUP_SUBSCRIBED_TO_TOPIC}
)
"""A group has subscribers, so that others may not change it."""

HOPELESS: Final = (
    LOGIN
    | DENIED
    | {
        KafkaError.GROUP_MAX_SIZE_REACHED,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.INVALID_SESSION_TIMEOUT,
    }
)
"""What ends a subscription; other errors pass."""

PASSING: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._TRANSPORT,
    }
)
"""Another broker is to answer, and it is not clear yet which; soon it will be."""

REFUSED: Final = (
    HOPELESS
    | IN_USE
    | {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_CONFIG,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Trying again would not help; everything else is taken for a cluster that can't be reached as it should."""


def told(error: KafkaError, brokers: str, what: str) -> BusError:
    """A driver's error as one of ours; ``what`` could not be done."""
    if error.code() in REFUSED:
        return BusRefused(f"{what}: Kafka refuses: {error.str()}")
    return BusUnavailable(f"{what}: Kafka at {brokers} can't be reached: {error.str()}")


def code_of(error: KafkaException) -> int:
    return the_error(error).code()


def the_error(error: KafkaException) -> KafkaError:
    cause = error.args[0] if error.args else None
    return cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, str(error))


@contextmanager
def driver(brokers: str, what: str) -> Iterator[None]:
    """:raises BusRefused: Kafka says no. :raises BusUnavailable: it does not answer as it should."""
    try:
        yield
    except KafkaException as error:
        raise told(the_error(error), brokers, what) from error


async def asked(call: Callable[[], Mapping[Key, Future[Any]]], seconds: float) -> dict[Key, Any]:
    """The answers to what ``call`` asks; asked again for so long while the brokers sort themselves out.

    :raises KafkaException: what they say is no.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return {key: await asyncio.wrap_future(answer) for key, answer in call().items()}
        except KafkaException as error:
            if code_of(error) not in PASSING or time.monotonic() > deadline:
                raise
        await asyncio.sleep(_ASK_AGAIN)

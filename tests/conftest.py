"""Failures in the shipped contracts show their values, and the servers tests run against.

A server is started when the first test asks for it, and serves all tests of the session; they keep
apart by the names of their crawls. A server that is named in the environment is used instead.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.register_assert_rewrite("weft.testing")

from weft.testing.servers import (  # noqa: E402, rewritten only from here on
    KafkaServer,
    RabbitServer,
    RedisCluster,
    RedisServer,
    ServerMissing,
)

TESTS = Path(__file__).parent

# The files that take longest, the longest first.
LONG = (
    "jobs/test_d5_schedules.py",
    "jobs/test_crawl.py",
    "bus/test_rabbitmq_failures.py",
    "jobs/test_d8_operation.py",
    "cli/test_up.py",
    "jobs/test_crawl_kills.py",
    "jobs/test_jobs_bad_input.py",
    "jobs/test_d7_limits.py",
    "bus/test_kafka_failures.py",
    "crawl/test_life.py",
    "cli/test_pause.py",
    "jobs/test_d10_embedded.py",
    "bus/test_rabbitmq.py",
    "crawl/test_bus.py",
    "crawl/test_kill.py",
    "bus/test_kafka.py",
    "jobs/test_d10_embedded_places.py",
    "testing/test_nemesis.py",
    "crawl/test_follow.py",
    "jobs/test_d5_kill.py",
    "cli/test_demo.py",
    "jobs/test_c7_flower.py",
    "crawl/test_fleet_size.py",
    "jobs/test_d2_results.py",
    "crawl/test_processes.py",
    "jobs/test_d10_brokers.py",
    "jobs/test_d6_routing.py",
    "testing/test_servers.py",
    "crawl/test_move.py",
    "frontier/test_redis_moving.py",
    "bus/test_redis.py",
    "docs/test_docs.py",
    "crawl/test_polite.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Among several processes the longest files begin first, lest one be left alone with them at the end."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        places = {TESTS / file: place for place, file in enumerate(LONG)}
        items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Redis 7 or newer."""
    if given := os.environ.get("WEFT_TEST_REDIS"):
        yield given
        return
    with RedisServer("redis") as server:
        yield server.url


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """Valkey 9 or newer."""
    if given := os.environ.get("WEFT_TEST_VALKEY"):
        yield given
        return
    with RedisServer("valkey") as server:
        yield server.url


@pytest.fixture(scope="session")
def redis_cluster_url() -> Iterator[str]:
    """A Redis Cluster of three nodes."""
    if given := os.environ.get("WEFT_TEST_REDIS_CLUSTER"):
        yield given
        return
    with RedisCluster("redis") as cluster:
        yield cluster.url


@pytest.fixture(scope="session")
def rabbitmq_url() -> Iterator[str]:
    """RabbitMQ 3.10 or newer, with its management API."""
    if given := os.environ.get("WEFT_TEST_RABBITMQ"):
        yield given
        return
    with RabbitServer() as server:
        yield server.url


@pytest.fixture(scope="session")
def kafka_url() -> Iterator[str]:
    """Kafka 4 or newer, where a subscriber may be given up after a second."""
    if given := os.environ.get("WEFT_TEST_KAFKA"):
        yield given
        return
    with KafkaServer() as server:
        yield server.url


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    with _skipping():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    with _skipping():
        return (yield)


@contextmanager
def _skipping() -> Iterator[None]:
    """A test whose server is not installed is skipped, except where servers are required."""
    try:
        yield
    except ServerMissing as missing:
        if os.environ.get("CI") or os.environ.get("WEFT_TEST_SERVERS") == "required":
            raise
        pytest.skip(str(missing))

"""How tests are shared out among several processes, see ``make test``: by files, the longest first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling

TESTS = Path(__file__).parent

# The longest first, lest one process be left alone with them at the end.
LONG = (
    "bus/test_kafka_failures.py",
    "jobs/test_d5_schedules.py",
    "jobs/test_crawl.py",
    "bus/test_rabbitmq_failures.py",
    "jobs/test_d8_operation.py",
    "cli/test_up.py",
    "jobs/test_crawl_kills.py",
    "jobs/test_jobs_bad_input.py",
    "jobs/test_d7_limits.py",
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

# All in one process: each would start a Kafka of its own, which works even when it has nothing to do.
KAFKA = frozenset(
    {
        "bus/test_kafka.py",
        "bus/test_kafka_failures.py",
        "bus/test_kafka_refusals.py",
        "cli/test_bus.py",
        "cli/test_bus_subscribe.py",
        "crawl/test_bus.py",
    }
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        places = {TESTS / file: place for place, file in enumerate(LONG)}
        items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    return ByServer(config, log)


class ByServer(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "kafka" if file.removeprefix("tests/") in KAFKA else file

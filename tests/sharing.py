"""Distribute test files over the processes of ``make test``, the longest files first."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling

TESTS = Path(__file__).parent

# Files that take 20 seconds or more, the longest first, so that none of them starts last.
LONG = (
    "api/browser/test_story.py",
    "bus/test_kafka_failures.py",
    "jobs/test_schedules.py",
    "jobs/test_crawl_task.py",
    "bus/test_rabbitmq_failures.py",
    "jobs/test_commands.py",
    "cli/test_up.py",
    "jobs/test_crawl_task_kills.py",
    "jobs/test_bad_input.py",
    "jobs/test_limits.py",
    "crawl/test_life.py",
    "cli/test_control.py",
    "jobs/test_embedded_server.py",
    "bus/test_rabbitmq.py",
    "crawl/test_bus.py",
    "crawl/test_kill.py",
    "bus/test_kafka.py",
    "jobs/test_embedded_paths.py",
    "harness/test_nemesis.py",
    "crawl/test_follow.py",
    "jobs/test_schedule_beat_kills.py",
    "cli/test_demo.py",
    "jobs/test_flower.py",
    "crawl/test_fleet_size.py",
    "jobs/test_results.py",
    "crawl/test_processes.py",
    "jobs/test_brokers.py",
    "jobs/test_routing.py",
    "harness/test_servers.py",
    "crawl/test_move.py",
    "frontier/test_redis_transfer.py",
    "bus/test_redis.py",
    "api/browser/test_kills.py",
    "docs/test_docs.py",
    "crawl/test_polite.py",
)

# These files share one process and so one Kafka server, which uses a core even when idle.
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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are no garbage: looking at them again and again takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    return ByServer(config, log)


class ByServer(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "kafka" if file.removeprefix("tests/") in KAFKA else file

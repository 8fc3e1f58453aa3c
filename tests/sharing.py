"""Distribute test files over the processes of ``make test``, the longest files first, and share a RabbitMQ server.

RabbitMQ takes six seconds of a processor to start, and some more to be there. So that not each process has one, the
first process starts one for all, and each has a vhost of its own in it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from threading import Thread

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.harness.servers import RabbitServer, ServerError, ServerMissing
from uttu.testing.waiting import wait_until

TESTS = Path(__file__).parent

# Files that take 20 seconds or more, the longest first, so that none of them starts last.
LONG = (
    "crawl/test_hostile.py",
    "jobs/test_crawl_task.py",
    "api/test_broker_kills.py",
    "crawl/test_bus.py",
    "jobs/test_schedules.py",
    "crawl/test_handlers_blocking.py",
    "crawl/test_start.py",
    "crawl/test_life.py",
    "bus/test_rabbitmq_failures.py",
    "crawl/test_handlers_signals.py",
    "crawl/test_handlers_deadly.py",
    "bus/test_kafka_failures.py",
    "api/browser/test_story.py",
    "cluster/test_faults.py",
    "cli/test_up.py",
    "crawl/test_outputs.py",
    "crawl/test_trimming.py",
    "jobs/test_commands.py",
    "crawl/test_handlers.py",
    "jobs/test_bad_input.py",
    "jobs/test_crawl_task_kills.py",
    "crawl/test_drain.py",
    "crawl/test_kill.py",
    "jobs/test_limits.py",
    "jobs/test_crawl_handlers.py",
    "cli/test_control.py",
    "bus/test_rabbitmq.py",
    "jobs/test_embedded_server.py",
    "crawl/test_polite.py",
    "crawl/test_many_links.py",
    "crawl/test_logs.py",
    "jobs/test_monitor.py",
    "spider/test_html.py",
    "api/browser/test_kills.py",
    "bus/test_broken_brokers.py",
    "crawl/test_processes.py",
    "cli/test_demo.py",
    "crawl/test_follow.py",
    "harness/test_nemesis.py",
    "bus/test_redis.py",
    "frontier/test_redis_transfer.py",
    "frontier/test_redis_model.py",
    "runtime/test_run.py",
    "jobs/test_embedded_paths.py",
    "jobs/test_brokers.py",
    "docs/test_docs.py",
    "jobs/test_flower.py",
    "frontier/test_redis_connection.py",
    "harness/test_hostile.py",
    "spider/test_sitemap.py",
    "sinks/test_kill.py",
    "harness/test_servers.py",
    "frontier/test_redis.py",
    "fetch/test_http_transports.py",
    "crawl/test_sitemaps.py",
    "jobs/test_schedule_beat_kills.py",
    "jobs/test_routing.py",
    "jobs/test_results.py",
    "crawl/test_move.py",
    "crawl/test_fleet_size.py",
    "crawl/test_fleet.py",
    "crawl/test_waits.py",
    "crawl/test_history.py",
    "frontier/test_sqlite_model.py",
)

# Files that share a process, and so a Kafka server: it takes some seconds of a processor to start.
KAFKA = {
    "crawl/test_bus.py": "kafka of commands",
    "cli/test_bus.py": "kafka of commands",
    "cli/test_bus_subscribe.py": "kafka of commands",
    "bus/test_capabilities.py": "kafka",
    "bus/test_kafka.py": "kafka",
    "bus/test_kafka_failures.py": "kafka",
    "bus/test_kafka_refusals.py": "kafka",
}


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
        return KAFKA.get(file.removeprefix("tests/"), file)


class SharedRabbit:
    """A RabbitMQ server that starts while the processes collect their tests."""

    def __init__(self, processes: int) -> None:
        self._server = RabbitServer()
        self._names = [f"gw{number}" for number in range(processes)]
        self._folder = Path(tempfile.mkdtemp(prefix="uttu-rabbitmq-"))
        self._starting = Thread(target=self._start)
        self._starting.start()

    def offer(self, node: WorkerController) -> None:
        """Tell a process where its URL is going to be; not one that takes the place of a crashed one."""
        if node.gateway.id in self._names:
            node.workerinput["rabbitmq"] = str(self._folder / node.gateway.id)

    def close(self) -> None:
        self._starting.join()
        self._server.close()
        shutil.rmtree(self._folder)

    def _start(self) -> None:
        urls = dict.fromkeys(self._names, "")
        try:
            self._server.__enter__()
            for name in self._names:
                self._server.add_vhost(name)
                urls[name] = self._server.url.replace("/?", f"/{name}?")
        finally:
            for name, url in urls.items():
                (self._folder / "new").write_text(url)
                (self._folder / "new").rename(self._folder / name)


SHARED = pytest.StashKey[SharedRabbit]()


def pytest_configure(config: pytest.Config) -> None:
    processes = getattr(config.option, "numprocesses", None)
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if processes and is_whole and not hasattr(config, "workerinput") and "UTTU_TEST_RABBITMQ" not in os.environ:
        # Where it is not installed, those who want one say so.
        with contextlib.suppress(ServerMissing):
            config.stash[SHARED] = SharedRabbit(processes)


def pytest_configure_node(node: WorkerController) -> None:
    if shared := node.config.stash.get(SHARED, None):
        shared.offer(node)


def pytest_unconfigure(config: pytest.Config) -> None:
    if shared := config.stash.get(SHARED, None):
        shared.close()


def shared_rabbitmq_url(config: pytest.Config) -> str | None:
    """The URL of the server that all processes share, with the vhost of this one; None if there is none.

    :raises ServerError: it could not be started.
    """
    offered = getattr(config, "workerinput", {}).get("rabbitmq")
    if offered is None:
        return None
    file = Path(offered)
    wait_until(file.exists, "the shared RabbitMQ server is there", 120.0)
    if url := file.read_text():
        return url
    raise ServerError("the RabbitMQ server that all processes share could not be started; see its error above")

"""Failures in the shipped contracts show their values, and the servers tests run against.

A server is started when the first test asks for it, and serves all tests of the session; they keep
apart by the names of their crawls. A server that is named in the environment is used instead.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.servers import KafkaServer, RabbitServer, RedisCluster, RedisServer, ServerMissing

pytest_plugins = ("tests.sharing",)
pytest.register_assert_rewrite("uttu.testing")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background lets them ignore SIGINT, and their children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Redis 7 or newer."""
    if given := os.environ.get("UTTU_TEST_REDIS"):
        yield given
        return
    with RedisServer("redis") as server:
        yield server.url


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """Valkey 9 or newer."""
    if given := os.environ.get("UTTU_TEST_VALKEY"):
        yield given
        return
    with RedisServer("valkey") as server:
        yield server.url


@pytest.fixture(scope="session")
def redis_cluster_url() -> Iterator[str]:
    """A Redis Cluster of three nodes."""
    if given := os.environ.get("UTTU_TEST_REDIS_CLUSTER"):
        yield given
        return
    with RedisCluster("redis") as cluster:
        yield cluster.url


@pytest.fixture(scope="session")
def rabbitmq_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """RabbitMQ 3.10 or newer, with its management API."""
    from tests.sharing import shared_rabbitmq_url  # after pytest has prepared it as a plugin

    if given := os.environ.get("UTTU_TEST_RABBITMQ") or shared_rabbitmq_url(pytestconfig):
        yield given
        return
    with RabbitServer() as server:
        yield server.url


@pytest.fixture(scope="session")
def kafka_url() -> Iterator[str]:
    """Kafka 4 or newer, where a subscriber may be given up after a second."""
    if given := os.environ.get("UTTU_TEST_KAFKA"):
        yield given
        return
    with KafkaServer() as server:
        yield server.url


class SmallDisk:
    """A file system of a few megabytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self, but: int = 0) -> None:
        """To the last byte, or but for about so many."""
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        os.truncate(self._ballast, max(self._ballast.stat().st_size - but, 0))

    def free(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", path], check=False, capture_output=True
    )
    if mounted.returncode:
        raise ServerMissing(f"no small disk can be had, as only root may mount one: {mounted.stderr.decode().strip()}")
    yield SmallDisk(path)
    subprocess.run(["umount", path], check=True)


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
        if os.environ.get("CI") or os.environ.get("UTTU_TEST_SERVERS") == "required":
            raise
        pytest.skip(str(missing))

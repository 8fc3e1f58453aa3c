"""Processes that die or pause while they hold a lock, and servers that are killed, with every technology."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.harness.servers import RedisServer
from tests.harness.servers.base import Server
from tests.harness.servers.zookeeper import ZooKeeperServer
from uttu.cluster import Coordinator, Election, LiveConfig, Lock, Membership, SessionState, connect
from uttu.errors import ClusterError, ClusterUnavailable, ConfigError, LockLost, LockTimeout

SESSION: Final = 2.0
SOON: Final = 10.0
BACK: Final = 60.0
"""Seconds until a server that was restarted serves, and clients have noticed, on a busy machine."""


class Technology:
    """A coordinator's URL, and its server if it has one."""

    def __init__(self, url: str, server: Server | None = None) -> None:
        self.url = url
        self.server = server


@pytest.fixture(params=["local", "redis", "zookeeper"])
def technology(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Technology]:
    with ExitStack() as stack:
        if request.param == "local":
            yield Technology(f"local:{tmp_path}")
        elif request.param == "redis":
            redis = stack.enter_context(RedisServer("redis", settings={"appendonly": "yes", "appendfsync": "always"}))
            yield Technology(redis.url, redis)
        else:
            zookeeper = stack.enter_context(ZooKeeperServer())
            yield Technology(zookeeper.url, zookeeper)


@pytest.fixture(params=["redis", "zookeeper"])
def served(request: pytest.FixtureRequest) -> Iterator[Technology]:
    """With a server, which can be killed."""
    with ExitStack() as stack:
        server: RedisServer | ZooKeeperServer
        if request.param == "redis":
            server = stack.enter_context(RedisServer("redis", settings={"appendonly": "yes", "appendfsync": "always"}))
        else:
            server = stack.enter_context(ZooKeeperServer())
        yield Technology(server.url, server)


OpenTree = Callable[[str, float], Awaitable[Coordinator]]


@pytest.fixture
async def open_tree() -> AsyncIterator[OpenTree]:
    """Connects to a coordinator; the connection is closed at the end, also if the test fails."""
    opened: list[Coordinator] = []

    async def open_another(url: str, session_seconds: float) -> Coordinator:
        opened.append(await connect(url, session_seconds))
        return opened[-1]

    yield open_another
    for tree in opened:
        await tree.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # the clock changes it
        await asyncio.sleep(0.02)


class Holder:
    """A process that holds the lock ``door``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self._lines = process.stdout

    def read(self) -> str:
        return self._lines.readline().strip()

    def end(self) -> list[str]:
        """Let it end; returns what it printed since."""
        out, _ = self.process.communicate(timeout=30)
        return out.splitlines()


@contextmanager
def hold(url: str) -> Iterator[tuple[Holder, int]]:
    command = [sys.executable, "-m", "tests.cluster.holder", url, str(SESSION)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        holder = Holder(process)
        word, token = holder.read().split()
        assert word == "holds"
        yield holder, int(token)
    finally:
        process.kill()
        process.communicate()


async def test_a_lock_of_a_killed_process_is_free_within_its_session(
    technology: Technology, open_tree: OpenTree
) -> None:
    tree = await open_tree(technology.url, SESSION)
    lock = Lock(tree, "door")
    with hold(technology.url) as (holder, token):
        with pytest.raises(LockTimeout, match="held by holder"):
            await lock.acquire(wait=0.3)
        holder.process.kill()
        began = time.monotonic()
        assert await asyncio.wait_for(lock.acquire(), SOON) > token
        took = time.monotonic() - began
        assert took < (1.5 if technology.server is None else 2 * SESSION + 1)


async def test_a_process_that_pauses_for_longer_than_its_session_loses_its_lock(
    technology: Technology, open_tree: OpenTree
) -> None:
    tree = await open_tree(technology.url, SESSION)
    lock = Lock(tree, "door")
    with hold(technology.url) as (holder, token):
        os.kill(holder.process.pid, signal.SIGSTOP)
        later = await asyncio.wait_for(lock.acquire(), SOON)
        assert later > token
        os.kill(holder.process.pid, signal.SIGCONT)
        said = holder.end()
        assert "is held: False" in said
        assert "released" not in said
        assert lock.is_held
    await lock.release()


async def test_a_process_that_ends_well_gives_its_lock_up_at_once(technology: Technology, open_tree: OpenTree) -> None:
    tree = await open_tree(technology.url, 30.0)
    lock = Lock(tree, "door")
    with hold(technology.url) as (holder, _):
        waiting = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.2)
        assert holder.end() == ["is held: True", "released", "closed"]
        await asyncio.wait_for(waiting, 3.0)


async def test_a_short_outage_of_the_server_keeps_everything(served: Technology, open_tree: OpenTree) -> None:
    assert served.server is not None
    tree = await open_tree(served.url, 40.0)
    states: list[SessionState] = []
    tree.listen(states.append)
    lock = Lock(tree, "door")
    token = await lock.acquire()
    served.server.kill()
    await asyncio.to_thread(served.server.restart)
    async with asyncio.timeout(BACK):
        assert [holder.token for holder in await lock.holders()] == [token]
        await until(lambda: lock.is_held)
    assert SessionState.LOST not in states
    await lock.release()


async def test_a_long_outage_ends_the_session(served: Technology, open_tree: OpenTree) -> None:
    """The process knows it by its clock while the server is away, and begins again when it is back."""
    assert served.server is not None
    tree = await open_tree(served.url, SESSION)
    states: list[SessionState] = []
    tree.listen(states.append)
    session = tree.session
    lock = Lock(tree, "door")
    async with Membership(tree, "workers").join("a"):
        token = await lock.acquire()
        served.server.kill()
        began = time.monotonic()
        async with asyncio.timeout(SOON):
            await until(lambda: tree.state == SessionState.LOST)
        assert time.monotonic() - began < SESSION + 1
        assert not lock.is_held
        await asyncio.to_thread(served.server.restart)
        async with asyncio.timeout(BACK):
            await until(lambda: tree.state == SessionState.CONNECTED)
        assert tree.session != session
        with pytest.raises(LockLost):
            await lock.release()
        assert await asyncio.wait_for(lock.acquire(), SOON) > token
        async with asyncio.timeout(SOON), Membership(tree, "workers").watch() as changes:
            async for change in changes:
                if change.member is not None and change.member.token > token:
                    break
    assert states.index(SessionState.LOST) < len(states) - 1
    await lock.release()


async def test_watches_go_on_after_an_outage(served: Technology, open_tree: OpenTree) -> None:
    assert served.server is not None
    tree, other = await open_tree(served.url, 40.0), await open_tree(served.url, 40.0)
    await LiveConfig(other).set("delay", b"1")
    async with LiveConfig(tree).watch("delay") as changes:
        async with asyncio.timeout(SOON):
            assert (await anext(changes)).value == b"1"
        served.server.kill()
        await asyncio.to_thread(served.server.restart)
        async with asyncio.timeout(BACK):
            while True:
                try:
                    await LiveConfig(other).set("delay", b"2")
                except ClusterError:
                    await asyncio.sleep(0.1)
                else:
                    break
            assert (await anext(changes)).value == b"2"


async def test_leadership_is_lost_with_the_session(served: Technology, open_tree: OpenTree) -> None:
    assert served.server is not None
    tree = await open_tree(served.url, SESSION)
    async with Election(tree, "beat").lead() as leadership:
        assert leadership.is_held
        served.server.kill()
        await asyncio.wait_for(leadership.lost.wait(), SESSION + SOON)
        assert not leadership.is_held


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("redis://127.0.0.1:1", ClusterUnavailable, "127.0.0.1:1"),
        ("zookeeper://127.0.0.1:1", ClusterUnavailable, "none of its servers answered"),
        ("zookeeper://", ConfigError, "is not a host and a port"),
        ("zookeeper://a@h", ConfigError, "needs a user and a password"),
        ("zookeeper://h?x=1", ConfigError, "unknown option 'x'"),
        ("zookeeper://h?tls=perhaps", ConfigError, "neither true nor false"),
        ("etcd://h", ConfigError, "Use one of local:FOLDER, redis"),
        ("local:/proc/nothing", ClusterUnavailable, "Cannot use /proc/nothing"),
    ],
)
async def test_addresses_that_do_not_work(url: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        await connect(url, 1.0)

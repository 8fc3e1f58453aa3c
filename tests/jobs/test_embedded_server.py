"""The private server: there when it is used, gone when it is not, and its data is there again."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.jobs.embedded_users import (
    User,
    answers,
    guard_pid,
    held,
    is_gone,
    keeper_pid,
    kill,
    server_pid,
    told,
)
from uttu.jobs.embedded import Embedded
from uttu.testing.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Embedded]:
    made = Embedded(tmp_path)
    yield made
    made.release()
    made.down()


def test_its_address_is_known_before_it_runs(tmp_path: Path) -> None:
    assert Embedded(tmp_path).url == f"redis+socket://{tmp_path}/.uttu/jobs/socket?virtual_host=0"
    assert not Embedded(tmp_path).is_running
    assert list(tmp_path.iterdir()) == []


def test_it_answers_as_soon_as_it_is_held(server: Embedded) -> None:
    server.hold()
    assert told(server, "PING") == "+PONG"
    assert server.is_running
    pid = server_pid(server)
    server.hold()
    assert server_pid(server) == pid


def test_only_its_owner_gets_near(server: Embedded) -> None:
    server.hold()
    assert stat.S_IMODE(server.place.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.place.socket.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.place.conf.stat().st_mode) == 0o600
    assert "port 0\n" in server.place.conf.read_text()


def test_it_is_shared_and_ends_with_the_last(tmp_path: Path, server: Embedded) -> None:
    with held(tmp_path) as first, held(tmp_path) as second:
        pid, keeper = server_pid(server), keeper_pid(server)
        assert told(server, "SET a 1") == "+OK"
        first.leave()
        # A third comes and goes: nothing that a keeper does when users leave may touch the others.
        with held(tmp_path) as third:
            third.leave()
        assert server_pid(server) == pid
        second.leave()
        wait_until(lambda: is_gone(pid) and is_gone(keeper), "server and keeper are gone")
        assert not server.is_running
    with held(tmp_path):
        assert told(server, "GET a") == "1"


def test_a_user_that_is_killed_is_gone_too(tmp_path: Path, server: Embedded) -> None:
    with held(tmp_path) as user:
        user.kill()
        wait_until(lambda: not server.is_running, "the server is gone")


def test_children_by_fork_hold_it_on(tmp_path: Path, server: Embedded) -> None:
    forks = "import os, time\nchild = os.fork()\nif not child:\n    time.sleep(600)\nprint(child)"
    with User(tmp_path, forks) as user:
        child = int(user.held())
        pid = server_pid(server)
        user.kill()
        with held(tmp_path) as other:
            other.leave()
        assert server_pid(server) == pid
        kill(child)
        wait_until(lambda: not server.is_running, "the server is gone")


def test_programs_it_starts_do_not_hold_it(tmp_path: Path, server: Embedded) -> None:
    starts = "import subprocess; print(subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL).pid)"
    with User(tmp_path, starts) as user:
        program = int(user.held())
        user.kill()
        wait_until(lambda: not server.is_running, "the server is gone")
        kill(program)


def test_ten_at_once_make_one_server(tmp_path: Path, server: Embedded) -> None:
    with ExitStack() as all_of_them:
        users = [all_of_them.enter_context(User(tmp_path)) for _ in range(10)]
        for user in users:
            user.held()
        assert server.place.log.read_text().count("Ready to accept connections") == 1
        pid = server_pid(server)
        for user in users[1:]:
            user.kill()
        assert server_pid(server) == pid


def test_killed_server_restarts_with_its_data(tmp_path: Path, server: Embedded) -> None:
    with held(tmp_path):
        for number in range(100):
            told(server, f"RPUSH list {number}")
        before = server_pid(server)
        kill(before)
        wait_until(lambda: answers(server), "it answers again")
        assert server_pid(server) != before
        assert told(server, "LLEN list") == ":100"


def test_killed_monitor_is_replaced(tmp_path: Path, server: Embedded) -> None:
    with held(tmp_path) as user:
        wait_until(lambda: guard_pid(server), "the keeper has a guard")
        pid, keeper = server_pid(server), keeper_pid(server)
        kill(keeper)
        wait_until(lambda: keeper_pid(server) not in (0, keeper), "there is another keeper")
        assert server_pid(server) == pid
        # The new one keeps as well as the first did.
        kill(pid)
        wait_until(lambda: answers(server), "it answers again")
        assert not is_gone(keeper_pid(server))
        user.leave()
        wait_until(lambda: not server.is_running, "the server is gone")


def test_a_server_without_a_keeper_is_adopted(tmp_path: Path, server: Embedded) -> None:
    with held(tmp_path) as user:
        wait_until(lambda: guard_pid(server), "the keeper has a guard")
        pid = server_pid(server)
        kill(guard_pid(server))
        kill(keeper_pid(server))
        user.kill()
        assert server.is_running
        with held(tmp_path) as other:
            assert server_pid(server) == pid
            other.leave()
        wait_until(lambda: not server.is_running, "the server is gone")


def test_all_killed_at_once_leave_the_data(tmp_path: Path, server: Embedded) -> None:
    with held(tmp_path) as user:
        wait_until(lambda: guard_pid(server), "the keeper has a guard")
        told(server, "SET a 1")
        for pid in (guard_pid(server), keeper_pid(server), server_pid(server)):
            kill(pid)
        user.kill()
        assert server.place.socket.exists()
        with held(tmp_path):
            assert told(server, "GET a") == "1"


def test_user_restarts_a_missing_server(server: Embedded) -> None:
    server.hold()
    wait_until(lambda: guard_pid(server), "the keeper has a guard")
    for pid in (guard_pid(server), keeper_pid(server), server_pid(server)):
        kill(pid)
    server.hold()
    assert answers(server)


def test_without_its_files_it_ends(tmp_path: Path, server: Embedded) -> None:
    with held(tmp_path):
        pid, keeper = server_pid(server), keeper_pid(server)
        shutil.rmtree(tmp_path / ".uttu")
        with held(tmp_path):
            assert server_pid(server) != pid
            wait_until(lambda: is_gone(pid) and is_gone(keeper), "the old one is gone")
            assert answers(server)


def test_it_can_be_stopped_whoever_uses_it(tmp_path: Path, server: Embedded) -> None:
    server.hold()
    told(server, "SET a 1")
    pid, keeper = server_pid(server), keeper_pid(server)
    assert Embedded(tmp_path).down() is True
    assert not server.is_running
    # Processes let go of their locks a moment before they are gone.
    wait_until(lambda: is_gone(pid) and is_gone(keeper), "server and keeper are gone")
    assert server.was_stopped
    assert Embedded(tmp_path).down() is False
    # Who used it then, a worker that tries to reconnect, does not start it again; who comes after does.
    server.hold()
    assert not server.is_running
    with held(tmp_path):
        assert not server.was_stopped
        assert told(server, "GET a") == "1"
        server.hold()


def test_a_server_without_a_keeper_can_be_stopped(tmp_path: Path, server: Embedded) -> None:
    with held(tmp_path):
        wait_until(lambda: guard_pid(server), "the keeper has a guard")
        pid = server_pid(server)
        kill(guard_pid(server))
        kill(keeper_pid(server))
        assert server.down() is True
        assert not server.is_running
        wait_until(lambda: is_gone(pid), "the server is gone")

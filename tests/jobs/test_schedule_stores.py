"""The stores of schedules: the contract on each, and what is their own."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.harness.servers import RedisServer
from uttu.errors import ConfigError, StoreError
from uttu.jobs.schedules.base import BeginResult, RunState
from uttu.jobs.schedules.catalog import open_schedule_store
from uttu.jobs.schedules.schedule import ScheduleState
from uttu.jobs.schedules.sqlite import SqliteScheduleStore
from uttu.testing.clock import FakeClock
from uttu.testing.contracts.schedules import LONG, NOW, ScheduleContract, Stores, entry


class TestRedis(ScheduleContract):
    @pytest.fixture
    def stores(self, redis_url: str) -> Iterator[Stores]:
        name = f"test-{uuid.uuid4().hex}"
        made = []

        def opened() -> object:
            made.append(open_schedule_store(redis_url, name))
            return made[-1]

        yield opened  # type: ignore[misc]
        for store in made:
            store.close()
        with redis.Redis.from_url(redis_url) as client:
            for key in client.scan_iter(f"uttu:{{{name}}}:*"):
                client.delete(key)


class TestSqlite(ScheduleContract):
    @pytest.fixture
    def stores(self, tmp_path: Path) -> Iterator[Stores]:
        made = []

        def opened() -> object:
            made.append(open_schedule_store("sqlite:below/schedules.db", "any", tmp_path))
            return made[-1]

        yield opened  # type: ignore[misc]
        for store in made:
            store.close()


def test_apps_on_one_redis_keep_apart(redis_url: str) -> None:
    one, other = (open_schedule_store(redis_url, f"test-{uuid.uuid4().hex}") for _ in range(2))
    one.put(entry(), ScheduleState(next=NOW))
    assert other.entries() == []
    one.remove("minutely")
    one.close()
    other.close()


def test_a_socket_is_written_as_celery_does() -> None:
    with RedisServer("redis", unix=True) as server:
        path = server.url.removeprefix("redis+unix://").partition("?")[0]
        store = open_schedule_store(f"redis+socket://{path}?virtual_host=2", "app")
        store.put(entry(), ScheduleState(next=NOW))
        store.close()
        with redis.Redis(unix_socket_path=str(path), db=2) as client:
            assert client.hkeys("uttu:{app}:jobs:entries") == [b"minutely"]


def test_unreachable_server_is_named_without_its_password() -> None:
    store = open_schedule_store("redis://:secret@127.0.0.1:1/0", "app")
    with pytest.raises(StoreError, match=r"redis://:\*\*\*@127\.0\.0\.1:1/0") as caught:
        store.entries()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["amqp://127.0.0.1", "sqlite:", "nonsense"])
def test_nothing_else_is_a_store(url: str) -> None:
    with pytest.raises(ConfigError, match="Cannot store schedules at"):
        open_schedule_store(url, "app")


def test_foreign_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_text("x" * 5000)
    with pytest.raises(StoreError, match=r"Cannot read or write the schedules in .*s\.db: "):
        open_schedule_store("sqlite:s.db", "app", tmp_path).entries()


def test_clock_set_back_blocks_no_run(tmp_path: Path) -> None:
    """What was held by the clock before would otherwise be held for as long as the clock went back."""
    early, late = FakeClock(), FakeClock(FakeClock().time() + 3600)
    after, before = (SqliteScheduleStore(tmp_path / "s.db", clock.time) for clock in (early, late))
    token = before.lead("a", LONG)
    assert before.begin("f", "a", LONG, alone="minutely") is BeginResult.NOW
    assert token is not None
    assert after.lead("b", LONG) == token + 1
    assert after.begin("f", "b", LONG, alone="minutely") is BeginResult.NOW
    for store in (after, before):
        store.close()


def test_corrected_clock_keeps_the_lease(tmp_path: Path) -> None:
    early, late = FakeClock(), FakeClock(FakeClock().time() + 0.5)
    after, before = (SqliteScheduleStore(tmp_path / "s.db", clock.time) for clock in (early, late))
    before.lead("a", LONG)
    before.begin("f", "a", LONG, alone="minutely")
    assert after.lead("b", LONG) is None
    assert after.begin("f", "b", LONG) is BeginResult.BUSY
    assert after.begin("g", "b", LONG, alone="minutely") is BeginResult.BUSY
    for store in (after, before):
        store.close()


def test_the_clock_is_read_under_the_lock(tmp_path: Path) -> None:
    """Else one that waited for the lock would find what was written meanwhile to be from after a clock was set back."""

    def locked_time() -> float:
        other = sqlite3.connect(tmp_path / "s.db", timeout=0)
        with contextlib.closing(other), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        return time.time()

    store = SqliteScheduleStore(tmp_path / "s.db", locked_time)
    assert store.lead("a", LONG) == 1
    assert store.begin("f", "a", LONG) is BeginResult.NOW
    assert store.extend("f", "a", LONG)
    assert store.marks(["f"]) == [RunState.RUNNING]
    store.end("f", "a", LONG)
    store.close()


def test_leases_run_out_to_the_moment(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SqliteScheduleStore(tmp_path / "s.db", clock.time)
    store.lead("a", 5.0)
    store.begin("f", "a", 5.0)
    clock.advance(4.875)
    assert store.lead("b", 5.0) is None
    assert store.marks(["f"]) == [RunState.RUNNING]
    clock.advance(0.125)
    assert store.lead("b", 5.0) == 2
    assert store.marks(["f"]) == [RunState.LAPSED]
    store.close()


def test_many_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from uttu.jobs.schedules.sqlite import SqliteScheduleStore\n"
        "sys.stdin.readline()\n"
        "store = SqliteScheduleStore(Path(sys.argv[1]))\n"
        "print(store.lead(sys.argv[2], 60.0))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "s.db")]
    running = [
        subprocess.Popen([*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert sorted(process.communicate()[0].strip() for process in running) == ["1", "None", "None", "None"]


class BusyConnection(sqlite3.Connection):
    """Fails twice as SQLite does while another process changes a new file to the write-ahead log."""

    failures = 2

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        if self.failures:
            self.failures -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return super().executescript(sql_script)


def test_store_waits_while_another_process_sets_up_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", functools.partial(connect, factory=BusyConnection))
    store = SqliteScheduleStore(tmp_path / "s.db")
    assert store.lead("a", LONG) == 1
    store.close()

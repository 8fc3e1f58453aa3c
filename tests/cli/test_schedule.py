"""``uttu schedule``: what is written, what is said, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import uttu.jobs
from tests.cli.conftest import Told, Uttu
from uttu.jobs.schedules.schedule import ScheduleState, StoredSchedule
from uttu.jobs.schedules.sqlite import SqliteScheduleStore
from uttu.jobs.schedules.triggers import Cron, Every

TOML = """
[jobs]
broker = "{broker}"
schedules = "sqlite:s.db"
timezone = "Europe/Berlin"
include = ["work.py"]

[jobs.schedule.morning]
task = "work.add"
crontab = "0 7 * * *"
"""
TASKS = """
from uttu.jobs import app

@app.task(shared=False)
def add(x: int = 1, y: int = 1) -> int:
    return x + y
"""

Schedule = Callable[..., Told]


@pytest.fixture
def schedule(uttu: Uttu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Iterator[Schedule]:
    (tmp_path / "uttu.toml").write_text(TOML.format(broker=redis_url))
    (tmp_path / "work.py").write_text(TASKS)
    fresh(monkeypatch)
    yield lambda *words: uttu("schedule", *words)
    fresh(monkeypatch)


def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: the app of the folder and its tasks are not there yet."""
    import sys

    monkeypatch.delitem(sys.modules, "work", raising=False)
    vars(uttu.jobs).pop("app", None)


def kept() -> dict[str, StoredSchedule]:
    store = SqliteScheduleStore(Path("s.db"))
    try:
        return {each.entry.name: each for each in store.entries()}
    finally:
        store.close()


def rows(schedule: Schedule) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(schedule("ls", "--json").out)}


def test_a_schedule_in_full_is_kept(schedule: Schedule) -> None:
    told = schedule(
        "add",
        "n",
        "--task",
        "work.add",
        "--crontab",
        "*/5 * * * *",
        "--timezone",
        "Asia/Tokyo",
        "--args",
        "[1]",
        "--kwargs",
        '{"y": 2}',
        "--queue",
        "slow",
        "--priority",
        "9",
        "--expires",
        "60",
        "--overlap",
        "queue",
        "--grace",
        "inf",
    )
    assert told.code == 0, told.err
    assert told.out.startswith("n: work.add */5 * * * * Asia/Tokyo; next ")
    entry = kept()["n"].entry
    assert entry.when == Cron("*/5 * * * *", "Asia/Tokyo")
    assert (entry.args, entry.kwargs) == ((1,), {"y": 2})
    assert entry.options == {"queue": "slow", "priority": 9, "expires": 60.0}
    assert (entry.overlap, entry.grace, entry.source) == ("queue", None, "command")


def test_the_time_zone_is_that_of_the_settings(schedule: Schedule) -> None:
    schedule("add", "n", "--task", "work.add", "--crontab", "@daily")
    assert kept()["n"].entry.when == Cron("@daily", "Europe/Berlin")


def test_a_crawl_is_the_task_that_crawls(schedule: Schedule) -> None:
    told = schedule(
        "add",
        "books",
        "--crawl",
        "books.py",
        "-o",
        "b.jsonl",
        "-a",
        "shelf=new",
        "-s",
        "delay=2",
        "--workers",
        "3",
        "--every",
        "3600",
    )
    assert told.code == 0, told.err
    assert "books.py does not exist here; workers must have it" in told.err
    entry = kept()["books"].entry
    assert (entry.task, entry.args, entry.overlap) == ("uttu.crawl", ("books.py",), "skip")
    assert entry.kwargs == {
        "output": ["b.jsonl"],
        "arguments": {"shelf": "new"},
        "settings": {"delay": "2"},
        "workers": 3,
    }


def test_a_name_that_is_taken_is_replaced_when_asked_for(schedule: Schedule) -> None:
    schedule("add", "n", "--task", "work.add", "--every", "60")
    told = schedule("add", "n", "--task", "work.add", "--every", "90")
    assert told.code == 3
    assert told.err == "uttu: there is a schedule 'n' already: replace it with --replace, or take another name\n"
    assert kept()["n"].entry.when == Every(60.0)
    assert schedule("add", "n", "--task", "work.add", "--every", "90", "--replace").code == 0
    assert kept()["n"].entry.when == Every(90.0)


def test_what_is_in_uttu_toml_is_changed_there(schedule: Schedule) -> None:
    told = schedule("add", "morning", "--task", "work.add", "--every", "60", "--replace")
    assert (told.code, kept()) == (3, {})
    assert "comes from uttu.toml: change it there" in told.err
    told = schedule("rm", "morning")
    assert told.code == 3
    assert "comes from uttu.toml, and would come back: take it out there" in told.err
    assert "uttu schedule pause morning" in told.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--task", "work.add"], 3, "Schedule 'n': Give one of every"),
        (["--task", "work.add", "--every", "5", "--crontab", "@daily"], 3, "Schedule 'n': Give one of every"),
        (["--task", "work.add", "--crontab", "7 o'clock"], 3, "Schedule 'n': Malformed crontab \"7 o'clock\""),
        (["--task", "work.add", "--crontab", "@daily", "--timezone", "Mars"], 3, "There is no time zone 'Mars'"),
        (["--task", "work.add", "--solar", "sunrise"], 3, "solar needs latitude and longitude"),
        (["--task", "work.add", "--every", "5", "--overlap", "never"], 3, "'never'"),
        (["--task", "work.ad", "--every", "5"], 3, "There is no task 'work.ad'; did you mean 'work.add'?"),
        (["--every", "5"], 2, "Give either --task TASK or --crawl FILE"),
        (["--task", "work.add", "--every", "5", "-o", "x.jsonl"], 2, "need --crawl FILE"),
        (["--task", "work.add", "--every", "5", "--args", "1"], 2, "is not --args, a JSON array"),
        (["--task", "work.add", "--every", "soon"], 2, "soon"),
    ],
)
def test_what_is_wrong_is_refused(schedule: Schedule, words: list[str], code: int, says: str) -> None:
    told = schedule("add", "n", *words)
    assert told.code == code
    assert says in " ".join(told.err.replace("│", " ").split())
    assert "n" not in kept()


def test_a_task_that_only_workers_know_is_taken_on_trust(schedule: Schedule) -> None:
    assert schedule("add", "n", "--task", "theirs.task", "--every", "5", "--remote").code == 0
    assert kept()["n"].entry.task == "theirs.task"


def test_all_are_listed(schedule: Schedule) -> None:
    schedule("add", "often", "--task", "work.add", "--every", "60")
    told = schedule("ls")
    lines = {line.split()[0]: line for line in told.out.splitlines()[1:3]}
    assert lines["morning"].split()[1:8] == ["new", "0", "7", "*", "*", "*", "Europe/Berlin"]
    assert lines["morning"].endswith("uttu.toml")
    assert lines["often"].split()[1:5] == ["waiting", "every", "1", "min"]
    assert "start one with uttu jobs beat" in told.out
    found = rows(schedule)
    assert found["often"]["when"] == {"kind": "every", "seconds": 60.0}
    assert found["often"]["state"] == "waiting"


def test_how_one_stands_is_shown(schedule: Schedule) -> None:
    schedule("add", "n", "--task", "work.add", "--every", "60", "--overlap", "skip")
    store = SqliteScheduleStore(Path("s.db"))
    now = datetime.now(UTC)
    state = ScheduleState(next=now, last=now, open="fire", opened=now, sent=1, skipped=1234, missed=2, note="it hurts")
    store.put(kept()["n"].entry, state, replace=True)
    assert rows(schedule)["n"]["state"] == "sent"
    store.begin("fire", "worker", 60.0)
    told = schedule("ls")
    assert "running" in told.out
    assert "n: it hurts\n" in told.out
    assert "n: skipped because the previous run had not ended: 1,234\n" in told.out
    assert "n: missed: 2\n" in told.out
    store.end("fire", "worker", 60.0)
    assert rows(schedule)["n"]["state"] == "waiting"
    store.close()


def test_without_any_it_says_how_to_begin(schedule: Schedule) -> None:
    Path("uttu.toml").write_text('[jobs]\nschedules = "sqlite:s.db"\nbroker = "redis://127.0.0.1:1"\n')
    told = schedule("ls")
    assert told.code == 0
    assert told.out.startswith("There are no schedules. Add one: uttu schedule add ")
    assert schedule("ls", "--json").out == "[]\n"


def test_what_is_wrong_in_uttu_toml_is_said(schedule: Schedule) -> None:
    with Path("uttu.toml").open("a") as file:
        file.write('[jobs.schedule.bad]\ntask = "work.add"\ncrontab = "x"\n')
    told = schedule("ls")
    assert "morning" in told.out
    assert "uttu: Skipped: Schedule 'bad': Malformed crontab 'x'" in told.err


def test_a_line_is_previewed(schedule: Schedule) -> None:
    told = schedule("preview", "30 2 * * *", "-n", "400", "--timezone", "Europe/Berlin", "--json")
    found = [datetime.fromisoformat(text) for text in json.loads(told.out)]
    assert len(found) == 400
    assert {moment.utcoffset() for moment in found} == {timedelta(hours=1), timedelta(hours=2)}
    usual = [moment for moment in found if (moment.hour, moment.minute) == (2, 30)]
    made_up = [moment for moment in found if moment not in usual]
    # Once in spring, after an hour that was left out.
    assert {(moment.hour, moment.minute, moment.month) for moment in made_up} <= {(3, 0, 3)}
    assert 1 <= len(made_up) <= 2


def test_a_schedule_is_previewed(schedule: Schedule) -> None:
    told = schedule("preview", "morning", "-n", "3")
    lines = told.out.splitlines()
    assert len(lines) == 3
    assert all(" 07:00:00+0" in line and "  in " in line for line in lines)
    schedule("add", "n", "--task", "work.add", "--every", "60")
    first, second = (datetime.fromisoformat(text) for text in json.loads(schedule("preview", "n", "-n2", "--json").out))
    assert first == kept()["n"].state.next
    assert second - first == timedelta(seconds=60)


def test_a_malformed_line_is_not_previewed(schedule: Schedule) -> None:
    told = schedule("preview", "0 25 * * *")
    assert told.code == 3
    assert told.err == "uttu: Malformed crontab '0 25 * * *': '25' is not a valid hour; write 0 to 23\n"


def test_one_of_uttu_toml_is_paused_and_goes_on(schedule: Schedule) -> None:
    told = schedule("pause", "morning")
    assert told.out == "morning is paused. Resume it with: uttu schedule resume morning\n"
    assert kept()["morning"].state.paused
    assert rows(schedule)["morning"]["state"] == "paused"
    told = schedule("resume", "morning")
    assert told.out.startswith("morning is resumed; next ")
    assert not kept()["morning"].state.paused


def test_what_was_due_in_a_pause_is_not_made_up_for(schedule: Schedule) -> None:
    schedule("add", "n", "--task", "work.add", "--every", "60")
    store = SqliteScheduleStore(Path("s.db"))
    store.change("n", kept()["n"].state, ScheduleState(next=datetime.now(UTC) - timedelta(days=1), paused=True))
    store.close()
    schedule("resume", "n")
    assert kept()["n"].state.next > datetime.now(UTC)


def test_one_is_removed(schedule: Schedule) -> None:
    schedule("add", "n", "--task", "work.add", "--every", "60")
    assert schedule("rm", "n").out == "n is removed\n"
    assert kept() == {}


@pytest.mark.parametrize("command", ["preview", "pause", "resume", "run", "rm"])
def test_one_that_is_not_there_is_named(schedule: Schedule, command: str) -> None:
    told = schedule(command, "mornin")
    assert told.code == 3
    assert told.err == "uttu: There is no schedule 'mornin'. Did you mean 'morning'?\n"


def test_a_broker_that_is_down_is_said(schedule: Schedule) -> None:
    Path("uttu.toml").write_text(TOML.format(broker="redis://:secret@127.0.0.1:1/0"))
    told = schedule("run", "morning")
    assert told.code == 4
    assert "redis://:***@127.0.0.1:1/0 can't be reached" in told.err
    assert "secret" not in told.err


def test_a_store_that_is_down_is_said(schedule: Schedule) -> None:
    Path("uttu.toml").write_text(TOML.format(broker="redis://127.0.0.1:1/0").replace('"sqlite:s.db"', '""'))
    told = schedule("ls")
    assert told.code == 4
    assert told.err.startswith("uttu: Cannot read or write the schedules on redis://127.0.0.1:1/0: ")


def test_times_are_listed_with_their_zone(schedule: Schedule) -> None:
    schedule("add", "often", "--task", "work.add", "--every", "3600")
    schedule("add", "tokyo", "--task", "work.add", "--crontab", "0 7 * * *", "--timezone", "Asia/Tokyo")
    rows = {line.split()[0]: line for line in schedule("ls").out.splitlines()}
    assert re.search(r"07:00 CES?T, in ", rows["morning"])
    assert "07:00 JST, in " in rows["tokyo"]
    assert f" {datetime.now().astimezone():%Z}, in " in rows["often"]
    told = schedule("add", "seoul", "--task", "work.add", "--crontab", "0 7 * * *", "--timezone", "Asia/Seoul")
    assert "07:00 KST, in " in told.out
    schedule("pause", "seoul")
    assert "07:00 KST, in " in schedule("resume", "seoul").out


def test_a_task_that_is_not_there_is_named(schedule: Schedule) -> None:
    with Path("uttu.toml").open("a") as file:
        file.write('[jobs.schedule.wrong]\ntask = "work.ad"\nevery = 60\n')
    told = schedule("ls")
    assert told.code == 0
    assert (
        "Schedule 'wrong': This app has no task 'work.ad'. It fails unless workers have it. Did you mean 'work.add'?"
        in told.err
    )
    assert schedule("add", "x", "--task", "work.ad", "--every", "5").code == 3
    assert "x" not in kept()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--crawl", "../books.py"], "is outside of"),
        (["--crawl", "books"], "must end in .py"),
        (["--crawl", "books.py", "-o", "s3://bucket/x.jsonl"], "s3"),
        (["--crawl", "books.py", "-o", "/somewhere/x.jsonl"], "is outside of"),
        (["--crawl", "books.py", "-o", "x.nothing"], "Unknown format"),
        (["--crawl", "books.py", "-o", "-"], "no standard output"),
        (["--crawl", "books.py", "-s", "dealy=1"], "did you mean 'delay'"),
        (["--crawl", "books.py", "-s", "frontier=redis://evil.example"], "does not use"),
    ],
)
def test_a_crawl_that_no_worker_would_take_is_refused(schedule: Schedule, words: list[str], said: str) -> None:
    told = schedule("add", "books", *words, "--every", "3600")
    assert told.code in (2, 3)
    assert said in told.err
    assert "books" not in kept()

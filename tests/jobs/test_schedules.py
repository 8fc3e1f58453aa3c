"""D5: schedules, with a real beat and a real worker: in uttu.toml, in code, and changed while they run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.jobs.conftest import MakeWorkshop, Workshop
from uttu.jobs import App
from uttu.jobs.schedules import Every, Schedule, open_app_store
from uttu.jobs.schedules.base import RunState, ScheduleBackend
from uttu.jobs.schedules.beat import send
from uttu.jobs.schedules.schedule import ScheduledRun, create_run
from uttu.testing.waiting import wait_until

IN_CODE = """

@app.every(0.5, args=["in code"])
@app.task
def often(word: str) -> None:
    note(word)


@app.on_after_finalize.connect
def by_celery(sender, **_):
    sender.add_periodic_task(0.5, say.s("celery's way"), name="added")
"""


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, broker: str) -> Workshop:
    table = {"file": {"task": "tasks.say", "every": 0.5, "args": ["in uttu.toml"]}}
    made: Workshop = workshops(broker=broker, schedule=table)
    with (made.folder / "tasks.py").open("a") as file:
        file.write(IN_CODE)
    made.worker("-c", "3")
    made.start("jobs", "beat", "-l", "INFO", "--pidfile", "", until="This beat leads")
    return made


@pytest.fixture(scope="module")
def app(shop: Workshop) -> Iterator[App]:
    """As a beat has it."""
    made = App(shop.app.uttu, shop.folder, set_as_current=False)
    yield made
    made.close()


@pytest.fixture(scope="module")
def store(app: App) -> Iterator[ScheduleBackend]:
    made = open_app_store(app)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex[:8]


def add(shop: Workshop, name: str, *words: str) -> None:
    told = shop.uttu("schedule", "add", name, *words)
    assert told.returncode == 0, told.stderr


def listed(shop: Workshop, name: str) -> dict[str, Any]:
    found = json.loads(shop.uttu("schedule", "ls", "--json").stdout)
    return next(row for row in found if row["name"] == name)


def fires_until(app: App, name: str, store: ScheduleBackend, words: str, **entry: Any) -> ScheduledRun:
    """Send a fire as a beat does, and wait until it is over."""
    made = Schedule(
        name=name, task=f"tasks.{words.split()[0]}", args=tuple(words.split()[1:]), when=Every(60.0), **entry
    )
    fired = create_run(app.uttu.name, name, datetime.now(UTC))
    send(app, made, fired)
    wait_until(lambda: store.marks([fired.id]) == [RunState.OVER], f"{name} is over", 60.0)
    return fired


@pytest.mark.parametrize("word", ["in uttu.toml", "in code", "celery's way"])
def test_schedules_from_everywhere_run(shop: Workshop, word: str) -> None:
    before = shop.notes().count(word)
    wait_until(lambda: shop.notes().count(word) >= before + 3, f"{word} runs")


def test_schedule_is_changed_while_beats_run(shop: Workshop, name: str) -> None:
    add(shop, name, "--task", "tasks.say", "--args", json.dumps([name]), "--every", "0.5")
    wait_until(lambda: shop.notes().count(name) >= 2, f"{name} runs")
    assert shop.uttu("schedule", "pause", name).returncode == 0
    assert listed(shop, name)["state"] == "paused"
    # What was being sent just then counts a moment later.
    other = shop.notes().count("in uttu.toml")
    wait_until(lambda: shop.notes().count("in uttu.toml") >= other + 2, "others run meanwhile")
    paused = listed(shop, name)
    wait_until(lambda: shop.notes().count(name) >= paused["sent"], "what was sent has run")
    other = shop.notes().count("in uttu.toml")
    wait_until(lambda: shop.notes().count("in uttu.toml") >= other + 4, "others run meanwhile")
    assert shop.notes().count(name) == paused["sent"] == listed(shop, name)["sent"]
    assert shop.uttu("schedule", "resume", name).returncode == 0
    wait_until(lambda: shop.notes().count(name) > paused["sent"], f"{name} goes on")
    assert shop.uttu("schedule", "rm", name).returncode == 0
    assert name not in shop.uttu("schedule", "ls").stdout


def test_one_is_run_now_and_its_times_stay(shop: Workshop, name: str) -> None:
    add(shop, name, "--task", "tasks.say", "--args", json.dumps([name]), "--crontab", "0 0 1 1 *")
    before = listed(shop, name)
    told = shop.uttu("schedule", "run", name)
    assert str(uuid.UUID(told.stdout.strip())) == told.stdout.strip()
    shop.until_noted(name)
    assert listed(shop, name) == before
    shop.uttu("schedule", "rm", name)


def test_skip_leaves_out_runs_while_one_is_active(shop: Workshop, name: str) -> None:
    add(shop, name, "--task", "tasks.wait_for", "--args", json.dumps([name]), "--every", "0.5", "--overlap", "skip")
    wait_until(lambda: listed(shop, name)["skipped"] >= 2, f"{name} is left out")
    assert shop.notes().count(f"waiting {name}") == 1
    assert listed(shop, name)["state"] == "running"
    (shop.folder / name).touch()
    wait_until(lambda: shop.notes().count(f"waiting {name}") >= 2, f"{name} runs again")
    shop.uttu("schedule", "rm", name)


def test_queue_runs_one_after_another(shop: Workshop, store: ScheduleBackend, name: str) -> None:
    add(shop, name, "--task", "tasks.wait_for", "--args", json.dumps([name]), "--every", "0.5", "--overlap", "queue")
    wait_until(lambda: sum(each.entry == name for each in store.runs()) >= 3, "some wait")
    assert shop.notes().count(f"waiting {name}") == 1
    (shop.folder / name).touch()
    wait_until(lambda: shop.notes().count(f"waiting {name}") >= 4, "they run")
    assert listed(shop, name)["skipped"] == 0
    shop.uttu("schedule", "rm", name)


def test_run_sent_twice_runs_once(shop: Workshop, app: App, store: ScheduleBackend, name: str) -> None:
    fired = fires_until(app, name, store, f"say {name}")
    entry = Schedule(name=name, task="tasks.say", args=(name,), when=Every(60.0))
    send(app, entry, fired)
    wait_until(lambda: f"{fired.id} of schedule {name}" in shop.log(), "the second is dropped")
    assert shop.notes().count(name) == 1


def test_two_copies_of_a_run_do_not_run_at_once(shop: Workshop, app: App, name: str) -> None:
    entry = Schedule(name=name, task="tasks.wait_for", args=(name,), when=Every(60.0))
    fired = create_run(app.uttu.name, name, datetime.now(UTC))
    for _ in range(2):
        send(app, entry, fired)
    shop.until_noted(f"waiting {name}")
    (shop.folder / name).touch()
    wait_until(lambda: f"{fired.id} of schedule {name}" in shop.log(), "the second is dropped")
    assert shop.notes().count(f"waiting {name}") == 1


def test_retried_run_is_over_when_it_succeeds(shop: Workshop, app: App, store: ScheduleBackend, name: str) -> None:
    fired = fires_until(app, name, store, "stubborn", overlap="skip")
    assert f"on_success {fired.id} 2" in shop.notes()


def test_expired_run_is_over(shop: Workshop, app: App, store: ScheduleBackend, name: str) -> None:
    fires_until(app, name, store, f"say {name}", options={"expires": "2020-01-01T00:00:00+00:00"})
    assert name not in shop.notes()


def test_run_of_a_killed_process_runs_again(shop: Workshop, app: App, store: ScheduleBackend, name: str) -> None:
    fires_until(app, name, store, f"die_once {name}", overlap="skip")
    assert (shop.folder / name).exists()

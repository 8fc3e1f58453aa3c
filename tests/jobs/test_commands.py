"""D8: the commands that run and watch workers, on each broker."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.jobs.conftest import PATIENCE, MakeWorkshop, Workshop
from uttu.testing.waiting import wait_until


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, broker: str, redis_url: str) -> Workshop:
    """Results are on Redis, where commands can look at them."""
    made: Workshop = workshops(broker=broker, backend=redis_url)
    made.worker("-c", "2")
    return made


def test_call_prints_an_id_and_result_its_result(shop: Workshop) -> None:
    told = shop.uttu("jobs", "call", "tasks.add", "-a", "[2]", "-k", '{"second": 5}')
    assert told.returncode == 0, told.stderr

    seen = shop.uttu("jobs", "result", told.stdout.strip())
    assert (seen.returncode, seen.stdout.strip()) == (0, "7")


def test_call_can_wait(shop: Workshop) -> None:
    told = shop.uttu("jobs", "call", "tasks.add", "-a", "[2, 3]", "--wait")

    assert (told.returncode, told.stdout.strip()) == (0, "5")


def test_result_of_a_failure_is_exit_code_1(shop: Workshop) -> None:
    told = shop.uttu("jobs", "call", "tasks.noted", "-a", '["bad"]', "--wait")
    assert told.returncode == 1
    assert "bad value" in told.stderr

    task_id = told.stderr.split("task ")[1].split(":")[0]
    assert "ValueError: bad value" in shop.uttu("jobs", "result", task_id, "--traceback").stdout


def test_result_shows_the_state_without_waiting(shop: Workshop) -> None:
    result = shop.task("count_up", 2, "operate").apply_async()
    wait_until(lambda: result.state == "PROGRESS", "the task says how far it is")

    told = json.loads(shop.uttu("jobs", "result", result.id, "--state").stdout)
    assert told["state"] == "PROGRESS"
    assert told["info"]["total"] == 2
    assert shop.uttu("jobs", "result", result.id, "--timeout", "0.1").returncode == 1
    (shop.folder / "operate").touch()
    shop.get(result)


def test_status_lists_workers(shop: Workshop) -> None:
    told = shop.uttu("jobs", "status")

    assert told.returncode == 0, told.stderr
    assert f"w0-{shop.name}@here" in told.stdout


def test_inspect_shows_what_runs(shop: Workshop) -> None:
    result = shop.task("wait_for", "inspected").apply_async()
    shop.until_noted("waiting inspected")

    told = json.loads(shop.uttu("jobs", "inspect", "active", "--json", "-t", "3").stdout)
    assert [task["id"] for task in told[f"w0-{shop.name}@here"]] == [result.id]
    (shop.folder / "inspected").touch()
    shop.get(result)


def test_inspect_lists_the_tasks_of_the_folder(shop: Workshop) -> None:
    told = shop.uttu("jobs", "inspect", "registered")

    assert "tasks.add" in told.stdout


def test_revoked_task_does_not_run(shop: Workshop) -> None:
    blockers = [shop.task("wait_for", "revoking").apply_async() for _ in range(2)]
    wait_until(lambda: shop.notes().count("waiting revoking") == 2, "both processes are busy")
    result = shop.task("say", "revoked all the same").apply_async()

    told = shop.uttu("jobs", "revoke", result.id)
    assert told.returncode == 0, told.stderr
    (shop.folder / "revoking").touch()
    for blocker in blockers:
        shop.get(blocker)
    wait_until(lambda: result.state == "REVOKED", "the task is called off")
    assert "revoked all the same" not in shop.notes()


@pytest.mark.parametrize("name", ["wait_for", "wait_for_later"])
def test_running_task_is_ended(shop: Workshop, name: str) -> None:
    result = shop.task(name, f"never {name}").apply_async()
    shop.until_noted(f"waiting never {name}")

    assert shop.uttu("jobs", "revoke", "--terminate", result.id).returncode == 0
    wait_until(lambda: result.state == "REVOKED", "the task is called off")


def test_purge_drops_what_waits(shop: Workshop) -> None:
    for number in range(3):
        shop.task("say", f"purged {number}").apply_async(queue=f"{shop.name}-purge")

    told = shop.uttu("jobs", "purge", "-f", "-Q", f"{shop.name}-purge")
    assert told.returncode == 0, told.stderr
    assert "Purged 3 messages" in told.stdout


def test_workers_own_help_is_celerys(shop: Workshop) -> None:
    told = shop.uttu("jobs", "worker", "--help")

    assert told.returncode == 0
    assert "uttu jobs worker" in told.stdout
    assert "--max-tasks-per-child" in told.stdout


def test_sigterm_lets_a_worker_finish_its_tasks(workshops: MakeWorkshop, broker: str) -> None:
    shop = workshops(broker=broker)
    worker = shop.worker("-c", "1")
    result = shop.task("wait_for", "last").apply_async()
    shop.until_noted("waiting last")

    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: "Warm shutdown" in shop.log(), "the worker is on its way out")
    (shop.folder / "last").touch()
    assert shop.get(result) == "last"
    assert worker.wait(PATIENCE) == 0


def test_multi_starts_and_stops_workers_in_the_background(workshops: MakeWorkshop, redis_url: str) -> None:
    shop = workshops(broker=redis_url)
    words = ("2", "-c", "1", "--pidfile=%n.pid", "--logfile=%n.log", "-l", "INFO")

    told = shop.uttu("jobs", "multi", "start", *words)
    assert told.returncode == 0, told.stdout + told.stderr
    logs = [shop.folder / f"celery{number}.log" for number in (1, 2)]
    wait_until(lambda: all(log.exists() and " ready." in log.read_text() for log in logs), "both are ready")
    assert shop.run("add", 1, 2) == 3
    assert shop.uttu("jobs", "multi", "stopwait", *words).returncode == 0
    assert not list(Path(shop.folder).glob("*.pid"))

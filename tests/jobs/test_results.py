"""D2: results: states, progress, errors, expiry, forgetting; on Redis, in SQL, and by messages (RPC)."""

from __future__ import annotations

from typing import Any

import pytest
from celery.exceptions import TimeoutError as TookTooLong

from tests.jobs.conftest import PATIENCE, MakeWorkshop, Workshop
from uttu.testing.waiting import wait_until


@pytest.fixture(scope="module", params=["redis", "sqlite", "rpc"])
def shop(request: pytest.FixtureRequest, workshops: MakeWorkshop, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """The broker is Redis, or for rpc:// RabbitMQ."""
    settings = {"broker": request.getfixturevalue("rabbitmq_url" if request.param == "rpc" else "redis_url")}
    if request.param == "sqlite":
        settings["backend"] = f"db+sqlite:///{tmp_path_factory.mktemp('results')}/results.db"
    made: Workshop = workshops(result_seconds=500, **settings)
    made.worker("-c", "2")
    return made


# Backends that anyone can ask, not only who has sent the task; and those that tell who waits, which no database does.
lasting = pytest.mark.parametrize("shop", ["redis", "sqlite"], indirect=True)
telling = pytest.mark.parametrize("shop", ["redis", "rpc"], indirect=True)


def test_value(shop: Workshop) -> None:
    assert shop.run("add", 1, 2) == 3


def test_error_is_raised_at_the_caller_and_keeps_its_traceback(shop: Workshop) -> None:
    result = shop.task("add", 1, "x").apply_async()

    with pytest.raises(TypeError, match="unsupported operand"):
        shop.get(result)
    assert result.failed()
    assert "sample_tasks" in result.traceback or "tasks.py" in result.traceback


def test_progress_reaches_who_waits(shop: Workshop) -> None:
    seen: list[dict[str, Any]] = []
    result = shop.task("count_up", 4, "go-on").apply_async()

    def look(message: dict[str, Any]) -> None:
        seen.append(message)
        if message.get("result") and message["status"] == "PROGRESS":
            (shop.folder / "go-on").touch()

    if shop.app.conf.result_backend.startswith("db"):
        wait_until(lambda: result.state == "PROGRESS", "progress is seen")
        seen.append({"status": "PROGRESS", "result": result.info})
        (shop.folder / "go-on").touch()
        assert shop.get(result) == 4
    else:
        assert result.get(timeout=PATIENCE, on_message=look) == 4
    told = [message["result"] for message in seen if message["status"] == "PROGRESS"]
    assert {"current", "total", "word"} == set(told[0])
    assert told[0]["total"] == 4


@lasting
def test_state_and_progress_can_be_looked_at(shop: Workshop) -> None:
    result = shop.task("count_up", 2, "look").apply_async()

    wait_until(lambda: result.state == "PROGRESS", "the task says how far it is")
    wait_until(lambda: result.info.get("word") == "half", "it is half done")
    assert result.info == {"current": 1, "total": 2, "word": "half"}
    (shop.folder / "look").touch()
    assert shop.get(result) == 2
    assert result.state == "SUCCESS"


@lasting
def test_started_is_a_state(shop: Workshop) -> None:
    result = shop.task("wait_for", "start").apply_async()

    wait_until(lambda: result.state == "STARTED", "the task counts as started")
    (shop.folder / "start").touch()
    shop.get(result)


@telling
def test_start_reaches_who_waits(shop: Workshop) -> None:
    seen: list[str] = []
    result = shop.task("wait_for", "told").apply_async()

    def look(message: dict[str, Any]) -> None:
        seen.append(message["status"])
        (shop.folder / "told").touch()

    assert result.get(timeout=PATIENCE, on_message=look) == "told"
    assert seen == ["STARTED", "SUCCESS"]


@lasting
def test_another_process_reads_the_result(shop: Workshop) -> None:
    result = shop.task("add", 20, 3).apply_async()

    told = shop.uttu("jobs", "result", result.id)
    assert (told.returncode, told.stdout.strip()) == (0, "23")


@lasting
def test_result_has_the_name_and_arguments_of_its_task(shop: Workshop) -> None:
    result = shop.task("add", 1, 2).apply_async()

    shop.get(result)
    assert result.name == "tasks.add"
    assert list(result.args) == [1, 2]


@lasting
def test_forgotten_result_is_gone(shop: Workshop) -> None:
    result = shop.task("add", 1, 2).apply_async()
    shop.get(result)

    result.forget()
    assert shop.app.AsyncResult(result.id).state == "PENDING"


def test_waiting_can_end_early(shop: Workshop) -> None:
    result = shop.task("wait_for", "early").apply_async()

    with pytest.raises(TookTooLong):
        result.get(timeout=0.1)
    (shop.folder / "early").touch()
    assert shop.get(result) == "early"


def test_results_expire(shop: Workshop) -> None:
    assert shop.app.conf.result_expires == 500
    if shop.app.conf.result_backend.startswith("redis"):
        result = shop.task("add", 1, 2).apply_async()
        shop.get(result)
        assert 0 < shop.app.backend.client.ttl(shop.app.backend.get_key_for_task(result.id)) <= 500

"""D1: tasks are functions, plain or ``async def``, called now, later, or never if it gets too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.exceptions import NotRegistered, TaskRevokedError

from tests.jobs.conftest import MakeWorkshop, Workshop
from uttu.errors import ConfigError


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, broker: str) -> Workshop:
    made: Workshop = workshops(broker=broker, visibility_seconds=120)
    made.worker("-c", "2")
    return made


def test_function_runs_on_worker(shop: Workshop) -> None:
    assert shop.run("add", 2, second=3) == 5


def test_async_function_runs_on_worker(shop: Workshop) -> None:
    assert shop.run("add_later", 2, 3) == 5


def test_one_event_loop_for_each_process(shop: Workshop) -> None:
    found = [tuple(shop.run("loop_and_process")) for _ in range(8)]

    assert len(set(found)) == len({process for _, process in found})


def test_async_task_called_directly_blocks(shop: Workshop) -> None:
    @shop.app.task(shared=False)
    async def double(number: int) -> int:
        return number * 2

    assert double(4) == 8
    assert double.apply((4,)).get() == 8


def test_progress_outside_workers_is_nothing(shop: Workshop) -> None:
    @shop.app.task(bind=True, shared=False)
    def steps(self: Any) -> str:
        self.progress(1, 2)
        return "done"

    assert steps() == "done"


def test_countdown(shop: Workshop) -> None:
    before = datetime.now(UTC)
    result = shop.task("say", "late").apply_async(countdown=1)

    shop.get(result)
    assert (datetime.now(UTC) - before).total_seconds() >= 1


def test_eta_too_far_ahead_is_refused(shop: Workshop) -> None:
    limit = 120 if shop.app.uttu.broker.startswith("redis") else 1800
    with pytest.raises(ConfigError, match="uttu schedule add"):
        shop.task("add", 1, 2).apply_async(countdown=limit + 1)
    with pytest.raises(ConfigError, match="several times"):
        shop.task("add", 1, 2).apply_async(eta=datetime.now(UTC) + timedelta(seconds=limit + 5))


def test_expired_task_does_not_run(shop: Workshop) -> None:
    result = shop.task("say", "expired").apply_async(countdown=1, expires=0.5)

    if shop.app.uttu.broker.startswith("redis"):
        with pytest.raises(TaskRevokedError):
            shop.get(result)
    else:
        # RabbitMQ may drop it before a worker sees it.
        shop.run("add", 1, 2)
    assert "expired" not in shop.notes()


def test_unknown_task_fails(shop: Workshop) -> None:
    with pytest.raises(NotRegistered):
        shop.run("nowhere")


def test_task_that_fails_raises_at_its_caller(shop: Workshop) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        shop.run("add", 1, "one")


def test_late_acknowledged_task_survives_its_process(shop: Workshop) -> None:
    assert shop.run("die_once", "died") == "survived"

"""D4: hooks of a base class, retries, and the task's own logger."""

from __future__ import annotations

import pytest

from tests.jobs.conftest import MakeWorkshop, Workshop
from uttu.testing.waiting import wait_until


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, broker: str) -> Workshop:
    made: Workshop = workshops(broker=broker)
    made.worker("-c", "1")
    return made


def of(shop: Workshop, task_id: str) -> list[str]:
    """What was noted about a task, without its id."""
    return [" ".join(line.split(f" {task_id}")).strip() for line in shop.notes() if task_id in line]


def test_hooks_of_success(shop: Workshop) -> None:
    result = shop.task("noted", "fine").apply_async()

    assert shop.get(result) == "FINE"
    wait_until(lambda: len(of(shop, result.id)) == 3, "all hooks were called")
    assert of(shop, result.id) == ["before_start", "on_success  FINE", "after_return  SUCCESS"]


def test_hooks_of_failure(shop: Workshop) -> None:
    result = shop.task("noted", "bad").apply_async()

    with pytest.raises(ValueError, match="bad value"):
        shop.get(result)
    wait_until(lambda: len(of(shop, result.id)) == 3, "all hooks were called")
    assert of(shop, result.id) == ["before_start", "on_failure  bad value", "after_return  FAILURE"]


def test_hooks_of_retries(shop: Workshop) -> None:
    result = shop.task("stubborn").apply_async()

    assert shop.get(result) == 2
    wait_until(lambda: "after_return  SUCCESS" in of(shop, result.id), "the last hook was called")
    seen = of(shop, result.id)
    assert [line for line in seen if line.startswith("on_retry")] == [
        "on_retry  Retry in 0s: ValueError('attempt 0')",
        "on_retry  Retry in 0s: ValueError('attempt 1')",
    ] or [line for line in seen if line.startswith("on_retry")] == ["on_retry  attempt 0", "on_retry  attempt 1"]
    assert seen.count("before_start") == 3


def test_logger_says_which_task(shop: Workshop) -> None:
    result = shop.task("noted", "logged").apply_async()

    shop.get(result)
    wait_until(lambda: "noted says logged" in shop.log(), "the line is in the worker's log")
    line = next(line for line in shop.log().splitlines() if "noted says logged" in line)
    assert f"tasks.noted[{result.id}]" in line

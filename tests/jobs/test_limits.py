"""D7: limits: rate, changed while workers run; soft and hard time limits; tasks and memory per process; concurrency."""

from __future__ import annotations

import re
import time

import pytest
from celery.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from tests.jobs.conftest import MakeWorkshop, Workshop
from uttu.testing.waiting import wait_until


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, broker: str) -> Workshop:
    made: Workshop = workshops(broker=broker)
    made.worker("-c", "1")
    return made


def test_soft_limit_can_be_caught(shop: Workshop) -> None:
    assert shop.run("soft_limit") == "soft"


def test_soft_limit_cancels_an_async_function(shop: Workshop) -> None:
    result = shop.task("soft_limit_later").apply_async()

    with pytest.raises(SoftTimeLimitExceeded):
        shop.get(result)
    assert f"cancelled {result.id}" in shop.notes()
    assert shop.run("add_later", 1, 2) == 3, "the loop can be used again"


def test_hard_limit_ends_the_process(shop: Workshop) -> None:
    before = shop.run("process")

    with pytest.raises(TimeLimitExceeded):
        shop.run("hard_limit")
    assert shop.run("process") != before


def test_limits_can_be_given_at_the_call(shop: Workshop) -> None:
    result = shop.task("wait_for", "never").apply_async(time_limit=1)

    with pytest.raises(TimeLimitExceeded):
        shop.get(result)


def test_rate_is_changed_while_the_worker_runs(shop: Workshop) -> None:
    told = shop.uttu("jobs", "control", "rate_limit", "tasks.say", "2/s")
    assert told.returncode == 0, told.stderr
    began = time.monotonic()
    for result in [shop.task("say", f"rated {number}").apply_async() for number in range(5)]:
        shop.get(result)

    # Two a second: the fifth waits for four others.
    assert time.monotonic() - began >= 1.4
    assert shop.uttu("jobs", "control", "rate_limit", "tasks.say", "0").returncode == 0


def test_concurrency_grows_while_the_worker_runs(shop: Workshop) -> None:
    assert shop.uttu("jobs", "control", "pool_grow", "1").returncode == 0

    results = [shop.task("wait_for", "both").apply_async() for _ in range(2)]
    wait_until(lambda: shop.notes().count("waiting both") == 2, "both run at a time")
    (shop.folder / "both").touch()
    for result in results:
        shop.get(result)
    assert shop.uttu("jobs", "control", "pool_shrink", "1").returncode == 0


def test_process_is_replaced_after_max_tasks(workshops: MakeWorkshop, redis_url: str) -> None:
    shop = workshops(broker=redis_url)
    shop.worker("-c", "1", "--max-tasks-per-child", "2")

    first, second, third = (shop.run("process") for _ in range(3))
    assert first == second != third


def test_process_is_replaced_when_it_is_too_large(workshops: MakeWorkshop, redis_url: str) -> None:
    shop = workshops(broker=redis_url)
    shop.worker("-c", "1", "--max-memory-per-child", "100000")

    before = shop.run("process")
    assert shop.run("process") == before
    assert shop.run("swell") > 100_000
    assert shop.run("process") != before


def test_concurrency_is_as_asked(workshops: MakeWorkshop, redis_url: str) -> None:
    shop = workshops(broker=redis_url, celery={"worker_concurrency": 3})
    shop.worker()

    assert re.search(r"concurrency: 3 ", shop.log())

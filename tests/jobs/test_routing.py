"""D6: routes by name and pattern, by queue, exchange and key; queues per worker; priorities, 9 first everywhere."""

from __future__ import annotations

import pytest

from tests.jobs.conftest import MakeWorkshop, Workshop
from uttu.errors import ConfigError
from uttu.jobs import App, JobSettings
from uttu.testing.waiting import wait_until


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, broker: str) -> Workshop:
    """One worker for the default queue alone, with one process, and one for the queue of ``tasks.in_*``."""
    made: Workshop = workshops(broker=broker)
    slow, topic = f"{made.name}-slow", f"{made.name}-topic"
    made.configure(
        broker=broker,
        routes={
            "tasks.in_*": slow,
            "tasks.which_queue": {"queue": topic, "exchange": topic, "exchange_type": "topic", "routing_key": "a.b"},
        },
    )
    made.worker("-c", "1", "-Q", made.name)
    made.worker("-c", "1", "-Q", slow)
    return made


def test_pattern_routes_to_its_queue(shop: Workshop) -> None:
    result = shop.task("in_slow").apply_async()

    assert shop.get(result) == "slow"
    wait_until(lambda: "tasks.in_slow" in shop.log(1), "the worker of that queue had it")
    assert f"tasks.in_slow[{result.id}] succeeded" not in shop.log(0)


def test_task_waits_until_a_worker_takes_its_queue(shop: Workshop) -> None:
    result = shop.task("which_queue").apply_async()
    shop.run("add", 1, 2)
    assert not result.ready()

    told = shop.uttu("jobs", "control", "add_consumer", f"{shop.name}-topic", f"{shop.name}-topic", "topic", "a.b")
    assert told.returncode == 0, told.stderr
    assert shop.get(result) == "a.b"


def test_queue_can_be_said_at_the_call(shop: Workshop) -> None:
    result = shop.task("say", "rerouted").apply_async(queue=f"{shop.name}-slow")

    shop.get(result)
    wait_until(lambda: f"tasks.say[{result.id}] succeeded" in shop.log(1), "the worker of that queue had it")


def test_highest_priority_is_first(shop: Workshop) -> None:
    blocker = shop.task("wait_for", "unblock").apply_async()
    shop.until_noted("waiting unblock")
    # One may be with the worker already.
    decoy = shop.task("say", "p-decoy").apply_async(priority=5)
    results = [shop.task("say", f"p{priority}").apply_async(priority=priority) for priority in (0, 3, 9, 1, 5)]
    results.append(shop.task("say", "p-none").apply_async())

    (shop.folder / "unblock").touch()
    for result in (blocker, decoy, *results):
        shop.get(result)
    order = [word for word in shop.notes() if word.startswith("p") and word != "p-decoy"]
    assert order == ["p9", "p5", "p3", "p1", "p0", "p-none"]


def test_worker_without_queues_consumes_all_routes() -> None:
    app = App(
        JobSettings(broker="redis://nowhere", routes={"a.*": "slow", "b": {"queue": "fast"}}), set_as_current=False
    )

    assert sorted(app.amqp.queues.consume_from) == ["fast", "slow", "uttu"]


@pytest.mark.parametrize("route", ["", 7, {}, {"queu": "slow"}, {"queue": "slow", "priority": 10}])
def test_bad_route_is_refused(route: object) -> None:
    app = App(JobSettings(broker="redis://nowhere", routes={"a.*": route}), set_as_current=False)

    with pytest.raises(ConfigError, match=r"jobs.routes: 'a.\*'"):
        app.conf.task_routes  # noqa: B018

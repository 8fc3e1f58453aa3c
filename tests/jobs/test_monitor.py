"""Look at tasks, workers and queues, and change a worker's pool, on each broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jobs.conftest import PATIENCE, MakeWorkshop, Workshop
from uttu.errors import BusUnavailable, UttuError
from uttu.operations import jobs
from uttu.operations.task_monitor import TaskMonitor, TaskQuery
from uttu.testing.waiting import wait_until


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, broker: str, redis_url: str) -> Workshop:
    made: Workshop = workshops(broker=broker, backend=redis_url)
    made.worker("-c", "2")
    return made


@pytest.fixture
def monitor(shop: Workshop) -> Iterator[TaskMonitor]:
    monitor = TaskMonitor(shop.app)
    monitor.start()
    # Events of tasks arrive once the workers have heard that somebody wants them.
    wait_until(lambda: shop.run("add", 1, 1) == 2 and monitor.tasks(TaskQuery()).tasks != [], "events arrive")
    yield monitor
    monitor.stop()


def test_tasks_with_arguments_and_results(shop: Workshop, monitor: TaskMonitor) -> None:
    done = shop.task("add", 2, second=5).apply_async()
    failed = shop.task("noted", "bad").apply_async()
    shop.get(done)
    with pytest.raises(Exception, match="bad value"):
        shop.get(failed)

    def ended() -> bool:
        rows = [monitor.find(each.id) for each in (done, failed)]
        return [row.state if row else "" for row in rows] == ["SUCCESS", "FAILURE"]

    wait_until(ended, "both tasks have ended")
    good, bad = monitor.find(done.id), monitor.find(failed.id)
    assert good is not None
    assert bad is not None
    assert (good.name, good.result, "2" in good.args, "5" in good.kwargs) == ("tasks.add", "7", True, True)
    assert good.worker.endswith("@here")
    assert 0 < good.received <= good.ended
    assert "bad value" in bad.exception
    assert "Traceback" in bad.traceback


def test_pages_of_tasks(shop: Workshop, monitor: TaskMonitor) -> None:
    sent = [shop.task("add", number, 1).apply_async() for number in range(7)]
    for each in sent:
        shop.get(each)
    ids = {each.id for each in sent}
    wait_until(lambda: all((row := monitor.find(each)) and row.state == "SUCCESS" for each in ids), "all have ended")
    found: list[str] = []
    query = TaskQuery(limit=3, state="SUCCESS", name="tasks.add")
    while True:
        page = monitor.tasks(query)
        found += [row.id for row in page.tasks]
        if not page.next:
            break
        query = TaskQuery(limit=3, state="SUCCESS", name="tasks.add", after=page.next)
    assert len(found) == len(set(found))
    assert ids <= set(found)
    assert page.states["SUCCESS"] >= 7
    assert monitor.tasks(TaskQuery(name="tasks.nothing")).tasks == []
    assert [row.id for row in monitor.tasks(TaskQuery(match=sent[0].id)).tasks] == [sent[0].id]


def test_workers_and_queues(shop: Workshop) -> None:
    (worker,) = [each for each in jobs.read_job_workers(shop.app) if shop.name in each.name]
    assert (worker.concurrency, worker.queues) == (2, (shop.name,))
    assert worker.pid
    assert worker.pool
    (queue,) = jobs.read_queues(shop.app)
    assert queue.name == shop.name
    for change, wanted in ((1, 3), (-1, 2)):
        jobs.resize_pool(shop.app, worker.name, change)
        wait_until(
            lambda wanted=wanted: (
                [each.concurrency for each in jobs.read_job_workers(shop.app) if shop.name in each.name] == [wanted]
            ),  # type: ignore[misc]
            f"the pool has {wanted} processes",
            seconds=20,
        )
    with pytest.raises(UttuError, match="does not answer"):
        jobs.resize_pool(shop.app, "nobody@here", 1, timeout=0.5)


def test_a_worker_is_shut_down(shop: Workshop) -> None:
    process = shop.worker("-c", "1")
    name = next(each.name for each in jobs.read_job_workers(shop.app) if each.pid == process.pid)
    jobs.shutdown_worker(shop.app, name)
    assert process.wait(PATIENCE) == 0


def test_messages_that_wait_are_counted(workshops: MakeWorkshop, broker: str, redis_url: str) -> None:
    alone: Workshop = workshops(broker=broker, backend=redis_url)
    assert [queue.messages for queue in jobs.read_queues(alone.app)] == [0]
    for _ in range(3):
        alone.task("add", 1, 1).apply_async()
    wait_until(lambda: [queue.messages for queue in jobs.read_queues(alone.app)] == [3], "three messages wait")


def test_a_broker_that_is_away(workshops: MakeWorkshop) -> None:
    away: Workshop = workshops(broker="redis://127.0.0.1:1/0", backend="redis://127.0.0.1:1/0")
    monitor = TaskMonitor(away.app)
    monitor.start()
    wait_until(lambda: "can't be reached" in monitor.error, "the monitor says so")
    monitor.stop()
    for look in (jobs.read_job_workers, jobs.read_queues):
        with pytest.raises(BusUnavailable):
            look(away.app)

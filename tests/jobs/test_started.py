"""When a task is stored as started. With workers and real backends: ``test_d2_results``."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from uttu.jobs.started import StartedRecorder, delay_started
from uttu.testing.waiting import wait_until


class Kept:
    """A backend that keeps what is stored, in its order; it stores STARTED when it may."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.stored: list[tuple[str, str]] = []
        self.storing, self.may_store = threading.Event(), threading.Event()
        self.may_store.set()

    def store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **more: Any
    ) -> Any:
        if state == "STARTED":
            self.storing.set()
            assert self.may_store.wait(30)
        if task_id == "bad":
            raise OSError("away")
        self.stored.append((task_id, state))
        return result

    def process_cleanup(self) -> None:
        pass


@pytest.fixture
def backend() -> Any:
    app = SimpleNamespace()
    app.started = StartedRecorder(app)
    app.backend = delay_started(Kept)(app)
    return app.backend


def runs(backend: Any, task_id: str) -> None:
    """What Celery does before it runs a task."""
    backend.store_result(task_id, {"pid": 1}, "STARTED", request=None)


def until_stored(backend: Any, task_id: str) -> None:
    """By then, whatever was to be stored before is."""
    runs(backend, task_id)
    wait_until(lambda: (task_id, "STARTED") in backend.stored, f"{task_id} is stored as started")


def test_task_that_runs_on_is_stored_as_started(backend: Any) -> None:
    runs(backend, "long")
    assert backend.stored == []

    wait_until(lambda: backend.stored == [("long", "STARTED")], "it is stored")


@pytest.mark.parametrize("state", ["SUCCESS", "FAILURE", "RETRY", "PROGRESS"])
def test_quick_task_is_not(backend: Any, state: str) -> None:
    runs(backend, "quick")
    backend.store_result("quick", None, state)

    until_stored(backend, "long")
    assert backend.stored == [("quick", state), ("long", "STARTED")]


def test_state_of_another_task_changes_nothing(backend: Any) -> None:
    runs(backend, "long")
    backend.store_result("other", None, "REVOKED")

    wait_until(lambda: backend.stored == [("other", "REVOKED"), ("long", "STARTED")], "it is stored")


def test_task_that_ends_without_a_state_is_not_stored(backend: Any) -> None:
    runs(backend, "ignored")
    backend.process_cleanup()

    until_stored(backend, "long")
    assert backend.stored == [("long", "STARTED")]


def test_end_in_one_thread_leaves_the_tasks_of_others(backend: Any) -> None:
    runs(backend, "long")
    with ThreadPoolExecutor(1) as other:
        other.submit(backend.process_cleanup).result()

    wait_until(lambda: backend.stored == [("long", "STARTED")], "it is stored")


def test_end_waits_while_the_start_is_being_stored(backend: Any) -> None:
    backend.may_store.clear()
    runs(backend, "task")
    assert backend.storing.wait(30)

    with ThreadPoolExecutor(1) as other:
        end = other.submit(backend.store_result, "task", None, "SUCCESS")
        assert not end.done()
        backend.may_store.set()
        end.result(30)
    assert backend.stored == [("task", "STARTED"), ("task", "SUCCESS")]


def test_error_of_the_backend_is_logged(backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        runs(backend, "bad")
        until_stored(backend, "long")

    assert "Cannot store the state STARTED of task bad: away" in caplog.text

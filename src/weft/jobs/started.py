"""The state STARTED, of tasks that run long enough for anyone to see it.

Celery stores it before it runs a task, and what became of the task afterwards: for a quick one that doubles the work
of the worker, of the backend and of all who listen. Here a thread of the worker's process stores it when a task has
run for a moment.

It never comes after a later state. Whatever is stored of a task, and its end, withdraws it first, and waits if it is
being stored. A process that is killed takes its thread with it.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from celery.backends.rpc import RPCBackend
from celery.states import STARTED
from celery.utils.log import get_logger

if TYPE_CHECKING:
    import celery

AFTER_SECONDS: Final = 0.05

_log = get_logger(__name__)


class _Start(NamedTuple):
    due: float
    thread: int
    meta: Any
    request: Any


class Starts:
    """Tasks of this process that are running, and not yet stored as started. For any thread."""

    def __init__(self, app: celery.Celery) -> None:
        self._app = app
        self._begin()

    def _begin(self) -> None:
        """Also in a process that a task has forked off: neither the thread nor the tasks are its own."""
        self._lock = threading.Lock()
        self._some = threading.Event()
        self._waiting: dict[str, _Start] = {}
        self._runs = False

    def add(self, task_id: str, meta: Any, request: Any) -> None:
        """A task is run by this thread, from now on."""
        with self._lock:
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="weft-started", daemon=True).start()
                os.register_at_fork(after_in_child=self._begin)
            self._waiting[task_id] = _Start(time.monotonic() + AFTER_SECONDS, threading.get_ident(), meta, request)
        self._some.set()

    def withdraw(self, task_id: str) -> None:
        """Something else is to be stored of this task."""
        with self._lock:
            self._waiting.pop(task_id, None)

    def withdraw_mine(self) -> None:
        """The task that this thread ran is over, whether or not anything was stored."""
        with self._lock:
            mine = [task_id for task_id, start in self._waiting.items() if start.thread == threading.get_ident()]
            for task_id in mine:
                del self._waiting[task_id]

    def _run(self) -> None:
        # It looks now and then, as long as there are tasks: to be woken for each would cost more than what it spares.
        while self._some.wait():
            time.sleep(AFTER_SECONDS / 2)
            with self._lock:
                due = [task_id for task_id, start in self._waiting.items() if start.due <= time.monotonic()]
                for task_id in due:
                    self._store(task_id, self._waiting.pop(task_id))
                if not self._waiting:
                    self._some.clear()

    def _store(self, task_id: str, start: _Start) -> None:
        try:
            # Celery gives each thread a backend of its own.
            self._app.backend.store_started(task_id, start.meta, start.request)
        except Exception as error:
            # The task does not depend on anyone knowing that it runs.
            _log.warning("that %s has started could not be stored: %s", task_id, error)


class _Late:
    """What a backend does otherwise; goes before its class."""

    app: Any

    def store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **more: Any
    ) -> Any:
        if state == STARTED:
            self.app.starts.add(task_id, result, request)
            return result
        self.app.starts.withdraw(task_id)
        return super().store_result(task_id, result, state, traceback, request, **more)  # type: ignore[misc]

    def store_started(self, task_id: str, meta: Any, request: Any) -> None:
        super().store_result(task_id, meta, STARTED, request=request)  # type: ignore[misc]

    def process_cleanup(self) -> None:
        self.app.starts.withdraw_mine()
        super().process_cleanup()  # type: ignore[misc]


class _LateRPC(_Late, RPCBackend):
    """The result may go by another connection, and must not overtake: so the broker confirms what goes before."""

    def store_started(self, task_id: str, meta: Any, request: Any) -> None:
        address, correlation = self.destination_for(task_id, request)
        if not address:
            return
        with self.app.amqp.confirming_pool.acquire(block=True) as producer:
            producer.publish(
                self._to_result(task_id, STARTED, meta, None, request),
                exchange=self.exchange, routing_key=address, correlation_id=correlation, serializer=self.serializer,
                delivery_mode=self.delivery_mode, retry=True, retry_policy=self.retry_policy,
            )  # fmt: skip


@functools.cache
def late(backend: type) -> type:
    """A backend's class, with STARTED as above."""
    return _LateRPC if backend is RPCBackend else type(backend.__name__, (_Late, backend), {})

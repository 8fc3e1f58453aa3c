"""Store the state STARTED only for tasks that run long enough to be seen.

Celery stores STARTED before it runs a task, and the result afterwards. For a quick task that doubles the work of the
worker, the backend and all listeners. Here a thread of the worker process stores STARTED once a task has run for
``DELAY_SECONDS``.

STARTED never follows a later state. Storing any other state, and the end of the task, withdraws it first, and waits if
it is being stored right now. A killed process takes its thread with it.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from celery.backends.rpc import RPCBackend
from celery.states import STARTED

if TYPE_CHECKING:
    import celery

# How long a task runs before STARTED is stored.
DELAY_SECONDS: Final = 0.05

_log = logging.getLogger("uttu.jobs")


class _PendingStart(NamedTuple):
    """A task that runs and whose STARTED is not stored yet. ``due`` is a monotonic time."""

    due: float
    thread: int
    meta: Any
    request: Any


class StartedRecorder:
    """The running tasks of this process whose STARTED is not stored yet. Thread-safe."""

    def __init__(self, app: celery.Celery) -> None:
        self._app = app
        self._reset()

    def _reset(self) -> None:
        """Reset, also in a process that a task has forked: the thread and the tasks stay in the parent."""
        self._lock = threading.Lock()
        self._has_waiting = threading.Event()
        self._waiting: dict[str, _PendingStart] = {}
        self._is_running = False

    def add(self, task_id: str, meta: Any, request: Any) -> None:
        """Note that this thread now runs a task."""
        with self._lock:
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="uttu-started", daemon=True).start()
                os.register_at_fork(after_in_child=self._reset)
            self._waiting[task_id] = _PendingStart(
                time.monotonic() + DELAY_SECONDS, threading.get_ident(), meta, request
            )
        self._has_waiting.set()

    def withdraw(self, task_id: str) -> None:
        """Drop a task, because another state is about to be stored."""
        with self._lock:
            self._waiting.pop(task_id, None)

    def withdraw_own(self) -> None:
        """Drop the task that this thread ran: it is over, whether or not a result was stored."""
        with self._lock:
            own = [task_id for task_id, start in self._waiting.items() if start.thread == threading.get_ident()]
            for task_id in own:
                del self._waiting[task_id]

    def _run(self) -> None:
        # Poll while there are tasks: waking this thread for each task would cost more than it saves.
        while self._has_waiting.wait():
            time.sleep(DELAY_SECONDS / 2)
            with self._lock:
                due = [task_id for task_id, start in self._waiting.items() if start.due <= time.monotonic()]
                for task_id in due:
                    self._store(task_id, self._waiting.pop(task_id))
                if not self._waiting:
                    self._has_waiting.clear()

    def _store(self, task_id: str, start: _PendingStart) -> None:
        try:
            # Celery gives each thread a separate backend.
            self._app.backend.store_started(task_id, start.meta, start.request)
        except Exception as error:
            # The task does not depend on its STARTED state.
            _log.warning("Cannot store the state STARTED of task %s: %s", task_id, error)


class _DelayedStarted:
    """Mixin before the class of a backend: delays STARTED and withdraws it before any other state."""

    app: Any

    def store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **more: Any
    ) -> Any:
        if state == STARTED:
            self.app.started.add(task_id, result, request)
            return result
        self.app.started.withdraw(task_id)
        return super().store_result(task_id, result, state, traceback, request, **more)  # type: ignore[misc]

    def store_started(self, task_id: str, meta: Any, request: Any) -> None:
        super().store_result(task_id, meta, STARTED, request=request)  # type: ignore[misc]

    def process_cleanup(self) -> None:
        self.app.started.withdraw_own()
        super().process_cleanup()  # type: ignore[misc]


class _DelayedStartedRPC(_DelayedStarted, RPCBackend):
    """The RPC backend. The result may use another connection and must not overtake STARTED, so the broker confirms
    STARTED.
    """

    def store_started(self, task_id: str, meta: Any, request: Any) -> None:
        address, correlation = self.destination_for(task_id, request)
        if not address:
            return
        with self.app.amqp.confirming_pool.acquire(block=True) as producer:
            producer.publish(
                self._to_result(task_id, STARTED, meta, None, request),
                exchange=self.exchange,
                routing_key=address,
                correlation_id=correlation,
                serializer=self.serializer,
                delivery_mode=self.delivery_mode,
                retry=True,
                retry_policy=self.retry_policy,
            )


@functools.cache
def delay_started(backend: type) -> type:
    """Return a backend class that delays STARTED."""
    return _DelayedStartedRPC if backend is RPCBackend else type(backend.__name__, (_DelayedStarted, backend), {})

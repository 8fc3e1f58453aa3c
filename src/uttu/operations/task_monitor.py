"""Watch the tasks of a Celery app by its events, as Flower does.

A thread receives the events of all workers and keeps the latest ``_MOST_TASKS`` tasks. Workers send events only while
somebody asks for them, so the monitor asks every ``_ASK_SECONDS``. Tasks that ran before it started are not known:
their results are read by id (:func:`uttu.operations.jobs.read_task`).

    thread     owns the connection and Celery's ``State``, which has its own lock
    callers    :meth:`TaskMonitor.tasks` reads the state, from any thread
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from uttu.errors import UttuError
from uttu.operations.jobs import map_driver_errors

if TYPE_CHECKING:
    from celery import Celery

_MOST_TASKS: Final = 5000
_ASK_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 2.0
_LONGEST_TEXT: Final = 2000
_log = logging.getLogger("uttu.jobs")


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A task as its events describe it. Times are Unix time, 0 if it did not come to that. Texts are cut short."""

    id: str
    name: str = ""
    state: str = ""
    args: str = ""
    kwargs: str = ""
    worker: str = ""
    sent: float = 0.0
    received: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    runtime: float | None = None
    retries: int = 0
    result: str = ""
    exception: str = ""
    traceback: str = ""


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for a page of tasks, the latest first. ``match`` is a part of the name, the id or the arguments."""

    limit: int = 50
    after: str = ""
    state: str = ""
    name: str = ""
    match: str = ""


class TaskPage(msgspec.Struct, frozen=True):
    """A page of tasks; ``next`` is empty at the end. ``states`` counts all that are known by state."""

    tasks: list[TaskRow]
    states: dict[str, int]
    next: str = ""


class TaskMonitor:
    """Receives the events of an app from :meth:`start` to :meth:`stop`."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._state = app.events.State(max_tasks_in_memory=_MOST_TASKS)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.error = ""
        """Why no events arrive at the moment; empty if they do, or before the first attempt."""
        self.is_receiving = False

    def start(self) -> None:
        """Start to receive. Further calls do nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="uttu task events", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop to receive, and wait for the thread for at most two seconds."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def tasks(self, query: TaskQuery) -> TaskPage:
        """Return a page of the tasks that are known."""
        with self._state._mutex:
            known = [task for _, task in self._state.tasks_by_time(reverse=True)]
        states: dict[str, int] = {}
        for task in known:
            states[task.state] = states.get(task.state, 0) + 1
        chosen = [task for task in known if _matches(task, query)]
        first = next((index + 1 for index, task in enumerate(chosen) if task.uuid == query.after), 0)
        page = chosen[first : first + query.limit]
        more = first + query.limit < len(chosen)
        return TaskPage([_to_row(task) for task in page], states, page[-1].uuid if more and page else "")

    def find(self, task_id: str) -> TaskRow | None:
        """Return a task that is known; None for others."""
        task = self._state.tasks.get(task_id)
        return None if task is None else _to_row(task)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with map_driver_errors(self._app):
                    self._receive()
            except (UttuError, OSError) as error:
                self.is_receiving = False
                if not self.error:
                    _log.warning("Cannot receive the events of tasks: %s. Trying again", error)
                self.error = str(error)
            self._over.wait(_RETRY_SECONDS)

    def _receive(self) -> None:
        asked = 0.0
        with self._app.connection_for_read() as connection:
            connection.ensure_connection(max_retries=1)
            receiver = self._app.events.Receiver(connection, handlers={"*": self._state.event})
            with receiver.consumer_context(wakeup=True) as (consumed, _, _):
                if self.error:
                    _log.warning("The events of tasks arrive again")
                self.error, self.is_receiving = "", True
                while not self._over.is_set():
                    if time.monotonic() - asked > _ASK_SECONDS:
                        asked = time.monotonic()
                        self._app.control.enable_events()
                    with contextlib.suppress(TimeoutError):
                        consumed.drain_events(timeout=0.5)


def _matches(task: Any, query: TaskQuery) -> bool:
    if (query.state and task.state != query.state) or (query.name and task.name != query.name):
        return False
    words = (task.name or "", task.uuid, task.args or "", task.kwargs or "")
    return not query.match or any(query.match in word for word in words)


def _to_row(task: Any) -> TaskRow:
    ended = next((at for at in (task.succeeded, task.failed, task.revoked, task.rejected) if at), 0.0)
    return TaskRow(
        id=task.uuid,
        name=task.name or "",
        state=task.state,
        args=_cut(task.args),
        kwargs=_cut(task.kwargs),
        worker=task.worker.hostname if task.worker else "",
        sent=task.sent or 0.0,
        received=task.received or 0.0,
        started=task.started or 0.0,
        ended=ended,
        runtime=task.runtime,
        retries=task.retries or 0,
        result=_cut(task.result),
        exception=_cut(task.exception),
        traceback=_cut(task.traceback),
    )


def _cut(value: Any) -> str:
    return "" if value is None else str(value)[:_LONGEST_TEXT]

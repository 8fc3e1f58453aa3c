"""The base class of all tasks: ``async def`` functions, progress, and a logger per task.

Hooks are those of Celery, methods of a base class: ``before_start``, ``on_success``, ``on_failure``, ``on_retry``,
``after_return``. Set it for one task with ``@app.task(base=Mine)``, or for all with ``App(settings, task_cls=Mine)``.

A task that a schedule sends may reach workers twice but must run once. This is checked before it starts, even if a base
class overrides ``before_start`` without calling ours.

All ``async def`` tasks of a worker process share one event loop, so a task can keep what it opened, such as a
connection pool, for the next one. The loop runs in the thread that runs the task, because Celery stores the current
task (``self.request``) per thread. In a thread pool each thread has its own loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import celery
import uvloop
from billiard.pool import SIG_SOFT_TIMEOUT, soft_timeout_sighandler
from celery.exceptions import SoftTimeLimitExceeded
from celery.utils.log import get_task_logger

_thread = threading.local()


def run_coroutine(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end.

    :raises SoftTimeLimitExceeded: the time limit was reached; the coroutine was cancelled and has ended.
    """
    loop = _get_loop()
    task = loop.create_task(work)
    with _soft_time_limit(loop, task) as limit_reached:
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if limit_reached.is_set():
                raise SoftTimeLimitExceeded from None
            raise
        except BaseException:
            # The process is about to end: let the coroutine clean up.
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                loop.run_until_complete(task)
            raise


@contextlib.contextmanager
def _soft_time_limit(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> Iterator[threading.Event]:
    """Let a soft time limit cancel the task. Celery raises from a signal handler, which uvloop would only log."""
    limit_reached = threading.Event()

    def cancel(*_: Any) -> None:
        limit_reached.set()
        loop.call_soon_threadsafe(task.cancel)

    if signal.getsignal(SIG_SOFT_TIMEOUT) is not soft_timeout_sighandler:
        yield limit_reached
        return
    signal.signal(SIG_SOFT_TIMEOUT, cancel)
    try:
        yield limit_reached
    finally:
        signal.signal(SIG_SOFT_TIMEOUT, soft_timeout_sighandler)


def _get_loop() -> asyncio.AbstractEventLoop:
    # A loop does not survive a fork.
    if getattr(_thread, "owner", None) != os.getpid():
        _thread.loop, _thread.owner = uvloop.new_event_loop(), os.getpid()
    loop: asyncio.AbstractEventLoop = _thread.loop
    return loop


PROGRESS = "PROGRESS"
# The header that marks a task sent by a schedule; its value is a ``RunHeader``.
RUN_HEADER = "uttu-fire"


class Task(celery.Task):
    """A Celery task whose function may be ``async def``, and that can report progress."""

    abstract = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        run = cls.__dict__.get("run")
        function = run.__func__ if isinstance(run, staticmethod) else run
        if function is not None and inspect.iscoroutinefunction(inspect.unwrap(function)):
            blocking = _to_blocking(function)
            cls.run = staticmethod(blocking) if isinstance(run, staticmethod) else blocking
        if "before_start" in cls.__dict__:
            setattr(cls, "before_start", _with_run_once(cls.before_start))  # noqa: B010, mypy takes it for a mistake

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """As in Celery, but RabbitMQ confirms a task that is acknowledged late, because it must not be lost."""
        if not self.acks_late or self.app.conf.task_always_eager:
            return super().apply_async(args, kwargs, **options)
        with self.app.amqp.confirming_pool.acquire(block=True) as producer:
            return super().apply_async(args, kwargs, **options | {"producer": producer})

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Called by the worker before the task runs; for subclasses."""
        check_run_once(self)

    @functools.cached_property
    def logger(self) -> logging.Logger:
        """A logger with the task's name; its lines in the worker's log have the name and id of the task."""
        logger: logging.Logger = get_task_logger(self.name)
        return logger

    def progress(self, current: float, total: float | None = None, **more: Any) -> None:
        """Report progress: the state becomes ``PROGRESS``, and the info of the task has these values.

        Does nothing outside of a worker, when the function is called directly.
        """
        if self.request.id and not self.request.is_eager:
            self.update_state(state=PROGRESS, meta={"current": current, "total": total, **more})


def check_run_once(task: Task) -> None:
    """Return if the task may run. Asks the store once per request, and only for tasks that a schedule has sent.

    :raises celery.exceptions.Ignore: the run is active elsewhere or has ended.
    """
    request = task.request
    if RUN_HEADER not in (request.headers or ()) or getattr(request, "uttu_checked", False):
        return
    from uttu.jobs.schedules import run_once_of

    request.uttu_checked = True
    run_once_of(task.app).begin(task)


def _with_run_once(hook: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(hook)
    def before_start(self: Task, task_id: str, args: Any, kwargs: Any) -> None:
        check_run_once(self)
        hook(self, task_id, args, kwargs)

    return before_start


def _to_blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return run_coroutine(function(*args, **kwargs))

    return run

"""The base of all tasks: ``async def``, progress, a logger of its own; hooks are Celery's.

Hooks are methods of a base class: ``before_start``, ``on_success``, ``on_failure``, ``on_retry``, ``after_return``.
Give it to one task with ``@app.task(base=Mine)``, or to all with ``App(settings, task_cls=Mine)``.

A task that a schedule has sent may reach workers twice, and must run once. It is looked at before it starts, also where
a base class has a ``before_start`` of its own and does not think of ours.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

import celery
from celery.utils.log import get_task_logger

from weft.jobs.loop import run

PROGRESS = "PROGRESS"
# The header by which a task is known that a schedule has sent.
FIRE = "weft-fire"


class Task(celery.Task):
    """A Celery task whose function may be ``async def``, and that can say how far it is."""

    abstract = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        given = cls.__dict__.get("run")
        function = given.__func__ if isinstance(given, staticmethod) else given
        if function is not None and inspect.iscoroutinefunction(inspect.unwrap(function)):
            called = _waited_for(function)
            cls.run = staticmethod(called) if isinstance(given, staticmethod) else called
        if "before_start" in cls.__dict__:
            setattr(cls, "before_start", _guarded(cls.before_start))  # noqa: B010, mypy takes it for a mistake

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """As Celery's; a task that is acknowledged late is one that must not be lost, and RabbitMQ confirms it."""
        if not self.acks_late or self.app.conf.task_always_eager:
            return super().apply_async(args, kwargs, **options)
        with self.app.amqp.confirming_pool.acquire(block=True) as producer:
            return super().apply_async(args, kwargs, **options | {"producer": producer})

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Called by the worker before the task is run; for subclasses."""
        guard(self)

    @functools.cached_property
    def logger(self) -> logging.Logger:
        """A logger by the task's name; its lines in the worker's log have the task's name and id."""
        found: logging.Logger = get_task_logger(self.name)
        return found

    def progress(self, current: float, total: float | None = None, **more: Any) -> None:
        """Say how far the task is: its state becomes ``PROGRESS``, its info has these numbers.

        Outside a worker, where the function is called like any other, nothing happens.
        """
        if self.request.id and not self.request.is_eager:
            self.update_state(state=PROGRESS, meta={"current": current, "total": total, **more})


def guard(task: Task) -> None:
    """Let a task run, unless a schedule has sent it and it is running or has run; once for each request.

    :raises celery.exceptions.Ignore: it is not to run.
    """
    request = task.request
    if FIRE not in (request.headers or ()) or getattr(request, "weft_guarded", False):
        return
    from weft.jobs.schedules import guard_of

    request.weft_guarded = True
    guard_of(task.app).begin(task)


def _guarded(hook: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(hook)
    def before_start(self: Task, task_id: str, args: Any, kwargs: Any) -> None:
        guard(self)
        hook(self, task_id, args, kwargs)

    return before_start


def _waited_for(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return run(function(*args, **kwargs))

    return called

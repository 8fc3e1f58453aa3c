"""Sending an entry's task."""

from __future__ import annotations

from typing import Any, Final

from celery.result import denied_join_result
from kombu.exceptions import OperationalError

from weft.errors import WeftError
from weft.jobs.schedules.entry import Entry, Fire
from weft.jobs.schedules.guard import header
from weft.jobs.schedules.opening import lazy

# A connection that was idle may have been lost: it is made again once. Beyond that, it is for the caller to wait.
_RETRY: Final = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.2}


class BrokerAway(WeftError):
    """The broker can't be reached, for now."""


def send(app: Any, entry: Entry, fire: Fire | None = None) -> str:
    """Send the task of an entry, for a fire or, without one, because someone wants it now. Returns the task's id.

    :raises BrokerAway: the broker can't be reached. The task may have been sent all the same.
    :raises Exception: it can't be sent, now or later: arguments that can't be serialised, a queue that is not there.
    """
    args, kwargs = lazy(app, entry.name) or (entry.args, entry.kwargs)
    options: dict[str, Any] = {**entry.options, "retry": True, "retry_policy": _RETRY}
    options["headers"] = {**options.get("headers", {}), "celery_beat_task": True}
    if fire is not None:
        options["task_id"] = fire.id
        options["headers"].update(header(entry, fire))
    task = app.tasks.get(entry.task)
    try:
        # Celery would have this process wait for the result, which nobody here asks for, and give up if it can't.
        with denied_join_result(), app.amqp.confirming_pool.acquire(block=True) as producer:
            options["producer"] = producer
            if task is not None:
                return str(task.apply_async(args, kwargs, **options).id)
            return str(app.send_task(entry.task, args, kwargs, **options).id)
    except (OperationalError, OSError) as error:
        raise BrokerAway(f"the broker can't be reached: {error}") from error

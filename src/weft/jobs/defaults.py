"""Celery's configuration, made of :class:`~weft.jobs.settings.JobSettings`: what is sound, and why.

A user's own configuration, in ``[jobs.celery]``, in a module or in code, is stronger than all of this.
"""

from __future__ import annotations

import difflib
from typing import Any

from celery.app.defaults import DEFAULTS
from celery.app.utils import _old_key_to_new

from weft.errors import ConfigError
from weft.jobs.routing import queues, routes
from weft.jobs.settings import JobSettings, kind_of

HIGHEST_PRIORITY = 9
READY = "weft.jobs.ready"
# RabbitMQ closes a channel on which a message is unacknowledged for so long, if nobody told it otherwise.
RABBITMQ_PATIENCE = 1800.0


def configuration(settings: JobSettings, broker: str) -> dict[str, Any]:
    """Settings for Celery, by their new names. ``broker`` is the URL that is in use, also where it is our own server.

    :raises ConfigError: ``[jobs.celery]`` has a name that Celery does not know.
    """
    made: dict[str, Any] = {
        "broker_url": broker,
        "include": (READY, *settings.include),
        # Nobody who can write to the broker may run code in a worker: that is what pickle would allow.
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "enable_utc": True,
        "timezone": settings.timezone,
        # A task that runs for minutes must not look as if nobody had taken it.
        "task_track_started": True,
        "result_expires": settings.result_seconds,
        # A worker takes no more than it can do: what waits, waits where all workers see it.
        "worker_prefetch_multiplier": 1,
        # Late acknowledgement is for tasks that may run twice, and only their author knows. Where it is on, a task
        # whose process was killed is handed out again, and one that failed by itself is not.
        "task_acks_late": False,
        "task_reject_on_worker_lost": True,
        "task_default_queue": settings.queue,
        "task_queues": queues(settings),
        "task_routes": [routes(settings)] if settings.routes else None,
        "beat_scheduler": "weft.jobs.schedules.scheduler:Scheduler",
        # The first connection must come about; one that is lost later is sought again without end.
        "broker_connection_retry_on_startup": False,
        "broker_connection_retry": True,
        "broker_connection_max_retries": None,
    }
    kind = kind_of(broker)
    if kind:
        made |= _redis(settings, broker) if kind == "redis" else _rabbitmq(settings)
    if settings.backend:
        made["result_backend"] = settings.backend
    # By rpc:// a result goes to who has sent the task, and knows which it is.
    made["result_extended"] = made.get("result_backend") != "rpc://"
    return made | _given(settings.celery)


def _redis(settings: JobSettings, broker: str) -> dict[str, Any]:
    return {
        "result_backend": broker,
        "broker_transport_options": {
            "visibility_timeout": settings.visibility_seconds,
            # Else Kombu looks every 100 seconds only whether there is something to hand out again.
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            # One list for each priority, the highest first: see weft.jobs.transport.
            "priority_steps": list(range(HIGHEST_PRIORITY, -1, -1)),
        },
        # A message that waits in a busy worker is unacknowledged, and would be handed out twice.
        "worker_disable_prefetch": True,
    }


def _rabbitmq(settings: JobSettings) -> dict[str, Any]:
    made: dict[str, Any] = {"result_backend": "rpc://"}
    if settings.queue_type == "classic":
        return made | {"task_queue_max_priority": HIGHEST_PRIORITY}
    # Quorum queues know no x-max-priority. RabbitMQ 4 has two levels in them, 5 and above first; older ones have none.
    return made | {
        "task_default_queue_type": "quorum",
        "task_create_missing_queue_type": "quorum",
        "worker_detect_quorum_queues": True,
        # Delays are kept by the broker there, and it can do that with topic exchanges only.
        "task_default_exchange_type": "topic",
        "task_create_missing_queue_exchange_type": "topic",
    }


def _given(table: dict[str, Any]) -> dict[str, Any]:
    made = {}
    for name, value in table.items():
        new = _old_key_to_new(name)
        if new not in DEFAULTS:
            new = name.lower()
        if new not in DEFAULTS:
            close = difflib.get_close_matches(new, DEFAULTS, n=1)
            raise ConfigError(
                f"jobs.celery: Celery has no setting {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")
            )
        made[new] = value
    return made


def longest_delay(settings: JobSettings, broker: str) -> float | None:
    """How far ahead an ETA may lie, in seconds; None where the broker itself keeps what is not due.

    A worker takes a message with an ETA at once and keeps it until then. Redis hands it to another worker when
    ``visibility_seconds`` are over, and it would run once for each; RabbitMQ takes the connection away.
    """
    match kind_of(broker):
        case "redis":
            return settings.visibility_seconds
        case "rabbitmq" if settings.queue_type == "classic":
            return RABBITMQ_PATIENCE
        case _:
            return None

"""Build Celery's configuration and queues from :class:`~uttu.jobs.settings.JobSettings`.

The user's own configuration, in ``[jobs.celery]``, in a module or in code, overrides all of this. A worker that is
started without ``-Q`` consumes all queues, so that a task with an unexpected route does not wait for a worker that
never comes. ``-Q slow`` and ``-X slow`` restrict a worker.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from celery.app.defaults import DEFAULTS
from celery.app.utils import _old_key_to_new
from kombu import Exchange, Queue

from uttu.errors import ConfigError
from uttu.jobs.settings import JobSettings, kind_of

_ROUTE_KEYS = frozenset({"queue", "exchange", "exchange_type", "routing_key", "priority"})


def build_routes(settings: JobSettings) -> dict[str, Any]:
    """Check the routes and return them in Celery's form: exact names match before patterns, patterns in their order.

    :raises ConfigError: a route is empty or has an unknown key.
    """
    routes = {}
    for pattern, route in settings.routes.items():
        where = f"jobs.routes: {pattern!r}"
        if isinstance(route, str) and route:
            routes[pattern] = {"queue": route}
            continue
        if not isinstance(route, Mapping) or not route or not set(route) <= _ROUTE_KEYS:
            raise ConfigError(
                f"{where} must be the name of a queue, or a table with some of: {', '.join(sorted(_ROUTE_KEYS))}"
            )
        if not 0 <= route.get("priority", 0) <= 9:
            raise ConfigError(f"{where}: The priority must be 0 to 9; 9 comes first")
        routes[pattern] = dict(route)
    return routes


def build_queues(settings: JobSettings) -> list[Queue]:
    """Return the default queue and the queues named in routes."""
    queues = {settings.queue: _build_queue(settings, settings.queue, {})}
    for route in build_routes(settings).values():
        name = route.get("queue")
        if name and name not in queues:
            queues[name] = _build_queue(settings, name, route)
    return list(queues.values())


def _build_queue(settings: JobSettings, name: str, route: Mapping[str, Any]) -> Queue:
    quorum = settings.queue_type == "quorum"
    # For quorum queues Celery delays messages in RabbitMQ, which needs topic exchanges.
    kind = route.get("exchange_type") or ("topic" if quorum or "*" in route.get("routing_key", "") else "direct")
    return Queue(
        name,
        Exchange(route.get("exchange") or name, type=kind),
        routing_key=route.get("routing_key") or name,
        queue_arguments={"x-queue-type": "quorum"} if quorum else None,
    )


HIGHEST_PRIORITY = 9
BUILTIN_TASKS = "uttu.jobs.builtin_tasks"
# RabbitMQ's default limit: it closes a channel with a message that is unacknowledged for longer.
RABBITMQ_ACK_SECONDS = 1800.0


def build_configuration(settings: JobSettings, broker: str) -> dict[str, Any]:
    """Return settings with Celery's new lower-case names. ``broker`` is the URL in use, which may be the embedded
    server's.

    :raises ConfigError: ``[jobs.celery]`` has a name that Celery does not know.
    """
    configuration: dict[str, Any] = {
        "broker_url": broker,
        "include": (BUILTIN_TASKS, *settings.include),
        # No pickle: it would let anyone who can write to the broker run code in a worker.
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "enable_utc": True,
        "timezone": settings.timezone,
        # A task that runs for minutes must not look as if no worker had taken it.
        "task_track_started": True,
        "result_expires": settings.result_seconds,
        # A worker reserves no more tasks than it can run: the others stay visible to all workers.
        "worker_prefetch_multiplier": 1,
        # Only the author knows whether a task may run twice, so late acknowledgement is off. If a task turns it on, it
        # is delivered again after its process was killed, but not after it failed by itself.
        "task_acks_late": False,
        "task_reject_on_worker_lost": True,
        "task_default_queue": settings.queue,
        "task_queues": build_queues(settings),
        "task_routes": [build_routes(settings)] if settings.routes else None,
        "beat_scheduler": "uttu.jobs.schedules.beat:Scheduler",
        # The first connection must succeed; a connection that is lost later is retried without limit.
        "broker_connection_retry_on_startup": False,
        "broker_connection_retry": True,
        "broker_connection_max_retries": None,
    }
    kind = kind_of(broker)
    if kind:
        configuration |= _for_redis(settings, broker) if kind == "redis" else _for_rabbitmq(settings)
    if settings.backend:
        configuration["result_backend"] = settings.backend
    # With rpc:// a result goes to the sender of the task, who knows its name and arguments.
    configuration["result_extended"] = configuration.get("result_backend") != "rpc://"
    return configuration | _rename_old_settings(settings.celery)


def _for_redis(settings: JobSettings, broker: str) -> dict[str, Any]:
    return {
        "result_backend": broker,
        "broker_transport_options": {
            "visibility_timeout": settings.visibility_seconds,
            # Kombu's default is to look for messages to deliver again only every 100 seconds.
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            # One list per priority, the highest first: see uttu.jobs.transport.
            "priority_steps": list(range(HIGHEST_PRIORITY, -1, -1)),
        },
        # A message that waits in a busy worker is unacknowledged, and would be delivered twice.
        "worker_disable_prefetch": True,
    }


def _for_rabbitmq(settings: JobSettings) -> dict[str, Any]:
    configuration: dict[str, Any] = {"result_backend": "rpc://"}
    if settings.queue_type == "classic":
        return configuration | {"task_queue_max_priority": HIGHEST_PRIORITY}
    # Quorum queues have no x-max-priority. RabbitMQ 4 has two levels in them, 5 and above first; older versions have
    # none.
    return configuration | {
        "task_default_queue_type": "quorum",
        "task_create_missing_queue_type": "quorum",
        "worker_detect_quorum_queues": True,
        # RabbitMQ keeps delayed messages there, and only with topic exchanges.
        "task_default_exchange_type": "topic",
        "task_create_missing_queue_exchange_type": "topic",
    }


def _rename_old_settings(table: dict[str, Any]) -> dict[str, Any]:
    """Return Celery's settings with their new names.

    :raises ConfigError: Celery does not know a name.
    """
    renamed = {}
    for name, value in table.items():
        new = _old_key_to_new(name)
        if new not in DEFAULTS:
            new = name.lower()
        if new not in DEFAULTS:
            close = difflib.get_close_matches(new, DEFAULTS, n=1)
            raise ConfigError(
                f"jobs.celery: Celery has no setting {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")
            )
        renamed[new] = value
    return renamed


def longest_delay(settings: JobSettings, broker: str) -> float | None:
    """Return how far ahead an ETA may be, in seconds; None if the broker itself keeps delayed messages.

    A worker takes a message with an ETA at once and keeps it until then. Redis delivers it to another worker after
    ``visibility_seconds``, and each of them would run it; RabbitMQ closes the connection.
    """
    match kind_of(broker):
        case "redis":
            return settings.visibility_seconds
        case "rabbitmq" if settings.queue_type == "classic":
            return RABBITMQ_ACK_SECONDS
        case _:
            return None

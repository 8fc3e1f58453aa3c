"""Queues, made of ``[jobs.routes]``.

A worker that is started without ``-Q`` takes from all of them: a task whose route nobody thought of must not wait for
ever. ``-Q slow`` and ``-X slow`` make workers that do less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kombu import Exchange, Queue

from weft.errors import ConfigError
from weft.jobs.settings import JobSettings

_WORDS = frozenset({"queue", "exchange", "exchange_type", "routing_key", "priority"})


def routes(settings: JobSettings) -> dict[str, Any]:
    """The routes, checked, as Celery takes them: exact names are looked at before patterns, these in their order.

    :raises ConfigError: a route says nothing, or something unknown.
    """
    made = {}
    for pattern, route in settings.routes.items():
        where = f"jobs.routes: {pattern!r}"
        if isinstance(route, str) and route:
            made[pattern] = {"queue": route}
            continue
        if not isinstance(route, Mapping) or not route or not set(route) <= _WORDS:
            raise ConfigError(f"{where} is the name of a queue, or a table with some of: {', '.join(sorted(_WORDS))}")
        if not 0 <= route.get("priority", 0) <= 9:
            raise ConfigError(f"{where}: a priority is 0 to 9, 9 first")
        made[pattern] = dict(route)
    return made


def queues(settings: JobSettings) -> list[Queue]:
    """The default queue, and those that routes name."""
    made = {settings.queue: _queue(settings, settings.queue, {})}
    for route in routes(settings).values():
        name = route.get("queue")
        if name and name not in made:
            made[name] = _queue(settings, name, route)
    return list(made.values())


def _queue(settings: JobSettings, name: str, route: Mapping[str, Any]) -> Queue:
    quorum = settings.queue_type == "quorum"
    # Celery has RabbitMQ keep delayed messages for quorum queues, which takes topic exchanges.
    kind = route.get("exchange_type") or ("topic" if quorum or "*" in route.get("routing_key", "") else "direct")
    return Queue(
        name,
        Exchange(route.get("exchange") or name, type=kind),
        routing_key=route.get("routing_key") or name,
        queue_arguments={"x-queue-type": "quorum"} if quorum else None,
    )

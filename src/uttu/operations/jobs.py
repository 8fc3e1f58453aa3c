"""Check the Celery app of jobs: its broker, its tasks; and map the errors of its drivers to Uttu's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from uttu.errors import BusRefused, BusUnavailable, ConfigError, UsageError

if TYPE_CHECKING:
    from celery import Celery
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from celery import Celery


def check_broker(app: Celery) -> None:
    """Check in one attempt that the broker can be reached.

    :raises BusError: it can't be reached, or refuses the login.
    """
    with map_driver_errors(app), app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=app.conf.broker_connection_timeout)


@contextlib.contextmanager
def map_driver_errors(app: Celery) -> Iterator[None]:
    """Map errors of Kombu, Celery, AMQP and Redis drivers within the block to Uttu's.

    :raises UsageError: the serializer is unknown.
    :raises ConfigError: the arguments can't be serialized.
    :raises BusError: the broker can't be reached, or refuses.
    """
    from amqp.exceptions import AccessRefused, AMQPError, PreconditionFailed
    from celery.exceptions import BackendError
    from kombu.exceptions import EncodeError, OperationalError, SerializerNotInstalled

    from uttu.clients import is_raised_in, summarize_error
    from uttu.clients.addresses import mask_password

    refused, failed = _redis_errors()

    where = mask_password(str(app.conf.broker_url))
    try:
        yield
    except SerializerNotInstalled as error:
        raise UsageError(f"{error}: give json, or another one that Kombu knows") from error
    except EncodeError as error:
        raise ConfigError(f"the arguments can't be sent as {app.conf.task_serializer}: {error}") from error
    except (OperationalError, AMQPError, BackendError, ConnectionError, TimeoutError, *failed) as error:
        said = str(error).rstrip(".")
        # Kombu wraps the errors of drivers in its own.
        if isinstance(error.__cause__ or error, (AccessRefused, *refused)):
            raise BusRefused(f"{where} refuses the login: {said}; see jobs.broker") from error
        if isinstance(error, PreconditionFailed):
            raise BusRefused(
                f"{where} has a queue of that name in another form: {said}; delete it there, or give another jobs.queue"
            ) from error
        raise BusUnavailable(
            f"{where} can't be reached: {said}; start it, or name another one in jobs.broker"
        ) from error
    except Exception as error:
        # Drivers may raise any exception when their connection dies.
        if not is_raised_in(error, {"redis", "amqp"}):
            raise
        raise BusUnavailable(f"{where} can't be reached: {summarize_error(error)}; start it, and try again") from error


def _redis_errors() -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
    """The errors of the Redis driver for a refused login, and all of its errors; empty if it is not installed."""
    try:
        from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
    except ModuleNotFoundError:
        return (), ()
    return (AuthenticationError, NoPermissionError), (RedisError,)


def check_task(app: Celery, name: str) -> None:
    """Check that the app has a task of this name.

    :raises ConfigError: it does not.
    """
    import difflib

    from uttu.errors import ConfigError

    app.loader.import_default_modules()
    if name in app.tasks:
        return
    known = sorted(task for task in app.tasks if not task.startswith("celery."))
    close = difflib.get_close_matches(name, known, n=1)
    what = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known) or 'none'}."
    raise ConfigError(f"there is no task {name!r}; {what} If only workers know it, add --remote")

"""Send tasks to a Celery app, wait for their results, cancel them; and map the errors of its drivers to Uttu's.

The functions block, as Celery's do. What Celery has a command for (workers, queues, active tasks) is asked with
``app.control`` directly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import msgspec

from uttu.errors import BusRefused, BusUnavailable, ConfigError, UsageError, UttuError
from uttu.operations import Report

if TYPE_CHECKING:
    from celery import Celery
    from celery.result import AsyncResult


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

    app.loader.import_default_modules()
    if name in app.tasks:
        return
    known = sorted(task for task in app.tasks if not task.startswith("celery."))
    close = difflib.get_close_matches(name, known, n=1)
    what = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known) or 'none'}."
    raise ConfigError(f"there is no task {name!r}; {what} If only workers know it, add --remote")


def send_task(app: Celery, name: str, options: dict[str, Any], *, remote: bool = False) -> str:
    """Send a task. Returns its id.

    :param options: Keywords of Celery's ``send_task``: args, kwargs, eta, queue …
    :param remote: Only workers know the task: don't check its name here.
    :raises ConfigError: the app has no such task, or the arguments can't be serialized.
    :raises BusError: the broker can't be reached, or refuses.
    """
    if not remote:
        check_task(app, name)
    check_broker(app)
    with map_driver_errors(app):
        return str(app.send_task(name, **options).id)


class ActiveTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that a worker runs now, since ``started`` (Unix time)."""

    id: str
    name: str
    args: str = ""
    started: float = 0.0


class JobWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that answered. ``active`` and ``reserved`` are numbers of tasks."""

    name: str
    pid: int = 0
    pool: str = ""
    concurrency: int = 0
    active: int = 0
    reserved: int = 0
    processed: int = 0
    uptime: float = 0.0
    queues: tuple[str, ...] = ()
    tasks: list[ActiveTask] = []


def read_job_workers(app: Celery, timeout: float = 1.0) -> list[JobWorker]:
    """Ask all workers how they are, and wait ``timeout`` seconds for answers; by name.

    :raises BusError: the broker can't be reached.
    """
    check_broker(app)
    # Each question waits for its whole timeout, as nobody knows how many workers will answer.
    with map_driver_errors(app), ThreadPoolExecutor(4) as threads:
        asked = [
            threads.submit(getattr(app.control.inspect(timeout=timeout), question))
            for question in ("stats", "active", "reserved", "active_queues")
        ]
        stats, active, reserved, queues = (each.result() or {} for each in asked)
    return [
        JobWorker(
            name=name,
            pid=about.get("pid", 0),
            pool=str(about.get("pool", {}).get("implementation", "")).rpartition(":")[2],
            concurrency=_count_processes(about.get("pool", {})),
            active=len(active.get(name, ())),
            reserved=len(reserved.get(name, ())),
            processed=sum(about.get("total", {}).values()),
            uptime=float(about.get("uptime", 0)),
            queues=tuple(sorted(queue["name"] for queue in queues.get(name, ()))),
            tasks=[
                ActiveTask(
                    id=task["id"],
                    name=task.get("name", ""),
                    args=f"{task.get('args', '')} {task.get('kwargs', '')}"[:500],
                    started=task.get("time_start") or 0.0,
                )
                for task in active.get(name, ())
            ],
        )
        for name, about in sorted(stats.items())
    ]


def _count_processes(pool: dict[str, Any]) -> int:
    """How many tasks a pool runs at once. ``max-concurrency`` is what it started with, before it grew or shrank."""
    processes = pool.get("processes")
    return len(processes) if isinstance(processes, list) else pool.get("max-concurrency") or 0


class JobQueue(msgspec.Struct, frozen=True):
    """A queue of tasks: how many wait in it, and how many workers serve it if the broker knows."""

    name: str
    messages: int
    consumers: int | None = None


def read_queues(app: Celery) -> list[JobQueue]:
    """The queues that the app knows, by name, with the tasks that wait in them.

    :raises BusError: the broker can't be reached.
    """
    from amqp.exceptions import NotFound

    check_broker(app)
    found = []
    is_amqp = str(app.conf.broker_url).startswith(("amqp", "pyamqp"))
    with map_driver_errors(app), app.connection_for_read() as connection:
        for name in sorted(app.amqp.queues):
            # RabbitMQ closes the channel if the queue does not exist.
            with connection.channel() as channel:
                try:
                    answer = channel.queue_declare(queue=name, passive=True)
                except (NotFound, *connection.channel_errors):
                    found.append(JobQueue(name, 0, 0 if is_amqp else None))
                    continue
                found.append(JobQueue(name, answer.message_count, answer.consumer_count if is_amqp else None))
    return found


def resize_pool(app: Celery, worker: str, change: int, timeout: float = 2.0) -> None:
    """Ask a worker to add processes, or to remove some if ``change`` is negative. It does so a moment later.

    :raises UttuError: the worker does not answer, or can't do it.
    """
    call = app.control.pool_grow if change > 0 else app.control.pool_shrink
    with map_driver_errors(app):
        _check_reply(call(abs(change), destination=[worker], reply=True, timeout=timeout), worker)


def shutdown_worker(app: Celery, worker: str) -> None:
    """Let a worker finish its tasks and end.

    :raises UttuError: the worker does not answer.
    """
    with map_driver_errors(app):
        _check_reply(app.control.ping(destination=[worker], timeout=1.0), worker)
        app.control.shutdown(destination=[worker])


def _check_reply(replies: Any, worker: str) -> None:
    answer = next((each[worker] for each in replies or () if worker in each), None)
    if answer is None:
        raise UttuError(f"The worker {worker} does not answer. See uttu jobs status for those that do")
    if isinstance(answer, dict) and "error" in answer:
        raise UttuError(f"The worker {worker} refuses: {answer['error']}")


class TaskState(msgspec.Struct, frozen=True):
    """The state of a task now. ``info``: its result, its progress, or the text of its error."""

    id: str
    state: str
    info: Any
    traceback: str = ""


def read_task(app: Celery, task_id: str) -> TaskState:
    """Read the state of a task, without waiting.

    :raises ConfigError: see :func:`check_results`.
    :raises BusError: the backend can't be reached.
    """
    check_results(app)
    with map_driver_errors(app):
        found = app.AsyncResult(task_id)
        info = found.info
        shown = str(info) if isinstance(info, Exception) else info
        return TaskState(task_id, found.state, shown, found.traceback or "")


def check_results(app: Celery) -> None:
    """:raises ConfigError: only the process that sent a task gets its result."""
    if str(app.conf.result_backend).startswith("rpc"):
        raise ConfigError(
            "results by rpc:// go to the process that has sent the task, and to no other: to look at them from "
            "elsewhere, set jobs.backend to redis://… or db+sqlite:///…"
        )


class TaskResult(msgspec.Struct, frozen=True):
    """The end of a task. ``value``: what it returned, or the exception. ``is_done`` is False after a timeout."""

    id: str
    state: str
    value: Any = None
    is_done: bool = True
    is_successful: bool = False


_FIRST_WAIT_SECONDS: Final = 1.5  # before a warning that no worker answers
_PING_SECONDS: Final = 0.5


def wait_for_result(app: Celery, task_id: str, timeout: float | None, report: Report) -> TaskResult:
    """Wait for the result of a task, ``timeout`` seconds at most.

    If it does not arrive within ``_FIRST_WAIT_SECONDS`` and no worker answers, that is reported, and the wait goes on.

    :raises BusError: the backend can't be reached.
    """
    from celery.exceptions import TimeoutError as TookTooLong
    from celery.result import allow_join_result

    with map_driver_errors(app), allow_join_result():
        found = app.AsyncResult(task_id)
        try:
            value = _wait(app, found, timeout, report)
        except TookTooLong:
            return TaskResult(task_id, found.state, is_done=False)
        return TaskResult(task_id, found.state, value, is_successful=found.successful())


def _wait(app: Celery, found: AsyncResult[Any], timeout: float | None, report: Report) -> Any:
    from celery.exceptions import TimeoutError as TookTooLong

    if timeout is not None and timeout <= _FIRST_WAIT_SECONDS:
        return found.get(timeout=timeout, propagate=False)
    try:
        return found.get(timeout=_FIRST_WAIT_SECONDS, propagate=False)
    except TookTooLong:
        if found.state == "PENDING" and not app.control.ping(timeout=_PING_SECONDS, limit=1):
            report(
                "uttu: No worker answers; start one with: uttu jobs worker. Still waiting; Ctrl-C ends that, and the "
                "task stays in its queue"
            )
    return found.get(timeout=None if timeout is None else timeout - _FIRST_WAIT_SECONDS, propagate=False)


def revoke_tasks(app: Celery, task_ids: Sequence[str], *, terminate: bool, signal: str, timeout: float) -> int:
    """Cancel tasks: a worker that gets one of them drops it. Returns how many workers answered.

    :param terminate: Also end them where they run, with ``signal``.
    :param timeout: Seconds to wait for workers.
    :raises UttuError: no worker answered.
    :raises BusError: the broker can't be reached.
    """
    check_broker(app)
    with map_driver_errors(app):
        replies = app.control.revoke(list(task_ids), terminate=terminate, signal=signal, reply=True, timeout=timeout)
    if not replies:
        raise UttuError("no worker answered in time, and so none knows of it: start one with: uttu jobs worker")
    return len(replies)

"""Tasks, workers and queues of the project's jobs. Celery blocks, so its functions run in threads.

The private server of a folder is not started because somebody looks: without a broker in the settings, these functions
fail until ``uttu up`` or another command runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import msgspec

from uttu.api.context import Context
from uttu.api.problems import StillSearching, Unavailable
from uttu.clients.addresses import mask_password
from uttu.errors import UttuError
from uttu.operations import jobs as operations
from uttu.operations.jobs import JobQueue, JobWorker, TaskState
from uttu.operations.task_monitor import TaskMonitor, TaskPage, TaskQuery, TaskRow

_WHAT: Final = "The broker of jobs"
_REVOKE_SECONDS: Final = 2.0
# Workers are asked with a timeout of one second; see read_job_workers.
_ASK_SECONDS: Final = 4.0
_START_SECONDS: Final = 1.0
_START_TRIES: Final = 15
_MOST_STATES: Final = 50
_PENDING: Final = "PENDING"
_WORKERS_KEY: Final = "job workers"
_PATIENCE_SECONDS: Final = 0.1
TaskId = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class SentTask(msgspec.Struct, frozen=True):
    """The id of a task that was sent."""

    id: str


class JobsView(msgspec.Struct, frozen=True, kw_only=True):
    """The broker, workers and queues of jobs, and the names of tasks that can be sent."""

    broker: str
    workers: list[JobWorker]
    queues: list[JobQueue]
    tasks: list[str]
    flower: str = ""
    """Where Flower listens, by the settings."""
    asking: bool = False
    """Whether the first answers of workers are still awaited."""


class FoundTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task: what its events tell, if the dashboard has seen them, and its stored state and result."""

    row: TaskRow
    state: TaskState | None = None


class Answered(msgspec.Struct, frozen=True):
    """How many workers heard of it."""

    workers: int


def require_broker(context: Context) -> Any:
    """The Celery app, if its broker may be asked.

    :raises Unavailable: it is the private server of the folder, which does not run.
    """
    app: Any = context.app
    if not app.uttu.broker and app.conf.broker_url == app.embedded.url and not app.embedded.is_running:
        raise Unavailable("No broker is set, and the private server of this folder does not run. Start it: uttu up")
    return app


async def read_jobs(context: Context) -> JobsView:
    """The workers and queues of jobs."""
    return await _read_jobs(context, lambda app: read_job_workers(context))


async def read_jobs_soon(context: Context) -> tuple[JobsView, bool]:
    """As :func:`read_jobs`, with the workers that answered last, and whether any have been waited for yet.

    Workers have a second to answer. A page does not wait for that, but each look at it asks them again.
    """

    async def read(app: Any) -> list[JobWorker]:
        async def ask() -> list[JobWorker]:
            context.job_workers = await asyncio.to_thread(operations.read_job_workers, app)
            return context.job_workers

        try:
            return await context.search(_WORKERS_KEY, _WHAT, ask, _PATIENCE_SECONDS, _ASK_SECONDS, rest=1.0)
        except StillSearching:
            return context.job_workers or []

    return await _read_jobs(context, read), context.job_workers is not None


async def _read_jobs(context: Context, read_workers: Callable[[Any], Awaitable[list[JobWorker]]]) -> JobsView:
    app = require_broker(context)
    workers, queues, tasks = await asyncio.gather(
        read_workers(app), read_queues(context), asyncio.to_thread(_list_tasks, app)
    )
    return JobsView(
        broker=mask_password(str(app.conf.broker_url)), workers=workers, queues=queues, tasks=tasks, flower=_flower(app)
    )


def _list_tasks(app: Any) -> list[str]:
    app.loader.import_default_modules()
    return sorted(name for name in app.tasks if not name.startswith("celery."))


def _flower(app: Any) -> str:
    settings = app.uttu.flower
    host = str(settings.get("address", "127.0.0.1"))
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.get('port', 5555)}"


async def read_job_workers(context: Context) -> list[JobWorker]:
    """The workers that answer within a second."""
    app = require_broker(context)
    return await context.read_in_thread(
        _WORKERS_KEY, _WHAT, lambda: operations.read_job_workers(app), limit=_ASK_SECONDS
    )


async def read_queues(context: Context) -> list[JobQueue]:
    """The queues of jobs, and how many tasks wait in each."""
    app = require_broker(context)
    return await context.read_in_thread("job queues", _WHAT, lambda: operations.read_queues(app))


async def read_tasks(context: Context, query: TaskQuery) -> TaskPage:
    """A page of the tasks whose events the dashboard has seen since it started, the latest first."""
    return _monitor(context).tasks(query)


async def watch_tasks(context: Context) -> None:
    """Receive the events of tasks from the start of the server on: those before are not known.

    Whoever receives them keeps the private server of the folder running. So it is looked for only at the start, when
    ``uttu up`` starts it beside the dashboard; later the first look at tasks begins to receive.
    """
    await context.import_celery()
    for _ in range(_START_TRIES):
        try:
            _monitor(context)
        except Unavailable:
            await asyncio.sleep(_START_SECONDS)
        except (UttuError, ImportError):
            # A look at the page says what is wrong.
            return
        else:
            return


def _monitor(context: Context) -> TaskMonitor:
    app = require_broker(context)
    if context.task_monitor is None:
        context.task_monitor = TaskMonitor(app)
        context.task_monitor.start()
    return context.task_monitor


async def read_task(context: Context, id: TaskId) -> FoundTask:
    """A task with its result, its traceback or its progress."""
    app = require_broker(context)
    row = _monitor(context).find(id)
    state = await context.read_in_thread(("task", id), _WHAT, lambda: _read_state(app, id))
    return FoundTask(row=row or TaskRow(id=id, state=state.state), state=state)


def read_states(context: Context, ids: list[str]) -> dict[str, str]:
    """The states of tasks that are known: by their events, or by the stored results of the first ``_MOST_STATES``.

    It blocks, so call it in a thread.
    """
    app, monitor = require_broker(context), context.task_monitor
    seen = {each: row.state for each in ids if monitor is not None and (row := monitor.find(each)) is not None}
    stored: dict[str, str] = {}
    # If the first result can't be read, neither can the others.
    with contextlib.suppress(UttuError):
        for each in [each for each in ids if seen.get(each, _PENDING) == _PENDING][:_MOST_STATES]:
            stored[each] = operations.read_task(app, each).state
    # Celery does not tell a task that waits from one that it does not know.
    return seen | {each: state for each, state in stored.items() if state != _PENDING}


def _read_state(app: Any, id: str) -> TaskState:
    found = operations.read_task(app, id)
    try:
        msgspec.json.encode(found.info)
    except (TypeError, ValueError):
        found = msgspec.structs.replace(found, info=repr(found.info))
    return found


async def send_task(
    context: Context,
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=500)],
    args: list[Any] = [],  # noqa: B006
    kwargs: dict[str, Any] = {},  # noqa: B006
    countdown: Annotated[float, msgspec.Meta(ge=0)] | None = None,
    queue: str = "",
    remote: bool = False,
    by: str = "",
) -> SentTask:
    """Send a task. ``remote``: only workers know it, so don't check its name."""
    app = require_broker(context)
    options: dict[str, Any] = {"args": args, "kwargs": kwargs}
    options |= {"countdown": countdown} if countdown else {}
    options |= {"queue": queue} if queue else {}
    sent = asyncio.to_thread(operations.send_task, app, name, options, remote=remote)
    return SentTask(await context.change(_WHAT, sent))


async def revoke_task(context: Context, id: TaskId, terminate: bool = False, by: str = "") -> Answered:
    """Cancel a task: workers drop it. ``terminate``: also end it where it runs."""
    app = require_broker(context)
    revoked = asyncio.to_thread(
        operations.revoke_tasks, app, [id], terminate=terminate, signal="SIGTERM", timeout=_REVOKE_SECONDS
    )
    return Answered(await context.change(_WHAT, revoked))


async def resize_pool(
    context: Context, worker: str, change: Annotated[int, msgspec.Meta(ge=-64, le=64)], by: str = ""
) -> Answered:
    """Ask a worker of jobs to add processes, or to remove some if ``change`` is negative."""
    app = require_broker(context)
    await context.change(_WHAT, asyncio.to_thread(operations.resize_pool, app, worker, change))
    return Answered(1)


async def shut_down_worker(context: Context, worker: str, by: str = "") -> Answered:
    """Let a worker of jobs finish its tasks and end."""
    app = require_broker(context)
    await context.change(_WHAT, asyncio.to_thread(operations.shutdown_worker, app, worker))
    return Answered(1)

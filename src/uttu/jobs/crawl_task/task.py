"""``uttu.crawl``: the task that runs a crawl slice by slice until it is over.

Each slice is a separate message with the same task id. So the crawl keeps its place in a chain, group or chord, and a
caller that waits for the result waits for the last slice. A slice is acknowledged after the next one was sent, and is
delivered again if its worker was killed; :mod:`uttu.jobs.crawl_task.protocol` handles the copies.

A revoked job: the main process of a worker knows which jobs are revoked; its pool processes do not. So a pool process
that runs a slice asks it every two seconds (:func:`is_revoked`). If a revoked slice is dropped before it began, the
main process stops the crawl (:func:`stop_revoked_crawls`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import celery
import msgspec
from billiard.process import current_process
from celery import states
from celery.canvas import Signature
from celery.exceptions import Ignore, SoftTimeLimitExceeded
from celery.signals import task_revoked
from celery.worker import state as worker_state
from celery.worker.control import Panel
from kombu.exceptions import OperationalError

from uttu.clients.addresses import mask_logins
from uttu.engine.worker_processes import HARMED, Suspects
from uttu.errors import ConfigError, StoreError, UttuError
from uttu.jobs.confinement import Confinement
from uttu.jobs.crawl_task import process
from uttu.jobs.crawl_task.process import SliceDied
from uttu.jobs.crawl_task.protocol import SliceEnd, SliceEvent, SliceRequest
from uttu.jobs.schedules import run_once_of
from uttu.jobs.task import Task
from uttu.model.crawl import REVOKED
from uttu.runtime.spec import format_arguments

JOIN: Final = "uttu.crawl.join"
_SLICE_SECONDS: Final = 60.0
# Fail after this many failures of a slice in a row; fewer may be a killed worker or a store that was away.
_MAX_FAILURES: Final = 10
# A slice fails after this many processes in a row died in a handler.
_MAX_DEATHS: Final = 30
_SHORT_LIFE_SECONDS: Final = 60.0
# Minimum time for a process that replaces one that died.
_MIN_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 2.0
_IS_REVOKED: Final = "uttu_is_revoked"
_IS_REVOKED_SECONDS: Final = 1.0
_BROKER_WAIT_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.5
_REVOKED: Final = "revoked"


class SliceState(msgspec.Struct, frozen=True):
    """The progress of a job, passed from one slice to the next.

    :param began: when the first slice began, in seconds since 1970.
    :param suspects: fingerprints of pages in whose handlers a process was killed.
    """

    number: int = 1
    began: float = 0.0
    failures: int = 0
    suspects: tuple[int, ...] = ()


def run_slice(task: Task, request: SliceRequest, workers: int, state: SliceState) -> dict[str, Any]:
    """Run one slice. Return the summary of the crawl if it was the last; otherwise send the next one.

    :raises Ignore: to Celery: another message brings the result.
    :raises UttuError: the crawl cannot continue.
    """
    if _is_done(task):
        raise Ignore("A copy of a task that is done")
    check_confinement(task.app, request)
    suspects = Suspects(state.suspects)
    try:
        event = _run(
            task,
            request,
            suspects,
            lambda event: _handle_event(task, event, request, workers),
            lambda: is_revoked(task),
        )
    except SoftTimeLimitExceeded:
        event = SliceEvent(end=SliceEnd.AGAIN)
    except SliceDied as death:
        state = msgspec.structs.replace(state, suspects=suspects.fingerprints)
        _retry_slice(task, state, UttuError(f"The process of crawl {request.file} died {death}"))
    state = msgspec.structs.replace(state, suspects=suspects.fingerprints)
    match event.end:
        case SliceEnd.OVER:
            assert event.summary is not None
            return event.summary
        case SliceEnd.REVOKED:
            task.backend.mark_as_revoked(task.request.id, str(REVOKED), request=task.request)
            raise Ignore(str(REVOKED))
        case SliceEnd.HANDED_ON:
            _send_next(task, msgspec.structs.replace(state, number=state.number + 1, failures=0))
        case SliceEnd.AGAIN:
            _send_next(task, state, _RETRY_SECONDS)
        case SliceEnd.FAILED:
            error = event.to_exception()
            if isinstance(error, StoreError):
                _retry_slice(task, state, error)
            raise error
    raise Ignore("A copy of a slice that is over")


def run_join(task: Task, request: SliceRequest) -> None:
    """Take part in a crawl for the time of one slice. Outputs are written by the process that leads it.

    :raises UttuError: this worker cannot take part.
    """
    request = msgspec.structs.replace(request, kind="join", outputs=())
    check_confinement(task.app, request)
    try:
        event = _run(task, request, Suspects(), lambda event: None, lambda: False)
    except SliceDied as death:
        task.logger.warning("The process that took part in crawl %s died %s", request.file, death)
        return
    if event.end is SliceEnd.FAILED:
        raise event.to_exception()


def _run(
    task: Task,
    request: SliceRequest,
    suspects: Suspects,
    on_event: Callable[[SliceEvent], None],
    is_revoked: Callable[[], bool],
) -> SliceEvent:
    """Run a slice. If a handler kills its process, another process continues at once.

    :raises SliceDied: no handler was running, or too many processes died.
    """
    ends = time.monotonic() + request.seconds
    deaths = 0
    leads = wary = False

    def forward(event: SliceEvent) -> None:
        """Forward only the first event that a process leads the crawl: other workers were then asked to join."""
        nonlocal leads
        if not (leads and event.leads):
            on_event(event)
        leads = leads or event.leads

    while True:
        began = time.monotonic()
        try:
            return process.run_process(request, app_folder(task.app), forward, is_revoked, wary=wary)
        except SliceDied as death:
            deaths = deaths + 1 if time.monotonic() - began < _SHORT_LIFE_SECONDS else 1
            if death.page is None and not wary and (death.code < 0 or death.code == HARMED):
                # A handler may have harmed it. The next process checks after each handler to find out which.
                wary = True
                task.logger.warning("The process of %s died %s, and no handler was running", request.file, death)
                continue
            if death.page is None or deaths >= _MAX_DEATHS:
                raise
            guilty = suspects.judge(death.page, death.code, death.stuck)
            outcome = "The page is dead" if guilty is not None else "The page is tried once more"
            task.logger.warning(
                "The process of %s died %s in the handler of %s. %s",
                request.file,
                death,
                mask_logins(death.page.url),
                outcome,
            )
            took_down = (*request.took_down, guilty) if guilty is not None else request.took_down
            left = max(ends - time.monotonic(), _MIN_SECONDS)
            request = msgspec.structs.replace(request, seconds=left, took_down=took_down)


def build_request(
    job: str,
    seconds: float,
    state: SliceState,
    spider: str,
    *,
    arguments: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    output: str | Sequence[str] = (),
    spider_name: str = "",
    crawl: str = "",
    fresh: bool = False,
    resume: bool = False,
) -> SliceRequest:
    """Build the slice request of a task call.

    :raises ConfigError: the arguments are invalid.
    """
    outputs = (output,) if isinstance(output, str) and output else tuple(output)
    if "-" in outputs:
        raise ConfigError("A crawl that runs as a job has no standard output. Give a file or a topic as output")
    fields = {
        "job": job,
        "number": state.number,
        "seconds": seconds,
        "began": state.began,
        "file": spider,
        "spider_name": spider_name,
        "arguments": _to_texts(arguments),
        "flags": settings or {},
        "outputs": outputs,
        "crawl": crawl,
        "fresh": fresh,
        "resume": resume,
    }
    try:
        return msgspec.convert(fields, SliceRequest)
    except msgspec.ValidationError as error:
        raise ConfigError(f"uttu.crawl: {error}") from error


def check_confinement(app: celery.Celery, request: SliceRequest) -> None:
    """Check that a request names nothing that tasks may not name.

    :raises ConfigError: it does.
    """
    limits = Confinement.of(app)
    limits.check_spider(request.file)
    limits.check_settings(request.flags)
    for output in request.outputs:
        limits.check_output(output)
    if request.crawl:
        limits.check_crawl(request.crawl)


def _to_texts(arguments: Any) -> Any:
    """Arguments as text. Anything but a dict is left to the conversion, which refuses it."""
    return format_arguments(arguments or {}) if isinstance(arguments or {}, dict) else arguments


def request_from_message(app: celery.Celery, message: Any) -> SliceRequest:
    """Build the request of a slice that was dropped, in order to stop its crawl.

    :raises ConfigError: the arguments are invalid.
    """
    kwargs = {key: value for key, value in message.kwargs.items() if key not in ("stage", "workers")}
    request = build_request(message.id, _SLICE_SECONDS, SliceState(), *message.args, **kwargs)
    check_confinement(app, request)
    return request


def slice_seconds(app: celery.Celery) -> float:
    """Return the length of a slice. A plain Celery app has no setting for it."""
    settings = getattr(app, "uttu", None)
    return settings.slice_seconds if settings is not None else _SLICE_SECONDS


def app_folder(app: celery.Celery) -> Path:
    """Return the folder with the spiders and ``.uttu``."""
    return Path(getattr(app, "folder", "."))


def with_start_time(state: SliceState) -> SliceState:
    """Return the state with the start time of the job, set by its first slice."""
    return state if state.began else msgspec.structs.replace(state, began=time.time())


def _handle_event(task: Task, event: SliceEvent, request: SliceRequest, workers: int) -> None:
    if event.leads:
        for _ in range(workers - 1):
            _send_join(task, request)
    if event.progress is not None:
        numbers = dict(event.progress)
        done = numbers["pages"] + numbers["dead"]
        try:
            task.progress(done, done + numbers["pending"], **numbers)
        except Exception as error:
            # The crawl does not depend on its progress being stored.
            task.logger.warning("Cannot store the progress of crawl %s: %s", request.file, error)


def _send_join(task: Task, request: SliceRequest) -> None:
    """Ask another worker to take part; expires with this slice."""
    join = msgspec.structs.replace(request, kind="join")
    try:
        task.app.tasks[JOIN].apply_async((msgspec.to_builtins(join),), expires=request.seconds, **_queue_of(task))
    except Exception as error:
        task.logger.warning("Cannot ask other workers to take part in crawl %s: %s", request.file, error)


def _queue_of(task: Task) -> dict[str, Any]:
    """Return the queue of the task's message: its consumers have the spider."""
    info = task.request.delivery_info or {}
    exchange, key = info.get("exchange"), info.get("routing_key")
    if not key:
        return {}
    return {"exchange": exchange, "routing_key": key} if exchange else {"queue": key}


def _retry_slice(task: Task, state: SliceState, error: UttuError) -> NoReturn:
    failures = state.failures + 1
    if failures >= _MAX_FAILURES:
        raise UttuError(f"{error}, {failures} times in a row") from error
    task.logger.warning("%s. Trying again", error)
    _send_next(task, msgspec.structs.replace(state, failures=failures), _RETRY_SECONDS)


def _send_next(task: Task, state: SliceState, countdown: float | None = None) -> NoReturn:
    """Send a message for the next slice. It is on the broker before this one is acknowledged."""
    if hasattr(task.app, "uttu"):
        run_once_of(task.app).hand_on(task)
    kwargs = {**task.request.kwargs, "stage": msgspec.to_builtins(state)}
    # An expiry time of the job applies to its first slice only.
    following = task.signature_from_request(kwargs=kwargs, countdown=countdown, expires=None)
    _publish(task, following)
    raise Ignore("Handed on to the next slice")


def _publish(task: Task, following: Signature) -> None:
    """Send the message, retrying for ``_BROKER_WAIT_SECONDS`` while the broker is away."""
    deadline = time.monotonic() + _BROKER_WAIT_SECONDS
    while True:
        try:
            following.apply_async()
            return
        except OperationalError as error:
            if time.monotonic() > deadline:
                raise
            task.logger.warning("Cannot send the next slice: %s. Trying again", error)
            time.sleep(_POLL_SECONDS)


def _is_done(task: Task) -> bool:
    """Whether a result is stored already; unknown for rpc://, whose results go straight to the caller."""
    if task.request.is_eager or task.backend.as_uri() == "rpc://":
        return False
    try:
        return task.AsyncResult(task.request.id).state in states.READY_STATES
    except Exception as error:
        task.logger.warning("Cannot read the state of %s: %s", task.request.id, error)
        return False


@Panel.register(type="inspect", name=_IS_REVOKED)
def _answer_is_revoked(_: Any, task_id: str) -> dict[str, bool]:
    return {_REVOKED: task_id in worker_state.revoked}


def is_revoked(task: Task) -> bool:
    """Whether the current task was revoked, as far as its worker knows."""
    if task.request.id in worker_state.revoked:
        return True
    if current_process().name == "MainProcess":
        return False  # this is the worker's main process
    replies: list[dict[str, dict[str, bool]]] | None = None
    # If the broker is unavailable, the next call asks again.
    with contextlib.suppress(Exception):
        replies = task.app.control.broadcast(
            _IS_REVOKED,
            arguments={"task_id": task.request.id},
            destination=[task.request.hostname],
            reply=True,
            timeout=_IS_REVOKED_SECONDS,
            limit=1,
        )
    return any(answer.get(_REVOKED, False) for reply in replies or () for answer in reply.values())


def stop_revoked_crawls(name: str) -> None:
    """Stop the crawl of every task named ``name`` whose message is dropped because it was revoked."""

    def stop(sender: Any = None, request: Any = None, **_: Any) -> None:
        if sender is not None and sender.name == name and request is not None:
            try:
                slice_request = request_from_message(sender.app, request)
            except UttuError:
                return  # the slice could not have begun
            threading.Thread(target=_stop_crawl, args=(sender, slice_request), daemon=True).start()

    task_revoked.connect(stop, weak=False)


def _stop_crawl(task: Task, request: SliceRequest) -> None:
    stop = msgspec.structs.replace(request, kind="stop")
    with contextlib.suppress(SliceDied):
        process.run_process(stop, app_folder(task.app), lambda event: None, lambda: False)

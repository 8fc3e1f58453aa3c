"""``uttu.crawl``: the task that runs a crawl slice by slice until it is over.

Each slice is a separate message with the same task id. So the crawl keeps its place in a chain, group or chord, and a
caller that waits for the result waits for the last slice. A slice is acknowledged after the next one was sent, and is
delivered again if its worker was killed; ``runner`` handles the copies.

A job that was cancelled with ``revoke`` stops its crawl. The main process of a worker knows which jobs are revoked; its
pool processes do not. So a pool process that runs a slice asks it every two seconds. If a revoked slice is dropped
before it began, the main process stops the crawl.
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
from celery.worker import state
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
_MOST_DEATHS: Final = 30
_SHORT_LIFE_SECONDS: Final = 60.0
# Minimum time for a process that replaces one that died.
_LEAST_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 2.0
_BROKER_WAIT_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.5
_ASK: Final = "uttu_is_revoked"
_REVOKED: Final = "revoked"
_ASK_SECONDS: Final = 1.0


class SliceState(msgspec.Struct, frozen=True):
    """The progress of a job, passed from one slice to the next.

    :param began: when the first slice began, in seconds since 1970.
    :param suspects: fingerprints of pages in whose handlers a process was killed.
    """

    number: int = 1
    began: float = 0.0
    failures: int = 0
    suspects: tuple[int, ...] = ()


def run_slice(task: Task, order: SliceRequest, workers: int, stage: SliceState) -> dict[str, Any]:
    """Run one slice. Return the summary of the crawl if it was the last; otherwise send the next one.

    :raises Ignore: to Celery: another message brings the result.
    :raises UttuError: the crawl cannot continue.
    """
    if _is_done(task):
        raise Ignore("a copy of a task that is done")
    check_confinement(task.app, order)
    suspects = Suspects(stage.suspects)
    try:
        word = _run(
            task,
            order,
            suspects,
            lambda word: _handle_event(task, word, order, workers),
            lambda: _is_revoked(task),
        )
    except SoftTimeLimitExceeded:
        word = SliceEvent(end=SliceEnd.AGAIN)
    except SliceDied as death:
        stage = msgspec.structs.replace(stage, suspects=suspects.fingerprints)
        _retry_slice(task, stage, UttuError(f"the process of crawl {order.file} died {death}"))
    stage = msgspec.structs.replace(stage, suspects=suspects.fingerprints)
    match word.end:
        case SliceEnd.OVER:
            assert word.summary is not None
            return word.summary
        case SliceEnd.REVOKED:
            task.backend.mark_as_revoked(task.request.id, str(REVOKED), request=task.request)
            raise Ignore(str(REVOKED))
        case SliceEnd.HANDED_ON:
            _send_next(task, msgspec.structs.replace(stage, number=stage.number + 1, failures=0))
        case SliceEnd.AGAIN:
            _send_next(task, stage, _RETRY_SECONDS)
        case SliceEnd.FAILED:
            error = word.exception()
            if isinstance(error, StoreError):
                _retry_slice(task, stage, error)
            raise error
    raise Ignore("a copy of a slice that is over")


def run_join(task: Task, order: SliceRequest) -> None:
    """Take part in a crawl for the time of one slice. Outputs are written by the process that leads it.

    :raises UttuError: this worker cannot take part.
    """
    order = msgspec.structs.replace(order, kind="join", outputs=())
    check_confinement(task.app, order)
    try:
        word = _run(task, order, Suspects(), lambda word: None, lambda: False)
    except SliceDied as death:
        task.logger.warning("the process that took part in crawl %s died %s", order.file, death)
        return
    if word.end is SliceEnd.FAILED:
        raise word.exception()


def _run(
    task: Task,
    order: SliceRequest,
    suspects: Suspects,
    hear: Callable[[SliceEvent], None],
    is_revoked: Callable[[], bool],
) -> SliceEvent:
    """Run a slice. If a handler kills its process, another process continues at once.

    :raises SliceDied: no handler was running, or too many processes died.
    """
    ends = time.monotonic() + order.seconds
    deaths = 0
    leads = wary = False

    def hear_once(word: SliceEvent) -> None:
        """Forward only the first event that a process leads the crawl: other workers were then asked to join."""
        nonlocal leads
        if not (leads and word.leads):
            hear(word)
        leads = leads or word.leads

    while True:
        began = time.monotonic()
        try:
            return process.run_process(order, app_folder(task.app), hear_once, is_revoked, wary=wary)
        except SliceDied as death:
            deaths = deaths + 1 if time.monotonic() - began < _SHORT_LIFE_SECONDS else 1
            if death.page is None and not wary and (death.code < 0 or death.code == HARMED):
                # A handler may have harmed it. The next process checks after each handler to find out which.
                wary = True
                task.logger.warning("the process of %s died %s, and no handler was running", order.file, death)
                continue
            if death.page is None or deaths >= _MOST_DEATHS:
                raise
            guilty = suspects.judge(death.page, death.code, death.stuck)
            fate = "the page is dead" if guilty is not None else "the page is tried once more"
            task.logger.warning(
                "the process of %s died %s in the handler of %s; %s",
                order.file,
                death,
                mask_logins(death.page.url),
                fate,
            )
            took_down = (*order.took_down, guilty) if guilty is not None else order.took_down
            left = max(ends - time.monotonic(), _LEAST_SECONDS)
            order = msgspec.structs.replace(order, seconds=left, took_down=took_down)


def build_request(
    job: str,
    seconds: float,
    stage: SliceState,
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
        raise ConfigError("a crawl that runs as a job has no standard output to write to: give a file or a topic")
    given = {
        "job": job,
        "number": stage.number,
        "seconds": seconds,
        "began": stage.began,
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
        return msgspec.convert(given, SliceRequest)
    except msgspec.ValidationError as error:
        raise ConfigError(f"uttu.crawl: {error}") from error


def check_confinement(app: celery.Celery, order: SliceRequest) -> None:
    """Check that a request names nothing that tasks may not name.

    :raises ConfigError: it does.
    """
    limits = Confinement.of(app)
    limits.check_spider(order.file)
    limits.check_settings(order.flags)
    for output in order.outputs:
        limits.check_output(output)
    if order.crawl:
        limits.check_crawl(order.crawl)


def _to_texts(arguments: Any) -> Any:
    """Arguments as text. Anything but a dict is left to the conversion, which refuses it."""
    return format_arguments(arguments or {}) if isinstance(arguments or {}, dict) else arguments


def request_from_message(app: celery.Celery, request: Any) -> SliceRequest:
    """Build the request of a slice that was dropped, in order to stop its crawl.

    :raises ConfigError: the arguments are invalid.
    """
    given = {key: value for key, value in request.kwargs.items() if key not in ("stage", "workers")}
    order = build_request(request.id, _SLICE_SECONDS, SliceState(), *request.args, **given)
    check_confinement(app, order)
    return order


def slice_seconds(app: celery.Celery) -> float:
    """Return the length of a slice. A plain Celery app has no setting for it."""
    settings = getattr(app, "uttu", None)
    return settings.slice_seconds if settings is not None else _SLICE_SECONDS


def app_folder(app: celery.Celery) -> Path:
    """Return the folder with the spiders and ``.uttu``."""
    return Path(getattr(app, "folder", "."))


def with_start_time(stage: SliceState) -> SliceState:
    """Return the state with the start time of the job, set by its first slice."""
    return stage if stage.began else msgspec.structs.replace(stage, began=time.time())


def _handle_event(task: Task, word: SliceEvent, order: SliceRequest, workers: int) -> None:
    if word.leads:
        for _ in range(workers - 1):
            _send_join(task, order)
    if word.progress is not None:
        numbers = dict(word.progress)
        done = numbers["pages"] + numbers["dead"]
        try:
            task.progress(done, done + numbers["pending"], **numbers)
        except Exception as error:
            # The crawl does not depend on its progress being stored.
            task.logger.warning("the progress of crawl %s could not be stored: %s", order.file, error)


def _send_join(task: Task, order: SliceRequest) -> None:
    """Ask another worker to take part; expires with this slice."""
    given = msgspec.structs.replace(order, kind="join")
    try:
        task.app.tasks[JOIN].apply_async((msgspec.to_builtins(given),), expires=order.seconds, **_queue_of(task))
    except Exception as error:
        task.logger.warning("nobody could be asked to take part in crawl %s: %s", order.file, error)


def _queue_of(task: Task) -> dict[str, Any]:
    """Return the queue of the task's message: its consumers have the spider."""
    info = task.request.delivery_info or {}
    exchange, key = info.get("exchange"), info.get("routing_key")
    if not key:
        return {}
    return {"exchange": exchange, "routing_key": key} if exchange else {"queue": key}


def _retry_slice(task: Task, stage: SliceState, error: UttuError) -> NoReturn:
    failures = stage.failures + 1
    if failures >= _MAX_FAILURES:
        raise UttuError(f"{error}, {failures} times in a row") from error
    task.logger.warning("%s; trying again", error)
    _send_next(task, msgspec.structs.replace(stage, failures=failures), _RETRY_SECONDS)


def _send_next(task: Task, stage: SliceState, countdown: float | None = None) -> NoReturn:
    """Send a message for the next slice. It is on the broker before this one is acknowledged."""
    if hasattr(task.app, "uttu"):
        run_once_of(task.app).hand_on(task)
    kwargs = {**task.request.kwargs, "stage": msgspec.to_builtins(stage)}
    # An expiry time of the job applies to its first slice only.
    following = task.signature_from_request(kwargs=kwargs, countdown=countdown, expires=None)
    _publish(task, following)
    raise Ignore("handed on")


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
            task.logger.warning("the next slice can't be sent: %s; trying again", error)
            time.sleep(_POLL_SECONDS)


def _is_done(task: Task) -> bool:
    """Whether a result is stored already; unknown for rpc://, whose results go straight to the caller."""
    if task.request.is_eager or task.backend.as_uri() == "rpc://":
        return False
    try:
        return task.AsyncResult(task.request.id).state in states.READY_STATES
    except Exception as error:
        task.logger.warning("the state of %s could not be read: %s", task.request.id, error)
        return False


@Panel.register(type="inspect", name=_ASK)
def _answer(_: Any, task_id: str) -> dict[str, bool]:
    return {_REVOKED: task_id in state.revoked}


def _is_revoked(task: Task) -> bool:
    """Whether the current task was revoked, as far as its worker knows."""
    if task.request.id in state.revoked:
        return True
    if current_process().name == "MainProcess":
        return False  # this is the worker's main process
    answers: list[dict[str, dict[str, bool]]] | None = None
    # If the broker is away, the next call asks again.
    with contextlib.suppress(Exception):
        answers = task.app.control.broadcast(
            _ASK,
            arguments={"task_id": task.request.id},
            destination=[task.request.hostname],
            reply=True,
            timeout=_ASK_SECONDS,
            limit=1,
        )
    return any(answer.get(_REVOKED, False) for each in answers or () for answer in each.values())


def stop_revoked(name: str) -> None:
    """Stop the crawl of every task named ``name`` whose message is dropped because it was revoked."""

    def stop(sender: Any = None, request: Any = None, **_: Any) -> None:
        if sender is not None and sender.name == name and request is not None:
            try:
                order = request_from_message(sender.app, request)
            except UttuError:
                return  # the slice could not have begun
            threading.Thread(target=_stop, args=(sender, order), daemon=True).start()

    task_revoked.connect(stop, weak=False)


def _stop(task: Task, order: SliceRequest) -> None:
    order = msgspec.structs.replace(order, kind="stop")
    with contextlib.suppress(SliceDied):
        process.run_process(order, app_folder(task.app), lambda word: None, lambda: False)

"""``weft.crawl``: the task that runs a crawl, slice after slice, until it is over.

Each slice is a message of its own, with the same task id: so the crawl's place in a chain, a group or a chord stays,
and who waits for the result waits for the last slice. A slice is acknowledged when the next one has been sent, and
comes again if its worker was killed; what keeps the copies apart is in ``turns``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import celery
import msgspec
from celery import states
from celery.canvas import Signature
from celery.exceptions import Ignore, SoftTimeLimitExceeded
from kombu.exceptions import OperationalError

from weft.errors import ConfigError, StoreError, WeftError
from weft.jobs.schedules import guard_of
from weft.jobs.slices import process, revoked
from weft.jobs.slices.order import End, Order, Word
from weft.jobs.slices.process import SliceDied
from weft.jobs.task import Task

JOIN: Final = "weft.crawl.join"
_SLICE_SECONDS: Final = 60.0
# A slice that fails so often in a row is not killed by chance, nor is its store away for a moment.
_MOST_FAILURES: Final = 10
_AGAIN_SECONDS: Final = 2.0
_BROKER_SECONDS: Final = 600.0
_LOOK_SECONDS: Final = 0.5


class Stage(msgspec.Struct, frozen=True):
    """How far the job is: what one slice tells the next."""

    number: int = 1
    began: float = 0.0
    failures: int = 0


def crawl(task: Task, order: Order, workers: int, stage: Stage) -> dict[str, Any]:
    """Run one slice. Returns the crawl's summary if it was the last, and otherwise sends the next one.

    :raises Ignore: as Celery wants it, where the result is another message's to bring.
    :raises WeftError: the crawl can't go on.
    """
    if _is_done(task):
        raise Ignore("a copy of a task that is done")
    try:
        word = process.run(
            order, folder_of(task.app), lambda word: _hear(task, word, order, workers), lambda: revoked.is_revoked(task)
        )
    except SoftTimeLimitExceeded:
        word = Word(end=End.AGAIN)
    except SliceDied as death:
        _try_again(task, stage, WeftError(f"the process of crawl {order.file} died {death}"))
    match word.end:
        case End.OVER:
            assert word.summary is not None
            if word.summary["reason"] == revoked.REVOKED:
                task.backend.mark_as_revoked(task.request.id, revoked.REVOKED, request=task.request)
                raise Ignore(revoked.REVOKED)
            return word.summary
        case End.HANDED_ON:
            _send(task, msgspec.structs.replace(stage, number=stage.number + 1, failures=0))
        case End.AGAIN:
            _send(task, stage, _AGAIN_SECONDS)
        case End.FAILED:
            error = word.exception()
            if isinstance(error, StoreError):
                _try_again(task, stage, error)
            raise error
    raise Ignore("a copy of a slice that is over")


def join(task: Task, order: Order) -> None:
    """Take part in a crawl for the time of a slice.

    :raises WeftError: it can't be done here.
    """
    try:
        word = process.run(order, folder_of(task.app), lambda word: None, lambda: False)
    except SliceDied as death:
        task.logger.warning("the process that took part in crawl %s died %s", order.file, death)
        return
    if word.end is End.FAILED:
        raise word.exception()


def order_of(
    job: str, seconds: float, stage: Stage, spider: str, *, arguments: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None, output: str | Sequence[str] = (), spider_name: str = "", crawl: str = "",
    fresh: bool = False, resume: bool = False,
) -> Order:  # fmt: skip
    """The order that a call of the task means.

    :raises ConfigError: it means none.
    """
    outputs = (output,) if isinstance(output, str) and output else tuple(output)
    if "-" in outputs:
        raise ConfigError("a crawl that runs as a job has no standard output to write to: give a file or a topic")
    given = {
        "job": job, "number": stage.number, "seconds": seconds, "began": stage.began,
        "file": spider, "spider_name": spider_name, "arguments": _texts(arguments or {}),
        "flags": settings or {}, "outputs": outputs, "crawl": crawl, "fresh": fresh, "resume": resume,
    }  # fmt: skip
    try:
        return msgspec.convert(given, Order)
    except msgspec.ValidationError as error:
        raise ConfigError(f"weft.crawl: {error}") from error


def _texts(arguments: Any) -> Any:
    """Arguments are text, as they are on the command line; numbers, lists and dicts in a call are written out."""
    if not isinstance(arguments, dict):
        return arguments
    return {
        key: msgspec.json.encode(value).decode() if isinstance(value, list | dict) else str(value)
        for key, value in arguments.items()
    }


def order_of_request(request: Any) -> Order:
    """The order of a slice that nobody will begin, to be stopped.

    :raises ConfigError: it means none.
    """
    given = {key: value for key, value in request.kwargs.items() if key not in ("stage", "workers")}
    return order_of(request.id, _SLICE_SECONDS, Stage(), *request.args, **given)


def slice_seconds(app: celery.Celery) -> float:
    """How long a slice takes. An app that is not ours may run crawls, too."""
    settings = getattr(app, "weft", None)
    return settings.slice_seconds if settings is not None else _SLICE_SECONDS


def folder_of(app: celery.Celery) -> Path:
    """Where spiders are, and ``.weft``."""
    return Path(getattr(app, "folder", "."))


def began(stage: Stage) -> Stage:
    """The stage, with the time at which the job began: that of its first slice."""
    return stage if stage.began else msgspec.structs.replace(stage, began=time.time())


def _hear(task: Task, word: Word, order: Order, workers: int) -> None:
    if word.leads:
        for _ in range(workers - 1):
            _send_join(task, order)
    if word.progress is not None:
        numbers = dict(word.progress)
        done = numbers["pages"] + numbers["dead"]
        try:
            task.progress(done, done + numbers["pending"], **numbers)
        except Exception as error:
            # The crawl does not depend on anyone knowing how far it is.
            task.logger.warning("the progress of crawl %s could not be stored: %s", order.file, error)


def _send_join(task: Task, order: Order) -> None:
    """Another worker is to take part, if one is free in this slice."""
    given = msgspec.structs.replace(order, kind="join")
    try:
        task.app.tasks[JOIN].apply_async((msgspec.to_builtins(given),), expires=order.seconds, **_address(task))
    except Exception as error:
        task.logger.warning("nobody could be asked to take part in crawl %s: %s", order.file, error)


def _address(task: Task) -> dict[str, Any]:
    """The queue that the task came from: whoever takes from it has the spider."""
    info = task.request.delivery_info or {}
    exchange, key = info.get("exchange"), info.get("routing_key")
    if not key:
        return {}
    return {"exchange": exchange, "routing_key": key} if exchange else {"queue": key}


def _try_again(task: Task, stage: Stage, error: WeftError) -> NoReturn:
    failures = stage.failures + 1
    if failures >= _MOST_FAILURES:
        raise WeftError(f"{error}, {failures} times in a row") from error
    task.logger.warning("%s; trying again", error)
    _send(task, msgspec.structs.replace(stage, failures=failures), _AGAIN_SECONDS)


def _send(task: Task, stage: Stage, countdown: float | None = None) -> NoReturn:
    """Let another slice go on in place of this one. Its message is there before this one's is acknowledged."""
    if hasattr(task.app, "weft"):
        guard_of(task.app).hand_on(task)
    kwargs = {**task.request.kwargs, "stage": msgspec.to_builtins(stage)}
    # A time by which the job was to begin says nothing about its later slices.
    following = task.signature_from_request(kwargs=kwargs, countdown=countdown, expires=None)
    _publish(task, following)
    raise Ignore("handed on")


def _publish(task: Task, following: Signature) -> None:
    """While the broker is away there is nobody to hand on to: it is waited for."""
    deadline = time.monotonic() + _BROKER_SECONDS
    while True:
        try:
            following.apply_async()
            return
        except OperationalError as error:
            if time.monotonic() > deadline:
                raise
            task.logger.warning("the next slice can't be sent: %s; trying again", error)
            time.sleep(_LOOK_SECONDS)


def _is_done(task: Task) -> bool:
    """Whether the result is there already; it can't be known of results that go straight to the caller."""
    if task.request.is_eager or task.backend.as_uri() == "rpc://":
        return False
    try:
        return task.AsyncResult(task.request.id).state in states.READY_STATES
    except Exception as error:
        task.logger.warning("the state of %s could not be read: %s", task.request.id, error)
        return False

"""The worker's side of schedules: a run starts once, and not beside another run of its schedule unless that is allowed.

A task that a beat sends has the header ``RUN_HEADER``. Only such tasks use the store; others cost nothing.
``Task.before_start`` calls ``run_once_of(app).begin(self)``. Celery's signals report the end of a task, even if one of
its hooks fails. A task that hands its work on to another message with the same id has not ended when it returns, so it
calls :meth:`RunOnce.hand_on` first.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import secrets
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec
from celery import signals, states
from celery.exceptions import Ignore

from uttu.errors import StoreError
from uttu.jobs.schedules.base import BeginResult, RunMarks
from uttu.jobs.schedules.catalog import open_app_store
from uttu.jobs.schedules.schedule import Schedule, ScheduledRun
from uttu.jobs.task import RUN_HEADER

LEASE_SECONDS: Final = 20.0
# A redelivered task asks again after this time whether the run that it copies has ended.
_RETRY_SECONDS: Final = 2.0
# How long a run may wait for a retry, or for a worker to take its next slice.
_HAND_OVER_SECONDS: Final = 86_400.0

_RUN: Final = "_uttu_run"

_log = logging.getLogger("uttu.jobs")


class RunHeader(msgspec.Struct, frozen=True):
    """The value of the header.

    :param entry: the name of the schedule.
    :param due: when the run was due, ISO 8601.
    :param keep: how long its mark is kept after its end, in seconds.
    :param alone: whether runs of the schedule must not overlap.
    """

    entry: str
    due: str
    keep: float
    alone: bool


def build_header(entry: Schedule, run: ScheduledRun) -> dict[str, Any]:
    """Return the header of a run, for ``apply_async``."""
    header = RunHeader(entry.name, run.due.isoformat(), entry.memory, entry.overlap != "allow")
    return {RUN_HEADER: msgspec.to_builtins(header)}


def read_run_header(request: Any) -> RunHeader | None:
    """Return the header of a task's request; None if a schedule did not send it."""
    value = (getattr(request, "headers", None) or {}).get(RUN_HEADER)
    return msgspec.convert(value, RunHeader) if value else None


def run_once_of(app: Any) -> RunOnce:
    """Return the ``RunOnce`` of an app. The first call creates it and connects the signals; workers do that at their
    start.
    """
    if "_uttu_run_once" not in app.__dict__:
        app._uttu_run_once = RunOnce(app, functools.cache(lambda: open_app_store(app)))
        app._uttu_run_once.listen()
    run_once: RunOnce = app._uttu_run_once
    return run_once


class RunOnce:
    """Guards the scheduled runs of an app with ``marks``."""

    def __init__(self, app: Any, marks: Callable[[], RunMarks]) -> None:
        self._app = app
        self._marks = marks

    def listen(self) -> None:
        """Connect the signals of tasks that end or never begin."""
        signals.task_postrun.connect(self._on_end, weak=False)
        signals.task_revoked.connect(self._on_revoked, weak=False)

    def begin(self, task: Any) -> None:
        """Return if the task is not a scheduled run, or may start now.

        :raises Ignore: it has ended, or is postponed: its message went back to the broker for ``_RETRY_SECONDS``.
        """
        request = task.request
        header = read_run_header(request)
        if header is None or request.is_eager or _current_run(request) is not None:
            return
        run = _Run(request.id, header)
        try:
            result = run.begin(self._marks())
        except StoreError as error:
            _log.warning("Run %s of schedule %s waits: %s", request.id, header.entry, error)
            result = BeginResult.BUSY
        if result is BeginResult.NOW:
            setattr(request, _RUN, run)
            return
        if result is BeginResult.OVER:
            _log.info("Dropped run %s of schedule %s, due %s: it has run before", request.id, header.entry, header.due)
        else:
            task.signature_from_request(request, countdown=_RETRY_SECONDS, retries=request.retries).apply_async()
        raise Ignore

    def hand_on(self, task: Any) -> None:
        """Keep the run open when this task returns: another message with its id continues it.

        Call it before sending that message: a worker may start it while this task still returns.
        """
        if run := _current_run(task.request):
            delattr(task.request, _RUN)
            run.end(again=True)

    def _on_end(self, task: Any, state: str = "", **_: Any) -> None:
        # This process may also reject a copy of the message, so the run is found by its request, not by its id.
        if task.app is self._app and (run := _current_run(task.request)):
            delattr(task.request, _RUN)
            run.end(again=state == states.RETRY)

    def _on_revoked(self, sender: Any, request: Any, **_: Any) -> None:
        """End a run that no worker will start: it was revoked or has expired."""
        header = read_run_header(request) if sender.app is self._app else None
        if header is not None:
            with contextlib.suppress(StoreError):
                self._marks().end(request.id, "", header.keep, header.entry if header.alone else "")


def _current_run(request: Any) -> _Run | None:
    return getattr(request, _RUN, None)


class _Run:
    """A run in this process. A daemon thread renews its mark, so the renewals stop whenever the process ends."""

    def __init__(self, run_id: str, header: RunHeader) -> None:
        self._id = run_id
        self._header = header
        self._owner = secrets.token_hex(8)
        self._alone = header.entry if header.alone else ""
        self._over = threading.Event()

    def begin(self, marks: RunMarks) -> BeginResult:
        self._marks = marks
        result = marks.begin(self._id, self._owner, LEASE_SECONDS, self._alone)
        if result is BeginResult.NOW:
            threading.Thread(target=self._renew, name="uttu-run", daemon=True).start()
        return result

    def _renew(self) -> None:
        while not self._over.wait(LEASE_SECONDS / 3):
            with contextlib.suppress(StoreError):
                self._marks.extend(self._id, self._owner, LEASE_SECONDS, self._alone)

    def end(self, *, again: bool) -> None:
        self._over.set()
        keep = _HAND_OVER_SECONDS if again else self._header.keep
        try:
            self._marks.end(self._id, self._owner, keep, self._alone, again=again)
        except StoreError as error:
            _log.warning("Cannot store the end of run %s of schedule %s: %s", self._id, self._header.entry, error)

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


def build_header(entry: Schedule, fire: ScheduledRun) -> dict[str, Any]:
    """Return the header of a run, for ``apply_async``."""
    note = RunHeader(entry.name, fire.due.isoformat(), entry.memory, entry.overlap != "allow")
    return {RUN_HEADER: msgspec.to_builtins(note)}


def read_run_header(request: Any) -> RunHeader | None:
    """Return the header of a task's request; None if a schedule did not send it."""
    found = (getattr(request, "headers", None) or {}).get(RUN_HEADER)
    return msgspec.convert(found, RunHeader) if found else None


def run_once_of(app: Any) -> RunOnce:
    """Return the ``RunOnce`` of an app. The first call creates it and connects the signals; workers do that at their
    start.
    """
    if "_uttu_guard" not in app.__dict__:
        app._uttu_guard = RunOnce(app, functools.cache(lambda: open_app_store(app)))
        app._uttu_guard.listen()
    found: RunOnce = app._uttu_guard
    return found


class RunOnce:
    """Guards the scheduled runs of an app with ``marks``."""

    def __init__(self, app: Any, marks: Callable[[], RunMarks]) -> None:
        self._app = app
        self._marks = marks

    def listen(self) -> None:
        """Connect the signals of tasks that end or never begin."""
        signals.task_postrun.connect(self._after, weak=False)
        signals.task_revoked.connect(self._revoked, weak=False)

    def begin(self, task: Any) -> None:
        """Return if the task is not a scheduled run, or may start now.

        :raises Ignore: it has ended, or is postponed: its message went back to the broker for ``_RETRY_SECONDS``.
        """
        request = task.request
        note = read_run_header(request)
        if note is None or request.is_eager or _current_run(request) is not None:
            return
        run = _Run(request.id, note)
        try:
            begun = run.begin(self._marks())
        except StoreError as error:
            _log.warning("%s of schedule %s waits: %s", request.id, note.entry, error)
            begun = BeginResult.BUSY
        if begun is BeginResult.NOW:
            setattr(request, _RUN, run)
            return
        if begun is BeginResult.OVER:
            _log.info("%s of schedule %s, due %s, has run before: dropped", request.id, note.entry, note.due)
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

    def _after(self, task: Any, state: str = "", **_: Any) -> None:
        # This process may also reject a copy of the message, so the run is found by its request, not by its id.
        if task.app is self._app and (run := _current_run(task.request)):
            delattr(task.request, _RUN)
            run.end(again=state == states.RETRY)

    def _revoked(self, sender: Any, request: Any, **_: Any) -> None:
        """End a run that no worker will start: it was revoked or has expired."""
        note = read_run_header(request) if sender.app is self._app else None
        if note is not None:
            with contextlib.suppress(StoreError):
                self._marks().end(request.id, "", note.keep, note.entry if note.alone else "")


def _current_run(request: Any) -> _Run | None:
    return getattr(request, _RUN, None)


class _Run:
    """A run in this process. A daemon thread renews its mark, so the renewals stop whenever the process ends."""

    def __init__(self, fire: str, note: RunHeader) -> None:
        self._fire = fire
        self._note = note
        self._owner = secrets.token_hex(8)
        self._alone = note.entry if note.alone else ""
        self._over = threading.Event()

    def begin(self, marks: RunMarks) -> BeginResult:
        self._marks = marks
        begun = marks.begin(self._fire, self._owner, LEASE_SECONDS, self._alone)
        if begun is BeginResult.NOW:
            threading.Thread(target=self._hold, name="uttu-fire", daemon=True).start()
        return begun

    def _hold(self) -> None:
        while not self._over.wait(LEASE_SECONDS / 3):
            with contextlib.suppress(StoreError):
                self._marks.extend(self._fire, self._owner, LEASE_SECONDS, self._alone)

    def end(self, *, again: bool) -> None:
        self._over.set()
        keep = _HAND_OVER_SECONDS if again else self._note.keep
        try:
            self._marks.end(self._fire, self._owner, keep, self._alone, again=again)
        except StoreError as error:
            _log.warning("that %s of schedule %s is over could not be noted: %s", self._fire, self._note.entry, error)

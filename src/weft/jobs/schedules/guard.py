"""On the side of workers: a fire runs once, and not beside another of its entry where that is not wanted.

A task that a beat has sent says so in a header, :data:`HEADER`. Only such tasks ask the store; others pay nothing.
``Task.before_start`` calls ``guard_of(app).begin(self)``; that a task is over is heard by Celery's signals, which are
sent also when a hook of the task fails. A task that hands its work on to another message under the same id, and is
therefore not over when it returns, calls :meth:`Guard.hand_on` before that.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec
from celery import signals, states
from celery.exceptions import Ignore
from celery.utils.log import get_logger

from weft.errors import StoreError
from weft.jobs.schedules.base import Begun, Marks
from weft.jobs.schedules.entry import Entry, Fire
from weft.jobs.schedules.opening import store_of

HEADER: Final = "weft-fire"

LEASE_SECONDS: Final = 20.0
# A redelivered task asks again after so long, whether the run that it is a copy of is over.
_AGAIN_SECONDS: Final = 2.0
# For so long a task may wait for a retry, or for a worker to take its next part.
_HANDED_ON_SECONDS: Final = 86_400.0

_RUN: Final = "_weft_run"

_log = get_logger(__name__)


class Note(msgspec.Struct, frozen=True):
    """What the header says: which entry, when it was due, how long to remember it, whether it runs alone."""

    entry: str
    due: str
    keep: float
    alone: bool


def header(entry: Entry, fire: Fire) -> dict[str, Any]:
    note = Note(entry.name, fire.due.isoformat(), entry.memory, entry.overlap != "allow")
    return {HEADER: msgspec.to_builtins(note)}


def note_of(request: Any) -> Note | None:
    """What a task's request says about the fire it is; None if it is none."""
    found = (getattr(request, "headers", None) or {}).get(HEADER)
    return msgspec.convert(found, Note) if found else None


def guard_of(app: Any) -> Guard:
    """The guard of an app; made, and made to listen, when it is first asked for. Workers do that when they start."""
    if "_weft_guard" not in app.__dict__:
        app._weft_guard = Guard(app, functools.cache(lambda: store_of(app)))
        app._weft_guard.listen()
    found: Guard = app._weft_guard
    return found


class Guard:
    """Asks ``marks`` about the fires of an app."""

    def __init__(self, app: Any, marks: Callable[[], Marks]) -> None:
        self._app = app
        self._marks = marks

    def listen(self) -> None:
        """Hear of tasks that are over, or never begin."""
        signals.task_postrun.connect(self._after, weak=False)
        signals.task_revoked.connect(self._revoked, weak=False)

    def begin(self, task: Any) -> None:
        """Let the task run, if it is no fire or may run now.

        :raises Ignore: it has run, or is put off: its message went back to the broker, for a few seconds later.
        """
        request = task.request
        note = note_of(request)
        if note is None or request.is_eager or _run_of(request) is not None:
            return
        run = _Run(request.id, note)
        try:
            begun = run.begin(self._marks())
        except StoreError as error:
            _log.warning("%s of schedule %s waits: %s", request.id, note.entry, error)
            begun = Begun.BUSY
        if begun is Begun.NOW:
            setattr(request, _RUN, run)
            return
        if begun is Begun.OVER:
            _log.info("%s of schedule %s, due %s, has run before: dropped", request.id, note.entry, note.due)
        else:
            task.signature_from_request(request, countdown=_AGAIN_SECONDS, retries=request.retries).apply_async()
        raise Ignore

    def hand_on(self, task: Any) -> None:
        """The running fire is not over when this task returns: another message under its id carries it on.

        To be called before that message is sent: it may be begun while this task still returns.
        """
        if run := _run_of(task.request):
            delattr(task.request, _RUN)
            run.end(again=True)

    def _after(self, task: Any, state: str = "", **_: Any) -> None:
        # A copy of the message may be turned away in this very process: the run is known by its request, not by its id.
        if task.app is self._app and (run := _run_of(task.request)):
            delattr(task.request, _RUN)
            run.end(again=state == states.RETRY)

    def _revoked(self, sender: Any, request: Any, **_: Any) -> None:
        """A fire that no worker will run: revoked, or past the time that it expires."""
        note = note_of(request) if sender.app is self._app else None
        if note is not None:
            with contextlib.suppress(StoreError):
                self._marks().end(request.id, "", note.keep, note.entry if note.alone else "")


def _run_of(request: Any) -> _Run | None:
    return getattr(request, _RUN, None)


class _Run:
    """A fire that runs here. A thread holds its mark, so that it ends with the process however that ends."""

    def __init__(self, fire: str, note: Note) -> None:
        self._fire = fire
        self._note = note
        self._owner = secrets.token_hex(8)
        self._alone = note.entry if note.alone else ""
        self._over = threading.Event()

    def begin(self, marks: Marks) -> Begun:
        self._marks = marks
        begun = marks.begin(self._fire, self._owner, LEASE_SECONDS, self._alone)
        if begun is Begun.NOW:
            threading.Thread(target=self._hold, name="weft-fire", daemon=True).start()
        return begun

    def _hold(self) -> None:
        while not self._over.wait(LEASE_SECONDS / 3):
            with contextlib.suppress(StoreError):
                self._marks.extend(self._fire, self._owner, LEASE_SECONDS, self._alone)

    def end(self, *, again: bool) -> None:
        self._over.set()
        keep = _HANDED_ON_SECONDS if again else self._note.keep
        try:
            self._marks.end(self._fire, self._owner, keep, self._alone, again=again)
        except StoreError as error:
            _log.warning("that %s of schedule %s is over could not be noted: %s", self._fire, self._note.entry, error)

"""Run the user's functions in steps, and track which page the event loop is working for.

A *step* is the code that a handler runs between two points where the event loop can switch to another task: the whole
of a plain function, or one part of a coroutine up to the next ``await`` that suspends. While a step runs:

- :attr:`StepTracker.running` holds its lease. The watchdog interrupts steps that take too long, and only steps.
- The black box (:mod:`uttu.blackbox`) holds the same lease. If the step crashes the process, the parent reads it there.
- The handler must not cancel the task that runs the crawl. If it does, the process exits with ``CANCELLED``.
- A child process that the handler forked exits when the step ends: it must not settle, write or fetch.

The engine drives coroutines itself (:meth:`HandlerRun.drive`), so it can abandon one that never ends. A cancelled
coroutine has ``CLEANUP_SECONDS`` to clean up. Then it is closed, even if it swallowed the cancellation.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Generator
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from weakref import WeakSet

from uttu.blackbox import Blackbox, is_harmed
from uttu.engine.worker_processes import CANCELLED, HARMED
from uttu.model import Lease, Request

T = TypeVar("T")

CLEANUP_SECONDS: Final = 1.0
# How long a long-running handler pauses so that other tasks run. Not 0: asyncio.sleep(0) gives them one round of the
# loop only, and reading a response takes several.
_PAUSE_SECONDS: Final = 0.01


# Stands for the page while @spider.start runs. A black box takes a lease id of 0 for none: no page is to blame.
_START_REQUEST: Final = Request.from_canonical("@spider.start")
START: Final = Lease(id=0, fingerprint=0, lane="", request=_START_REQUEST, attempt=1, wait=0, deadline=0)


class HandlerBlocked(BaseException):
    """Raised inside a step by the watchdog.

    :param stopping: The process is shutting down. The page is given back without counting the attempt.
    """

    def __init__(self, reason: str, *, stopping: bool = False) -> None:
        super().__init__(reason)
        self.stopping = stopping


class HandlerTimeout(Exception):
    """A handler took longer than the setting ``handler_timeout`` allows."""


class StepTracker:
    """Tracks the step that is running in this process. Steps share the event loop's thread, so at most one runs."""

    __slots__ = ("__weakref__", "_box", "_cancels", "_forked", "_main", "_wary", "running")

    def __init__(self, box: Blackbox | None = None) -> None:
        self.running: Lease | None = None
        self._box = box
        self._forked = False
        self._main: asyncio.Task[Any] | None = None
        self._cancels = 0
        self._wary = box is not None and box.wary
        _all.add(self)

    def watch_over(self, main: asyncio.Task[Any] | None) -> None:
        """Set the task that runs the crawl, which no step may cancel; None to clear it."""
        self._main = main

    def forked(self) -> None:
        """Mark this process as a fork of the worker. The black box belongs to the original process."""
        self._forked = True
        self._box = None

    def enter(self, lease: Lease | None) -> None:
        self.running = lease
        if self._main is not None:
            self._cancels = self._main.cancelling()
        if self._box is not None and lease is not None:
            request = lease.request
            self._box.enter(lease.id, lease.fingerprint, request.url, request.handler)

    def leave(self) -> None:
        if self._forked:
            # A process that the handler forked has returned from the handler into the engine.
            os._exit(0)
        if self._main is not None and self._main.cancelling() > self._cancels and self._box is not None:
            self._end(CANCELLED)
        if self._wary and is_harmed():
            self._end(HARMED)
        self.running = None
        if self._box is not None:
            self._box.leave()

    @staticmethod
    def _end(code: int) -> None:
        """Exit at once because a handler broke the process. The parent reads the page from the black box."""
        os._exit(code)


_all: WeakSet[StepTracker] = WeakSet()


def _mark_forked() -> None:
    for steps in _all:
        steps.forked()


os.register_at_fork(after_in_child=_mark_forked)


class HandlerRun:
    """One call of a handler, as a context manager within which its steps run.

    :param seconds: The most the call may take, counted from the first time it waits; 0 for no limit.
    :raises HandlerTimeout: on leaving the block, if the call took longer.
    """

    __slots__ = ("_cancelled", "_expired", "_lease", "_loop", "_seconds", "_steps", "_task", "_timer")

    def __init__(self, steps: StepTracker, lease: Lease | None = None, seconds: float = 0) -> None:
        self._steps = steps
        self._lease = lease
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._expired = self._cancelled = False

    def __enter__(self) -> Self:
        self._steps.enter(self._lease)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._steps.leave()
        if self._timer is not None:
            self._timer.cancel()
            if self._expired:
                while self._task.cancelling():
                    self._task.uncancel()
                raise HandlerTimeout(f"took longer than handler_timeout={self._seconds:g} s") from error

    async def yield_to_loop(self) -> None:
        """End the step and let other tasks run for ``_PAUSE_SECONDS``, then begin another step."""
        self._suspend()
        try:
            await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._steps.enter(self._lease)

    def drive(self, awaitable: Awaitable[T]) -> Awaitable[T]:
        """Wrap an awaitable of the user so that its steps are tracked: ``await run.drive(handler(page))``."""
        return _TrackedAwaitable(self, _GeneratorAdapter.of(awaitable.__await__()))

    def resume(self, step: Any, pending: Any) -> Awaitable[Any]:
        """Like :meth:`drive`, for a coroutine or async generator step that has started and waits for ``pending``."""
        return _TrackedAwaitable(self, step, (pending,))

    def _suspend(self) -> None:
        self._steps.leave()
        if self._timer is None and self._seconds:
            self._loop = asyncio.get_running_loop()
            task = asyncio.current_task()
            assert task is not None
            self._task = task
            self._timer = self._loop.call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def steps_of(self, iterator: Any, begun: tuple[Any, ...] = ()) -> Generator[Any, None, Any]:
        """Pass a coroutine's futures on to the event loop; the step ends at each one and a new step begins after it.

        :param begun: The future that the coroutine already waits for, if it was started elsewhere.
        """
        error: BaseException | None = None
        while True:
            if begun:
                (pending,), begun = begun, ()
            else:
                try:
                    pending = iterator.send(None) if error is None else iterator.throw(error)
                except StopIteration as stop:
                    return stop.value
                error = None
            self._suspend()
            try:
                yield pending
            except GeneratorExit:
                iterator.close()
                raise
            except asyncio.CancelledError as cancelled:
                error = self._cancel(iterator, cancelled)
            except BaseException as raised:
                error = raised
            finally:
                self._steps.enter(self._lease)

    def _cancel(self, iterator: Any, cancelled: asyncio.CancelledError) -> asyncio.CancelledError:
        """Throw the first cancellation into the handler, which may clean up; close the handler at the second one."""
        if self._cancelled:
            with contextlib.suppress(BaseException):  # CLEANUP_SECONDS are over, errors no longer matter
                iterator.close()
            raise cancelled
        self._cancelled = True
        task = asyncio.current_task()
        assert task is not None
        if self._timer is not None:
            self._timer.cancel()
        self._task = task
        self._timer = asyncio.get_running_loop().call_later(CLEANUP_SECONDS, task.cancel)
        return cancelled


class _TrackedAwaitable(Awaitable[T]):
    __slots__ = ("_begun", "_iterator", "_run")

    def __init__(self, run: HandlerRun, iterator: Any, begun: tuple[Any, ...] = ()) -> None:
        self._run = run
        self._iterator = iterator
        self._begun = begun

    def __await__(self) -> Generator[Any, None, T]:
        return self._run.steps_of(self._iterator, self._begun)


class _GeneratorAdapter:
    """Adds a generator's methods to a plain iterator: some awaitables only have ``__next__``."""

    __slots__ = ("_iterator",)

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    @classmethod
    def of(cls, iterator: Any) -> Any:
        return iterator if hasattr(iterator, "send") and hasattr(iterator, "throw") else cls(iterator)

    def send(self, value: None) -> Any:
        return next(self._iterator)

    def throw(self, error: BaseException) -> Any:
        raise error

    def close(self) -> None:
        pass

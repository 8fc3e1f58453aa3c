"""The event loop of a worker's process: one, for all ``async def`` tasks it ever runs.

So what a task opens, a connection pool say, can be kept for the next. The loop runs in the thread that runs the task,
because there Celery keeps which task it is (``self.request``); where tasks are run by threads, each has a loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import uvloop
from billiard.pool import SIG_SOFT_TIMEOUT, soft_timeout_sighandler
from celery.exceptions import SoftTimeLimitExceeded

_here = threading.local()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run to the end.

    :raises SoftTimeLimitExceeded: the time is up; the coroutine was cancelled and has ended.
    """
    loop = _loop()
    task = loop.create_task(work)
    with _limited(loop, task) as overtime:
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if overtime.is_set():
                raise SoftTimeLimitExceeded from None
            raise
        except BaseException:
            # The process is to end: the coroutine may still tidy up.
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                loop.run_until_complete(task)
            raise


@contextlib.contextmanager
def _limited(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> Iterator[threading.Event]:
    """A soft time limit cancels the task. Celery raises an error by a signal, and uvloop would only log that."""
    overtime = threading.Event()

    def cancel(*_: Any) -> None:
        overtime.set()
        loop.call_soon_threadsafe(task.cancel)

    if signal.getsignal(SIG_SOFT_TIMEOUT) is not soft_timeout_sighandler:
        yield overtime
        return
    signal.signal(SIG_SOFT_TIMEOUT, cancel)
    try:
        yield overtime
    finally:
        signal.signal(SIG_SOFT_TIMEOUT, soft_timeout_sighandler)


def _loop() -> asyncio.AbstractEventLoop:
    # A loop does not survive a fork.
    if getattr(_here, "owner", None) != os.getpid():
        _here.loop, _here.owner = uvloop.new_event_loop(), os.getpid()
    loop: asyncio.AbstractEventLoop = _here.loop
    return loop

"""Run the event loop of a crawl's process. Nothing that a spider leaves in it may end it, or keep it from ending.

- A task or callback of the spider that raises ``SystemExit`` or ``KeyboardInterrupt`` ends ``asyncio.run``, and with it
  the crawl. Here the loop is entered again.
- ``asyncio.run`` waits for tasks that ignore their cancellation, and for threads of ``asyncio.to_thread``. Here tasks
  have ``CLEANUP_SECONDS``, and threads are left alone: the process ends without them.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import uvloop

T = TypeVar("T")

CLEANUP_SECONDS: Final = 2.0
_log = logging.getLogger("uttu.worker")


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on a new event loop. For processes that end soon after: threads may be left running."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        loop = runner.get_loop()
        _abandon_threads(loop)
        main: asyncio.Task[T] | None = None

        async def run() -> T:
            nonlocal main
            main = asyncio.current_task()
            try:
                return await work
            finally:
                await _end_tasks()

        try:
            return runner.run(run())
        except (SystemExit, KeyboardInterrupt) as error:
            raised: BaseException = error
        while main is not None and not main.done() and not _is_interrupt(raised):
            _log.warning("Something in the spider raised %s outside of a handler: ignored", type(raised).__name__)
            try:
                return loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt) as error:
                raised = error
        raise raised


def _is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C raised this: with Python's default signal handler, it does so in whatever code is running."""
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _abandon_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Make the end of the loop not wait for the threads of ``asyncio.to_thread``."""
    threads = ThreadPoolExecutor(thread_name_prefix="uttu-loop")

    async def shutdown() -> None:
        threads.shutdown(wait=False, cancel_futures=True)

    loop.set_default_executor(threads)
    loop.shutdown_default_executor = shutdown  # type: ignore[method-assign]


async def _end_tasks() -> None:
    """Cancel all other tasks. Those that still run after ``CLEANUP_SECONDS`` are hidden from the loop's end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        _, deaf = await asyncio.wait(others, timeout=CLEANUP_SECONDS)
        for task in deaf:
            asyncio.tasks._unregister_task(task)

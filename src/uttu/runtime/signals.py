"""SIGINT and SIGTERM of a process that runs a crawl, a worker or a group of processes, or of a program with a crawl.

Signals are received by Python's signal handlers, not by those of the event loop: Python's also run while a handler of
the spider blocks the loop, and can interrupt it. The first signal drains: the pages in flight are finished. The second
one stops at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from uttu import blackbox
from uttu.engine import watchdog
from uttu.engine.heartbeat import TERMINATE_SECONDS, CrawlWorker
from uttu.engine.supervisor import Supervisor
from uttu.model.crawl import INTERRUPTED

# A terminal sends SIGINT both to a process and to its guardian, which forwards it; so do systems that signal whole
# process groups. A signal that the guardian did not forward is dropped if a forwarded one arrives within this time.
_DUPLICATE_SECONDS: Final = 0.3


class Signals:
    """SIGINT and SIGTERM: the first one drains, the second one stops, a third one has its default effect.

    After SIGTERM, the pages in flight have only ``TERMINATE_SECONDS``, since SIGKILL often follows.
    """

    def __init__(self) -> None:
        self.received = 0
        self._times = 0
        self._forwarded = 0
        self._accepted = float("-inf")

    @contextlib.contextmanager
    def cancelling(self, stopping: Callable[[], None]) -> Iterator[None]:
        """Cancel the current task on a signal, until :meth:`listen` is called or the block ends.

        :param stopping: Called at the first signal, before the task is cancelled.
        """
        task = asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            if self._times == 1:
                stopping()
            task.cancel()

        self.install(cancel, cancel)
        try:
            yield
        finally:
            self.deaf()

    def listen(self, supervisor: Supervisor, stopping: Callable[[], None]) -> None:
        """End a crawl on a signal. ``stopping`` is called before it is drained."""

        def drain() -> None:
            stopping()
            supervisor.drain(INTERRUPTED)

        def terminate() -> None:
            drain()
            supervisor.hurry(TERMINATE_SECONDS)

        self.install(drain, lambda: supervisor.stop(INTERRUPTED), terminate)

    def install(
        self, drain: Callable[[], None], stop: Callable[[], None], terminate: Callable[[], None] | None = None
    ) -> None:
        """Handle signals with these functions. ``terminate`` replaces ``drain`` for SIGTERM."""
        loop = asyncio.get_running_loop()

        def accept(number: int) -> None:
            self._accepted = time.monotonic()
            watchdog.notify_stop()
            # A signal at the very end may find the loop closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._receive, number, drain, stop, terminate or drain)

        def accept_unless_forwarded(number: int) -> None:
            if time.monotonic() - self._accepted > 2 * _DUPLICATE_SECONDS:
                accept(number)

        def receive(number: int, frame: FrameType | None) -> None:
            box = blackbox.inherited() if blackbox.guardian else None
            if box is None:
                accept(number)
                return
            # A second signal may interrupt this function. It must not count again what is counted here, so nothing is
            # called between these lines.
            forwarded = box.forwarded
            more = forwarded - self._forwarded
            if more > 0:
                self._forwarded = forwarded
                # Two signals that arrive while a handler blocks the process are received as one.
                for _ in range(more):
                    accept(number)
            elif time.monotonic() - self._accepted > _DUPLICATE_SECONDS:
                timer = threading.Timer(_DUPLICATE_SECONDS, accept_unless_forwarded, (number,))
                timer.daemon = True
                timer.start()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, receive)

    def _receive(
        self, number: int, drain: Callable[[], None], stop: Callable[[], None], terminate: Callable[[], None]
    ) -> None:
        self.received = number
        self._times += 1
        if self._times == 1:
            (terminate if number == signal.SIGTERM else drain)()
        else:
            stop()
        if self._times == 2:
            self.deaf()

    @staticmethod
    def deaf() -> None:
        """Give both signals their default effect."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


async def run_worker(member: CrawlWorker, stopping: Callable[[list[str], int], None] | None) -> None:
    """Run a worker until its crawl is over, or a signal ends it.

    :param stopping: Called at the first signal with the URLs of the pages in flight, and their number. None for a
        worker that is tied to its parent process: it also ends when standard input closes, because the parent is gone.
    :raises StoreError: the store can't be read or written.
    """
    signals = Signals()

    def drain() -> None:
        if stopping is not None:
            flying = member.worker.in_flight
            stopping(member.worker.flying(flying), flying)
        member.drain()

    def terminate() -> None:
        drain()
        if stopping is not None:
            member.drain(hurried=True, seconds=TERMINATE_SECONDS)

    signals.install(drain, member.stop, terminate)
    try:
        if stopping is None:
            # If the parent process is gone, nobody can send a second signal. So limit the wait for the pages in flight.
            gone = functools.partial(member.drain, hurried=True)
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _drain_if_orphaned, gone)
        await member.run()
    finally:
        signals.deaf()


def _drain_if_orphaned(drain: Callable[[], None]) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        drain()


@contextlib.contextmanager
def handle_signals(interrupt: Callable[[int], None]) -> Iterator[None]:
    """Call ``interrupt`` on SIGINT and SIGTERM during the block. Only the main thread can handle signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def receive(number: int, frame: FrameType | None) -> None:
        watchdog.notify_stop()
        loop.call_soon_threadsafe(interrupt, number)

    former = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

"""What signals ask of a crawl, or of a worker of one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from weft.cli.view import View
from weft.engine.states import INTERRUPTED
from weft.engine.supervisor import Supervisor


class Signals:
    """The first SIGINT or SIGTERM drains, the second stops; a third is the system's."""

    def __init__(self) -> None:
        self.received = 0
        self._times = 0

    def listen(self, supervisor: Supervisor, view: View) -> None:
        def drain() -> None:
            view.stopping()
            supervisor.drain(INTERRUPTED)

        self.listen_plain(drain, lambda: supervisor.stop(INTERRUPTED))

    def listen_plain(self, drain: Callable[[], None], stop: Callable[[], None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._receive, number, drain, stop)

    def _receive(self, number: signal.Signals, drain: Callable[[], None], stop: Callable[[], None]) -> None:
        self.received = number
        self._times += 1
        (drain if self._times == 1 else stop)()
        if self._times == 2:
            self.deaf()

    @staticmethod
    def supervisor_gone(drain: Callable[[], None]) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            drain()

    @staticmethod
    def deaf() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)

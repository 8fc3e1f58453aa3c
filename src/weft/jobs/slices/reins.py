"""What a slice's process is told while it works: by its clock, by the task that started it, by signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from weft.jobs.slices.order import HAND_ON, STOP

REVOKED = "revoked"


class Reins:
    """``let_go`` is called when the time is up, ``stop`` when the job was called off; both may be changed at any time.

    The first words on standard input are read before this, as a whole line.
    """

    def __init__(self, seconds: float) -> None:
        self.let_go: Callable[[], None] = lambda: None
        self.stop: Callable[[], None] = lambda: None
        self.is_up = self.is_called_off = False
        self.is_alone = False
        """Whether the task is gone: nobody reads what this process says."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self._up)

    def listen(self) -> None:
        """From now on."""
        self._loop.add_reader(sys.stdin.fileno(), self._read)
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._up)

    def deaf(self) -> None:
        """No more."""
        self._timer.cancel()
        self._loop.remove_reader(sys.stdin.fileno())
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.remove_signal_handler(number)

    def _read(self) -> None:
        said = os.read(sys.stdin.fileno(), 4096).decode()
        if not said:
            self._loop.remove_reader(sys.stdin.fileno())
            self.is_alone = True
            self._up()
        if HAND_ON in said:
            self._up()
        if STOP in said:
            self.is_called_off = True
            self.stop()

    def _up(self) -> None:
        self.is_up = True
        self.let_go()

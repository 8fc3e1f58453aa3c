"""A clock that is passed as an argument, so that tests can set the time."""

from __future__ import annotations

from time import monotonic, time
from typing import Protocol


class Clock(Protocol):
    def time(self) -> float:
        """Seconds since the epoch; comparable between processes, kept in stores."""

    def monotonic(self) -> float:
        """Seconds that never jump; for durations within a process."""


class SystemClock:
    time = staticmethod(time)
    monotonic = staticmethod(monotonic)

"""A clock that stands still until a test turns it."""

from __future__ import annotations


class FakeClock:
    """See :class:`weft.clock.Clock`. Both of its times move together, and only by :meth:`advance`.

    They start at different numbers, so that one taken for the other shows. Both are whole: with
    steps in eighths of a second, sums are exact in binary as well as in milliseconds, and a test
    may ask what happens exactly at a deadline.
    """

    def __init__(self, time: float = 1_760_000_000.0, monotonic: float = 50_000.0) -> None:
        self._time = time
        self._monotonic = monotonic

    def time(self) -> float:
        return self._time

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._time += seconds
        self._monotonic += seconds

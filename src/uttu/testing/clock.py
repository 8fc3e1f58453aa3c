"""A clock that stands still until a test advances it."""

from __future__ import annotations


class FakeClock:
    """A :class:`uttu.clock.Clock`. Both of its times move together, and only by :meth:`advance`.

    They start at different numbers, so that a test notices if one is used for the other. Both are whole numbers: with
    steps in eighths of a second, sums are exact in binary and in milliseconds, and a test may check what happens
    exactly at a deadline.
    """

    def __init__(self, time: float = 1_760_000_000.0, monotonic: float = 50_000.0) -> None:
        self._time = time
        self._monotonic = monotonic

    def time(self) -> float:
        return self._time

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both times forward.

        :raises ValueError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"Cannot advance the clock by {seconds} seconds: time does not go back")
        self._time += seconds
        self._monotonic += seconds

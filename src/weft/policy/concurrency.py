"""How many fetches a worker runs at once: as many as the way to the internet bears.

Additive increase, multiplicative decrease, as TCP finds the width of a pipe it can't see. The
limit doubles while every slot is in use and all goes well; the first sign of strain ends that,
takes 30 % off, and from then on it grows by small steps. Signs of strain are fetches that time
out or break off (the line or a proxy on the way is full) and a late event loop (this machine
is). When slots are idle the limit stays as it is: it was not what held the crawl back.

A decision is made per window, not per call: a window ends when about every slot has brought one
result, or after two seconds. Shares of fewer results would be noise, and the effect of the last
decision has to arrive before the next. Lag is its own evidence and acts at once, then rests
for a second.
"""

from __future__ import annotations

from typing import Final

FLOOR: Final = 4
START: Final = 16
STEP: Final = 2
DECREASE: Final = 0.7
MAX_FAILED: Final = 0.1
"""Share of fetches in a window that may time out or break off."""
MIN_FAILED: Final = 2
"""One failure is never a trend, whatever its share."""
MAX_LAG: Final = 0.1
"""Seconds by which the event loop may be late; half of it already stops the growth."""
WINDOW: Final = 8
REST: Final = 4
"""Calls of ``observe`` in a window at most, and after a decrease for lag."""


class Gauge:
    """``limit`` is the number of fetches to run now; ``observe`` moves it. Expects about four calls a second."""

    __slots__ = ("_busy", "_calls", "_ceiling", "_done", "_failed", "_fast", "_floor", "_lag", "_rest", "limit")

    def __init__(self, ceiling: int, start: int = START, floor: int = FLOOR) -> None:
        self._ceiling = max(ceiling, 1)
        self._floor = min(floor, self._ceiling)
        self.limit = min(max(start, self._floor), self._ceiling)
        self._fast = True
        self._rest = 0
        self._lag = 0.0
        self._begin()

    def observe(self, done: int, failed: int, busy: bool, lag: float) -> None:
        """What happened since the last call.

        ``done`` fetches ended, in whatever way; ``failed`` of them by a timeout or a broken
        connection (a name that does not resolve is no sign of strain: leave it out). ``busy``:
        every slot is in use and more work is waiting. ``lag``: seconds the event loop was late.
        """
        self._calls += 1
        self._done += done
        self._failed += failed
        self._busy += busy
        self._lag = max(self._lag, lag)
        self._rest = max(self._rest - 1, 0)
        if lag > MAX_LAG:
            if not self._rest:
                self._rest = REST
                self._decrease()
        elif self._calls >= WINDOW or self._done >= self.limit:
            self._judge()

    def _judge(self) -> None:
        ended = max(self._done, self._failed)
        if self._failed >= MIN_FAILED and self._failed > MAX_FAILED * ended:
            self._decrease()
            return
        if ended and 2 * self._busy > self._calls and self._lag <= MAX_LAG / 2:
            grown = self.limit * 2 if self._fast else self.limit + STEP
            self.limit = min(grown, self._ceiling)
        self._begin()

    def _decrease(self) -> None:
        self.limit = max(int(self.limit * DECREASE), self._floor)
        self._fast = False
        self._begin()

    def _begin(self) -> None:
        self._calls = self._done = self._failed = self._busy = 0
        self._lag = 0.0

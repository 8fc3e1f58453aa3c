"""Two automatic controls of speed: how many fetches a worker runs at once, and how long a lane waits between two.

Concurrency (:class:`ConcurrencyController`): as many fetches at once as the network connection and the machine can
handle. The limit follows additive increase and multiplicative decrease (AIMD), as in TCP. It doubles while every slot
is in use and nothing signals overload. The first sign of overload reduces it by 30 % (``DECREASE``); from then on it
grows by ``STEP`` per window. Signs of overload are fetches that time out or break off (the connection or a proxy is
full), and a late event loop (this machine is). While slots are idle the limit does not change, because it is not what
limits the crawl.

A decision is made per window, not per call. A window ends when there are as many results as slots, or after ``WINDOW``
calls (two seconds): fewer results would be noise, and the last decision must take effect before the next one. Lag of
the event loop acts at once, and then not again for ``REST`` calls (a second).

Delay (:func:`adjust_delay`): a lane's delay follows the host's latency. A host that needs two seconds for a response
gets a request every two seconds. So on average it works on one of our requests at a time (``TARGET_CONCURRENCY``),
whatever the number of workers. Error pages are often faster than real ones, so an error may slow a lane down but never
speed it up.
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
"""Fewer failures in a window than this are ignored, whatever their share."""
MAX_LAG: Final = 0.1
"""Seconds by which the event loop may be late; half of that already stops the growth."""
WINDOW: Final = 8
REST: Final = 4
"""The most calls of ``observe`` in a window (``WINDOW``), and between two decreases for lag (``REST``)."""


class ConcurrencyController:
    """``limit`` is the number of fetches to run at once. Call :meth:`observe` four times a second to adjust it."""

    __slots__ = ("_busy", "_calls", "_ceiling", "_done", "_failed", "_fast", "_floor", "_lag", "_rest", "limit")

    def __init__(self, ceiling: int, start: int = START, floor: int = FLOOR) -> None:
        self._ceiling = max(ceiling, 1)
        self._floor = min(floor, self._ceiling)
        self.limit = min(max(start, self._floor), self._ceiling)
        self._fast = True  # double the limit instead of adding STEP, until the first decrease
        self._rest = 0
        self._lag = 0.0
        self._begin()

    def observe(self, done: int, failed: int, busy: bool, lag: float) -> None:
        """Adjust the limit to what happened since the last call.

        :param done: Fetches that ended, with or without success.
        :param failed: Those of them that timed out or lost their connection. Leave out names that do not resolve: they
            are not a sign of overload.
        :param busy: Every slot is in use and more work is waiting.
        :param lag: Seconds by which the event loop was late.
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


TARGET_CONCURRENCY: Final = 1.0
MAX_DELAY: Final = 60.0


def adjust_delay(
    delay: float,
    latency: float,
    ok: bool,
    floor: float,
    ceiling: float = MAX_DELAY,
    target: float = TARGET_CONCURRENCY,
) -> float:
    """The lane's next delay in seconds, halfway from ``delay`` to ``latency / target``.

    The result is at least ``floor``, the configured delay, and at most ``ceiling``, unless the floor is higher.
    """
    goal = latency / target
    if not goal >= 0:  # NaN fails the comparison, too
        goal = delay
    moved = (delay + goal) / 2
    if not ok and moved < delay:
        moved = delay
    return max(floor, min(moved, ceiling))

"""The automatic throttle: a lane's delay follows the host's latency.

A host that needs two seconds for a response gets a request every two seconds. So on average it works on one of our
requests at a time (``TARGET_CONCURRENCY``), whatever the number of workers. Error pages are often faster than real
ones, so an error may slow a lane down but never speed it up.
"""

from __future__ import annotations

from typing import Final

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

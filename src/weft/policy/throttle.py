"""The automatic throttle: a lane's delay follows the host's latency.

A host that needs two seconds for an answer is asked every two seconds, so that on average it
works on one of our requests at a time, whatever the number of workers. An error page is often
faster than the page, so a bad answer may slow a lane down but never speed it up.
"""

from __future__ import annotations

from typing import Final

TARGET_CONCURRENCY: Final = 1.0
MAX_DELAY: Final = 60.0


def throttled(
    delay: float,
    latency: float,
    ok: bool,
    floor: float,
    ceiling: float = MAX_DELAY,
    target: float = TARGET_CONCURRENCY,
) -> float:
    """The lane's next delay in seconds, halfway from ``delay`` to ``latency / target``.

    Never below ``floor``, the configured delay, and not above ``ceiling`` unless the floor is.
    """
    goal = latency / target
    if not goal >= 0:  # also a NaN
        goal = delay
    moved = (delay + goal) / 2
    if not ok and moved < delay:
        moved = delay
    return max(floor, min(moved, ceiling))

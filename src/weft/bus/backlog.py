"""A publisher that waits for its readers: nothing more is sent while a group is too far behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from weft.bus.base import Bus, Group
from weft.bus.topics import matches

_FIRST_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 1.0


async def room(
    bus: Bus, topics: Collection[str], max_lag: int, waiting: Callable[[Group], None] = lambda group: None
) -> None:
    """Return once no group that takes one of the topics lags by more than ``max_lag`` messages.

    ``waiting`` is told the group that is furthest behind, at each look. A group whose topics the broker does not tell
    counts. What others publish between this look and what is done after it is not seen.

    :raises BusError: the groups can't be looked at.
    """
    pause = _FIRST_LOOK_SECONDS
    while True:
        behind = [group for group in await bus.groups() if group.lag > max_lag and _takes(group, topics)]
        if not behind:
            return
        waiting(max(behind, key=lambda group: group.lag))
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_LOOK_SECONDS)


def _takes(group: Group, topics: Collection[str]) -> bool:
    patterns = group.topics
    return patterns is None or any(matches(patterns, topic) for topic in topics)

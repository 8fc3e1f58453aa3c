"""What a crawl is to do, handed from the one who measures it to its spider."""

from __future__ import annotations

from typing import Final

import msgspec

PLAN: Final = "plan.json"
BEGUN: Final = "begun"
STOP: Final = "stop"
WARM_UP: Final = 10
"""Pages of the good host before the hostile ones are asked for."""


class Plan(msgspec.Struct, frozen=True):
    """``good`` is the first page of the well-behaved host; the next ones are ``step`` apart. ``hostile`` has pairs of a
    URL and a handler's name."""

    good: str
    step: int
    hostile: tuple[tuple[str, str], ...]

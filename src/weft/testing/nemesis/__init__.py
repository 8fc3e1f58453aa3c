"""A crawl by a fleet of real processes, while everything that can be killed is killed; then the books are checked.

``make nemesis SEEDS=20``, or ``python -m weft.testing.nemesis --seeds 20``. What is claimed, and why, is in ``checks``.
"""

from weft.testing.nemesis.run import Result, run
from weft.testing.nemesis.schedule import Event, Kind, Plan, draw

__all__ = ["Event", "Kind", "Plan", "Result", "draw", "run"]

"""A crawl by a fleet of real processes, while everything that can be killed is killed; then the books are checked.

``make nemesis SEEDS=20``, or ``python -m tests.harness.nemesis --seeds 20``. ``checks`` says what must hold, and why.
"""

from tests.harness.nemesis.run import Result, run
from tests.harness.nemesis.schedule import Event, Kind, Plan, draw

__all__ = ["Event", "Kind", "Plan", "Result", "draw", "run"]

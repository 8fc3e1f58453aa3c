"""Crawls with hostile hosts and misbehaving handlers, beside a host whose pages must keep coming.

``python -m tests.harness.nemesis.hostile``, also as part of ``make nemesis``. What is measured is said in :mod:`.run`.
"""

from tests.harness.nemesis.hostile.cases import Case, Trial, all_cases, trials
from tests.harness.nemesis.hostile.run import Result, run

__all__ = ["Case", "Result", "Trial", "all_cases", "run", "trials"]

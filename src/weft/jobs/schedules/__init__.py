"""Schedules: what is due when, kept in a store that several beats share; one of them fires, and each fire runs once.

``when``, ``entry`` and ``plan`` are pure; ``base`` says how it works; ``scheduler`` is a beat, ``guard`` a worker.
"""

from weft.jobs.schedules.entry import Entry
from weft.jobs.schedules.guard import Guard, guard_of
from weft.jobs.schedules.opening import store_for, store_of
from weft.jobs.schedules.reading import parse, when_of
from weft.jobs.schedules.when import Cron, Every, Solar

__all__ = ["Cron", "Entry", "Every", "Guard", "Solar", "guard_of", "parse", "store_for", "store_of", "when_of"]

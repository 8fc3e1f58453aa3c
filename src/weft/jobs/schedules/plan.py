"""What a beat does about an entry that is due. Pure decisions.

Being late has three degrees. A few seconds, as when another beat took over: all that was due is sent, each for its own
time. Later, as after a restart: the latest of what was missed is sent, once, and the rest is forgotten. Later than the
entry's grace: nothing is sent, and that is noted.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from weft.jobs.schedules.entry import Entry
from weft.jobs.schedules.when import due_after, due_at_last, dues

# Longer than another beat needs to take over.
PROMPT = timedelta(seconds=15)


class Plan(msgspec.Struct, frozen=True):
    """For which times it is sent now, when it is due next, and whether something was missed for good."""

    due: tuple[datetime, ...]
    next: datetime
    missed: bool = False


def plan(entry: Entry, due: datetime, now: datetime) -> Plan | None:
    """``due`` is when the entry is due next by its state; None if that is still to come.

    :raises ConfigError: it is never due again.
    """
    if due > now:
        return None
    if now - due <= PROMPT:
        found = tuple(dues(entry.when, due, now))
        return Plan(found, due_after(entry.when, found[-1]))
    latest = due_at_last(entry.when, due, now)
    missed = too_late(entry, latest, now)
    return Plan(() if missed else (latest,), due_after(entry.when, latest), missed)


def too_late(entry: Entry, due: datetime, now: datetime) -> bool:
    return entry.grace is not None and now - due > timedelta(seconds=entry.grace)

"""What stores keep: an entry, how it stands, and the fires that are on their way.

Entry    what to send and when; changed by people only
State    when it is due next, what became of it; changed by the beat that leads, and by pausing it
Fire     one entry at one time that it was due. Its id, and with it the id of the task that is sent, follows from
         these two. So whoever sends it, and however often, it is the same task, and workers run it once.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal

import msgspec

from weft.errors import ConfigError
from weft.jobs.schedules.when import When, due_after

Overlap = Literal["skip", "queue", "allow"]
Source = Literal["code", "weft.toml", "command"]

GRACE_SECONDS = 3600.0
# A beat that takes over from a dead one must not find everything too late.
SHORTEST_GRACE = 30.0
# So long a fire without a limit of its own is waited for by those after it.
_LONG_SECONDS = 7 * 86_400.0
# Within so long a broker hands out again what was not acknowledged.
_REDELIVERED_SECONDS = 3600.0

_SPACE = uuid.UUID("6c2b7a43-9f2e-4a52-9a1e-0d6f5f1a7c11")


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule: which task is sent when, and what happens if that can't be."""

    name: str
    task: str
    when: When
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    options: dict[str, Any] = {}
    """For ``apply_async``: queue, priority, expires …"""
    overlap: Overlap = "allow"
    """While the run before is not over: leave this one out, let it wait, or let both run."""
    grace: float | None = GRACE_SECONDS
    """So many seconds late it is still sent; None is any number."""
    source: Source = "code"

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable():
            raise ConfigError(f"schedule {self.name!r}: give it a name, in letters that can be printed")
        if not self.task:
            raise ConfigError(f"schedule {self.name!r}: which task? Give task = NAME")
        if self.grace is not None and not self.grace >= SHORTEST_GRACE:
            raise ConfigError(
                f"schedule {self.name!r}: grace={self.grace:g} is too short: another beat may need a few seconds to "
                f"take over; give {SHORTEST_GRACE:g} or more, or inf"
            )

    @property
    def patience(self) -> float:
        """For so many seconds a fire that no worker began holds up those after it."""
        return _LONG_SECONDS if self.grace is None else self.grace

    @property
    def memory(self) -> float:
        """For so many seconds after its end a fire is known to be over: longer than a copy of it may come."""
        return self.patience + _REDELIVERED_SECONDS


class State(msgspec.Struct, frozen=True, kw_only=True):
    """How an entry stands. Never change its ``next`` to an earlier time: what was due then was sent."""

    next: datetime
    last: datetime | None = None
    """When it was due last, of what was sent."""
    paused: bool = False
    sent: int = 0
    skipped: int = 0
    """Left out because the run before was not over."""
    missed: int = 0
    """Left out because it was too late; of many at once, one is counted."""
    note: str = ""
    """What went wrong last."""
    open: str = ""
    """The id of the fire that was sent last; whether it is over is known by its mark."""
    opened: datetime | None = None


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """An entry at a time that it was due, on its way to the broker."""

    id: str
    entry: str
    due: datetime


class Kept(msgspec.Struct, frozen=True):
    """An entry as a store has it."""

    entry: Entry
    state: State


def fire(app: str, entry: str, due: datetime) -> Fire:
    return Fire(id=str(uuid.uuid5(_SPACE, f"{app}\n{entry}\n{due.isoformat()}")), entry=entry, due=due)


def fresh(entry: Entry, now: datetime) -> State:
    """How an entry stands that was just made.

    :raises ConfigError: it is never due.
    """
    return State(next=due_after(entry.when, now))

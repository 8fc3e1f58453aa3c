"""Whose turn it is: copies of a slice, and slices that come late, must not do what others do.

A broker hands out a message again when it can't know that it was dealt with; so any slice may come twice, and the copy
may come while the first one runs, or days after. The crawl's ledger has a mark for each job that has a part in it: the
number of its last slice, and when that was over.

- A slice with a lower number than the mark is stale: a later one has begun, so nothing depends on it.
- One with the same number goes on with the work, or takes part where another has it in hand. But if that other one has
  just come to its end, it is about to send the next slice, or to return the result: that is waited for. Only if nothing
  came of it, as it was killed in that very moment, the copy goes on in its place.
- A slice of a job without a mark is the first, and begins the crawl as the command would.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.engine.states import State
from weft.jobs.slices.order import Order


class Turn(StrEnum):
    """What a slice has to do."""

    BEGIN = "begin"
    GO_ON = "go on"
    CONCLUDE = "conclude"
    """The crawl is over, and this job has to say so."""
    WAIT = "wait"
    DROP = "drop"
    LOST = "lost"
    """The crawl that the job began is not there any more."""


class Mark(msgspec.Struct, frozen=True):
    """The last slice of a job, and when it came to its end, in seconds since 1970; 0 while it has not."""

    number: int
    ended: float = 0.0

    @classmethod
    def read(cls, facts: dict[str, str], job: str) -> Mark | None:
        """The mark of a job, by the facts of a ledger."""
        number, _, ended = facts.get(key_of(job), "").partition(" ")
        return cls(int(number), float(ended or 0)) if number else None

    def note(self, job: str) -> dict[str, str]:
        """The mark as a fact."""
        return {key_of(job): f"{self.number} {self.ended:.3f}" if self.ended else str(self.number)}


def key_of(job: str) -> str:
    """The name of the fact."""
    return f"job {job}"


def is_over(facts: dict[str, str]) -> bool:
    """Whether a crawl that was going on has come to its end. If nobody led it then, its outputs are still to do."""
    state = facts.get("state", "")
    return state == State.STOPPED or (bool(state) and State(state).ended and facts.get("unattended") != "yes")


def turn_of(facts: dict[str, str] | None, order: Order, now: float, patience: float) -> Turn:
    """What an order means for a crawl with these facts; None: there is no crawl of that name.

    ``patience``: so many seconds after its end a slice may still send the next one.
    """
    mark = Mark.read(facts or {}, order.job)
    if facts is None or mark is None:
        return Turn.BEGIN if order.number == 1 and order.kind == "slice" else Turn.LOST
    if order.kind == "slice":
        if mark.number > order.number:
            return Turn.DROP
        if mark.number == order.number and now - mark.ended < patience:
            return Turn.WAIT
    return Turn.CONCLUDE if is_over(facts) else Turn.GO_ON

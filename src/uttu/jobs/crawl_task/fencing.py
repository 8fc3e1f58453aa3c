"""Decide what a slice does, so that copies of it and late slices do no work twice.

A broker delivers a message again if it cannot know that it was processed. So any slice may come twice, and the copy may
come while the first one runs, or days later. The ledger of the crawl has a mark for each job that takes part: the
number of its last slice, and when that slice ended.

- A slice with a lower number than the mark is stale: a later one has begun, so it is dropped.
- A slice with the same number continues the work, or takes part if another process leads. If the mark says that the
  slice has just ended, its process is about to send the next slice or the result, so the copy waits. If nothing comes
  within ``patience``, because that process was killed at this moment, the copy continues in its place.
- A slice of a job without a mark is the first, and begins the crawl as the command would.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from uttu.jobs.crawl_task.protocol import SliceRequest
from uttu.model.crawl import CrawlState


class SliceAction(StrEnum):
    """The action that a slice takes."""

    BEGIN = "begin"
    GO_ON = "go on"
    CONCLUDE = "conclude"
    """The crawl is over, and this job reports its result."""
    WAIT = "wait"
    DROP = "drop"
    LOST = "lost"
    """The crawl that the job began no longer exists."""


class SliceMark(msgspec.Struct, frozen=True):
    """The last slice of a job, and when it ended in seconds since 1970; 0 if it has not ended."""

    number: int
    ended: float = 0.0

    @classmethod
    def read(cls, facts: dict[str, str], job: str) -> SliceMark | None:
        """Read the mark of a job from the facts of a ledger."""
        number, _, ended = facts.get(fact_name(job), "").partition(" ")
        return cls(int(number), float(ended or 0)) if number else None

    def note(self, job: str) -> dict[str, str]:
        """Return the mark as a fact."""
        return {fact_name(job): f"{self.number} {self.ended:.3f}" if self.ended else str(self.number)}


def fact_name(job: str) -> str:
    """Return the name of the fact with the mark of a job."""
    return f"job {job}"


def is_crawl_over(facts: dict[str, str]) -> bool:
    """Whether a crawl has ended. If no process led it at that moment, its outputs are still to be written."""
    state = facts.get("state", "")
    return state == CrawlState.STOPPED or (bool(state) and CrawlState(state).ended and facts.get("unattended") != "yes")


def decide_action(facts: dict[str, str] | None, order: SliceRequest, now: float, patience: float) -> SliceAction:
    """Decide what a slice request means for a crawl with these facts; None: no crawl has that name.

    :param patience: seconds after its end in which a slice may still send the next one.
    """
    mark = SliceMark.read(facts or {}, order.job)
    if facts is None or mark is None:
        return SliceAction.BEGIN if order.number == 1 and order.kind == "slice" else SliceAction.LOST
    if order.kind == "slice":
        if mark.number > order.number:
            return SliceAction.DROP
        if mark.number == order.number and now - mark.ended < patience:
            return SliceAction.WAIT
    return SliceAction.CONCLUDE if is_crawl_over(facts) else SliceAction.GO_ON

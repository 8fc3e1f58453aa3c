"""The messages between a task and the process of its slice, and the decision which of several copies works.

Messages are lines of JSON. The task begins with a :class:`SliceRequest`. Later it may send ``STOP_LINE`` (the job was
revoked) or ``HAND_ON_LINE`` (the time is up). When the task dies, even by kill -9, the pipe closes. The process sends
:class:`SliceEvent` lines; the last one has an ``end``.

A broker delivers a message again if it cannot know that it was processed. So any slice may come twice, and the copy may
come while the first one runs, or days later. :func:`decide_action` keeps copies and late slices from doing work twice.
The ledger of the crawl has a mark for each job that takes part (``CrawlFacts.slices``): the number of its last slice,
and when that slice ended.

- A slice with a lower number than the mark is stale: a later one has begun, so it is dropped.
- A slice with the same number continues the work, or takes part if another process leads. If the mark says that the
  slice has just ended, its process is about to send the next slice or the result, so the copy waits. If nothing comes
  within ``patience``, because that process was killed at this moment, the copy continues in its place.
- A slice of a job without a mark is the first, and begins the crawl as the command would.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import msgspec

from uttu import errors
from uttu.engine.worker_processes import CrashedPage
from uttu.errors import UttuError
from uttu.model.crawl import CrawlState
from uttu.model.facts import CrawlFacts
from uttu.runtime.spec import CrawlSpec

STOP_LINE = "stop"
HAND_ON_LINE = "hand on"


class SliceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of a crawl.

    :param kind: ``slice`` runs the crawl, ``join`` takes part in it beside the slices, ``stop`` makes it stop.
    :param job: the id of the task, shared by all slices of a crawl.
    :param number: the number of the slice, from 1 on.
    :param began: when the first slice began, in seconds since 1970.
    :param took_down: pages that crashed earlier processes of this slice.
    """

    kind: Literal["slice", "join", "stop"] = "slice"
    job: str
    number: int = 1
    seconds: float
    began: float
    file: str
    spider_name: str = ""
    arguments: dict[str, str] = {}
    flags: dict[str, Any] = {}
    outputs: tuple[str, ...] = ()
    crawl: str = ""
    fresh: bool = False
    resume: bool = False
    took_down: tuple[CrashedPage, ...] = ()

    def to_spec(self, *, first: bool) -> CrawlSpec:
        """Build the spec of the crawl. ``fresh`` and ``resume`` apply only to the ``first`` slice."""
        return CrawlSpec(
            file=Path(self.file),
            spider_name=self.spider_name,
            arguments=self.arguments,
            flags=self.flags,
            outputs=self.outputs,
            crawl=self.crawl,
            fresh=self.fresh and first,
            resume=self.resume and first,
        )


class SliceEnd(StrEnum):
    """The result of a slice."""

    OVER = "over"
    """The crawl has ended; the event has a summary."""
    REVOKED = "revoked"
    """The crawl was stopped because its job was revoked; the event has a summary."""
    HANDED_ON = "handed on"
    """The next slice continues the crawl."""
    AGAIN = "again"
    """The same slice is sent again: another process works on the crawl."""
    STALE = "stale"
    """Later slices have begun: there is nothing to do and nothing to report."""
    FAILED = "failed"
    """It failed; ``error`` and ``message`` say why."""


class SliceEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of the process: progress of the crawl, that it leads the crawl, or its end."""

    progress: dict[str, Any] | None = None
    leads: bool = False
    end: SliceEnd | None = None
    summary: dict[str, Any] | None = None
    error: str = ""
    message: str = ""

    @classmethod
    def from_error(cls, error: Exception) -> SliceEvent:
        """Return the last event of a process that failed with this error."""
        is_expected = isinstance(error, UttuError)
        message = str(error) if is_expected else f"{type(error).__name__}: {error}"
        return cls(
            end=SliceEnd.FAILED, error=type(error).__name__ if is_expected else UttuError.__name__, message=message
        )

    def to_exception(self) -> UttuError:
        """Return the error as an exception, in the process that reads the event."""
        error_class = getattr(errors, self.error, UttuError)
        return error_class(self.message) if issubclass(error_class, UttuError) else UttuError(self.message)


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


def is_crawl_over(facts: CrawlFacts) -> bool:
    """Whether a crawl has ended. If no process led it at that moment, its outputs are still to be written."""
    if facts.state is None:
        return False
    return facts.state is CrawlState.STOPPED or (facts.state.ended and not facts.unattended)


def decide_action(facts: CrawlFacts | None, request: SliceRequest, now: float, patience: float) -> SliceAction:
    """Decide what a slice request means for a crawl with these facts; None: no crawl has that name.

    :param patience: seconds after its end in which a slice may still send the next one.
    """
    mark = facts.slices.get(request.job) if facts is not None else None
    if facts is None or mark is None:
        return SliceAction.BEGIN if request.number == 1 and request.kind == "slice" else SliceAction.LOST
    if request.kind == "slice":
        if mark.number > request.number:
            return SliceAction.DROP
        if mark.number == request.number and now - mark.ended < patience:
            return SliceAction.WAIT
    return SliceAction.CONCLUDE if is_crawl_over(facts) else SliceAction.GO_ON

"""What a task and the process of its slice tell each other: one line of JSON each.

The task begins with the :class:`Order`. Later it may say ``stop`` (the job was called off) or ``hand on`` (the time is
up); and when it is gone, kill -9 included, the pipe closes. The process answers with a :class:`Word` now and then; the
last one has an ``end``.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import msgspec

from weft import errors
from weft.errors import WeftError
from weft.plan import Plan

STOP = "stop"
HAND_ON = "hand on"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of a crawl.

    ``job`` is the task's id, which all slices of a crawl share, and ``number`` says which of them this is, from 1 on.
    ``kind``: a slice of the crawl; or taking part in it beside the slices; or seeing to it that it stops.
    ``began`` is when the first slice did, by the clock on the wall.
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

    def plan(self, *, first: bool) -> Plan:
        """As a command would have it. Only ``first``, a crawl may be started again, or resumed after its end."""
        return Plan(
            file=Path(self.file),
            spider_name=self.spider_name,
            arguments=self.arguments,
            flags=self.flags,
            outputs=self.outputs,
            crawl=self.crawl,
            fresh=self.fresh and first,
            resume=self.resume and first,
        )


class End(StrEnum):
    """What a slice came to."""

    OVER = "over"
    """The crawl has ended; the summary is there."""
    HANDED_ON = "handed on"
    """The next slice is to go on."""
    AGAIN = "again"
    """The same slice is to look again: another process has the crawl in hand."""
    STALE = "stale"
    """Later slices have begun. There is nothing to do, and nothing to say."""
    FAILED = "failed"
    """It can't be done; ``error`` and ``message`` say why."""


class Word(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the process says: how far the crawl is, that it leads the crawl, or its end."""

    progress: dict[str, Any] | None = None
    leads: bool = False
    end: End | None = None
    summary: dict[str, Any] | None = None
    error: str = ""
    message: str = ""

    @classmethod
    def of_error(cls, error: Exception) -> Word:
        """The last word of a process that failed."""
        known = isinstance(error, WeftError)
        message = str(error) if known else f"{type(error).__name__}: {error}"
        return cls(end=End.FAILED, error=type(error).__name__ if known else WeftError.__name__, message=message)

    def exception(self) -> WeftError:
        """The same, in the process that reads it."""
        kind = getattr(errors, self.error, WeftError)
        return kind(self.message) if issubclass(kind, WeftError) else WeftError(self.message)

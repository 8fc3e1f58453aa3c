"""Say why a lane waits, how far a crawl is, and what is wrong right now. Results are typed; words are made at the edge.

All functions are pure: they judge the status and the samples that other operations have read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from uttu.model.crawl import CrawlState, ReasonKind
from uttu.model.history import CrawlSample
from uttu.model.lease import LaneState
from uttu.operations.crawls import BrokenState, CrawlStatus


class WaitKind(StrEnum):
    """Why the next page of a lane waits."""

    HELD = "held"
    """The lane is held for a time, for example because the host answered with 429; ``text`` is the reason."""
    ACTIVE = "active"
    """As many requests as its pace allows are in flight."""
    PINNED = "pinned"
    """For the delay that an operator has set."""
    PACE = "pace"
    """For the delay of the crawl, of robots.txt or of the throttle."""
    READY = "ready"
    """For a worker: the lane is due."""
    IDLE = "idle"
    """Nothing is pending or in flight."""


class LaneWait(msgspec.Struct, frozen=True):
    """Why a lane waits. ``seconds``: how much longer, if that is known. ``text``: the reason of a hold."""

    kind: WaitKind
    seconds: float = 0.0
    text: str = ""


def describe_wait(lane: LaneState) -> LaneWait:
    """Why the next page of a lane waits."""
    if lane.reason and lane.wait > 0:
        return LaneWait(WaitKind.HELD, lane.wait, lane.reason)
    if (lane.pace.limit and lane.active >= lane.pace.limit) or (lane.active and not lane.pending):
        return LaneWait(WaitKind.ACTIVE)
    if not lane.pending:
        return LaneWait(WaitKind.IDLE)
    if lane.wait > 0:
        return LaneWait(WaitKind.PINNED if lane.pinned else WaitKind.PACE, lane.wait)
    return LaneWait(WaitKind.READY)


class ProgressWait(StrEnum):
    """What a crawl waits for before it can end."""

    OPERATOR = "operator"
    """It is paused."""
    WORKERS = "workers"
    """No worker has reported lately."""
    START = "start"
    """Its start URLs are not all read yet."""
    FEED = "feed"
    """``count`` pushed start URLs are not taken in yet."""
    FLIGHT = "flight"
    """``count`` pages are with workers."""
    GONE = "gone"
    """``count`` pages are leased by workers that are gone; they return when the crawl goes on."""
    RETRIES = "retries"
    """``count`` pages are tried again later."""
    HELD = "held"
    """``count`` lanes are held, or more."""
    PENDING = "pending"
    """``count`` pages are pending."""


class Waiting(msgspec.Struct, frozen=True):
    """Something that a crawl waits for, and how many of it."""

    kind: ProgressWait
    count: int = 0


class ProgressEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """How far a crawl is.

    ``share``: of the requests it knows, how many are done or dead. ``rate`` and ``growth``: pages that end and new
    pages, each per second, over the latest samples. ``estimate``: seconds until the end; None if it can't be known,
    because the crawl does not run or finds pages faster than it fetches them.
    """

    share: float
    rate: float = 0.0
    growth: float = 0.0
    estimate: float | None = None
    waits: list[Waiting] = []


# Rates are those of the last five minutes.
_RATE_SECONDS: Final = 300.0


def describe_progress(status: CrawlStatus, samples: Sequence[CrawlSample], held: int = 0) -> ProgressEstimate:
    """How far a crawl is, how fast, and what it waits for.

    :param samples: Of the last minutes, the oldest first.
    :param held: How many lanes are held.
    """
    counts = status.counts
    ended = counts.done + counts.dead
    share = ended / counts.seen if counts.seen else 0.0
    recent = _recent(samples)
    rate = growth = 0.0
    if len(recent) > 1:
        first, last = recent[0], recent[-1]
        seconds = last.at - first.at
        rate = max(last.done + last.dead - first.done - first.dead, 0) / seconds
        growth = max(_seen(last) - _seen(first), 0) / seconds
    estimate = _estimate(status, rate, growth) if status.alive and status.state is CrawlState.RUNNING else None
    return ProgressEstimate(share=share, rate=rate, growth=growth, estimate=estimate, waits=_find_waits(status, held))


def _recent(samples: Sequence[CrawlSample]) -> list[CrawlSample]:
    if not samples:
        return []
    return [each for each in samples if each.at >= samples[-1].at - _RATE_SECONDS]


def _seen(sample: CrawlSample) -> int:
    return sample.pending + sample.leased + sample.delayed + sample.done + sample.dead


def _estimate(status: CrawlStatus, rate: float, growth: float) -> float | None:
    counts, rules = status.counts, status.facts.rules
    found = []
    if rate > growth and status.facts.seeded:
        found.append(counts.work / (rate - growth))
    if rate and rules is not None and rules.max_pages:
        found.append(max(rules.max_pages - counts.done - counts.dead, 0) / rate)
    return min(found, default=None)


def _find_waits(status: CrawlStatus, held: int) -> list[Waiting]:
    counts, found = status.counts, []
    if status.state is CrawlState.PAUSED:
        found.append(Waiting(ProgressWait.OPERATOR))
    elif status.alive and not status.living:
        found.append(Waiting(ProgressWait.WORKERS))
    if status.alive and not status.facts.seeded:
        found.append(Waiting(ProgressWait.START))
    numbers = {
        ProgressWait.FEED: status.feed,
        ProgressWait.FLIGHT: counts.leased if status.living else 0,
        ProgressWait.GONE: 0 if status.living else counts.leased,
        ProgressWait.RETRIES: counts.delayed,
        ProgressWait.HELD: held,
        ProgressWait.PENDING: counts.pending,
    }
    return found + [Waiting(kind, count) for kind, count in numbers.items() if count]


class ProblemKind(StrEnum):
    """Something that is wrong with a crawl right now."""

    UNREADABLE = "unreadable"
    """Its store can't be read. Fields: reason."""
    CUT_SHORT = "cut short"
    """It was killed, or its machine went down. Fields: pages to do, command."""
    FAILED = "failed"
    """It stopped although it was not asked to. Fields: reason, command."""
    UNATTENDED = "unattended"
    """It ended without its supervisor, so its outputs are incomplete. Fields: command."""
    NO_WORKERS = "no workers"
    """It runs, but no worker has reported lately."""
    SILENT_WORKERS = "silent workers"
    """Workers with pages have not reported lately. Fields: workers, example."""
    STALLED = "stalled"
    """It runs and has work, but no page ended in some minutes. Fields: seconds, pages to do."""
    ERRORS = "errors"
    """Many pages become dead. Fields: share, seconds."""
    REFUSED = "refused"
    """Many answers are 403, 429 or 503: sites refuse or slow down the crawl. Fields: share, seconds."""
    NO_ANSWER = "no answer"
    """Many fetches have no answer at all. Fields: share, seconds."""


class Problem(msgspec.Struct, frozen=True):
    """Something that is wrong with ``crawl``; ``fields`` depend on the kind."""

    kind: ProblemKind
    crawl: str
    fields: dict[str, str | int | float] = {}


_STALLED_SECONDS: Final = 120.0
_SILENT_SECONDS: Final = 600.0
_ERROR_SHARE: Final = 0.2
_FEWEST: Final = 20
_REFUSALS: Final = ("403", "429", "503")


def find_problems(statuses: Sequence[CrawlStatus], samples: Mapping[str, Sequence[CrawlSample]] = {}) -> list[Problem]:
    """What is wrong right now with these crawls, in their order.

    :param samples: The samples of the last minutes by crawl, the oldest first; without them, shares are not judged.
    """
    return [problem for status in statuses for problem in _find_problems(status, samples.get(status.name, ()))]


def _find_problems(status: CrawlStatus, samples: Sequence[CrawlSample]) -> list[Problem]:
    def problem(kind: ProblemKind, **fields: str | int | float) -> Problem:
        return Problem(kind, status.name, fields)

    if status.state is BrokenState.UNREADABLE:
        return [problem(ProblemKind.UNREADABLE, reason=str(status.reason))]
    if status.state is BrokenState.CUT_SHORT:
        return [problem(ProblemKind.CUT_SHORT, pages=status.counts.work, command=status.command())]
    if status.state is CrawlState.STOPPED and status.reason.kind is ReasonKind.FAILED:
        return [problem(ProblemKind.FAILED, reason=str(status.reason), command=status.command())]
    if status.facts.unattended and not status.alive:
        return [problem(ProblemKind.UNATTENDED, command=status.command())]
    if not status.alive or status.state is not CrawlState.RUNNING:
        return []
    found = []
    if not status.living:
        found.append(problem(ProblemKind.NO_WORKERS))
    silent = [
        name
        for name, (age, report) in status.workers.items()
        if name not in status.living and report.held and age < _SILENT_SECONDS
    ]
    if silent:
        found.append(problem(ProblemKind.SILENT_WORKERS, workers=len(silent), example=silent[0]))
    return found + _judge_samples(status, _recent(samples))


def _judge_samples(status: CrawlStatus, samples: Sequence[CrawlSample]) -> list[Problem]:
    if len(samples) < 2:
        return []
    first, last = samples[0], samples[-1]
    seconds = last.at - first.at
    ended = last.done + last.dead - first.done - first.dead
    if not ended:
        if seconds < _STALLED_SECONDS or not status.counts.work or last.fetched > first.fetched:
            return []
        fields: dict[str, str | int | float] = {"seconds": seconds, "pages": status.counts.work}
        return [Problem(ProblemKind.STALLED, status.name, fields)]
    answers = {code: count - first.statuses.get(code, 0) for code, count in last.statuses.items()}
    total = sum(answers.values())
    shares = {
        ProblemKind.ERRORS: (last.dead - first.dead, ended),
        ProblemKind.REFUSED: (sum(answers.get(code, 0) for code in _REFUSALS), total),
        ProblemKind.NO_ANSWER: (answers.get("0", 0), total),
    }
    return [
        Problem(kind, status.name, {"share": part / whole, "seconds": seconds})
        for kind, (part, whole) in shares.items()
        if whole >= _FEWEST and part / whole > _ERROR_SHARE
    ]

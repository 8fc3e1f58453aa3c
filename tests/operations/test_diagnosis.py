"""Why a lane waits, how far a crawl is, and what is wrong: judged from values alone."""

from __future__ import annotations

from typing import Any

import pytest

from uttu.model import Counts, Pace
from uttu.model.crawl import CrawlState, Reason, ReasonKind, Rules, WorkerReport
from uttu.model.facts import CrawlFacts
from uttu.model.history import CrawlSample
from uttu.model.lease import LaneState
from uttu.operations.crawls import BrokenState, CrawlStatus
from uttu.operations.diagnosis import (
    LaneWait,
    ProblemKind,
    ProgressWait,
    Waiting,
    WaitKind,
    describe_progress,
    describe_wait,
    find_problems,
)


@pytest.mark.parametrize(
    ("fields", "wait"),
    [
        ({}, LaneWait(WaitKind.READY)),
        ({"wait": 2.0}, LaneWait(WaitKind.PACE, 2.0)),
        ({"wait": 2.0, "pinned": True}, LaneWait(WaitKind.PINNED, 2.0)),
        ({"wait": 2.0, "reason": "status 429"}, LaneWait(WaitKind.HELD, 2.0, "status 429")),
        ({"wait": 0.0, "reason": "status 429"}, LaneWait(WaitKind.READY)),
        ({"active": 1}, LaneWait(WaitKind.ACTIVE)),
        ({"active": 3, "pace": Pace(0, 0)}, LaneWait(WaitKind.READY)),
        ({"active": 3, "pending": 0, "pace": Pace(0, 0)}, LaneWait(WaitKind.ACTIVE)),
        ({"pending": 0}, LaneWait(WaitKind.IDLE)),
    ],
)
def test_why_a_lane_waits(fields: dict[str, Any], wait: LaneWait) -> None:
    known: dict[str, Any] = {
        "name": "a.example",
        "pending": 5,
        "active": 0,
        "total": 9,
        "pace": Pace(0.5, 1),
        "wait": 0.0,
    }
    assert describe_wait(LaneState(**(known | fields))) == wait


def status(**fields: Any) -> CrawlStatus:
    known: dict[str, Any] = {
        "name": "shop",
        "state": CrawlState.RUNNING,
        "alive": True,
        "counts": Counts(pending=60, leased=20, done=100, dead=20),
        "facts": CrawlFacts(seeded=True),
        "workers": {"w": (0.5, WorkerReport(pid=1, held=20))},
    }
    return CrawlStatus(**(known | fields))


def samples(*ended: int, seen: tuple[int, ...] = (), distance: float = 10.0, **fields: Any) -> list[CrawlSample]:
    """Samples with these numbers of pages that are done, and in all."""
    totals = seen or (200,) * len(ended)
    return [
        CrawlSample(at=1000 + distance * number, done=done, pending=total - done, **fields)
        for number, (done, total) in enumerate(zip(ended, totals, strict=True))
    ]


def test_progress_with_an_estimate() -> None:
    progress = describe_progress(status(), samples(100, 110, 120))
    assert (progress.share, progress.rate, progress.growth, progress.estimate) == (0.6, 1.0, 0.0, 80.0)
    assert progress.waits == [Waiting(ProgressWait.FLIGHT, 20), Waiting(ProgressWait.PENDING, 60)]


def test_no_estimate_while_a_crawl_grows_faster_than_it_is_fetched() -> None:
    grows = samples(100, 110, 120, seen=(200, 300, 400))
    assert describe_progress(status(), grows).estimate is None
    limited = status(facts=CrawlFacts(seeded=True, rules=Rules(max_pages=150)))
    assert describe_progress(limited, grows).estimate == 30.0
    assert describe_progress(status(), []).estimate is None
    assert describe_progress(status(state=CrawlState.PAUSED), samples(1, 2)).estimate is None


def test_what_a_crawl_waits_for() -> None:
    paused = status(state=CrawlState.PAUSED, workers={}, feed=3, counts=Counts(leased=2, delayed=4))
    assert [(each.kind, each.count) for each in describe_progress(paused, [], held=5).waits] == [
        (ProgressWait.OPERATOR, 0),
        (ProgressWait.FEED, 3),
        (ProgressWait.GONE, 2),
        (ProgressWait.RETRIES, 4),
        (ProgressWait.HELD, 5),
    ]
    starting = status(workers={}, facts=CrawlFacts(), counts=Counts())
    kinds = [each.kind for each in describe_progress(starting, []).waits]
    assert kinds == [ProgressWait.WORKERS, ProgressWait.START]


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({}, []),
        ({"state": CrawlState.STOPPED, "alive": False, "reason": Reason("stopped by the operator")}, []),
        ({"state": BrokenState.UNREADABLE, "alive": False}, [ProblemKind.UNREADABLE]),
        ({"state": BrokenState.CUT_SHORT, "alive": False}, [ProblemKind.CUT_SHORT]),
        (
            {"state": CrawlState.STOPPED, "alive": False, "reason": Reason("disk full", ReasonKind.FAILED)},
            [ProblemKind.FAILED],
        ),
        (
            {"state": CrawlState.FINISHED, "alive": False, "facts": CrawlFacts(unattended=True)},
            [ProblemKind.UNATTENDED],
        ),
        ({"workers": {}}, [ProblemKind.NO_WORKERS]),
        (
            {"workers": {"w": (0.5, WorkerReport()), "old": (60.0, WorkerReport(held=3))}},
            [ProblemKind.SILENT_WORKERS],
        ),
    ],
)
def test_problems(fields: dict[str, Any], kinds: list[ProblemKind]) -> None:
    assert [problem.kind for problem in find_problems([status(**fields)])] == kinds


def test_problems_in_the_numbers() -> None:
    stalled = {"shop": samples(100, 100, distance=130.0)}
    (problem,) = find_problems([status()], stalled)
    assert (problem.kind, problem.crawl, problem.fields["seconds"]) == (ProblemKind.STALLED, "shop", 130.0)
    first = CrawlSample(at=0, done=0, fetched=0)
    last = CrawlSample(at=60, done=60, dead=40, fetched=100, statuses={"200": 50, "429": 30, "0": 30})
    kinds = {problem.kind: problem.fields["share"] for problem in find_problems([status()], {"shop": [first, last]})}
    assert kinds == {
        ProblemKind.ERRORS: 0.4,
        ProblemKind.REFUSED: pytest.approx(30 / 110),
        ProblemKind.NO_ANSWER: pytest.approx(30 / 110),
    }
    assert not find_problems([status()], {"shop": samples(100, 110)})

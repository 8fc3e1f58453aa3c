from __future__ import annotations

from pathlib import Path

import pytest

from uttu.engine import throttled_hosts
from uttu.engine.throttled_hosts import ThrottledHosts
from uttu.frontier.sqlite import Database
from uttu.frontier.sqlite.outbox import SqliteMemo
from uttu.policy.retry import RetryPolicy, Verdict, decide_status
from uttu.testing.clock import FakeClock

LANE = "a.example"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def decide(
    patience: ThrottledHosts, retry_after: float | None, status: int = 503, longest: float = 100.0
) -> tuple[Verdict, str]:
    verdict = decide_status(RetryPolicy(longest=longest), 1, status, retry_after, 0.0)
    assert verdict is not None
    return patience.decide(LANE, status, verdict)


def test_a_wait_that_is_too_long_closes_the_host_until_it_is_over(clock: FakeClock) -> None:
    patience = ThrottledHosts(100.0, clock)
    verdict, reason = decide(patience, 86400.0 * 365)
    assert not verdict.retry
    assert reason == "answered with status 503 and asks to wait 365 days, more than max_retry_after=100"
    assert patience.refuse(LANE) == f"not requested: its host {reason}"
    assert patience.refuse("b.example") is None
    clock.advance(86400 * 365)
    assert patience.refuse(LANE) is None


async def test_a_host_is_opened_for_pages_that_are_put_back(tmp_path: Path, clock: FakeClock) -> None:
    database = Database.open(tmp_path / "crawl.db")
    memo = SqliteMemo(database, clock)
    await throttled_hosts.write_retry_token(memo)
    patience = ThrottledHosts(100.0, clock, memo)
    for _ in range(2):
        assert decide(patience, 86400.0)[0].closed
        await patience.note_closed(LANE)
        assert not await patience.reopened(LANE)
        assert patience.refuse(LANE)
        await throttled_hosts.write_retry_token(memo)
        assert await patience.reopened(LANE)
        assert patience.refuse(LANE) is None
    database.close()


def test_a_failing_page_closes_nothing(clock: FakeClock) -> None:
    patience = ThrottledHosts(100.0, clock)
    verdict, reason = decide(patience, 1000.0, status=500)
    assert (verdict.retry, "asks to wait" in reason) == (False, True)
    assert patience.refuse(LANE) is None


def test_waits_add_up_until_there_is_another_answer(clock: FakeClock) -> None:
    patience = ThrottledHosts(100.0, clock)
    for _ in range(2):
        assert decide(patience, 40.0)[0].retry
        clock.advance(40)
    patience.answered(LANE, 503)
    patience.answered("b.example", 200)
    verdict, reason = decide(patience, 40.0)
    assert not verdict.retry
    assert reason == "answered with status 503 for 80 seconds now, and asks to wait longer than max_retry_after=100"
    assert patience.refuse(LANE)
    clock.advance(40)
    patience.answered(LANE, 200)
    assert patience.refuse(LANE) is None
    assert decide(patience, 40.0)[0].retry


def test_a_guessed_wait_may_be_longer_than_the_bound(clock: FakeClock) -> None:
    """A host that names no time is tried again."""
    verdict, reason = decide(ThrottledHosts(1.0, clock), None, longest=1.0)
    assert verdict == Verdict(retry=True, after=5.0, hold=5.0)
    assert reason == "answered with status 503"

"""Retries: which failures deserve one, how long to wait, and when to stop."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu.errors import BadResponse, FetchError, NetworkError, TLSError, TooLarge, TooSlow, UnknownHost
from uttu.policy.retry import (
    MAX_RETRY_AFTER,
    SERVER,
    THROTTLED,
    RetryPolicy,
    Verdict,
    backoff,
    decide_error,
    decide_robots,
    decide_status,
    format_seconds,
    parse_retry_after,
)

POLICY = RetryPolicy(retries=3)
NOW = datetime(2026, 8, 19, 12, 0, tzinfo=UTC)

policies = st.builds(
    RetryPolicy,
    retries=st.integers(0, 20),
    base=st.floats(0.01, 60),
    cap=st.floats(0.01, 3600),
    jitter=st.floats(0, 1),
)
rolls = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 10_000)


def test_the_wait_doubles_between_half_and_full() -> None:
    assert [backoff(POLICY, attempt, 0.0) for attempt in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert backoff(POLICY, 4, 0.999999) == pytest.approx(4, abs=0.01)
    assert backoff(POLICY, 100, 0.0) == 300


@given(policies, attempts, rolls)
def test_the_wait_is_bounded_and_grows(policy: RetryPolicy, attempt: int, roll: float) -> None:
    wait = backoff(policy, attempt, roll)
    assert 0 <= wait <= policy.cap
    assert wait <= backoff(policy, attempt + 1, roll)
    assert wait >= (1 - policy.jitter) * min(policy.base, policy.cap) * 0.999


@pytest.mark.parametrize("status", [200, 204, 301, 304, 400, 401, 403, 404, 410, 418, 451, 501, 505])
def test_permanent_statuses_are_not_retried(status: int) -> None:
    assert decide_status(POLICY, 1, status, None, 0.0) is None


@pytest.mark.parametrize("status", sorted(SERVER))
def test_failing_server_is_retried_within_the_budget(status: int) -> None:
    assert decide_status(POLICY, 1, status, None, 0.0) == Verdict(retry=True, after=1.0)
    assert decide_status(POLICY, 3, status, None, 0.0) == Verdict(retry=True, after=4.0)
    assert decide_status(POLICY, 4, status, None, 0.0) == Verdict(retry=False)


@pytest.mark.parametrize("status", sorted(THROTTLED))
def test_throttling_host_is_held_and_its_page_has_more_attempts(status: int) -> None:
    first = decide_status(POLICY, 1, status, None, 0.0)
    assert first == Verdict(retry=True, after=5.0, hold=5.0)
    tenth = decide_status(POLICY, 10, status, None, 0.0)
    assert tenth is not None
    assert not tenth.retry
    assert tenth.hold > 0, "the page gives up, the host still rests"
    ninth = decide_status(POLICY, 9, status, None, 0.0)
    assert ninth is not None
    assert ninth.retry


def test_retry_after_is_obeyed_and_bounded() -> None:
    assert decide_status(POLICY, 1, 429, 30.0, 0.5) == Verdict(retry=True, after=30.0, hold=30.0)
    longest = Verdict(retry=True, after=MAX_RETRY_AFTER, hold=MAX_RETRY_AFTER)
    assert decide_status(POLICY, 1, 503, MAX_RETRY_AFTER, 0.5) == longest
    assert decide_status(POLICY, 1, 429, 0.0, 0.5) == Verdict(retry=True, after=1.0, hold=1.0)
    assert decide_status(POLICY, 1, 500, 7.0, 0.5) == Verdict(retry=True, after=7.0)


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (NetworkError, 4),
        (TooSlow, 4),
        (BadResponse, 4),
        (UnknownHost, 2),
        (TLSError, 1),
        (TooLarge, 1),
        (FetchError, 1),
    ],
)
def test_how_often_each_error_is_tried(error: type[FetchError], tries: int) -> None:
    verdicts = [decide_error(POLICY, attempt, error("no"), 0.0) for attempt in range(1, 10)]
    assert [verdict.retry for verdict in verdicts] == [True] * (tries - 1) + [False] * (10 - tries)
    assert all(verdict.hold == 0 for verdict in verdicts)


@given(policies, attempts, st.integers(100, 999), st.none() | st.floats(0, 1e12), rolls)
def test_every_verdict_is_bounded_and_tries_end(
    policy: RetryPolicy, attempt: int, status: int, retry_after: float | None, roll: float
) -> None:
    verdict = decide_status(policy, attempt, status, retry_after, roll)
    if verdict is None:
        return
    assert 0 <= verdict.after <= max(policy.cap, MAX_RETRY_AFTER)
    assert 0 <= verdict.hold <= max(policy.cap, MAX_RETRY_AFTER)
    assert not (verdict.retry and retry_after is not None and retry_after > MAX_RETRY_AFTER)
    assert not (verdict.retry and attempt > 3 * policy.retries)


@pytest.mark.parametrize(
    ("failure", "tries"),
    [
        (500, 4),
        (501, 4),
        (505, 4),
        (599, 4),
        (429, 10),
        (503, 10),
        (NetworkError("no"), 4),
        (TooSlow("no"), 4),
        (BadResponse("no"), 4),
        (UnknownHost("no"), 2),
        (TLSError("no"), 1),
    ],
)
def test_how_often_a_robots_txt_is_tried(failure: FetchError | int, tries: int) -> None:
    verdicts = [decide_robots(number, failure, None, 0.0) for number in range(1, 15)]
    assert [verdict.retry for verdict in verdicts] == [True] * (tries - 1) + [False] * (15 - tries)
    holds = [verdict.hold for verdict in verdicts if verdict.retry]
    assert holds == sorted(holds), "longer with every try"
    assert all(hold >= 1 for hold in holds)


failures = st.integers(500, 999) | st.just(429) | st.builds(NetworkError) | st.builds(TLSError) | st.builds(FetchError)


@given(st.integers(1, 10_000), failures, st.none() | st.floats(0, 1e12), rolls)
def test_lane_is_held_while_robots_txt_is_retried(
    tries: int, failure: FetchError | int, retry_after: float | None, roll: float
) -> None:
    verdict = decide_robots(tries, failure, retry_after, roll)
    assert verdict.retry == (verdict.hold > 0)
    assert verdict.hold == verdict.after <= MAX_RETRY_AFTER
    assert not (verdict.retry and tries >= 10)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 5 ", 5.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("31536000", 365 * 86400.0),
        ("Wed, 19 Aug 2026 12:01:00 GMT", 60.0),
        ("Wednesday, 19-Aug-26 12:01:00 GMT", 60.0),
        ("Wed Aug 19 12:01:00 2026", 60.0),
        ("Wed, 19 Aug 2026 14:01:00 +0200", 60.0),
        ("Thu, 19 Aug 2027 12:00:00 GMT", 365 * 86400.0),
        ("Wed, 19 Aug 2026 11:59:59 GMT", None),
        ("-5", None),
        ("soon", None),
        ("9" * 5000, math.inf),
        ("1e9", None),
        ("inf", None),
        ("nan", None),
        ("", None),
        (None, None),
        ("Wed, 99 Zzz 2026 12:01:00 GMT", None),
        ("Wed, 19 Aug 2026 12:01:00 +9999999999", None),
    ],
)
def test_retry_after_headers(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


def test_a_clock_without_a_zone_is_read_as_utc() -> None:
    assert parse_retry_after("Wed, 19 Aug 2026 12:01:00 GMT", NOW.replace(tzinfo=None)) == 60.0


@given(st.text() | st.from_regex(r"\w{3}, \d{1,3} \w{3} \d{1,5} \d\d?:\d\d?:\d\d? [-+\w]{0,8}"))
def test_no_header_raises(value: str) -> None:
    seconds = parse_retry_after(value, NOW)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize("status", sorted(THROTTLED | SERVER))
@pytest.mark.parametrize("retry_after", [MAX_RETRY_AFTER + 1, 365 * 86400.0, math.inf])
def test_retry_after_beyond_the_limit(status: int, retry_after: float) -> None:
    verdict = decide_status(POLICY, 1, status, retry_after, 0.0)
    assert verdict == Verdict(retry=False, too_long=retry_after, closed=status in THROTTLED)
    robots = decide_robots(1, status, retry_after, 0.0)
    assert robots == Verdict(retry=False, too_long=retry_after)


def test_the_bound_is_a_setting() -> None:
    policy = RetryPolicy(longest=10.0)
    assert decide_status(policy, 1, 429, 10.0, 0.0) == Verdict(retry=True, after=10.0, hold=10.0)
    assert decide_status(policy, 1, 429, 10.1, 0.0) == Verdict(retry=False, too_long=10.1, closed=True)
    assert decide_robots(1, 429, 10.1, 0.0, 10.0) == Verdict(retry=False, too_long=10.1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (365 * 86400.0, "365 days"),
        (7200.0, "2 hours"),
        (3700.0, "62 minutes"),
        (90.0, "90 seconds"),
        (1.5, "1.5 seconds"),
        (math.inf, "an endless time"),
    ],
)
def test_time_spans_in_words(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words


@given(st.integers(0, 3600))
def test_dates_and_seconds_agree(seconds: int) -> None:
    date = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    assert parse_retry_after(date, NOW) == parse_retry_after(str(seconds), NOW) == seconds

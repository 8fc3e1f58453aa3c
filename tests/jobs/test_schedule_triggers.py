"""When schedules are due: properties of crontab lines, changes of the clock, the sun."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uttu.errors import ConfigError
from uttu.jobs.schedules import triggers
from uttu.jobs.schedules.triggers import Cron, Every, Solar, Trigger, latest_time, next_time, times_between

# Clocks that change by an hour, by half an hour, at midnight, never; and a place that left out a day.
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Havana",
    "Asia/Kolkata",
    "Pacific/Apia",
)
BERLIN = "Europe/Berlin"
MINUTE = timedelta(minutes=1)

moments = st.datetimes(datetime(2010, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))
zones = st.sampled_from(ZONES)


def field(lowest: int, highest: int) -> st.SearchStrategy[str]:
    numbers = st.integers(lowest, highest)
    ranges = st.tuples(numbers, numbers).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.integers(1, highest).map(lambda step: f"*/{step}")
    parts = st.one_of(numbers.map(str), ranges, steps)
    return st.one_of(st.just("*"), st.lists(parts, min_size=1, max_size=3).map(",".join))


lines = st.tuples(field(0, 59), field(0, 23), st.just("*"), field(1, 12), field(0, 6)).map(" ".join)


def times(line: str, timezone: str, start: datetime, count: int) -> list[str]:
    """The next times on the wall's clock, with how far it is from UTC."""
    when = Cron(line, timezone)
    found, moment = [], start
    for _ in range(count):
        moment = next_time(when, moment)
        found.append(moment.astimezone(ZoneInfo(timezone)).strftime("%d %H:%M%z")[:-2])
    return found


@given(lines, zones, moments)
@settings(max_examples=300, deadline=None)
def test_times_rise_and_match_the_line(line: str, timezone: str, start: datetime) -> None:
    when, fields = Cron(line, timezone), triggers.parse_crontab(line)
    moment = start
    for _ in range(3):
        after = next_time(when, moment)
        assert after > moment
        assert after.second == after.microsecond == 0
        local = after.astimezone(ZoneInfo(timezone))
        matches = fields.matches(local.date()) and local.hour in fields.hours and local.minute in fields.minutes
        assert matches or _after_a_gap(after, timezone)
        moment = after


@given(lines, zones, moments)
@settings(max_examples=200, deadline=None)
def test_no_time_in_between_is_left_out(line: str, timezone: str, start: datetime) -> None:
    """Every minute before the next time does not match the line; or is the second time that the clock shows it."""
    fields = triggers.parse_crontab(line)
    after = next_time(Cron(line, timezone), start)
    moment = start.replace(second=0, microsecond=0) + MINUTE
    for _ in range(3000):
        if moment >= after:
            break
        local = moment.astimezone(ZoneInfo(timezone))
        matches = fields.matches(local.date()) and local.hour in fields.hours and local.minute in fields.minutes
        assert not matches or (local.fold == 1 and not fields.every_hour)
        moment += MINUTE


@given(st.one_of(lines, st.sampled_from(["30 2 * * *", "*/20 1-3 * * *", "15 * * * *"])), zones, moments)
@settings(max_examples=200, deadline=None)
def test_due_times_do_not_depend_on_the_start_of_the_search(line: str, timezone: str, start: datetime) -> None:
    when = Cron(line, timezone)
    after = next_time(when, start)
    middle = start + (after - start) / 2
    assert next_time(when, middle) == after
    assert next_time(when, after - timedelta(microseconds=1)) == after


@given(st.integers(0, 23), st.integers(0, 59), zones, st.integers(2012, 2029))
@settings(max_examples=60, deadline=None)
def test_a_daily_line_is_due_once_on_each_day(hour: int, minute: int, timezone: str, year: int) -> None:
    when, zone = Cron(f"{minute} {hour} * * *", timezone), ZoneInfo(timezone)
    first = next_time(when, datetime(year, 1, 1, tzinfo=zone).astimezone(UTC) - MINUTE)
    found = list(times_between(when, first, datetime(year, 12, 31, 23, 59, 59, tzinfo=zone).astimezone(UTC)))
    days = [moment.astimezone(zone).date() for moment in found]
    assert all(before < after for before, after in pairwise(days))
    assert len(days) == (datetime(year + 1, 1, 1) - datetime(year, 1, 1)).days


def _after_a_gap(moment: datetime, timezone: str) -> bool:
    zone = ZoneInfo(timezone)
    before, now = (moment - MINUTE).astimezone(zone), moment.astimezone(zone)
    return now.replace(tzinfo=None) - before.replace(tzinfo=None) > MINUTE


def test_skipped_hour_runs_at_the_end_of_the_gap() -> None:
    start = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert times("30 2 * * *", BERLIN, start, 2) == ["29 03:00+02", "30 02:30+02"]
    assert times("*/20 2 * * *", BERLIN, start, 2) == ["29 03:00+02", "30 02:00+02"]
    assert times("30 2,3 * * *", BERLIN, start, 2) == ["29 03:00+02", "29 03:30+02"]


def test_an_hour_that_comes_twice_counts_once() -> None:
    start = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert times("30 2 * * *", BERLIN, start, 2) == ["25 02:30+02", "26 02:30+01"]


def test_lines_for_every_hour_go_by_real_time() -> None:
    assert times("30 * * * *", BERLIN, datetime(2026, 3, 28, 23, 45, tzinfo=UTC), 2) == ["29 01:30+01", "29 03:30+02"]
    autumn = ["25 02:30+02", "25 02:30+01", "25 03:30+01"]
    assert times("30 * * * *", BERLIN, datetime(2026, 10, 25, 0, 0, tzinfo=UTC), 3) == autumn


def test_a_day_must_match_both_of_its_fields() -> None:
    found = next_time(Cron("0 0 13 * fri"), datetime(2026, 4, 1, tzinfo=UTC))
    assert found == datetime(2026, 11, 13, tzinfo=UTC)


def test_rare_days_are_found() -> None:
    assert next_time(Cron("0 0 29 2 mon"), datetime(2026, 4, 1, tzinfo=UTC)) == datetime(2044, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@weekly", "0 0 * * sun"),
        ("@Monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 jan *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * fri-mon", "0 0 * * 5,6,0,1"),
        ("0 0 * * mon-7", "0 0 * * *"),
        ("0 22-2 * * *", "0 22,23,0,1,2 * * *"),
        ("0 0 * March,SEP *", "0 0 * 3,9 *"),
        ("10-20/5 * * * *", "10,15,20 * * * *"),
        (" 0  0 *  * * ", "0 0 * * *"),
    ],
)
def test_a_line_can_be_written_in_several_ways(line: str, same: str) -> None:
    assert triggers.parse_crontab(line) == triggers.parse_crontab(same)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("* * * *", "it has 4 fields instead of five"),
        ("", "it has 0 fields"),
        ("60 * * * *", "'60' is not a valid minute; write 0 to 59"),
        ("* 24 * * *", "'24' is not a valid hour"),
        ("* * 0 * *", "'0' is not a valid day of the month; write 1 to 31"),
        ("* * * 13 *", "'13' is not a valid month"),
        ("* * * * 8", "'8' is not a valid day of the week"),
        ("1-2-3 * * * *", "'1-2-3' is not a valid minute"),
        ("*/0 * * * *", "must be 1 or more"),
        ("5/10 * * * *", "follow a range or *"),
        ("1,,2 * * * *", "'' is not a valid minute"),
        ("* * * * monkey", "'monkey' is not a valid day of the week"),
        ("-1 * * * *", "'-1' is not a valid minute"),
        ("@often", "1 fields"),
    ],
)
def test_a_malformed_line_is_refused(line: str, says: str) -> None:
    with pytest.raises(ConfigError, match="Malformed crontab") as caught:
        Cron(line)
    assert says in str(caught.value)


def test_a_day_that_never_comes_is_refused() -> None:
    with pytest.raises(ConfigError, match="never due"):
        next_time(Cron("0 0 30 2 *"), datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("timezone", ["Europe/Nowhere", "", "../etc/passwd"])
def test_an_unknown_time_zone_is_refused(timezone: str) -> None:
    with pytest.raises(ConfigError, match="There is no time zone"):
        Cron("0 7 * * *", timezone)


@given(
    st.one_of(
        st.floats(0.1, 1e6).map(Every),
        st.tuples(lines, zones).map(lambda pair: Cron(*pair)),
        st.just(Solar("sunrise", 52.5, 13.4)),
    ),
    moments,
    st.integers(0, 40 * 86_400),
)
@settings(max_examples=100, deadline=None)
def test_the_latest_time_is_the_last_of_all(when: Trigger, start: datetime, seconds: int) -> None:
    first = next_time(when, start)
    now = first + timedelta(seconds=seconds if not isinstance(when, Every) else seconds % 1000)
    latest = latest_time(when, first, now)
    assert first <= latest <= now
    assert next_time(when, latest) > now
    if isinstance(when, Every):
        assert latest == list(times_between(when, first, now))[-1]


# As the package ephem 4.2 has it, which Celery would ask.
@pytest.mark.parametrize(
    ("event", "latitude", "longitude", "expected"),
    [
        ("sunrise", 52.52, 13.405, "2026-06-21T02:43:08"),
        ("sunset", 52.52, 13.405, "2026-06-21T19:33:14"),
        ("sunrise", -33.87, 151.21, "2026-12-20T18:40:37"),
        ("solar_noon", 0.0, 0.0, "2026-02-11T12:14:11"),
        ("dawn_civil", 40.71, -74.01, "2026-03-20T10:32:03"),
        ("dusk_astronomical", 40.71, -74.01, "2026-03-20T00:38:58"),
    ],
)
def test_the_sun(event: str, latitude: float, longitude: float, expected: str) -> None:
    known = datetime.fromisoformat(expected).replace(tzinfo=UTC)
    found = next_time(Solar(event, latitude, longitude), known.replace(hour=0, minute=0, second=0))
    assert abs(found - known) <= timedelta(seconds=30)


def test_the_sun_does_not_rise_in_the_polar_night_but_after_it() -> None:
    found = next_time(Solar("sunrise", 69.65, 18.96), datetime(2026, 12, 1, tzinfo=UTC))
    assert datetime(2027, 1, 10, tzinfo=UTC) < found < datetime(2027, 1, 20, tzinfo=UTC)


@pytest.mark.parametrize("event", ["dawn_nautical", "sunrise", "solar_noon", "sunset", "dusk_civil"])
def test_the_sun_comes_once_a_day(event: str) -> None:
    when = Solar(event, 48.1, 179.9)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    for _ in range(365):
        after = next_time(when, moment)
        assert after > moment
        if moment.minute or moment.hour:
            assert timedelta(hours=23, minutes=50) < after - moment < timedelta(hours=24, minutes=10)
        moment = after


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: Solar("moonrise", 0.0, 0.0), "no solar event 'moonrise'. The events are dawn_astronomical"),
        (lambda: Solar("sunrise", 90.0, 0.0), "latitude must be between"),
        (lambda: Every(0.0), "is out of range. Give seconds"),
        (lambda: Every(float("nan")), "is out of range. Give seconds"),
        (lambda: Every(-5.0), "is out of range. Give seconds"),
    ],
)
def test_impossible_arguments_are_refused(made: Callable[[], Trigger], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        made()

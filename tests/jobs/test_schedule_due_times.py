"""What is sent for an entry that is due, and how late it may be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from uttu.jobs.schedules.schedule import CATCH_UP_TIME, Schedule, create_run, find_due_times
from uttu.jobs.schedules.triggers import Cron, Every, Trigger

DUE = datetime(2026, 3, 1, 7, tzinfo=UTC)
DAILY = Cron("0 7 * * *")


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def entry(when: Trigger, grace: float | None = 3600.0) -> Schedule:
    return Schedule(name="e", task="t", when=when, grace=grace)


def test_run_is_not_sent_before_it_is_due() -> None:
    assert find_due_times(entry(DAILY), DUE, DUE - seconds(0.001)) is None


def test_run_is_sent_for_its_due_time() -> None:
    planned = find_due_times(entry(DAILY), DUE, DUE)
    assert planned is not None
    assert (planned.due, planned.next, planned.missed) == ((DUE,), DUE + timedelta(days=1), False)


def test_a_few_seconds_late_everything_is_sent() -> None:
    planned = find_due_times(entry(Every(1.0)), DUE, DUE + seconds(5.5))
    assert planned is not None
    assert planned.due == tuple(DUE + seconds(number) for number in range(6))
    assert planned.next == DUE + seconds(6)


def test_latest_of_several_missed_runs_is_sent() -> None:
    planned = find_due_times(entry(Every(60.0)), DUE, DUE + seconds(86_430))
    assert planned is not None
    assert (planned.due, planned.next) == ((DUE + seconds(86_400),), DUE + seconds(86_460))
    assert not planned.missed


def test_run_later_than_its_grace_is_not_sent() -> None:
    late = find_due_times(entry(DAILY, 1800.0), DUE, DUE + timedelta(days=3, seconds=1800))
    assert late is not None
    assert late.due == (DUE + timedelta(days=3),)
    later = find_due_times(entry(DAILY, 1800.0), DUE, DUE + timedelta(days=3, seconds=1801))
    assert later is not None
    assert (later.due, later.missed, later.next) == ((), True, DUE + timedelta(days=4))


def test_without_a_limit_nothing_is_too_late() -> None:
    planned = find_due_times(entry(DAILY, None), DUE, DUE + timedelta(days=400, hours=12))
    assert planned is not None
    assert (planned.due, planned.missed) == ((DUE + timedelta(days=400),), False)


@given(st.floats(0.1, 100_000.0), st.integers(0, 40_000_000), st.one_of(st.none(), st.floats(30.0, 1e6)))
def test_time_goes_on(every: float, late: int, grace: float | None) -> None:
    now = DUE + timedelta(milliseconds=late)
    planned = find_due_times(entry(Every(every), grace), DUE, now)
    assert planned is not None
    assert planned.next > now
    assert all(DUE <= due <= now for due in planned.due)
    assert len(set(planned.due)) == len(planned.due)
    assert planned.missed == (not planned.due)
    if now - DUE > CATCH_UP_TIME:
        assert len(planned.due) <= 1


def test_run_id_depends_on_app_schedule_and_time() -> None:
    assert create_run("app", "e", DUE) == create_run("app", "e", DUE)
    others = {
        create_run("app", "e", DUE).id,
        create_run("app", "f", DUE).id,
        create_run("other", "e", DUE).id,
        create_run("app", "e", DUE + seconds(1)).id,
    }
    assert len(others) == 4

"""The contract of schedule stores as tests; :mod:`uttu.jobs.schedules.base` has it in prose.

A test class inherits :class:`ScheduleContract` and supplies the fixture ``stores``: a function that opens the same
store once more, as another process would. The store is empty at first.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from uttu.jobs.schedules.base import BeginResult, RunState, ScheduleBackend
from uttu.jobs.schedules.schedule import Schedule, ScheduleState, create_run, create_state
from uttu.jobs.schedules.triggers import Cron, Every, Solar
from uttu.testing.waiting import wait_until

Stores = Callable[[], ScheduleBackend]

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
LONG = 60.0
# A lease this short expires while a test waits for it.
SHORT = 0.2

replace = msgspec.structs.replace


def entry(name: str = "minutely", **more: object) -> Schedule:
    return msgspec.convert({"name": name, "task": "t", "when": {"kind": "every", "seconds": 60.0}, **more}, Schedule)


class ScheduleContract:
    """Changes are atomic, one beat leads, and each run starts once."""

    @pytest.fixture
    def store(self, stores: Stores) -> ScheduleBackend:
        return stores()

    # Entries

    @pytest.mark.parametrize("when", [Every(0.25), Cron("0 7 * * mon", "Europe/Berlin"), Solar("sunset", 52.5, 13.4)])
    def test_an_entry_comes_back_as_it_was(self, stores: Stores, when: Every | Cron | Solar) -> None:
        made = Schedule(
            name="ä b:{c}",
            task="uttu.crawl",
            when=when,
            args=("books.py", 1, None),
            kwargs={"x": [1.5, {"y": "ü"}]},
            options={"queue": "slow", "priority": 9},
            overlap="queue",
            grace=None,
            source="uttu.toml",
        )
        state = replace(create_state(made, NOW), last=NOW, note="ö", sent=3)
        assert stores().put(made, state)
        (kept,) = stores().entries()
        assert (kept.entry, kept.state) == (made, state)

    def test_entries_are_listed_by_name(self, store: ScheduleBackend) -> None:
        for name in ("b", "c", "a"):
            store.put(entry(name), ScheduleState(next=NOW))
        assert [kept.entry.name for kept in store.entries()] == ["a", "b", "c"]

    def test_a_name_is_taken_once(self, store: ScheduleBackend) -> None:
        assert store.put(entry(task="first"), ScheduleState(next=NOW))
        assert not store.put(entry(task="second"), ScheduleState(next=NOW))
        assert store.entries()[0].entry.task == "first"
        assert store.put(entry(task="second"), ScheduleState(next=NOW, sent=1), replace=True)
        assert (store.entries()[0].entry.task, store.entries()[0].state.sent) == ("second", 1)

    def test_what_is_removed_leaves_no_fires(self, store: ScheduleBackend) -> None:
        for name in ("a", "b"):
            store.put(entry(name), ScheduleState(next=NOW))
            store.change(name, ScheduleState(next=NOW), ScheduleState(next=NOW), add=[create_run("app", name, NOW)])
        assert store.remove("a")
        assert not store.remove("a")
        assert [each.entry for each in store.runs()] == ["b"]
        assert [kept.entry.name for kept in store.entries()] == ["b"]

    # Changes

    def test_a_change_moves_the_state_on_and_writes_fires_down(self, stores: Stores) -> None:
        store = stores()
        before, after = ScheduleState(next=NOW), ScheduleState(next=NOW + timedelta(seconds=1))
        fires = [create_run("app", "minutely", NOW + timedelta(seconds=number)) for number in (2, 0, 1)]
        store.put(entry(), before)
        assert store.change("minutely", before, after, add=fires)
        assert stores().entries()[0].state == after
        assert stores().runs() == sorted(fires, key=lambda each: each.due)
        assert store.change("minutely", after, after, drop=fires[:2])
        assert stores().runs() == fires[2:]

    def test_a_change_of_another_state_is_refused_as_a_whole(self, store: ScheduleBackend) -> None:
        before, after = ScheduleState(next=NOW), ScheduleState(next=NOW, paused=True)
        store.put(entry(), before)
        assert store.change("minutely", before, after)
        fires = [create_run("app", "minutely", NOW)]
        assert not store.change("minutely", before, ScheduleState(next=NOW, sent=9), add=fires)
        assert store.entries()[0].state == after
        assert store.runs() == []
        assert not store.change("other", before, after, add=fires)
        assert store.runs() == []

    def test_a_change_by_a_former_leader_is_refused(self, store: ScheduleBackend) -> None:
        before, after = ScheduleState(next=NOW), ScheduleState(next=NOW, sent=1)
        store.put(entry(), before)
        former = store.lead("a", LONG)
        store.resign("a")
        token = store.lead("b", LONG)
        assert not store.change("minutely", before, after, token=former, add=[create_run("app", "minutely", NOW)])
        assert (store.entries()[0].state, store.runs()) == (before, [])
        assert store.change("minutely", before, after, token=token)

    def test_of_many_who_take_the_same_time_one_does(self, stores: Stores) -> None:
        before = ScheduleState(next=NOW)
        store = stores()
        store.put(entry(), before)
        took = [stores().change("minutely", before, ScheduleState(next=NOW, sent=number)) for number in range(1, 6)]
        assert took.count(True) == 1

    # Leadership

    def test_one_leads(self, stores: Stores) -> None:
        token = stores().lead("a", LONG)
        assert token is not None
        assert stores().lead("b", LONG) is None
        assert stores().lead("a", LONG) == token

    def test_who_resigns_makes_room_and_only_for_itself(self, store: ScheduleBackend) -> None:
        first = store.lead("a", LONG)
        store.resign("b")
        assert store.lead("b", LONG) is None
        store.resign("a")
        second = store.lead("b", LONG)
        assert first is not None
        assert second is not None
        assert second > first

    def test_leadership_runs_out(self, store: ScheduleBackend) -> None:
        first = store.lead("a", SHORT)
        assert store.lead("b", SHORT) is None
        wait_until(lambda: store.lead("b", LONG) is not None)
        second = store.lead("b", LONG)
        assert first is not None
        assert second is not None
        assert second > first
        assert store.lead("a", LONG) is None

    # Marks

    def test_a_fire_runs_once(self, stores: Stores) -> None:
        store = stores()
        assert store.marks(["f"]) == [RunState.NONE]
        assert store.begin("f", "a", LONG) is BeginResult.NOW
        assert stores().begin("f", "b", LONG) is BeginResult.BUSY
        assert store.marks(["f", "g"]) == [RunState.RUNNING, RunState.NONE]
        store.end("f", "a", LONG)
        assert stores().begin("f", "b", LONG) is BeginResult.OVER
        assert store.marks(["f"]) == [RunState.OVER]

    def test_a_fire_whose_worker_died_runs_again(self, store: ScheduleBackend) -> None:
        assert store.begin("f", "a", SHORT) is BeginResult.NOW
        wait_until(lambda: store.marks(["f"]) == [RunState.LAPSED])
        assert store.begin("f", "b", LONG) is BeginResult.NOW
        assert not store.extend("f", "a", LONG)
        store.end("f", "a", LONG)
        assert store.marks(["f"]) == [RunState.RUNNING]

    def test_an_extended_mark_holds(self, store: ScheduleBackend) -> None:
        store.begin("f", "a", SHORT, alone="minutely")
        assert store.extend("f", "a", LONG, alone="minutely")
        store.begin("g", "a", SHORT)
        wait_until(lambda: store.marks(["g"]) == [RunState.LAPSED])
        assert store.marks(["f"]) == [RunState.RUNNING]
        assert store.begin("h", "b", LONG, alone="minutely") is BeginResult.BUSY

    def test_a_fire_that_is_handed_on_is_not_over(self, store: ScheduleBackend) -> None:
        store.begin("f", "a", LONG)
        store.end("f", "a", LONG, again=True)
        assert store.marks(["f"]) == [RunState.WAITING]
        assert store.begin("f", "b", LONG) is BeginResult.NOW
        store.end("f", "b", LONG)
        assert store.marks(["f"]) == [RunState.OVER]

    def test_of_an_entry_one_fire_runs_where_it_is_to_be_alone(self, store: ScheduleBackend) -> None:
        assert store.begin("f", "a", LONG, alone="minutely") is BeginResult.NOW
        assert store.begin("g", "b", LONG, alone="minutely") is BeginResult.BUSY
        assert store.begin("h", "c", LONG, alone="other") is BeginResult.NOW
        assert store.begin("i", "d", LONG) is BeginResult.NOW
        store.end("f", "a", LONG, alone="minutely")
        assert store.begin("g", "b", LONG, alone="minutely") is BeginResult.NOW

    def test_a_fire_may_be_over_before_it_began(self, store: ScheduleBackend) -> None:
        store.end("f", "", LONG)
        assert store.begin("f", "a", LONG) is BeginResult.OVER

    def test_what_is_over_is_forgotten_in_the_end(self, store: ScheduleBackend) -> None:
        store.begin("f", "a", LONG)
        store.end("f", "a", SHORT)

        def forgotten() -> bool:
            # lead deletes expired marks in a store that does not expire them itself.
            store.lead("a", LONG)
            return store.marks(["f"]) == [RunState.NONE]

        wait_until(forgotten)

    def test_no_marks_are_asked_for(self, store: ScheduleBackend) -> None:
        assert store.marks([]) == []

    def test_a_closed_store_opens_again(self, store: ScheduleBackend) -> None:
        store.put(entry(), ScheduleState(next=NOW))
        store.close()
        assert len(store.entries()) == 1

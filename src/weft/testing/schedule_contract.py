"""The contract of stores of schedules as tests: what :mod:`weft.jobs.schedules.base` says in prose.

A store passes by inheriting :class:`ScheduleContract` and supplying the fixture ``stores``: a function that opens the
same, at first empty, store once more, as another process would.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from weft.jobs.schedules.base import Begun, Keeper, Mark
from weft.jobs.schedules.entry import Entry, State, fire, fresh
from weft.jobs.schedules.when import Cron, Every, Solar
from weft.testing.waiting import wait_until

Stores = Callable[[], Keeper]

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
LONG = 60.0
# Such a lease runs out while a test waits for it.
SHORT = 0.2

replace = msgspec.structs.replace


def entry(name: str = "minutely", **more: object) -> Entry:
    return msgspec.convert({"name": name, "task": "t", "when": {"kind": "every", "seconds": 60.0}, **more}, Entry)


class ScheduleContract:
    """Entries and fires are changed as a whole; one leads; a fire runs once."""

    @pytest.fixture
    def store(self, stores: Stores) -> Keeper:
        return stores()

    # Entries

    @pytest.mark.parametrize("when", [Every(0.25), Cron("0 7 * * mon", "Europe/Berlin"), Solar("sunset", 52.5, 13.4)])
    def test_an_entry_comes_back_as_it_was(self, stores: Stores, when: Every | Cron | Solar) -> None:
        made = Entry(
            name="ä b:{c}", task="weft.crawl", when=when, args=("books.py", 1, None), kwargs={"x": [1.5, {"y": "ü"}]},
            options={"queue": "slow", "priority": 9}, overlap="queue", grace=None, source="weft.toml",
        )  # fmt: skip
        state = replace(fresh(made, NOW), last=NOW, note="ö", sent=3)
        assert stores().put(made, state)
        (kept,) = stores().entries()
        assert (kept.entry, kept.state) == (made, state)

    def test_entries_are_listed_by_name(self, store: Keeper) -> None:
        for name in ("b", "c", "a"):
            store.put(entry(name), State(next=NOW))
        assert [kept.entry.name for kept in store.entries()] == ["a", "b", "c"]

    def test_a_name_is_taken_once(self, store: Keeper) -> None:
        assert store.put(entry(task="first"), State(next=NOW))
        assert not store.put(entry(task="second"), State(next=NOW))
        assert store.entries()[0].entry.task == "first"
        assert store.put(entry(task="second"), State(next=NOW, sent=1), replace=True)
        assert (store.entries()[0].entry.task, store.entries()[0].state.sent) == ("second", 1)

    def test_what_is_removed_leaves_no_fires(self, store: Keeper) -> None:
        for name in ("a", "b"):
            store.put(entry(name), State(next=NOW))
            store.change(name, State(next=NOW), State(next=NOW), add=[fire("app", name, NOW)])
        assert store.remove("a")
        assert not store.remove("a")
        assert [each.entry for each in store.fires()] == ["b"]
        assert [kept.entry.name for kept in store.entries()] == ["b"]

    # Changes

    def test_a_change_moves_the_state_on_and_writes_fires_down(self, stores: Stores) -> None:
        store = stores()
        before, after = State(next=NOW), State(next=NOW + timedelta(seconds=1))
        fires = [fire("app", "minutely", NOW + timedelta(seconds=number)) for number in (2, 0, 1)]
        store.put(entry(), before)
        assert store.change("minutely", before, after, add=fires)
        assert stores().entries()[0].state == after
        assert stores().fires() == sorted(fires, key=lambda each: each.due)
        assert store.change("minutely", after, after, drop=fires[:2])
        assert stores().fires() == fires[2:]

    def test_a_change_of_another_state_is_refused_as_a_whole(self, store: Keeper) -> None:
        before, after = State(next=NOW), State(next=NOW, paused=True)
        store.put(entry(), before)
        assert store.change("minutely", before, after)
        fires = [fire("app", "minutely", NOW)]
        assert not store.change("minutely", before, State(next=NOW, sent=9), add=fires)
        assert store.entries()[0].state == after
        assert store.fires() == []
        assert not store.change("other", before, after, add=fires)
        assert store.fires() == []

    def test_a_change_by_a_former_leader_is_refused(self, store: Keeper) -> None:
        before, after = State(next=NOW), State(next=NOW, sent=1)
        store.put(entry(), before)
        former = store.lead("a", LONG)
        store.resign("a")
        token = store.lead("b", LONG)
        assert not store.change("minutely", before, after, token=former, add=[fire("app", "minutely", NOW)])
        assert (store.entries()[0].state, store.fires()) == (before, [])
        assert store.change("minutely", before, after, token=token)

    def test_of_many_who_take_the_same_time_one_does(self, stores: Stores) -> None:
        before = State(next=NOW)
        store = stores()
        store.put(entry(), before)
        took = [stores().change("minutely", before, State(next=NOW, sent=number)) for number in range(1, 6)]
        assert took.count(True) == 1

    # Leadership

    def test_one_leads(self, stores: Stores) -> None:
        token = stores().lead("a", LONG)
        assert token is not None
        assert stores().lead("b", LONG) is None
        assert stores().lead("a", LONG) == token

    def test_who_resigns_makes_room_and_only_for_itself(self, store: Keeper) -> None:
        first = store.lead("a", LONG)
        store.resign("b")
        assert store.lead("b", LONG) is None
        store.resign("a")
        second = store.lead("b", LONG)
        assert first is not None
        assert second is not None
        assert second > first

    def test_leadership_runs_out(self, store: Keeper) -> None:
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
        assert store.marks(["f"]) == [Mark.NONE]
        assert store.begin("f", "a", LONG) is Begun.NOW
        assert stores().begin("f", "b", LONG) is Begun.BUSY
        assert store.marks(["f", "g"]) == [Mark.RUNNING, Mark.NONE]
        store.end("f", "a", LONG)
        assert stores().begin("f", "b", LONG) is Begun.OVER
        assert store.marks(["f"]) == [Mark.OVER]

    def test_a_fire_whose_worker_died_runs_again(self, store: Keeper) -> None:
        assert store.begin("f", "a", SHORT) is Begun.NOW
        wait_until(lambda: store.marks(["f"]) == [Mark.LAPSED])
        assert store.begin("f", "b", LONG) is Begun.NOW
        assert not store.extend("f", "a", LONG)
        store.end("f", "a", LONG)
        assert store.marks(["f"]) == [Mark.RUNNING]

    def test_an_extended_mark_holds(self, store: Keeper) -> None:
        store.begin("f", "a", SHORT, alone="minutely")
        assert store.extend("f", "a", LONG, alone="minutely")
        store.begin("g", "a", SHORT)
        wait_until(lambda: store.marks(["g"]) == [Mark.LAPSED])
        assert store.marks(["f"]) == [Mark.RUNNING]
        assert store.begin("h", "b", LONG, alone="minutely") is Begun.BUSY

    def test_a_fire_that_is_handed_on_is_not_over(self, store: Keeper) -> None:
        store.begin("f", "a", LONG)
        store.end("f", "a", LONG, again=True)
        assert store.marks(["f"]) == [Mark.WAITING]
        assert store.begin("f", "b", LONG) is Begun.NOW
        store.end("f", "b", LONG)
        assert store.marks(["f"]) == [Mark.OVER]

    def test_of_an_entry_one_fire_runs_where_it_is_to_be_alone(self, store: Keeper) -> None:
        assert store.begin("f", "a", LONG, alone="minutely") is Begun.NOW
        assert store.begin("g", "b", LONG, alone="minutely") is Begun.BUSY
        assert store.begin("h", "c", LONG, alone="other") is Begun.NOW
        assert store.begin("i", "d", LONG) is Begun.NOW
        store.end("f", "a", LONG, alone="minutely")
        assert store.begin("g", "b", LONG, alone="minutely") is Begun.NOW

    def test_a_fire_may_be_over_before_it_began(self, store: Keeper) -> None:
        store.end("f", "", LONG)
        assert store.begin("f", "a", LONG) is Begun.OVER

    def test_what_is_over_is_forgotten_in_the_end(self, store: Keeper) -> None:
        store.begin("f", "a", LONG)
        store.end("f", "a", SHORT)

        def forgotten() -> bool:
            # Leading tidies up, where the store does not do it by itself.
            store.lead("a", LONG)
            return store.marks(["f"]) == [Mark.NONE]

        wait_until(forgotten)

    def test_no_marks_are_asked_for(self, store: Keeper) -> None:
        assert store.marks([]) == []

    def test_a_closed_store_opens_again(self, store: Keeper) -> None:
        store.put(entry(), State(next=NOW))
        store.close()
        assert len(store.entries()) == 1

"""Whose turn it is: what a slice makes of the marks that others left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.engine.states import State
from weft.errors import SpiderError, WeftError
from weft.jobs.slices.order import End, Order, Word
from weft.jobs.slices.task import Stage, order_of
from weft.jobs.slices.turns import Mark, Turn, is_over, turn_of

NOW = 1_000_000.0
PATIENCE = 10.0


def order(number: int = 1, kind: str = "slice") -> Order:
    return Order(job="j", number=number, seconds=1.0, began=NOW, file="s.py", kind=kind)  # type: ignore[arg-type]


def test_arguments_of_a_call_are_written_out_as_the_command_line_has_them() -> None:
    given = {"text": "a b", "number": 2, "sizes": [2, "l"], "map": {"a": None}}
    ordered = order_of("j", 1.0, Stage(), "s.py", arguments=given)
    assert ordered.arguments == {"text": "a b", "number": "2", "sizes": '[2,"l"]', "map": '{"a":null}'}


def facts(state: State = State.RUNNING, mark: Mark | None = None, **more: str) -> dict[str, str]:
    return {"state": state, **(mark.note("j") if mark else {}), **more}


def turn(known: dict[str, str] | None, number: int = 1, kind: str = "slice") -> Turn:
    return turn_of(known, order(number, kind), NOW, PATIENCE)


def test_the_first_begins() -> None:
    """Whatever crawl of that name is there: the command would decide what to do with it, too."""
    assert turn(None) is Turn.BEGIN
    assert turn(facts(State.FINISHED)) is Turn.BEGIN
    assert turn(facts(State.RUNNING) | Mark(7).note("another")) is Turn.BEGIN


def test_a_later_one_does_not_begin() -> None:
    assert turn(None, 2) is Turn.LOST
    assert turn(facts(State.FINISHED), 2) is Turn.LOST


def test_the_next_goes_on() -> None:
    """However soon it comes."""
    assert turn(facts(mark=Mark(1, NOW)), 2) is Turn.GO_ON
    assert turn(facts(State.PAUSED, mark=Mark(1, NOW)), 2) is Turn.GO_ON


def test_a_copy_of_a_slice_that_was_killed_goes_on() -> None:
    assert turn(facts(mark=Mark(3)), 3) is Turn.GO_ON


@pytest.mark.parametrize("state", [State.RUNNING, State.FINISHED])
def test_a_copy_of_a_slice_that_has_just_ended_waits_for_what_comes_of_it(state: State) -> None:
    known = facts(state, mark=Mark(3, NOW - PATIENCE + 1))
    assert turn(known, 3) is Turn.WAIT
    late = facts(state, mark=Mark(3, NOW - PATIENCE - 1))
    assert turn(late, 3) is (Turn.GO_ON if state is State.RUNNING else Turn.CONCLUDE)


@given(st.sampled_from(list(State)), st.integers(2, 99), st.integers(1, 98), st.floats(0, NOW))
def test_a_slice_whose_successor_has_begun_is_dropped(state: State, mark: int, number: int, ended: float) -> None:
    if number < mark:
        assert turn(facts(state, mark=Mark(mark, ended)), number) is Turn.DROP


@pytest.mark.parametrize(
    ("state", "unattended", "over"),
    [
        (State.RUNNING, "", False),
        (State.PAUSED, "", False),
        (State.STOPPING, "", False),
        (State.STOPPED, "", True),
        (State.LIMITED, "", True),
        (State.FINISHED, "", True),
        # Its outputs are still to be completed.
        (State.FINISHED, "yes", False),
        (State.LIMITED, "yes", False),
    ],
)
def test_the_end(state: State, unattended: str, over: bool) -> None:
    known = facts(state, mark=Mark(1, NOW), unattended=unattended)
    assert is_over(known) is over
    assert turn(known, 2) is (Turn.CONCLUDE if over else Turn.GO_ON)


def test_who_joins_has_no_number() -> None:
    assert turn(facts(mark=Mark(5, NOW)), 3, "join") is Turn.GO_ON
    assert turn(facts(State.FINISHED, mark=Mark(5, NOW)), 3, "join") is Turn.CONCLUDE
    assert turn(facts(), 1, "join") is Turn.LOST
    assert turn(None, 1, "stop") is Turn.LOST


@given(st.integers(1, 10**6), st.floats(0, 4e9))
def test_marks_come_back_as_they_were_noted(number: int, ended: float) -> None:
    read = Mark.read(Mark(number, round(ended, 3)).note("j"), "j")
    assert read == Mark(number, round(ended, 3))


def test_errors_come_through() -> None:
    word = Word.of_error(SpiderError("there is no spider file"))
    assert word.end is End.FAILED
    assert isinstance(word.exception(), SpiderError)
    assert str(word.exception()) == "there is no spider file"
    unknown = Word.of_error(ValueError("what")).exception()
    assert type(unknown) is WeftError
    assert str(unknown) == "ValueError: what"

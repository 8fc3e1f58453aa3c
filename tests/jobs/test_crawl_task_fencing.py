"""Whose turn it is: what a slice makes of the marks that others left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu.errors import SpiderError, UttuError
from uttu.jobs.crawl_task.protocol import (
    SliceAction,
    SliceEnd,
    SliceEvent,
    SliceRequest,
    decide_action,
    is_crawl_over,
)
from uttu.jobs.crawl_task.task import SliceState, build_request
from uttu.model.crawl import CrawlState
from uttu.model.facts import CrawlFacts, SliceMark, decode_facts, encode_facts

NOW = 1_000_000.0
PATIENCE = 10.0


def order(number: int = 1, kind: str = "slice") -> SliceRequest:
    return SliceRequest(job="j", number=number, seconds=1.0, began=NOW, file="s.py", kind=kind)  # type: ignore[arg-type]


def test_arguments_become_text_as_on_the_command_line() -> None:
    given = {"text": "a b", "number": 2, "sizes": [2, "l"], "map": {"a": None}}
    ordered = build_request("j", 1.0, SliceState(), "s.py", arguments=given)
    assert ordered.arguments == {"text": "a b", "number": "2", "sizes": '[2,"l"]', "map": '{"a":null}'}


def facts(
    state: CrawlState = CrawlState.RUNNING, mark: SliceMark | None = None, *, job: str = "j", unattended: bool = False
) -> CrawlFacts:
    return CrawlFacts(state=state, slices={job: mark} if mark else {}, unattended=unattended)


def turn(known: CrawlFacts | None, number: int = 1, kind: str = "slice") -> SliceAction:
    return decide_action(known, order(number, kind), NOW, PATIENCE)


def test_the_first_begins() -> None:
    """Whatever crawl of that name is there: the command would decide what to do with it, too."""
    assert turn(None) is SliceAction.BEGIN
    assert turn(facts(CrawlState.FINISHED)) is SliceAction.BEGIN
    assert turn(facts(CrawlState.RUNNING, SliceMark(7), job="another")) is SliceAction.BEGIN


def test_a_later_one_does_not_begin() -> None:
    assert turn(None, 2) is SliceAction.LOST
    assert turn(facts(CrawlState.FINISHED), 2) is SliceAction.LOST


def test_the_next_goes_on() -> None:
    """However soon it comes."""
    assert turn(facts(mark=SliceMark(1, NOW)), 2) is SliceAction.GO_ON
    assert turn(facts(CrawlState.PAUSED, mark=SliceMark(1, NOW)), 2) is SliceAction.GO_ON


def test_a_copy_of_a_slice_that_was_killed_goes_on() -> None:
    assert turn(facts(mark=SliceMark(3)), 3) is SliceAction.GO_ON


@pytest.mark.parametrize("state", [CrawlState.RUNNING, CrawlState.FINISHED])
def test_copy_of_a_slice_that_just_ended_waits(state: CrawlState) -> None:
    known = facts(state, mark=SliceMark(3, NOW - PATIENCE + 1))
    assert turn(known, 3) is SliceAction.WAIT
    late = facts(state, mark=SliceMark(3, NOW - PATIENCE - 1))
    assert turn(late, 3) is (SliceAction.GO_ON if state is CrawlState.RUNNING else SliceAction.CONCLUDE)


@given(st.sampled_from(list(CrawlState)), st.integers(2, 99), st.integers(1, 98), st.floats(0, NOW))
def test_a_slice_whose_successor_has_begun_is_dropped(state: CrawlState, mark: int, number: int, ended: float) -> None:
    if number < mark:
        assert turn(facts(state, mark=SliceMark(mark, ended)), number) is SliceAction.DROP


@pytest.mark.parametrize(
    ("state", "unattended", "over"),
    [
        (CrawlState.RUNNING, False, False),
        (CrawlState.PAUSED, False, False),
        (CrawlState.STOPPING, False, False),
        (CrawlState.STOPPED, False, True),
        (CrawlState.LIMITED, False, True),
        (CrawlState.FINISHED, False, True),
        # Its outputs are still to be completed.
        (CrawlState.FINISHED, True, False),
        (CrawlState.LIMITED, True, False),
    ],
)
def test_the_end(state: CrawlState, unattended: bool, over: bool) -> None:
    known = facts(state, mark=SliceMark(1, NOW), unattended=unattended)
    assert is_crawl_over(known) is over
    assert turn(known, 2) is (SliceAction.CONCLUDE if over else SliceAction.GO_ON)


def test_who_joins_has_no_number() -> None:
    assert turn(facts(mark=SliceMark(5, NOW)), 3, "join") is SliceAction.GO_ON
    assert turn(facts(CrawlState.FINISHED, mark=SliceMark(5, NOW)), 3, "join") is SliceAction.CONCLUDE
    assert turn(facts(), 1, "join") is SliceAction.LOST
    assert turn(None, 1, "stop") is SliceAction.LOST


@given(st.integers(1, 10**6), st.floats(0, 4e9))
def test_marks_come_back_as_they_were_noted(number: int, ended: float) -> None:
    mark = SliceMark(number, round(ended, 3))
    assert decode_facts(encode_facts({"slices": {"j": mark}})).slices == {"j": mark}


def test_errors_come_through() -> None:
    event = SliceEvent.from_error(SpiderError("there is no spider file"))
    assert event.end is SliceEnd.FAILED
    assert isinstance(event.to_exception(), SpiderError)
    assert str(event.to_exception()) == "there is no spider file"
    unknown = SliceEvent.from_error(ValueError("what")).to_exception()
    assert type(unknown) is UttuError
    assert str(unknown) == "ValueError: what"

"""Charts are well-formed XML, whatever the values are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from uttu.api.pages.charts import (
    Series,
    TimeChart,
    TimelineRow,
    draw_bar,
    draw_chart,
    draw_sparkline,
    draw_timeline,
)

VALUES = st.none() | st.floats(allow_nan=True, allow_infinity=True)
NASTY = "<&\"'>\u2028"


def make_chart(values: list[float | None], *, stacked: bool = False) -> TimeChart:
    return TimeChart(
        key="x",
        title=NASTY,
        description=NASTY,
        times=[1000.0 + at for at in range(len(values))],
        series=[Series(NASTY, "s1", values), Series("b", "s2", values)],
        start=1000.0,
        end=1000.0 + len(values),
        empty="Nothing yet",
        stacked=stacked,
    )


@settings(deadline=None)
@given(st.lists(VALUES, max_size=30), st.booleans())
def test_any_values(values: list[float | None], stacked: bool) -> None:
    etree.fromstring(str(draw_chart(make_chart(values, stacked=stacked))))


@pytest.mark.parametrize("values", [[], [None], [math.nan, math.inf]])
def test_without_values_it_says_so(values: list[float | None]) -> None:
    assert "Nothing yet" in draw_chart(make_chart(values))


@pytest.mark.parametrize("values", [[0.0, 0.0], [5.0], [1e300, 2e300], [1e-12, 0.0], [None, 3.0, None]])
def test_extremes(values: list[float | None]) -> None:
    drawn = draw_chart(make_chart(values))
    tree = etree.fromstring(str(drawn))
    assert tree.findall(".//path[@class='s1 line']")
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_gap_splits_the_line() -> None:
    tree = etree.fromstring(str(draw_chart(make_chart([1.0, 2.0, None, 3.0, 4.0]))))
    assert len(tree.findall(".//path[@class='s1 line']")) == 2


def test_it_has_a_name_and_a_description() -> None:
    tree = etree.fromstring(str(draw_chart(make_chart([1.0, 2.0]))))
    assert tree.findtext(".//title") == NASTY
    assert tree.findtext(".//desc") == NASTY
    names = tree.find(".//svg").get("aria-labelledby").split()  # type: ignore[union-attr]
    assert all(tree.find(f".//*[@id='{name}']") is not None for name in names)


def test_axis_is_round() -> None:
    tree = etree.fromstring(str(draw_chart(make_chart([230.0, 12.0]))))
    assert [tick.text for tick in tree.findall(".//ol[@class='ticks']/li")] == ["240", "180", "120", "60", "0"]


def test_stacked_values_add_up() -> None:
    tree = etree.fromstring(str(draw_chart(make_chart([10.0, 10.0], stacked=True))))
    assert tree.findtext(".//ol[@class='ticks']/li") == "20"


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=20))
def test_sparkline(values: list[float]) -> None:
    drawn = draw_sparkline(values, NASTY)
    assert "nan" not in drawn
    etree.fromstring(str(drawn))


@settings(deadline=None)
@given(st.none() | st.floats(allow_nan=True, allow_infinity=True))
def test_bar(share: float | None) -> None:
    etree.fromstring(str(draw_bar(share, "s1", NASTY)))


def test_timeline_shows_only_its_time() -> None:
    drawn = draw_timeline([TimelineRow(NASTY, [50.0, 150.0, 250.0])], 100.0, 200.0, NASTY)
    assert len(etree.fromstring(str(drawn)).findall(".//path[@class='s1 mark']")) == 1

"""The automatic throttle moves towards the latency and stays within its bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from uttu.policy.throttle import adjust_delay

seconds = st.floats(0, 1000)


def test_it_moves_halfway() -> None:
    assert adjust_delay(1.0, 3.0, True, 0.5, 60) == 2.0
    assert adjust_delay(2.0, 1.0, True, 0.5, 60) == 1.5
    assert adjust_delay(1.0, 3.0, True, 0.5, 60, target=3.0) == 1.0


def test_a_bad_answer_never_speeds_up() -> None:
    assert adjust_delay(2.0, 0.01, False, 0.5, 60) == 2.0
    assert adjust_delay(2.0, 10.0, False, 0.5, 60) == 6.0


def test_bounds() -> None:
    assert adjust_delay(0.5, 0.0, True, 0.5, 60) == 0.5
    assert adjust_delay(50.0, 500.0, True, 0.5, 60) == 60
    assert adjust_delay(1.0, 1.0, True, 90.0, 60) == 90.0, "a configured delay above the ceiling is the user's wish"
    assert adjust_delay(1.0, float("nan"), True, 0.5, 60) == 1.0
    assert adjust_delay(1.0, float("inf"), False, 0.5, 60) == 60


@given(seconds, seconds, st.booleans(), seconds, seconds)
def test_it_stays_within_its_bounds(delay: float, latency: float, ok: bool, floor: float, ceiling: float) -> None:
    new = adjust_delay(delay, latency, ok, floor, ceiling)
    assert floor <= new <= max(floor, ceiling)
    if not ok and floor <= delay <= ceiling:
        assert new >= delay


@given(st.floats(0.5, 60), st.floats(0.5, 60))
def test_it_arrives_at_the_latency(delay: float, latency: float) -> None:
    for _ in range(60):
        delay = adjust_delay(delay, latency, True, 0.5, 60)
    assert abs(delay - latency) < 1e-6

"""The gauge: grows while it helps, backs off under strain, never leaves its bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from uttu.policy.throttle import FLOOR, REST, STEP, WINDOW, ConcurrencyController


def window(controller: ConcurrencyController, *, failed: float = 0.0, busy: bool = True, lag: float = 0.0) -> int:
    """One full round of results; returns the new limit."""
    done = controller.limit
    controller.observe(done, int(done * failed), busy, lag)
    return controller.limit


def test_it_doubles_while_every_slot_is_used() -> None:
    controller = ConcurrencyController(200)
    assert [controller.limit, window(controller), window(controller), window(controller), window(controller)] == [
        16,
        32,
        64,
        128,
        200,
    ]


def test_it_stays_when_slots_are_idle() -> None:
    controller = ConcurrencyController(200)
    assert window(controller, busy=False) == 16


def test_it_waits_for_results_before_it_grows() -> None:
    controller = ConcurrencyController(200)
    for _ in range(3):
        controller.observe(5, 0, True, 0.0)
    assert controller.limit == 16
    controller.observe(5, 0, True, 0.0)
    assert controller.limit == 32


def test_slow_hosts_are_judged_by_time() -> None:
    controller = ConcurrencyController(200)
    for _ in range(WINDOW):
        controller.observe(0, 0, True, 0.0)
    assert controller.limit == 16, "no result, no evidence"
    for _ in range(WINDOW):
        controller.observe(1, 0, True, 0.0)
    assert controller.limit == 32


def test_failures_decrease_the_limit_and_slow_its_growth() -> None:
    controller = ConcurrencyController(200, start=100)
    assert window(controller, failed=0.2) == 70
    assert window(controller) == 70 + STEP
    assert window(controller, failed=0.05) == 70 + 2 * STEP, "a few failures are normal"


def test_one_failure_is_not_a_trend() -> None:
    controller = ConcurrencyController(200, start=4)
    controller.observe(4, 1, True, 0.0)
    assert controller.limit == 8


def test_lag_acts_at_once_then_rests() -> None:
    controller = ConcurrencyController(200, start=100)
    controller.observe(0, 0, True, 0.5)
    assert controller.limit == 70
    for _ in range(REST - 1):
        controller.observe(0, 0, True, 0.5)
    assert controller.limit == 70
    controller.observe(0, 0, True, 0.5)
    assert controller.limit == 49


def test_a_little_lag_stops_the_growth() -> None:
    controller = ConcurrencyController(200)
    assert window(controller, lag=0.06) == 16
    assert window(controller, lag=0.01) == 32


def test_small_ceilings() -> None:
    assert ConcurrencyController(2).limit == 2
    controller = ConcurrencyController(2)
    window(controller, lag=1.0)
    assert controller.limit == 2
    assert ConcurrencyController(0).limit == 1


observations = st.tuples(st.integers(0, 2000), st.integers(0, 2000), st.booleans(), st.floats(0, 10))


@given(st.integers(1, 1000), st.integers(0, 1000), st.lists(observations, max_size=200))
def test_it_stays_in_bounds(ceiling: int, start: int, seen: list[tuple[int, int, bool, float]]) -> None:
    controller = ConcurrencyController(ceiling, start=start)
    for done, failed, busy, lag in seen:
        before = controller.limit
        controller.observe(done, failed, busy, lag)
        assert min(FLOOR, ceiling) <= controller.limit <= ceiling
        assert controller.limit <= 2 * before
        assert controller.limit >= int(before * 0.7)


@given(st.integers(8, 500), st.floats(0.2, 1.0))
def test_limit_falls_to_the_floor_under_overload_and_recovers(ceiling: int, share: float) -> None:
    controller = ConcurrencyController(ceiling)
    for _ in range(100):
        controller.observe(100, int(100 * share), True, 0.0)
    assert controller.limit == FLOOR
    for _ in range(ceiling):
        window(controller)
    assert controller.limit == ceiling

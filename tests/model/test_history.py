"""Which samples of a history are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from uttu.model.history import RESOLUTIONS, SAMPLE_SECONDS, thin_out

NOW = 1_760_000_000.0
LONGEST = RESOLUTIONS[-1][1]
MOST = sum(age // distance + 2 for distance, age in RESOLUTIONS) + 1

ages = st.one_of(
    st.integers(0, 3 * LONGEST // 2).map(float),
    st.floats(0, 3 * 3600),
    # Around the ages at which the distance changes.
    st.builds(
        lambda longest, steps: float(longest + steps * SAMPLE_SECONDS),
        st.sampled_from([longest for _, longest in RESOLUTIONS]),
        st.integers(-40, 40),
    ),
)
histories = st.lists(ages, max_size=200).map(lambda found: sorted({NOW - age for age in found}))


def keep(times: list[float], now: float = NOW) -> list[float]:
    dropped = thin_out(times, now)
    assert set(dropped) <= set(times)
    assert len(set(dropped)) == len(dropped)
    gone = set(dropped)
    return [at for at in times if at not in gone]


def slot_of(at: float, now: float) -> tuple[int, float] | None:
    """The resolution and slot of a sample; None if it is too old."""
    return next(((distance, at // distance) for distance, age in RESOLUTIONS if at >= now - age), None)


@given(histories)
def test_the_first_sample_of_each_slot_stays_and_the_latest(times: list[float]) -> None:
    first: dict[tuple[int, float], float] = {}
    for at in times:
        slot = slot_of(at, NOW)
        if slot is not None:
            first.setdefault(slot, at)
    assert keep(times) == sorted({*first.values(), *times[-1:]})


@given(histories)
def test_thinning_out_again_changes_nothing(times: list[float]) -> None:
    once = keep(times)
    assert keep(once) == once


@given(histories, st.lists(st.integers(0, 10 * 24 * 3600), max_size=5))
def test_thinning_out_early_gives_the_same(times: list[float], steps: list[int]) -> None:
    now, early = NOW, times
    for step in steps:
        early = keep(early, now)
        now += step
    # Only the sample that was the latest all the time is kept for that alone.
    assert keep(early, now) == keep(times, now)


def test_a_history_is_bounded() -> None:
    times = [NOW - LONGEST * 7 / 6 + SAMPLE_SECONDS * number for number in range(LONGEST * 7 // 6 // SAMPLE_SECONDS)]
    kept = keep(times)
    assert MOST * 0.9 < len(kept) <= MOST
    assert len(keep([at for at in times if at < NOW - 30 * 24 * 3600])) < LONGEST / 900


def test_no_samples_and_one() -> None:
    assert thin_out([], NOW) == []
    assert thin_out([NOW - 2 * LONGEST], NOW) == []
    assert thin_out([NOW - 2 * LONGEST, NOW], NOW) == [NOW - 2 * LONGEST]

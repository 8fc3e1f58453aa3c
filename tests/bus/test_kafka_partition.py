"""How far a partition has come: nothing that is not done is ever passed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from uttu.bus.kafka.partition import PartitionState


@given(st.data())
def test_the_position_passes_what_is_done_and_nothing_else(data: st.DataObject) -> None:
    lane, done, next_offset = PartitionState("t", 0), set[int](), 0
    for _ in range(data.draw(st.integers(1, 12))):
        kind = data.draw(st.sampled_from(["arrive", "end", "fail"]))
        if kind == "arrive":
            count = data.draw(st.integers(1, 5))
            offsets = [offset for offset in range(next_offset, next_offset + count) if data.draw(st.booleans())]
            done |= set(range(next_offset, next_offset + count)) - set(offsets)  # filtered out
            next_offset += count
            lane.arrive(offsets, next_offset)
        elif lane.pending:
            chosen = sorted(data.draw(st.sets(st.sampled_from(lane.pending), min_size=1)))
            if kind == "end":
                assert lane.end(chosen) == len(chosen)
                done |= set(chosen)
            else:
                # What fails takes those behind it along, and all are read again.
                first = min(chosen)
                dropped = [offset for offset in lane.pending if offset >= first]
                assert lane.drop(dropped) == len(dropped)
                next_offset = first
        undone = [offset for offset in range(next_offset) if offset not in done]
        assert lane.position <= min([*lane.pending, *undone, next_offset])
        if not lane.pending and lane.position >= 0:
            assert lane.position <= next_offset
    lane.arrive([], max(next_offset, 1))
    lane.end(list(lane.pending))
    assert lane.position == lane.seen


def test_one_that_is_done_early_waits_for_those_ahead_of_it() -> None:
    lane = PartitionState("t", 0)
    lane.arrive([10, 11, 12], 15)
    assert lane.position == 10
    lane.end([12])
    assert lane.position == 10
    lane.end([10])
    assert lane.position == 11
    lane.end([11])
    assert lane.position == 15
    assert lane.end([11]) == 0

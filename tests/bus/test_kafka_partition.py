"""The progress of a partition: its position never passes a message that is not done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from uttu.bus.kafka.partition import PartitionProgress


@given(st.data())
def test_position_never_passes_pending_messages(data: st.DataObject) -> None:
    progress, done, next_offset = PartitionProgress(), set[int](), 0
    for _ in range(data.draw(st.integers(1, 12))):
        kind = data.draw(st.sampled_from(["read", "acknowledge", "fail"]))
        if kind == "read":
            count = data.draw(st.integers(1, 5))
            offsets = [offset for offset in range(next_offset, next_offset + count) if data.draw(st.booleans())]
            done |= set(range(next_offset, next_offset + count)) - set(offsets)  # filtered out
            next_offset += count
            progress.add(offsets, next_offset)
        elif progress.pending:
            chosen = sorted(data.draw(st.sets(st.sampled_from(progress.pending), min_size=1)))
            if kind == "acknowledge":
                assert progress.acknowledge(chosen) == len(chosen)
                done |= set(chosen)
            else:
                # A failed message and all behind it are dropped, and read again.
                first = min(chosen)
                dropped = [offset for offset in progress.pending if offset >= first]
                assert progress.drop(dropped) == len(dropped)
                next_offset = first
        undone = [offset for offset in range(next_offset) if offset not in done]
        assert progress.position <= min([*progress.pending, *undone, next_offset])
        if not progress.pending and progress.position >= 0:
            assert progress.position <= next_offset
    progress.add([], max(next_offset, 1))
    progress.acknowledge(list(progress.pending))
    assert progress.position == progress.read_to


def test_position_waits_for_earlier_messages() -> None:
    progress = PartitionProgress()
    progress.add([10, 11, 12], 15)
    assert progress.position == 10
    progress.acknowledge([12])
    assert progress.position == 10
    progress.acknowledge([10])
    assert progress.position == 11
    progress.acknowledge([11])
    assert progress.position == 15
    assert progress.acknowledge([11]) == 0

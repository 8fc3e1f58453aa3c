"""The contract on removing items that all outputs have: see :meth:`uttu.frontier.base.Outbox.trim`."""

from __future__ import annotations

import pytest

from uttu.errors import ItemsTrimmed
from uttu.frontier.base import TRIM_STEP, Cursor, Outbox, StoredItem, Trimmed
from uttu.model import Counts, Done
from uttu.testing.contracts.store import EASY, StoreUnderTest, pages

COUNT = 20 * TRIM_STEP
ONE, OTHER = "one.jsonl", "other.jsonl"


async def fill(store: StoreUnderTest, count: int = COUNT) -> list[StoredItem]:
    """Store items, ten per page; return them."""
    frontier, outbox = await store.frontier(EASY), await store.outbox()
    await frontier.put(pages(count // 10))
    leases = await frontier.lease(count // 10, "w")
    for lease in leases:
        await frontier.settle([Done(lease=lease, items=tuple(b"%d" % number for number in range(10)))])
    items: list[StoredItem] = []
    while more := await outbox.items(items[-1].position if items else 0, 1000):
        items += more
    assert len(items) == count
    return items


async def move(store: StoreUnderTest, sink: str, item: StoredItem, seconds: float = 60.0) -> None:
    """Set the cursor of a sink to this item."""
    assert await (await store.ledger()).claim(f"drain {sink}", "me", seconds)
    assert await (await store.outbox()).advance(sink, Cursor(item.position, b"note"), "me")


async def trim(outbox: Outbox, *sinks: str, keep: int = 1) -> int:
    """Trim until nothing more can be removed; return how many items were."""
    before = await outbox.trimmed()
    while await outbox.trim(sinks, keep):
        pass
    return (await outbox.trimmed()).count - before.count


class TrimmingContract:
    """Items that a sink lacks stay; so do the latest ``keep`` items."""

    async def test_nothing_is_removed_before_a_sink_has_it(self, store: StoreUnderTest) -> None:
        items, outbox = await fill(store), await store.outbox()
        assert await trim(outbox, ONE) == 0
        await move(store, ONE, items[TRIM_STEP - 2])
        assert await trim(outbox, ONE) == 0
        await move(store, ONE, items[TRIM_STEP - 1])
        assert await trim(outbox, ONE) == TRIM_STEP
        await move(store, ONE, items[-1])
        assert await outbox.trimmed() == Trimmed(TRIM_STEP, items[TRIM_STEP - 1].position)
        assert await outbox.items(items[TRIM_STEP - 1].position, COUNT) == items[TRIM_STEP:]

    async def test_the_slowest_sink_counts(self, store: StoreUnderTest) -> None:
        items, outbox = await fill(store), await store.outbox()
        await move(store, ONE, items[-1])
        assert await trim(outbox, ONE, OTHER) == 0
        await move(store, OTHER, items[5 * TRIM_STEP])
        assert await trim(outbox, ONE, OTHER) == 5 * TRIM_STEP
        assert await outbox.items(items[5 * TRIM_STEP].position, COUNT) == items[5 * TRIM_STEP + 1 :]

    async def test_the_latest_items_stay(self, store: StoreUnderTest) -> None:
        items, outbox = await fill(store), await store.outbox()
        await move(store, ONE, items[-1])
        assert await trim(outbox, ONE, keep=COUNT) == 0
        assert await trim(outbox, ONE, keep=COUNT - TRIM_STEP + 1) == 0
        assert await trim(outbox, ONE, keep=COUNT - TRIM_STEP) == TRIM_STEP
        left = COUNT - await trim(outbox, ONE, keep=3 * TRIM_STEP + 1) - TRIM_STEP
        assert 3 * TRIM_STEP + 1 <= left <= 4 * TRIM_STEP + 1
        last = (await outbox.trimmed()).position
        assert await outbox.items(last, COUNT) == items[-left:]

    async def test_what_was_removed_is_not_passed_over_in_silence(self, store: StoreUnderTest) -> None:
        items, outbox = await fill(store), await store.outbox()
        await move(store, ONE, items[-1])
        await trim(outbox, ONE, keep=TRIM_STEP)
        last = (await outbox.trimmed()).position
        for after in (0, items[0].position, last - 1):
            with pytest.raises(ItemsTrimmed):
                await outbox.items(after, 10)
        assert await outbox.items(last, COUNT) == items[-TRIM_STEP:]
        assert await outbox.items(items[-1].position, 10) == []

    async def test_counts_stay_as_they_are(self, store: StoreUnderTest) -> None:
        items, outbox = await fill(store), await store.outbox()
        frontier = await store.frontier(EASY)
        before = await frontier.counts()
        await move(store, ONE, items[-1])
        assert await trim(outbox, ONE) > 0
        assert await frontier.counts() == before
        assert isinstance(before, Counts)
        assert before.items == COUNT

    async def test_later_items_get_later_positions(self, store: StoreUnderTest) -> None:
        items, outbox = await fill(store), await store.outbox()
        await move(store, ONE, items[-1])
        await trim(outbox, ONE)
        frontier = await store.frontier(EASY)
        await frontier.put([*pages(COUNT // 10 + 1)])
        (lease,) = await frontier.lease(1, "later")
        await frontier.settle([Done(lease=lease, items=(b"new",))])
        (new,) = await outbox.items(items[-1].position, 10)
        assert new.json == b"new"
        assert new.position > items[-1].position

    async def test_a_sink_that_somebody_drains_counts_although_it_is_not_named(self, store: StoreUnderTest) -> None:
        items, outbox = await fill(store), await store.outbox()
        await move(store, ONE, items[-1])
        await move(store, OTHER, items[TRIM_STEP - 1], seconds=10)
        assert await trim(outbox, ONE) == TRIM_STEP
        store.clock.advance(11)
        # Its claim has expired, so its cursor no longer counts.
        assert await trim(outbox, ONE) > 0

    async def test_a_reader_that_has_begun_and_has_nothing_yet_counts(self, store: StoreUnderTest) -> None:
        items, outbox, ledger = await fill(store), await store.outbox(), await store.ledger()
        await move(store, ONE, items[-1])
        assert await ledger.claim(f"drain {OTHER}", "reader", 10)
        assert await trim(outbox, ONE) == 0

    async def test_without_a_sink_everything_stays(self, store: StoreUnderTest) -> None:
        items, outbox = await fill(store), await store.outbox()
        await move(store, ONE, items[-1], seconds=1)
        store.clock.advance(2)
        assert await trim(outbox) == 0

    async def test_whoever_needs_all_items_keeps_them(self, store: StoreUnderTest) -> None:
        items, outbox, ledger = await fill(store), await store.outbox(), await store.ledger()
        await move(store, ONE, items[-1])
        assert await ledger.claim("whole export me", "me", 10)
        assert await trim(outbox, ONE) == 0
        await ledger.release("whole export me", "me")
        assert await trim(outbox, ONE) > 0

    async def test_a_sink_that_starts_anew_keeps_all(self, store: StoreUnderTest) -> None:
        items, outbox = await fill(store), await store.outbox()
        await move(store, ONE, items[-1])
        assert await outbox.advance(ONE, Cursor(), "me")
        assert await trim(outbox, ONE) == 0
        # An empty state means the start, whatever the position.
        assert await outbox.advance(ONE, Cursor(items[-1].position, b""), "me")
        assert await trim(outbox, ONE) == 0

    async def test_steps_come_to_an_end_and_leave_nothing(self, store: StoreUnderTest) -> None:
        items, outbox = await fill(store, 50 * TRIM_STEP), await store.outbox()
        await move(store, ONE, items[-1])
        found, more = [], True
        while more:
            more = await outbox.trim([ONE], 1)
            found.append((await outbox.trimmed()).count)
        assert found == sorted(found)
        assert found[-1] == 50 * TRIM_STEP - TRIM_STEP
        assert not await outbox.trim([ONE], 1)
        assert (await outbox.trimmed()).count == found[-1]

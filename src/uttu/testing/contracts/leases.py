"""The frontier contract on leases: ownership, deadlines, and refused outcomes of lost leases."""

from __future__ import annotations

import pytest

from uttu.frontier.base import Rules
from uttu.model import Counts, Dead, Done, Lease, Outcome, Pace, Retry
from uttu.testing.contracts.store import EASY, TICK, StoreUnderTest, numbers, page, pages

SHORT = Rules(pace=Pace(0.0, 0), ahead=0.0, lease_seconds=10)


class LeaseContract:
    """Ownership, deadlines and fencing."""

    async def test_a_lease_says_what_it_is(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(SHORT)
        request = page(7, priority=2, meta={"list": [1]})
        await frontier.put([request])
        (lease,) = await frontier.lease(1, "w")
        assert lease.id > 0
        assert (lease.request, lease.fingerprint, lease.lane) == (request, request.fingerprint, request.lane)
        assert (lease.attempt, lease.wait, lease.deadline) == (1, 0.0, store.clock.time() + 10)

    async def test_no_request_is_handed_out_twice(self, store: StoreUnderTest) -> None:
        first, second = await store.frontier(SHORT), await store.frontier(SHORT)
        await first.put(pages(10))
        found = [*await first.lease(4, "w1"), *await second.lease(4, "w2"), *await first.lease(4, "w1")]
        assert sorted(numbers(found)) == list(range(10))
        assert await second.lease(4, "w2") == []

    async def test_ids_only_grow(self, store: StoreUnderTest) -> None:
        first, second, ids = await store.frontier(SHORT), await store.frontier(SHORT), [0]
        await first.put(pages(30))
        for turn in range(10):
            frontier, worker = ((first, "w1"), (second, "w2"))[turn % 2]
            leases = await frontier.lease(2, worker)
            ids += [lease.id for lease in leases]
            await frontier.settle([Done(lease=leases[0]), Retry(lease=leases[1])])
        assert ids == sorted(set(ids))

    async def test_ids_grow_on_when_nothing_is_left_and_all_was_closed(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(SHORT)
        await frontier.put(pages(3))
        before = await frontier.lease(3, "w1")
        await frontier.settle([Done(lease=lease) for lease in before])
        await frontier.close()
        frontier = await store.frontier(SHORT)
        await frontier.put([page(3)])
        (after,) = await frontier.lease(3, "w2")
        assert after.id > max(lease.id for lease in before)

    async def test_an_expired_lease_goes_back_with_the_attempt_counted(self, store: StoreUnderTest) -> None:
        first, second = await store.frontier(SHORT), await store.frontier(SHORT)
        await first.put(pages(2))
        old = await first.lease(2, "w1")
        store.clock.advance(10 - TICK)
        assert await second.lease(2, "w2") == []
        store.clock.advance(TICK)
        new = await second.lease(2, "w2")
        assert (numbers(new), [lease.attempt for lease in new]) == ([0, 1], [2, 2])
        assert min(lease.id for lease in new) > max(lease.id for lease in old)
        assert await second.counts() == Counts(leased=2)

    async def test_outcomes_of_a_lost_lease_are_refused_whole(self, store: StoreUnderTest) -> None:
        first, second, outbox = await store.frontier(SHORT), await store.frontier(SHORT), await store.outbox()
        await first.put(pages(3))
        old = await first.lease(3, "w1")
        store.clock.advance(10)
        new = await second.lease(3, "w2")
        late: list[Outcome] = [
            Done(lease=old[0], children=(page(10),), items=(b'{"n":1}',), size=100, pace=Pace(99.0, 1)),
            Retry(lease=old[1], after=5, pace=Pace(99.0, 1)),
            Dead(lease=old[2], kind="http", reason="404", children=(page(11),), items=(b'{"n":2}',)),
        ]
        assert await first.settle(late) == {lease.id for lease in old}
        assert await first.counts() == Counts(leased=3)
        assert await outbox.items(0, 10) == []
        assert await second.put([page(10), page(11)]) == 2
        assert await second.settle([Done(lease=lease) for lease in new]) == set()
        assert numbers(await first.lease(9, "w1")) == [10, 11]

    async def test_living_and_lost_outcomes_in_one_batch(self, store: StoreUnderTest) -> None:
        first, second, outbox = await store.frontier(SHORT), await store.frontier(SHORT), await store.outbox()
        await first.put(pages(4))
        old = await first.lease(2, "w1")
        store.clock.advance(5)
        living = await first.lease(2, "w1")
        store.clock.advance(5)
        assert numbers(await second.lease(9, "w2")) == [0, 1]
        batch = [
            Done(lease=lease, children=(page(10 + number),), items=(b"%d" % number,), size=1)
            for number, lease in enumerate([old[0], living[0], old[1], living[1]])
        ]
        assert await first.settle(batch) == {lease.id for lease in old}
        assert await first.counts() == Counts(pending=2, leased=2, done=2, items=2, bytes=2)
        assert [item.json for item in await outbox.items(0, 9)] == [b"1", b"3"]
        assert numbers(await first.lease(9, "w1")) == [11, 13]

    async def test_a_late_outcome_counts_if_nobody_took_the_lease_away(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(SHORT)
        await frontier.put(pages(2))
        one, two = await frontier.lease(2, "w")
        store.clock.advance(60)
        assert await frontier.extend([two]) == set()
        assert await frontier.settle([Done(lease=one)]) == set()
        assert await frontier.lease(9, "w") == []
        assert await frontier.counts() == Counts(leased=1, done=1)

    async def test_a_lease_ends_once(self, store: StoreUnderTest) -> None:
        frontier, outbox = await store.frontier(SHORT), await store.outbox()
        await frontier.put(pages(3))
        one, two, three = await frontier.lease(3, "w")
        outcomes: list[Outcome] = [
            Done(lease=one, items=(b"1",), children=(page(9),)),
            Dead(lease=two, kind="http", reason="", items=(b"2",)),
            Retry(lease=three, after=5),
        ]
        for outcome in outcomes:
            assert await frontier.settle([outcome]) == set()
            before = await frontier.counts()
            assert await frontier.settle([outcome]) == {outcome.lease.id}
            assert await frontier.extend([outcome.lease]) == {outcome.lease.id}
            assert await frontier.counts() == before
        assert await frontier.counts() == Counts(pending=1, delayed=1, done=1, dead=1, items=2)
        assert len(await outbox.items(0, 9)) == 2

    async def test_of_two_outcomes_in_one_batch_the_first_counts(self, store: StoreUnderTest) -> None:
        frontier, outbox = await store.frontier(SHORT), await store.outbox()
        await frontier.put(pages(2))
        one, two = await frontier.lease(2, "w")
        await frontier.settle(
            [
                Done(lease=one, items=(b"1",), size=5),
                Retry(lease=two),
                Dead(lease=one, kind="http", reason="", items=(b"2",), children=(page(9),)),
                Done(lease=one, items=(b"3",), size=5),
                Done(lease=two, items=(b"4",), size=5),
            ]
        )
        assert await frontier.counts() == Counts(pending=1, done=1, items=1, bytes=5)
        assert [item.json for item in await outbox.items(0, 9)] == [b"1"]
        (again,) = await frontier.lease(9, "w")
        assert (numbers([again]), again.attempt) == ([1], 2)

    async def test_an_unknown_lease_is_lost(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(SHORT)
        await frontier.put(pages(1))
        (lease,) = await frontier.lease(1, "w")
        await frontier.settle([Done(lease=lease)])
        for unknown in (lease.id, lease.id + 1_000, -1, 0):
            stranger = Lease(
                id=unknown, fingerprint=1, lane="b.example", request=page(1), attempt=1, wait=0.0, deadline=0.0
            )
            assert await frontier.settle([Done(lease=stranger, items=(b"1",), children=(page(5),))]) == {unknown}
            assert await frontier.extend([stranger]) == {unknown}
        assert await frontier.counts() == Counts(done=1)

    async def test_any_handle_may_settle(self, store: StoreUnderTest) -> None:
        first, second = await store.frontier(SHORT), await store.frontier(SHORT)
        await first.put(pages(1))
        (lease,) = await first.lease(1, "w1")
        assert await second.settle([Done(lease=lease)]) == set()
        assert (await first.counts()).finished

    async def test_extending_moves_the_deadline(self, store: StoreUnderTest) -> None:
        first, second = await store.frontier(SHORT), await store.frontier(SHORT)
        await first.put(pages(3))
        leases = await first.lease(3, "w1")
        store.clock.advance(8)
        assert await first.extend(leases[:2]) == set()
        store.clock.advance(2)
        assert numbers(await second.lease(9, "w2")) == [2]
        store.clock.advance(8 - TICK)
        assert await second.lease(9, "w2") == []
        assert await first.extend(leases[1:]) == {leases[2].id}
        store.clock.advance(TICK)
        assert numbers(await second.lease(9, "w2")) == [0]
        assert await first.settle([Done(lease=lease) for lease in leases]) == {leases[0].id, leases[2].id}

    @pytest.mark.parametrize("most", [1, 3])
    async def test_a_request_that_loses_its_workers_dies(self, store: StoreUnderTest, most: int) -> None:
        frontier = await store.frontier(Rules(pace=EASY.pace, lease_seconds=10, max_losses=most))
        await frontier.put(pages(1))
        for attempt in range(1, most + 1):
            (lease,) = await frontier.lease(1, "w")
            assert lease.attempt == attempt
            store.clock.advance(10)
        assert await frontier.lease(1, "w") == []
        assert await frontier.counts() == Counts(dead=1)
        assert await frontier.settle([Done(lease=lease, items=(b"1",))]) == {lease.id}
        assert await frontier.counts() == Counts(dead=1)

    async def test_retries_are_not_losses(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(Rules(pace=EASY.pace, lease_seconds=10, max_losses=2))
        await frontier.put(pages(1))
        for _ in range(5):
            await frontier.settle([Retry(lease=lease) for lease in await frontier.lease(1, "w")])
        await frontier.lease(1, "w")
        store.clock.advance(10)
        (lease,) = await frontier.lease(1, "w")
        await frontier.settle([Retry(lease=lease)])
        (lease,) = await frontier.lease(1, "w")
        assert lease.attempt == 8
        store.clock.advance(10)
        assert await frontier.lease(1, "w") == []
        assert await frontier.counts() == Counts(dead=1)

    async def test_no_more_pages_than_wanted(self, store: StoreUnderTest) -> None:
        rules = Rules(pace=EASY.pace, max_pages=5, lease_seconds=10)
        first, second = await store.frontier(rules), await store.frontier(rules)
        await first.put([*pages(10), *pages(10, "b.example")])
        mine, yours = await first.lease(3, "w1"), await second.lease(9, "w2")
        assert (len(mine), len(yours)) == (3, 2)
        assert await first.lease(9, "w1") == []
        await first.settle([Done(lease=mine[0]), Dead(lease=mine[1], kind="http", reason=""), Retry(lease=mine[2])])
        (again,) = await second.lease(9, "w2")
        store.clock.advance(10)
        lost = await first.lease(9, "w1")
        assert len(lost) == 3
        await first.settle([Done(lease=lease) for lease in [again, *lost]])
        assert await second.lease(9, "w2") == []
        counts = await second.counts()
        assert (counts.done + counts.dead, counts.leased, counts.seen, counts.finished) == (5, 0, 20, False)

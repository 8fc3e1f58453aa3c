"""The frontier contract on lanes: order, concurrency and delay."""

from __future__ import annotations

import pytest

from uttu.frontier.base import Order, Rules
from uttu.model import Dead, Done, Pace, Retry
from uttu.testing.contracts.store import EASY, HOST, TICK, StoreUnderTest, lanes, lease_all, numbers, page, pages


def one_at_a_time(delay: float, ahead: float = 0.0) -> Rules:
    return Rules(pace=Pace(delay, 1), ahead=ahead)


class OrderContract:
    """The order within a lane and among lanes."""

    async def test_first_in_first_out(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put(pages(3))
        await frontier.put([page(3, priority=9), page(4)])
        assert await lease_all(frontier) == [0, 1, 2, 3, 4]

    async def test_last_in_first_out(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(Rules(order="lifo", pace=EASY.pace))
        await frontier.put(pages(3))
        await frontier.put([page(3), page(4)])
        assert await lease_all(frontier) == [4, 3, 2, 1, 0]

    async def test_highest_priority_first_and_first_in_among_equals(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(Rules(order="priority", pace=EASY.pace))
        wanted = [0, 5, -5, 5, 0, -5, 1_000_000, -1_000_000]
        await frontier.put([page(number, priority=priority) for number, priority in enumerate(wanted)])
        await frontier.put([page(8, priority=5), page(9)])
        assert await lease_all(frontier) == [6, 1, 3, 8, 0, 4, 9, 2, 5, 7]

    async def test_a_batch_is_in_the_order_of_the_lane(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put(pages(20))
        assert numbers(await frontier.lease(15, "w")) == list(range(15))
        assert numbers(await frontier.lease(15, "w")) == list(range(15, 20))

    @pytest.mark.parametrize("order", ["fifo", "lifo", "priority"])
    async def test_what_is_given_back_stands_where_it_stood(self, store: StoreUnderTest, order: Order) -> None:
        frontier = await store.frontier(Rules(order=order, pace=EASY.pace))
        await frontier.put([page(number, priority=number % 3) for number in range(6)])
        first = await frontier.lease(4, "w")
        await frontier.settle([Retry(lease=lease, counted=False) for lease in reversed(first[1:])])
        await frontier.put([page(6, priority=-1)])
        again = await frontier.lease(3, "w")
        expected = numbers(first[1:])
        assert numbers(again) == ([6, *expected[:2]] if order == "lifo" else expected)

    async def test_a_retry_and_a_lost_page_come_back_to_their_places(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(Rules(pace=EASY.pace, lease_seconds=10))
        await frontier.put(pages(4))
        lost, late, _ = await frontier.lease(3, "w")
        await frontier.settle([Retry(lease=late, after=10)])
        store.clock.advance(10)
        assert numbers(await frontier.lease(4, "other")) == [0, 1, 2, 3]
        assert numbers([lost, late]) == [0, 1]

    async def test_a_lane_does_not_wait_for_another(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(one_at_a_time(60))
        await frontier.put([*pages(5, "a.example"), page(0, "b.example")])
        assert sorted(lanes(await frontier.lease(10, "w"))) == ["a.example", "b.example"]
        await frontier.put(pages(5, "c.example"))
        assert lanes(await frontier.lease(10, "w")) == ["c.example"]

    async def test_ports_are_lanes_of_their_own(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(one_at_a_time(60))
        await frontier.put([page(0), page(0, HOST + ":8443"), page(0, "www." + HOST)])
        assert len(await frontier.lease(10, "w")) == 3

    async def test_the_lane_that_has_been_due_longest_comes_first(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        for host in ("c.example", "a.example", "d.example", "b.example"):
            await frontier.put(pages(2, host))
            store.clock.advance(TICK)
        assert lanes(await frontier.lease(1, "w")) == ["c.example"]
        store.clock.advance(TICK)
        assert sorted(lanes(await frontier.lease(2, "w"))) == ["a.example", "d.example"]
        store.clock.advance(TICK)
        assert lanes(await frontier.lease(1, "w")) == ["b.example"]
        assert lanes(await frontier.lease(1, "w")) == ["c.example"]

    async def test_each_lane_gives_one_before_any_gives_two(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put([*pages(50, "a.example"), page(0, "b.example"), *pages(50, "c.example")])
        assert sorted(lanes(await frontier.lease(3, "w"))) == ["a.example", "b.example", "c.example"]

    async def test_a_short_batch_means_that_no_more_is_due(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put([*pages(50, "a.example"), page(0, "b.example"), *pages(2, "c.example")])
        assert len(await frontier.lease(40, "w")) == 40
        assert len(await frontier.lease(40, "w")) == 13


class PaceContract:
    """The number of requests of a lane in flight at once, and the delay between them."""

    async def test_never_more_out_than_the_limit(self, store: StoreUnderTest) -> None:
        rules = Rules(pace=Pace(0.0, 3), ahead=0.0)
        first, second = await store.frontier(rules), await store.frontier(rules)
        await first.put([*pages(10), *pages(10, "b.example")])
        mine = await first.lease(4, "w1")
        yours = await second.lease(10, "w2")
        assert sorted(lanes(mine + yours)) == ["a.example"] * 3 + ["b.example"] * 3
        assert await first.lease(10, "w1") == []
        await second.settle([Done(lease=mine[0]), Retry(lease=yours[0]), Dead(lease=yours[1], kind="http", reason="")])
        assert len(await first.lease(10, "w1")) == 3
        assert await second.lease(10, "w2") == []

    async def test_limit_zero_is_any_number(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put(pages(300))
        assert len(await frontier.lease(200, "w")) == 200
        assert len(await frontier.lease(200, "w")) == 100

    async def test_one_at_a_time_the_delay_counts_from_touched(self, store: StoreUnderTest) -> None:
        frontier, clock = await store.frontier(one_at_a_time(2.0)), store.clock
        await frontier.put(pages(3))
        (lease,) = await frontier.lease(5, "w")
        assert lease.wait == 0
        clock.advance(10)
        touched = clock.monotonic()
        assert await frontier.lease(5, "w") == []
        clock.advance(1)
        await frontier.settle([Done(lease=lease, touched=touched)])
        clock.advance(1 - TICK)
        assert await frontier.lease(5, "w") == []
        clock.advance(TICK)
        assert numbers(await frontier.lease(5, "w")) == [1]

    async def test_with_several_the_delay_counts_from_the_start(self, store: StoreUnderTest) -> None:
        frontier, clock = await store.frontier(Rules(pace=Pace(2.0, 2), ahead=0.0)), store.clock
        await frontier.put(pages(4))
        (first,) = await frontier.lease(5, "w")
        clock.advance(2 - TICK)
        assert await frontier.lease(5, "w") == []
        clock.advance(TICK)
        (second,) = await frontier.lease(5, "w")
        clock.advance(5)
        assert await frontier.lease(5, "w") == []
        await frontier.settle([Done(lease=first, touched=clock.monotonic())])
        assert numbers(await frontier.lease(5, "w")) == [2]
        await frontier.settle([Done(lease=second, touched=clock.monotonic())])
        assert await frontier.lease(5, "w") == []
        clock.advance(2)
        assert numbers(await frontier.lease(5, "w")) == [3]

    async def test_leased_ahead_it_says_how_long_to_wait(self, store: StoreUnderTest) -> None:
        frontier, clock = await store.frontier(one_at_a_time(2.0, ahead=0.5)), store.clock
        await frontier.put(pages(3))
        (lease,) = await frontier.lease(5, "w")
        await frontier.settle([Done(lease=lease, touched=clock.monotonic())])
        clock.advance(1.5 - TICK)
        assert await frontier.lease(5, "w") == []
        clock.advance(2 * TICK)
        (lease,) = await frontier.lease(5, "w")
        assert lease.wait == pytest.approx(0.5 - TICK, abs=1e-6)
        clock.advance(0.5)
        await frontier.settle([Done(lease=lease, touched=clock.monotonic())])
        clock.advance(1.5)
        (lease,) = await frontier.lease(5, "w")
        assert lease.wait == pytest.approx(0.5, abs=1e-6)

    async def test_several_leased_ahead_start_apart(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(Rules(pace=Pace(0.25, 4), ahead=0.5))
        await frontier.put(pages(9))
        found = [lease.wait for _ in range(5) for lease in await frontier.lease(1, "w")]
        assert found == [pytest.approx(wait, abs=1e-6) for wait in (0, 0.25, 0.5)]

    async def test_a_probed_lane_gives_one_until_its_pace_comes(self, store: StoreUnderTest) -> None:
        rules = Rules(pace=Pace(0.0, 5), probe=True, ahead=0.0)
        first, second, now = await store.frontier(rules), await store.frontier(rules), store.clock.monotonic()
        await first.put([*pages(9, "a.example"), *pages(9, "b.example")])
        mine, yours = await first.lease(1, "w1"), await second.lease(9, "w2")
        assert sorted(lanes(mine + yours)) == ["a.example", "b.example"]
        assert await first.lease(9, "w1") == []
        await first.settle([Retry(lease=mine[0], touched=now)])
        (mine,) = [await first.lease(9, "w1")]
        assert len(mine) == 1
        await first.settle([Retry(lease=mine[0], touched=now, pace=Pace(0.0, 3))])
        assert lanes(await second.lease(9, "w2")) == lanes(mine) * 3

    async def test_a_new_pace_holds_at_once(self, store: StoreUnderTest) -> None:
        frontier, clock = await store.frontier(one_at_a_time(2.0)), store.clock
        await frontier.put(pages(9))
        for delay in (8.0, 1.0, 0.0, 2.0):
            (lease,) = await frontier.lease(9, "w")
            await frontier.settle([Done(lease=lease, touched=clock.monotonic(), pace=Pace(delay, 1))])
            if delay:
                clock.advance(delay - TICK)
                assert await frontier.lease(9, "w") == []
                clock.advance(TICK)
        (lease,) = await frontier.lease(9, "w")
        await frontier.settle([Done(lease=lease, touched=clock.monotonic(), pace=Pace(0.0, 3))])
        assert len(await frontier.lease(9, "w")) == 3

    @pytest.mark.parametrize("limit", [0, 1, 3])
    async def test_a_pace_may_come_without_a_touch(self, store: StoreUnderTest, limit: int) -> None:
        frontier = await store.frontier(Rules(pace=Pace(0.0, limit), ahead=0.0))
        await frontier.put(pages(9))
        lease, *_ = await frontier.lease(1, "w")
        assert await frontier.settle([Retry(lease=lease, counted=False, pace=Pace(4.0, 2))]) == set()
        assert numbers(await frontier.lease(9, "w")) == [0]
        store.clock.advance(4 - TICK)
        assert await frontier.lease(9, "w") == []
        store.clock.advance(TICK)
        assert numbers(await frontier.lease(9, "w")) == [1]

    async def test_an_untouched_host_gives_the_turn_back(self, store: StoreUnderTest) -> None:
        frontier, clock = await store.frontier(one_at_a_time(4.0)), store.clock
        await frontier.put(pages(3))
        (lease,) = await frontier.lease(5, "w")
        await frontier.settle([Done(lease=lease, touched=clock.monotonic())])
        clock.advance(4)
        (lease,) = await frontier.lease(5, "w")
        await frontier.settle([Retry(lease=lease, counted=False)])
        (lease,) = await frontier.lease(5, "w")
        assert (numbers([lease]), lease.wait) == ([1], 0)

    async def test_a_turn_given_back_does_not_shorten_the_gap_to_another(self, store: StoreUnderTest) -> None:
        frontier, clock = await store.frontier(Rules(pace=Pace(0.0, 2), ahead=0.0)), store.clock
        await frontier.put(pages(5))
        asked, unused = await frontier.lease(2, "w")
        await frontier.settle([Done(lease=asked, touched=clock.monotonic(), pace=Pace(8.0, 1))])
        clock.advance(1)
        await frontier.settle([Retry(lease=unused, counted=False)])
        clock.advance(7 - TICK)
        assert await frontier.lease(5, "w") == []
        clock.advance(TICK)
        assert numbers(await frontier.lease(5, "w")) == [1]

    async def test_the_delay_after_a_lost_lease_counts_from_its_loss(self, store: StoreUnderTest) -> None:
        frontier, clock = await store.frontier(Rules(pace=Pace(4.0, 1), ahead=0.0, lease_seconds=10)), store.clock
        await frontier.put(pages(2))
        await frontier.lease(1, "w1")
        clock.advance(30)
        assert await frontier.lease(1, "w2") == []
        clock.advance(4 - TICK)
        assert await frontier.lease(1, "w2") == []
        clock.advance(TICK)
        assert numbers(await frontier.lease(1, "w2")) == [0]


class HoldContract:
    """Lanes that are held for a time."""

    async def test_a_held_lane_gives_nothing_and_others_go_on(self, store: StoreUnderTest) -> None:
        first, second = await store.frontier(EASY), await store.frontier(EASY)
        await first.put([*pages(2, "a.example"), *pages(2, "b.example")])
        await first.hold("a.example", 10, "Retry-After")
        assert lanes(await second.lease(9, "w2")) == ["b.example"] * 2
        store.clock.advance(10 - TICK)
        assert await first.lease(9, "w1") == []
        store.clock.advance(TICK)
        assert lanes(await first.lease(9, "w1")) == ["a.example"] * 2

    async def test_a_longer_hold_stays_and_a_shorter_one_is_ignored(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put(pages(2))
        await frontier.hold(HOST, 10, "Retry-After")
        await frontier.hold(HOST, 5, "a shorter one")
        store.clock.advance(8)
        assert await frontier.lease(1, "w") == []
        await frontier.hold(HOST, 12, "a longer one")
        store.clock.advance(12 - TICK)
        assert await frontier.lease(1, "w") == []
        store.clock.advance(TICK)
        assert len(await frontier.lease(1, "w")) == 1
        await frontier.hold(HOST, 3, "a new one")
        assert await frontier.lease(1, "w") == []
        store.clock.advance(3)
        assert len(await frontier.lease(1, "w")) == 1

    @pytest.mark.parametrize("touched", [True, False])
    async def test_a_hold_outlasts_what_is_out_and_comes_back(self, store: StoreUnderTest, touched: bool) -> None:
        frontier, clock = await store.frontier(one_at_a_time(2.0)), store.clock
        await frontier.put(pages(2))
        (lease,) = await frontier.lease(1, "w")
        await frontier.hold(HOST, 20, "Retry-After")
        await frontier.settle([Retry(lease=lease, touched=clock.monotonic() if touched else None, pace=Pace(0.0, 1))])
        clock.advance(20 - TICK)
        assert await frontier.lease(1, "w") == []
        clock.advance(TICK)
        assert len(await frontier.lease(1, "w")) == 1

    async def test_a_hold_does_not_shorten_the_delay(self, store: StoreUnderTest) -> None:
        frontier, clock = await store.frontier(one_at_a_time(20.0)), store.clock
        await frontier.put(pages(2))
        (lease,) = await frontier.lease(1, "w")
        await frontier.settle([Done(lease=lease, touched=clock.monotonic())])
        await frontier.hold(HOST, 5, "Retry-After")
        clock.advance(20 - TICK)
        assert await frontier.lease(1, "w") == []
        clock.advance(TICK)
        assert len(await frontier.lease(1, "w")) == 1

    async def test_a_host_can_be_held_before_anything_of_it_is_known(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        await frontier.hold(HOST, 10, "by the operator")
        await frontier.put(pages(2))
        assert await frontier.lease(9, "w") == []
        store.clock.advance(10)
        assert len(await frontier.lease(9, "w")) == 2

    async def test_a_hold_reaches_through_leasing_ahead(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(Rules(pace=EASY.pace, ahead=0.5))
        await frontier.put(pages(1))
        await frontier.hold(HOST, 1, "Retry-After")
        assert await frontier.lease(9, "w") == []
        store.clock.advance(0.75)
        (lease,) = await frontier.lease(9, "w")
        assert lease.wait == pytest.approx(0.25, abs=1e-6)

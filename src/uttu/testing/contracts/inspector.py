"""The contract of the inspector: what it shows of a crawl, and what an operator may change."""

from __future__ import annotations

import pytest

from uttu.frontier.base import Rules
from uttu.model import Counts, Dead, Done, Pace, Redirect, Retry
from uttu.model.inspection import DeadPage, DeadQuery
from uttu.model.lease import RequestState, Trace
from uttu.testing.contracts.store import (
    EASY,
    HOST,
    TICK,
    StoreUnderTest,
    count_dead_kinds,
    lanes,
    list_dead,
    list_lanes,
    numbers,
    page,
    pages,
)

SHORT = Rules(pace=Pace(0.0, 0), ahead=0.0, lease_seconds=10)


class InspectorContract:
    """Traces of requests, lane states, dead letters and their revival."""

    async def test_the_trace_of_a_request_that_waits(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await frontier.put(pages(3))
        trace = await inspector.trace(page(2).fingerprint)
        assert (trace.state, trace.request, trace.lane, trace.attempt) == (RequestState.PENDING, page(2), HOST, 0)
        assert (trace.ahead, trace.reason) == (2, "")
        assert await inspector.trace(page(2).fingerprint, HOST) == trace
        assert await inspector.trace(page(9).fingerprint) == Trace(state=RequestState.UNKNOWN)
        assert await inspector.trace(page(9).fingerprint, "b.example") == Trace(state=RequestState.UNKNOWN)
        await frontier.hold(HOST, 20, "Retry-After")
        trace = await inspector.trace(page(1).fingerprint)
        assert (trace.ahead, trace.reason) == (1, "Retry-After")
        assert trace.due == pytest.approx(store.clock.time() + 20, abs=1e-3)

    async def test_the_trace_of_a_request_that_is_leased(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(SHORT), await store.inspector()
        await frontier.put(pages(1))
        (lease,) = await frontier.lease(1, "host/w1")
        trace = await inspector.trace(lease.fingerprint)
        assert (trace.state, trace.request, trace.lane, trace.attempt) == (RequestState.LEASED, page(0), HOST, 1)
        assert trace.worker == "host/w1"
        assert trace.due == pytest.approx(lease.deadline, abs=1e-3)

    async def test_the_trace_of_a_request_to_be_tried_again(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await frontier.put(pages(1))
        (lease,) = await frontier.lease(1, "w")
        await frontier.settle([Retry(lease=lease, after=30, reason="answered with status 503")])
        trace = await inspector.trace(lease.fingerprint)
        assert (trace.state, trace.request, trace.lane, trace.attempt) == (RequestState.DELAYED, page(0), HOST, 1)
        assert trace.reason == "answered with status 503"
        assert trace.due == pytest.approx(store.clock.time() + 30, abs=1e-3)
        store.clock.advance(30)
        assert len(await frontier.lease(1, "w")) == 1
        assert (await inspector.trace(lease.fingerprint)).state is RequestState.LEASED

    async def test_the_trace_of_a_page_that_is_done(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await frontier.put(pages(2))
        one, other = await frontier.lease(2, "w")
        await frontier.settle(
            [
                Done(
                    lease=one,
                    children=(page(7), page(8)),
                    items=(b"1", b"2", b"3"),
                    status=200,
                    size=99,
                    note="from the cache",
                ),
                Done(lease=other),
            ]
        )
        trace = await inspector.trace(one.fingerprint)
        assert (trace.state, trace.status, trace.size, trace.links, trace.items) == (RequestState.DONE, 200, 99, 2, 3)
        assert (trace.reason, trace.redirect) == ("from the cache", None)
        assert trace.at == pytest.approx(store.clock.time(), abs=1e-3)
        assert (await inspector.trace(other.fingerprint)).state is RequestState.DONE
        assert await inspector.trace(one.fingerprint, HOST) == trace
        assert (await inspector.trace(page(7).fingerprint, HOST)).state is RequestState.PENDING

    @pytest.mark.parametrize("refused", ["", 'outside "a.example"'])
    async def test_the_trace_of_a_page_that_redirected(self, store: StoreUnderTest, refused: str) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await frontier.put(pages(1))
        (lease,) = await frontier.lease(1, "w")
        redirect = Redirect("https://a.example/é?x=1", refused)
        await frontier.settle([Done(lease=lease, status=301, redirect=redirect)])
        trace = await inspector.trace(lease.fingerprint)
        assert (trace.state, trace.status, trace.reason, trace.redirect) == (RequestState.DONE, 301, "", redirect)

    async def test_the_trace_of_a_request_that_is_dead(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await frontier.put(pages(1))
        (lease,) = await frontier.lease(1, "w")
        await frontier.settle([Retry(lease=lease)])
        (lease,) = await frontier.lease(1, "w")
        await frontier.settle(
            [Dead(lease=lease, kind="handler", reason="KeyError", detail="line 1\nline 2", status=200)]
        )
        trace = await inspector.trace(lease.fingerprint)
        assert (trace.state, trace.request, trace.lane, trace.attempt) == (RequestState.DEAD, page(0), HOST, 2)
        assert (trace.kind, trace.reason, trace.detail) == ("handler", "KeyError", "line 1\nline 2")
        assert trace.status == 200
        assert trace.at == pytest.approx(store.clock.time(), abs=1e-3)

    async def test_lanes_with_the_most_pending_come_first(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(Rules(pace=Pace(2.0, 1), ahead=0.0)), await store.inspector()
        await frontier.put([*pages(2, "a.example"), *pages(5, "b.example"), *pages(4, "c.example")])
        leases = {lease.lane: lease for lease in await frontier.lease(9, "w")}
        now = store.clock.monotonic()
        await frontier.settle([Done(lease=leases["c.example"], touched=now, pace=Pace(8.0, 1))])
        await frontier.hold("b.example", 20, "Retry-After")
        first, second, third = await list_lanes(inspector)
        assert [lane.name for lane in (first, second, third)] == ["b.example", "c.example", "a.example"]
        assert (first.pending, first.active, first.total, first.pace) == (4, 1, 5, Pace(2.0, 1))
        assert first.reason == "Retry-After"
        assert (second.pending, second.active, second.total, second.pace) == (3, 0, 4, Pace(8.0, 1))
        assert second.reason == ""
        assert (third.pending, third.active, third.pinned) == (1, 1, False)
        assert [first.wait, second.wait, third.wait] == [pytest.approx(wait, abs=1e-3) for wait in (20, 8, 0)]
        assert [lane.name for lane in await list_lanes(inspector, 1)] == ["b.example"]
        store.clock.advance(20)
        assert (await list_lanes(inspector, 1))[0].reason == ""

    async def test_dead_letters_come_latest_first(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await frontier.put(pages(4))
        assert (await inspector.dead(DeadQuery()), await count_dead_kinds(inspector)) == (DeadPage([]), {})
        for lease, kind in zip(await frontier.lease(4, "w"), ("http", "dns", "http", "timeout"), strict=True):
            store.clock.advance(TICK)
            await frontier.settle([Dead(lease=lease, kind=kind, reason=f"for {kind}", detail="how", status=404)])
        letters = await list_dead(inspector)
        assert [letter.request for letter in letters] == list(reversed(pages(4)))
        assert [letter.kind for letter in letters] == ["timeout", "http", "dns", "http"]
        last = letters[0]
        assert (last.reason, last.detail, last.status, last.attempt) == ("for timeout", "how", 404, 1)
        assert last.at == pytest.approx(store.clock.time(), abs=1e-3)
        assert await list_dead(inspector, 2) == letters[:2]
        assert (await inspector.dead(DeadQuery(kind="http"))).letters == [letters[1], letters[3]]
        assert (await inspector.dead(DeadQuery(kind="http", limit=1))).letters == [letters[1]]
        assert await count_dead_kinds(inspector) == {"http": 2, "dns": 1, "timeout": 1}

    async def test_the_dead_come_back_as_if_never_tried(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await frontier.put(pages(5))
        kinds = ("http", "dns", "http", "timeout", "timeout")
        leases = await frontier.lease(5, "w")
        await frontier.settle(
            [Dead(lease=lease, kind=kind, reason="") for lease, kind in zip(leases, kinds, strict=True)]
        )
        assert await inspector.revive(kind="nothing") == 0
        assert await inspector.revive(url=page(4).url) == 1
        assert await inspector.revive(kind="http") == 2
        assert await frontier.counts() == Counts(pending=3, dead=2)
        assert await count_dead_kinds(inspector) == {"dns": 1, "timeout": 1}
        assert (await inspector.trace(page(0).fingerprint)).state is RequestState.PENDING
        again = await frontier.lease(9, "w")
        assert sorted(numbers(again)) == [0, 2, 4]
        assert {lease.attempt for lease in again} == {1}
        await frontier.settle([Done(lease=lease) for lease in again])
        assert await inspector.revive() == 2
        assert await inspector.revive() == 0
        assert sorted(numbers(await frontier.lease(9, "w"))) == [1, 3]
        assert await frontier.put(pages(5)) == 0
        assert await frontier.counts() == Counts(leased=2, done=3)

    async def test_a_lost_request_that_died_comes_back_with_all_its_lives(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(Rules(pace=EASY.pace, lease_seconds=10, max_losses=2))
        inspector = await store.inspector()
        await frontier.put(pages(1))
        for _ in range(2):
            for _ in range(2):
                assert len(await frontier.lease(1, "w")) == 1
                store.clock.advance(10)
            assert await frontier.lease(1, "w") == []
            assert await count_dead_kinds(inspector) == {"lost": 1}
            assert await inspector.revive(kind="lost") == 1

    async def test_lanes_of_one_pace_get_another(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(Rules(pace=Pace(2.0, 1), ahead=0.0)), await store.inspector()
        await frontier.put([*pages(3, "a.example"), *pages(2, "b.example")])
        leases = {lease.lane: lease for lease in await frontier.lease(9, "w")}
        now = store.clock.monotonic()
        await frontier.settle([Done(lease=leases["b.example"], touched=now, pace=Pace(8.0, 1))])
        assert await inspector.repace(Pace(2.0, 1), Pace(4.0, 1)) == 1
        assert await inspector.repace(Pace(2.0, 1), Pace(4.0, 1)) == 0
        assert [lane.pace for lane in await list_lanes(inspector)] == [Pace(4.0, 1), Pace(8.0, 1)]
        await frontier.settle([Done(lease=leases["a.example"], touched=now)])
        store.clock.advance(4 - TICK)
        assert await frontier.lease(9, "w") == []
        store.clock.advance(TICK)
        assert lanes(await frontier.lease(9, "w")) == ["a.example"]


class PinContract:
    """The operator's pace overrides the pace of outcomes."""

    async def test_a_pinned_lane_keeps_its_pace(self, store: StoreUnderTest) -> None:
        frontier, inspector, clock = await store.frontier(EASY), await store.inspector(), store.clock
        await frontier.put(pages(9))
        (lease,) = await frontier.lease(1, "w")
        await inspector.pin(HOST, 4.0)
        for _ in range(2):
            assert await frontier.lease(9, "w") == []
            await frontier.settle([Done(lease=lease, touched=clock.monotonic(), pace=Pace(0.0, 3))])
            (state,) = await list_lanes(inspector)
            assert (state.pace, state.pinned) == (Pace(4.0, 1), True)
            clock.advance(4 - TICK)
            assert await frontier.lease(9, "w") == []
            clock.advance(TICK)
            (lease,) = await frontier.lease(9, "w")

    async def test_a_lane_may_be_pinned_before_it_is_known(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await inspector.pin("b.example", 4.0)
        await inspector.pin("c.example", None)
        await frontier.put([*pages(3, "b.example"), *pages(2, "c.example")])
        assert sorted(lanes(await frontier.lease(9, "w"))) == ["b.example", "c.example", "c.example"]
        assert {lane.name: lane.pinned for lane in await list_lanes(inspector)} == {
            "b.example": True,
            "c.example": False,
        }

    async def test_a_pinned_lane_may_be_pinned_otherwise(self, store: StoreUnderTest) -> None:
        frontier, inspector, clock = await store.frontier(EASY), await store.inspector(), store.clock
        await inspector.pin(HOST, 60.0)
        await frontier.put(pages(3))
        (lease,) = await frontier.lease(9, "w")
        await inspector.pin(HOST, 2.0)
        await frontier.settle([Done(lease=lease, touched=clock.monotonic())])
        clock.advance(2 - TICK)
        assert await frontier.lease(9, "w") == []
        clock.advance(TICK)
        assert numbers(await frontier.lease(9, "w")) == [1]

    @pytest.mark.parametrize(("before", "after"), [(60.0, 2.0), (2.0, 60.0)])
    async def test_a_wait_that_has_begun_is_as_long_as_the_new_delay(
        self, store: StoreUnderTest, before: float, after: float
    ) -> None:
        frontier, inspector, clock = await store.frontier(EASY), await store.inspector(), store.clock
        await inspector.pin(HOST, before)
        await frontier.put(pages(3))
        (lease,) = await frontier.lease(9, "w")
        await frontier.settle([Done(lease=lease, touched=clock.monotonic())])
        clock.advance(1)
        await inspector.pin(HOST, after)
        clock.advance(after - 1 - TICK)
        assert await frontier.lease(9, "w") == []
        clock.advance(TICK)
        assert numbers(await frontier.lease(9, "w")) == [1]

    async def test_unpinned_a_lane_goes_at_its_own_pace_again(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(Rules(pace=Pace(0.0, 3), ahead=0.0)), await store.inspector()
        await frontier.put(pages(9))
        await inspector.pin(HOST, 60.0)
        await inspector.pin(HOST, 4.0)
        store.clock.advance(4)
        assert len(await frontier.lease(9, "w")) == 1
        await inspector.pin(HOST, None)
        (state,) = await list_lanes(inspector)
        assert (state.pace, state.pinned) == (Pace(0.0, 3), False)
        assert len(await frontier.lease(9, "w")) == 2

    async def test_unpinning_a_lane_that_is_not_pinned_changes_nothing(self, store: StoreUnderTest) -> None:
        frontier, inspector, clock = await store.frontier(EASY), await store.inspector(), store.clock
        await frontier.put(pages(3))
        (lease,) = await frontier.lease(1, "w")
        await frontier.settle([Done(lease=lease, touched=clock.monotonic(), pace=Pace(4.0, 1))])
        before = await list_lanes(inspector)
        await inspector.pin(HOST, None)
        assert await list_lanes(inspector) == before

    async def test_a_pace_that_comes_while_it_is_pinned_is_its_own_later(self, store: StoreUnderTest) -> None:
        frontier, inspector, clock = await store.frontier(EASY), await store.inspector(), store.clock
        await frontier.put(pages(9))
        (lease,) = await frontier.lease(1, "w")
        await inspector.pin(HOST, 4.0)
        await frontier.settle([Done(lease=lease, touched=clock.monotonic(), pace=Pace(7.0, 1))])
        await inspector.pin(HOST, None)
        (state,) = await list_lanes(inspector)
        assert (state.pace, state.pinned) == (Pace(7.0, 1), False)

    @pytest.mark.parametrize("own", [60.0, 2.0])
    async def test_a_wait_that_has_begun_is_as_long_as_the_own_delay_again(
        self, store: StoreUnderTest, own: float
    ) -> None:
        frontier, inspector, clock = await store.frontier(EASY), await store.inspector(), store.clock
        await frontier.put(pages(3))
        await inspector.pin(HOST, 10.0)
        clock.advance(10)
        (lease,) = await frontier.lease(9, "w")
        await frontier.settle([Done(lease=lease, touched=clock.monotonic(), pace=Pace(own, 1))])
        clock.advance(1)
        await inspector.pin(HOST, None)
        clock.advance(own - 1 - TICK)
        assert await frontier.lease(9, "w") == []
        clock.advance(TICK)
        assert numbers(await frontier.lease(9, "w")) == [1]

    async def test_where_several_may_be_out_the_delay_counts_from_the_one_that_is(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(Rules(pace=Pace(2.0, 3), ahead=0.0)), await store.inspector()
        await frontier.put(pages(3))
        await inspector.pin(HOST, 0.0)
        assert numbers(await frontier.lease(9, "w")) == [0]
        await inspector.pin(HOST, None)
        store.clock.advance(2 - TICK)
        assert await frontier.lease(9, "w") == []
        store.clock.advance(TICK)
        assert numbers(await frontier.lease(9, "w")) == [1]

    async def test_a_lane_pinned_before_it_was_known_has_the_pace_of_the_crawl(self, store: StoreUnderTest) -> None:
        inspector = await store.inspector()
        await inspector.pin("a.example", 4.0)
        await inspector.pin("b.example", 4.0)
        await inspector.pin("b.example", None)
        frontier = await store.frontier(Rules(pace=Pace(2.0, 3), ahead=0.0))
        await frontier.put([*pages(3, "a.example"), *pages(2, "b.example")])
        paces = {lane.name: (lane.pace, lane.pinned) for lane in await list_lanes(inspector)}
        assert paces == {"a.example": (Pace(4.0, 1), True), "b.example": (Pace(2.0, 3), False)}
        await inspector.pin("a.example", None)
        assert {lane.pace for lane in await list_lanes(inspector)} == {Pace(2.0, 3)}

    async def test_a_hold_outlasts_a_pin(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await inspector.pin(HOST, 4.0)
        await frontier.hold(HOST, 20, "Retry-After")
        await inspector.pin(HOST, None)
        await frontier.put(pages(2))
        store.clock.advance(20 - TICK)
        assert await frontier.lease(9, "w") == []
        store.clock.advance(TICK)
        assert len(await frontier.lease(9, "w")) == 2

    async def test_a_new_pace_of_the_crawl_reaches_pinned_lanes_when_they_are_unpinned(
        self, store: StoreUnderTest
    ) -> None:
        frontier, inspector = await store.frontier(Rules(pace=Pace(2.0, 1), ahead=0.0)), await store.inspector()
        await inspector.pin("a.example", 2.0)
        await frontier.put([*pages(3, "a.example"), *pages(2, "b.example")])
        assert await inspector.repace(Pace(2.0, 1), Pace(0.0, 0)) == 1
        assert {lane.name: lane.pace for lane in await list_lanes(inspector)} == {
            "a.example": Pace(2.0, 1),
            "b.example": Pace(0.0, 0),
        }
        await inspector.pin("a.example", None)
        assert {lane.pace for lane in await list_lanes(inspector)} == {Pace(0.0, 0)}

    async def test_a_hold_is_stronger_than_a_pin(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await frontier.put(pages(2))
        await frontier.hold(HOST, 20, "Retry-After")
        await inspector.pin(HOST, 0.0)
        store.clock.advance(20 - TICK)
        assert await frontier.lease(9, "w") == []
        store.clock.advance(TICK)
        assert numbers(await frontier.lease(9, "w")) == [0]

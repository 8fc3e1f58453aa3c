"""The contract on moving a crawl from one store to another: see :mod:`weft.frontier.moving`.

It needs two fixtures, ``store`` and ``other_store``: empty crawls as :mod:`weft.testing.frontier_store` describes
them, which also give a ``mover``. They may be of one technology or of two; each has its own clock::

    @pytest.fixture
    async def store(): ...

    @pytest.fixture
    async def other_store(): ...

    class TestSqliteToRedis(MoverContract):
        pass
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import pytest

from weft.errors import StoreError
from weft.frontier.base import Cursor, Order, Rules
from weft.frontier.moving import Batch, ItemBatch, LaneBatch, Mover, RequestBatch, Rest
from weft.model import Counts, Dead, Done, Lease, Pace, Retry
from weft.testing.frontier_store import EASY, Store, drain, numbers, page, pages

HOSTS = ("a.example", "b.example", "c.example")
HELD, PINNED = "held.example", "pinned.example"
FACTS = {"state": "paused", "spider": "shop", "arguments": '{"q":"é"}', "empty": ""}
ORDERS: tuple[Order, ...] = ("fifo", "lifo", "priority")
SINK, OWNER = "out.jsonl", "someone"


class MovingStore(Store, Protocol):
    async def mover(self) -> Mover:
        """For carrying the crawl in and out."""


async def poured(store: MovingStore) -> list[Batch]:
    return [batch async for batch in (await store.mover()).pour()]


async def fill(store: MovingStore, batches: list[Batch]) -> None:
    mover = await store.mover()
    for batch in batches:
        await mover.fill(batch)


def rules_of(order: Order) -> Rules:
    return msgspec.structs.replace(EASY, order=order)


async def make(store: MovingStore, order: Order) -> list[Lease]:
    """A crawl with everything in it, at rest; returns the leases that were ever given out."""
    frontier, ledger, outbox = await store.frontier(rules_of(order)), await store.ledger(), await store.outbox()
    await frontier.put([page(number, host, priority=number % 4) for host in HOSTS for number in range(12)])
    leases = await frontier.lease(18, "w")
    await frontier.settle([_outcome(number, lease) for number, lease in enumerate(leases)])
    store.clock.advance(8)
    inspector = await store.inspector()
    await frontier.put([page(100, HELD), page(101, HELD), page(100, PINNED), page(101, PINNED), page(102, PINNED)])
    await frontier.hold(HELD, 40, "Retry-After")
    await inspector.pin(PINNED, 5.0)
    await ledger.note(**FACTS)
    await ledger.report("w", b"{}")
    assert await ledger.claim(f"drain {SINK}", OWNER, 1)
    assert await outbox.advance(SINK, Cursor((await outbox.items(0, 2))[1].position, bytes(range(256))), OWNER)
    memo = await store.memo()
    await memo.remember("robots a.example", bytes(range(256)), 60)
    await memo.remember("robots b.example", b"", 30)
    await memo.remember("past", b"x", 1)
    store.clock.advance(2)
    return leases


def _outcome(number: int, lease: Lease) -> Done | Dead | Retry:
    """By turns done, dead, to be tried later, given back, and given back counted."""
    match number % 5:
        case 0:
            child = page(1000 + number, lease.lane, priority=2, meta={"from": lease.request.url})
            made = (b'{"n":1}', '"é"'.encode())
            return Done(lease=lease, children=(child,), items=made, status=200, size=600 + number, note="n")
        case 1:
            return Dead(
                lease=lease, kind="http", reason="404", detail="a\nb", status=404, items=(f"{number}".encode(),)
            )
        case 2:
            return Retry(lease=lease, after=20.0 + number, reason="answered with 503")
        case 3:
            return Retry(lease=lease, counted=False)
        case _:
            return Retry(lease=lease)


async def snapshot(store: MovingStore, order: Order, leases: list[Lease]) -> dict[str, Any]:
    """Everything that can be seen of a crawl without changing it. Times are from now."""
    frontier, outbox, memo = await store.frontier(rules_of(order)), await store.outbox(), await store.memo()
    inspector, ledger = await store.inspector(), await store.ledger()
    now = store.clock.time()
    wanted = [lease.fingerprint for lease in leases] + [
        page(number, host).fingerprint for host in (*HOSTS, HELD, PINNED) for number in (*range(12), 100, 101, 1000)
    ]
    traces = [await inspector.trace(fingerprint) for fingerprint in wanted]
    dead = [msgspec.structs.replace(each, at=now - each.at) for each in await inspector.dead(1000)]
    return {
        "counts": await frontier.counts(),
        "items": await outbox.items(0, 1000),
        "cursor": await outbox.cursor(SINK),
        "memo": [await memo.recall(key) for key in ("robots a.example", "robots b.example", "past", "none")],
        "facts": await ledger.facts(),
        "lanes": sorted(await inspector.lanes(1000), key=lambda lane: lane.name),
        "dead": sorted(dead, key=lambda letter: letter.request.url),
        "kinds": await inspector.dead_kinds(),
        "traces": [
            msgspec.structs.replace(
                each, due=max(0.0, each.due - now) if each.due else 0.0, at=now - each.at if each.at else 0.0
            )
            for each in traces
        ],
    }


async def way(store: MovingStore, order: Order) -> dict[str, list[tuple[int, int]]]:
    """The pages of each lane, and their attempts, in the order in which they are handed out to the last of them."""
    frontier = await store.frontier(rules_of(order))
    await (await store.inspector()).revive()
    found: dict[str, list[tuple[int, int]]] = {}
    for _ in range(1000):
        leases = await frontier.lease(1, "w2")
        for number, lease in zip(numbers(leases), leases, strict=True):
            found.setdefault(lease.lane, []).append((number, lease.attempt))
        await frontier.settle([Done(lease=lease, touched=store.clock.monotonic()) for lease in leases])
        if not leases:
            if (await frontier.counts()).finished:
                return found
            store.clock.advance(1)
    raise AssertionError("the crawl does not come to its end")


class MoverContract:
    """A crawl that is poured out of one store and filled into another is the same crawl."""

    @pytest.mark.parametrize("order", ORDERS)
    async def test_a_moved_crawl_is_the_same(self, store: MovingStore, other_store: MovingStore, order: Order) -> None:
        leases = await make(store, order)
        before = await snapshot(store, order, leases)
        await fill(other_store, await poured(store))
        after = await snapshot(other_store, order, leases)
        for what, value in before.items():
            assert after[what] == value, what
        assert await snapshot(store, order, leases) == before, "pouring changes nothing"
        assert before["facts"] == FACTS
        counts = before["counts"]
        assert 0 not in (counts.pending, counts.delayed, counts.done, counts.dead, counts.items, counts.bytes)
        assert {lane.name for lane in before["lanes"] if lane.pinned} == {PINNED}
        assert {lane.name for lane in before["lanes"] if lane.reason} == {HELD}

    @pytest.mark.parametrize("order", ORDERS)
    async def test_pages_are_handed_out_in_the_same_order(
        self, store: MovingStore, other_store: MovingStore, order: Order
    ) -> None:
        await make(store, order)
        await fill(other_store, await poured(store))
        for each in (store, other_store):
            # Behind or before those that came along, as the order has it.
            await (await each.frontier(rules_of(order))).put([page(2000, priority=2), page(2001, priority=3)])
        assert await way(other_store, order) == await way(store, order)

    @pytest.mark.parametrize("order", ORDERS)
    async def test_nothing_is_admitted_again(self, store: MovingStore, other_store: MovingStore, order: Order) -> None:
        leases = await make(store, order)
        await fill(other_store, await poured(store))
        frontier = await other_store.frontier(rules_of(order))
        before = await frontier.counts()
        assert await frontier.put([lease.request for lease in leases]) == 0
        assert await frontier.put([page(number, host) for host in HOSTS for number in range(12)]) == 0
        assert await frontier.counts() == before
        assert await frontier.put([page(12)]) == 1

    async def test_leases_and_positions_go_on_above_the_former(
        self, store: MovingStore, other_store: MovingStore
    ) -> None:
        leases = await make(store, "fifo")
        last = (await (await store.outbox()).items(0, 1000))[-1].position
        await fill(other_store, await poured(store))
        frontier, outbox = await other_store.frontier(EASY), await other_store.outbox()
        (lease,) = await frontier.lease(1, "w2")
        assert lease.id > max(lease.id for lease in leases)
        await frontier.settle([Done(lease=lease, items=(b'"new"',))])
        (item,) = await outbox.items(last, 10)
        assert item.json == b'"new"'

    async def test_a_lease_from_before_the_move_is_refused(self, store: MovingStore, other_store: MovingStore) -> None:
        leases = await make(store, "fifo")
        await fill(other_store, await poured(store))
        frontier = await other_store.frontier(EASY)
        before = await frontier.counts()
        assert await frontier.settle([Done(lease=lease) for lease in leases]) == {lease.id for lease in leases}
        assert await frontier.counts() == before

    @pytest.mark.parametrize("order", ORDERS)
    async def test_a_second_fill_of_every_batch_changes_nothing(
        self, store: MovingStore, other_store: MovingStore, order: Order
    ) -> None:
        leases = await make(store, order)
        before = await snapshot(store, order, leases)
        batches = await poured(store)
        await fill(other_store, [batch for batch in batches for _ in range(2)])
        assert await snapshot(other_store, order, leases) == before
        other_store.clock.advance(1)
        store.clock.advance(1)
        await fill(other_store, await poured(store))
        assert await snapshot(other_store, order, leases) == await snapshot(store, order, leases)
        assert await way(other_store, order) == await way(store, order)

    async def test_a_move_that_was_cut_short_is_done_again(self, store: MovingStore, other_store: MovingStore) -> None:
        leases = await make(store, "fifo")
        batches = await poured(store)
        for end in range(len(batches)):
            await fill(other_store, batches[:end])
        await fill(other_store, batches)
        assert await snapshot(other_store, "fifo", leases) == await snapshot(store, "fifo", leases)
        assert await way(other_store, "fifo") == await way(store, "fifo")

    async def test_what_is_leased_refuses_to_pour(self, store: MovingStore) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put(pages(2))
        (lease,) = await frontier.lease(1, "w")
        with pytest.raises(StoreError, match="leased"):
            await poured(store)
        await frontier.settle([Retry(lease=lease, counted=False)])
        assert isinstance((await poured(store))[-1], Rest)

    async def test_losses_are_counted_on(self, store: MovingStore, other_store: MovingStore) -> None:
        rules = msgspec.structs.replace(EASY, lease_seconds=10.0, max_losses=2)
        frontier = await store.frontier(rules)
        await frontier.put(pages(1))
        assert numbers(await frontier.lease(1, "w")) == [0]
        store.clock.advance(10)
        assert await frontier.lease(0, "w") == [], "asked for none, it ends the leases that ran out all the same"
        assert (await frontier.counts()).pending == 1
        await fill(other_store, await poured(store))
        frontier = await other_store.frontier(rules)
        (lease,) = await frontier.lease(1, "w")
        assert lease.attempt == 2
        other_store.clock.advance(10)
        await frontier.lease(0, "w")
        assert await (await other_store.inspector()).dead_kinds() == {"lost": 1}

    async def test_a_lane_s_pages_are_counted_on(self, store: MovingStore, other_store: MovingStore) -> None:
        rules = msgspec.structs.replace(EASY, max_per_lane=5)
        frontier = await store.frontier(rules)
        assert await frontier.put(pages(3)) == 3
        await drain(frontier)
        await fill(other_store, await poured(store))
        assert await (await other_store.frontier(rules)).put(pages(9)) == 2

    async def test_paces_and_turns_are_kept(self, store: MovingStore, other_store: MovingStore) -> None:
        rules = Rules(pace=Pace(0.0, 1), ahead=0.0)
        frontier = await store.frontier(rules)
        await frontier.put(pages(4))
        (lease,) = await frontier.lease(9, "w")
        await frontier.settle([Done(lease=lease, touched=store.clock.monotonic(), pace=Pace(5.0, 2))])
        await fill(other_store, await poured(store))
        frontier = await other_store.frontier(rules)
        assert await frontier.lease(9, "w") == []
        other_store.clock.advance(5)
        assert numbers(await frontier.lease(9, "w")) == [1]
        other_store.clock.advance(5)
        assert numbers(await frontier.lease(9, "w")) == [2]
        other_store.clock.advance(5)
        assert await frontier.lease(9, "w") == []

    async def test_a_pinned_lane_stays_pinned_without_pages(self, store: MovingStore, other_store: MovingStore) -> None:
        await (await store.inspector()).pin("a.example", 5.0)
        await fill(other_store, await poured(store))
        frontier, inspector = await other_store.frontier(EASY), await other_store.inspector()
        await frontier.put(pages(2))
        (lane,) = await inspector.lanes(9)
        assert (lane.pinned, lane.pace) == (True, Pace(5.0, 1))
        await inspector.pin("a.example", None)
        assert [lane.pace for lane in await inspector.lanes(9)] == [EASY.pace]

    async def test_a_pinned_lane_has_its_own_pace_again_when_it_is_unpinned(
        self, store: MovingStore, other_store: MovingStore
    ) -> None:
        await (await store.frontier(Rules(pace=Pace(2.0, 3)))).put(pages(2))
        await (await store.inspector()).pin("a.example", 5.0)
        await fill(other_store, await poured(store))
        inspector = await other_store.inspector()
        await inspector.pin("a.example", None)
        (lane,) = await inspector.lanes(9)
        assert (lane.pinned, lane.pace) == (False, Pace(2.0, 3))

    async def test_an_empty_crawl(self, store: MovingStore, other_store: MovingStore) -> None:
        await (await store.ledger()).note(state="stopped")
        await fill(other_store, await poured(store))
        assert await (await other_store.frontier(EASY)).counts() == Counts()
        assert await (await other_store.ledger()).facts() == {"state": "stopped"}

    async def test_a_crawl_of_many_batches(self, store: MovingStore, other_store: MovingStore) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put([page(number, host) for host in HOSTS for number in range(4000)])
        done = await frontier.lease(6000, "w")
        await frontier.settle([Done(lease=lease, items=(b"1", b"2"), size=1) for lease in done])
        batches = await poured(store)
        kinds = [type(batch) for batch in batches]
        assert kinds.count(Rest) == 1
        assert kinds[-1] is Rest
        assert max(index for index, kind in enumerate(kinds) if kind is LaneBatch) < kinds.index(RequestBatch)
        assert kinds.count(ItemBatch) > 1
        assert kinds.count(RequestBatch) > 1
        await fill(other_store, batches)
        other, outbox = await other_store.frontier(EASY), await other_store.outbox()
        assert await other.counts() == await frontier.counts()
        assert await outbox.items(0, 20_000) == await (await store.outbox()).items(0, 20_000)
        assert await other.put([lease.request for lease in done]) == 0
        ours, theirs = await frontier.lease(6000, "w"), await other.lease(6000, "w")
        for host in HOSTS:
            assert [each.request for each in theirs if each.lane == host] == [
                each.request for each in ours if each.lane == host
            ]
        assert len(theirs) == 6000

"""The contract on moving a crawl from one store to another: see :mod:`uttu.frontier.transfer`.

It needs two fixtures, ``store`` and ``other_store``: empty crawls as in :mod:`uttu.testing.contracts.store`, which also
have a method ``transfer``. They may use one technology or two; each has its own clock::

    @pytest.fixture
    async def store(): ...

    @pytest.fixture
    async def other_store(): ...

    class TestSqliteToRedis(TransferContract):
        pass
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import pytest

from uttu.errors import ItemsTrimmed, StoreError
from uttu.frontier.base import Cursor, Order, Rules, Trimmed
from uttu.frontier.transfer import CrawlTransfer, FinalBatch, ItemBatch, LaneBatch, RequestBatch, TransferBatch
from uttu.model import Counts, Dead, Done, Lease, Pace, Redirect, Retry
from uttu.model.crawl import CrawlState
from uttu.model.facts import CrawlFacts
from uttu.testing.contracts import trimming
from uttu.testing.contracts.ledger import FACTS
from uttu.testing.contracts.store import (
    EASY,
    StoreUnderTest,
    count_dead_kinds,
    lease_all,
    list_dead,
    list_lanes,
    numbers,
    page,
    pages,
)
from uttu.testing.contracts.trimming import COUNT

HOSTS = ("a.example", "b.example", "c.example")
HELD, PINNED = "held.example", "pinned.example"
ORDERS: tuple[Order, ...] = ("fifo", "lifo", "priority")
SINK, OWNER = "out.jsonl", "someone"


class TransferStore(StoreUnderTest, Protocol):
    async def transfer(self) -> CrawlTransfer:
        """Open the transfer of the crawl."""


async def dump_all(store: TransferStore) -> list[TransferBatch]:
    return [batch async for batch in (await store.transfer()).dump()]


async def load_all(store: TransferStore, batches: list[TransferBatch]) -> None:
    transfer = await store.transfer()
    for batch in batches:
        await transfer.fill(batch)


def rules_of(order: Order) -> Rules:
    return msgspec.structs.replace(EASY, order=order)


async def make(store: TransferStore, order: Order) -> list[Lease]:
    """Create a crawl with every kind of record, at rest; return all leases that it ever had."""
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
    """Return in turn: done, dead, retry later, given back, given back with the attempt counted."""
    match number % 5:
        case 0:
            child = page(1000 + number, lease.lane, priority=2, meta={"from": lease.request.url})
            made = (b'{"n":1}', '"é"'.encode())
            redirect = Redirect("https://b.example/") if number % 2 else None
            note = "" if redirect else "n"
            return Done(
                lease=lease,
                children=(child,),
                items=made,
                status=200,
                size=600 + number,
                note=note,
                redirect=redirect,
            )
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


async def snapshot(store: TransferStore, order: Order, leases: list[Lease]) -> dict[str, Any]:
    """Return all observable data of a crawl without changing it. Times are relative to now."""
    frontier, outbox, memo = await store.frontier(rules_of(order)), await store.outbox(), await store.memo()
    inspector, ledger = await store.inspector(), await store.ledger()
    now = store.clock.time()
    wanted = [lease.fingerprint for lease in leases] + [
        page(number, host).fingerprint for host in (*HOSTS, HELD, PINNED) for number in (*range(12), 100, 101, 1000)
    ]
    traces = [await inspector.trace(fingerprint) for fingerprint in wanted]
    dead = [msgspec.structs.replace(each, at=now - each.at) for each in await list_dead(inspector)]
    return {
        "counts": await frontier.counts(),
        "items": await outbox.items(0, 1000),
        "cursor": await outbox.cursor(SINK),
        "memo": [await memo.recall(key) for key in ("robots a.example", "robots b.example", "past", "none")],
        "facts": await ledger.facts(),
        "lanes": sorted(await list_lanes(inspector), key=lambda lane: lane.name),
        "dead": sorted(dead, key=lambda letter: letter.request.url),
        "groups": [
            msgspec.structs.replace(each, last=now - each.last, sample="") for each in await inspector.dead_groups()
        ],
        "traces": [
            msgspec.structs.replace(
                each, due=max(0.0, each.due - now) if each.due else 0.0, at=now - each.at if each.at else 0.0
            )
            for each in traces
        ],
    }


async def lease_order(store: TransferStore, order: Order) -> dict[str, list[tuple[int, int]]]:
    """Return the pages of each lane with their attempts, in the order in which they are leased, until none is left."""
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


class TransferContract:
    """A crawl that is dumped from one store and loaded into another is the same crawl."""

    @pytest.mark.parametrize("order", ORDERS)
    async def test_a_moved_crawl_is_the_same(
        self, store: TransferStore, other_store: TransferStore, order: Order
    ) -> None:
        leases = await make(store, order)
        before = await snapshot(store, order, leases)
        await load_all(other_store, await dump_all(store))
        after = await snapshot(other_store, order, leases)
        for what, value in before.items():
            assert after[what] == value, what
        assert await snapshot(store, order, leases) == before, "pouring changes nothing"
        assert before["facts"] == CrawlFacts(**FACTS)
        counts = before["counts"]
        assert 0 not in (counts.pending, counts.delayed, counts.done, counts.dead, counts.items, counts.bytes)
        assert {lane.name for lane in before["lanes"] if lane.pinned} == {PINNED}
        assert {lane.name for lane in before["lanes"] if lane.reason} == {HELD}

    @pytest.mark.parametrize("order", ORDERS)
    async def test_pages_are_handed_out_in_the_same_order(
        self, store: TransferStore, other_store: TransferStore, order: Order
    ) -> None:
        await make(store, order)
        await load_all(other_store, await dump_all(store))
        for each in (store, other_store):
            # New requests go behind or before the moved ones, depending on the order.
            await (await each.frontier(rules_of(order))).put([page(2000, priority=2), page(2001, priority=3)])
        assert await lease_order(other_store, order) == await lease_order(store, order)

    @pytest.mark.parametrize("order", ORDERS)
    async def test_nothing_is_admitted_again(
        self, store: TransferStore, other_store: TransferStore, order: Order
    ) -> None:
        leases = await make(store, order)
        await load_all(other_store, await dump_all(store))
        frontier = await other_store.frontier(rules_of(order))
        before = await frontier.counts()
        assert await frontier.put([lease.request for lease in leases]) == 0
        assert await frontier.put([page(number, host) for host in HOSTS for number in range(12)]) == 0
        assert await frontier.counts() == before
        assert await frontier.put([page(12)]) == 1

    async def test_facts_that_this_version_does_not_know_move_along(
        self, store: TransferStore, other_store: TransferStore
    ) -> None:
        await make(store, "fifo")
        *batches, last = await dump_all(store)
        assert isinstance(last, FinalBatch)
        await load_all(other_store, [*batches, msgspec.structs.replace(last, facts=last.facts | {"later": "é"})])
        *_, moved = await dump_all(other_store)
        assert isinstance(moved, FinalBatch)
        assert moved.facts == last.facts | {"later": "é"}
        assert await (await other_store.ledger()).facts() == CrawlFacts(**FACTS)

    async def test_leases_and_positions_go_on_above_the_former(
        self, store: TransferStore, other_store: TransferStore
    ) -> None:
        leases = await make(store, "fifo")
        last = (await (await store.outbox()).items(0, 1000))[-1].position
        await load_all(other_store, await dump_all(store))
        frontier, outbox = await other_store.frontier(EASY), await other_store.outbox()
        (lease,) = await frontier.lease(1, "w2")
        assert lease.id > max(lease.id for lease in leases)
        await frontier.settle([Done(lease=lease, items=(b'"new"',))])
        (item,) = await outbox.items(last, 10)
        assert item.json == b'"new"'

    async def test_a_lease_from_before_the_move_is_refused(
        self, store: TransferStore, other_store: TransferStore
    ) -> None:
        leases = await make(store, "fifo")
        await load_all(other_store, await dump_all(store))
        frontier = await other_store.frontier(EASY)
        before = await frontier.counts()
        assert await frontier.settle([Done(lease=lease) for lease in leases]) == {lease.id for lease in leases}
        assert await frontier.counts() == before

    @pytest.mark.parametrize("order", ORDERS)
    async def test_a_second_fill_of_every_batch_changes_nothing(
        self, store: TransferStore, other_store: TransferStore, order: Order
    ) -> None:
        leases = await make(store, order)
        before = await snapshot(store, order, leases)
        batches = await dump_all(store)
        await load_all(other_store, [batch for batch in batches for _ in range(2)])
        assert await snapshot(other_store, order, leases) == before
        other_store.clock.advance(1)
        store.clock.advance(1)
        await load_all(other_store, await dump_all(store))
        assert await snapshot(other_store, order, leases) == await snapshot(store, order, leases)
        assert await lease_order(other_store, order) == await lease_order(store, order)

    async def test_a_move_that_was_cut_short_is_done_again(
        self, store: TransferStore, other_store: TransferStore
    ) -> None:
        leases = await make(store, "fifo")
        batches = await dump_all(store)
        for end in range(len(batches)):
            await load_all(other_store, batches[:end])
        await load_all(other_store, batches)
        assert await snapshot(other_store, "fifo", leases) == await snapshot(store, "fifo", leases)
        assert await lease_order(other_store, "fifo") == await lease_order(store, "fifo")

    async def test_items_that_were_removed_stay_removed(self, store: TransferStore, other_store: TransferStore) -> None:
        items, outbox = await trimming.fill(store), await store.outbox()
        await trimming.move(store, SINK, items[-1])
        await trimming.trim(outbox, SINK, keep=COUNT // 2)
        gone, counts = await outbox.trimmed(), await (await store.frontier(EASY)).counts()
        assert gone.count == COUNT // 2
        batches = await dump_all(store)
        await load_all(other_store, [*batches, *batches])
        other, frontier = await other_store.outbox(), await other_store.frontier(EASY)
        assert await other.trimmed() == gone
        assert await frontier.counts() == counts
        assert await other.cursor(SINK) == await outbox.cursor(SINK)
        with pytest.raises(ItemsTrimmed):
            await other.items(0, 10)
        assert await other.items(gone.position, COUNT) == items[COUNT // 2 :]
        # Moved items are trimmed too, once enough items have come after them.
        assert await trimming.trim(other, SINK, keep=COUNT // 2) == 0
        await frontier.put([page(COUNT)])
        (lease,) = await frontier.lease(1, "w")
        await frontier.settle([Done(lease=lease, items=(b"1",) * (COUNT // 2))])
        assert await trimming.trim(other, SINK, keep=COUNT // 2) == COUNT // 2
        assert await (await other_store.outbox()).trimmed() == Trimmed(COUNT, items[-1].position)

    async def test_what_is_leased_refuses_to_pour(self, store: TransferStore) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put(pages(2))
        (lease,) = await frontier.lease(1, "w")
        with pytest.raises(StoreError, match="leased"):
            await dump_all(store)
        await frontier.settle([Retry(lease=lease, counted=False)])
        assert isinstance((await dump_all(store))[-1], FinalBatch)

    async def test_losses_are_counted_on(self, store: TransferStore, other_store: TransferStore) -> None:
        rules = msgspec.structs.replace(EASY, lease_seconds=10.0, max_losses=2)
        frontier = await store.frontier(rules)
        await frontier.put(pages(1))
        assert numbers(await frontier.lease(1, "w")) == [0]
        store.clock.advance(10)
        assert await frontier.lease(0, "w") == [], "asked for none, it ends the leases that ran out all the same"
        assert (await frontier.counts()).pending == 1
        await load_all(other_store, await dump_all(store))
        frontier = await other_store.frontier(rules)
        (lease,) = await frontier.lease(1, "w")
        assert lease.attempt == 2
        other_store.clock.advance(10)
        await frontier.lease(0, "w")
        assert await count_dead_kinds(await other_store.inspector()) == {"lost": 1}

    async def test_a_lane_s_pages_are_counted_on(self, store: TransferStore, other_store: TransferStore) -> None:
        rules = msgspec.structs.replace(EASY, max_per_lane=5)
        frontier = await store.frontier(rules)
        assert await frontier.put(pages(3)) == 3
        await lease_all(frontier)
        await load_all(other_store, await dump_all(store))
        assert await (await other_store.frontier(rules)).put(pages(9)) == 2

    async def test_paces_and_turns_are_kept(self, store: TransferStore, other_store: TransferStore) -> None:
        rules = Rules(pace=Pace(0.0, 1), ahead=0.0)
        frontier = await store.frontier(rules)
        await frontier.put(pages(4))
        (lease,) = await frontier.lease(9, "w")
        await frontier.settle([Done(lease=lease, touched=store.clock.monotonic(), pace=Pace(5.0, 2))])
        await load_all(other_store, await dump_all(store))
        frontier = await other_store.frontier(rules)
        assert await frontier.lease(9, "w") == []
        other_store.clock.advance(5)
        assert numbers(await frontier.lease(9, "w")) == [1]
        other_store.clock.advance(5)
        assert numbers(await frontier.lease(9, "w")) == [2]
        other_store.clock.advance(5)
        assert await frontier.lease(9, "w") == []

    async def test_a_pinned_lane_stays_pinned_without_pages(
        self, store: TransferStore, other_store: TransferStore
    ) -> None:
        await (await store.inspector()).pin("a.example", 5.0)
        await load_all(other_store, await dump_all(store))
        frontier, inspector = await other_store.frontier(EASY), await other_store.inspector()
        await frontier.put(pages(2))
        (lane,) = await list_lanes(inspector)
        assert (lane.pinned, lane.pace) == (True, Pace(5.0, 1))
        await inspector.pin("a.example", None)
        assert [lane.pace for lane in await list_lanes(inspector)] == [EASY.pace]

    async def test_a_pinned_lane_has_its_own_pace_again_when_it_is_unpinned(
        self, store: TransferStore, other_store: TransferStore
    ) -> None:
        await (await store.frontier(Rules(pace=Pace(2.0, 3)))).put(pages(2))
        await (await store.inspector()).pin("a.example", 5.0)
        await load_all(other_store, await dump_all(store))
        inspector = await other_store.inspector()
        await inspector.pin("a.example", None)
        (lane,) = await list_lanes(inspector)
        assert (lane.pinned, lane.pace) == (False, Pace(2.0, 3))

    async def test_an_empty_crawl(self, store: TransferStore, other_store: TransferStore) -> None:
        await (await store.ledger()).note(state=CrawlState.STOPPED)
        await load_all(other_store, await dump_all(store))
        assert await (await other_store.frontier(EASY)).counts() == Counts()
        assert await (await other_store.ledger()).facts() == CrawlFacts(state=CrawlState.STOPPED)

    async def test_a_crawl_of_many_batches(self, store: TransferStore, other_store: TransferStore) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put([page(number, host) for host in HOSTS for number in range(4000)])
        done = await frontier.lease(6000, "w")
        await frontier.settle([Done(lease=lease, items=(b"1", b"2"), size=1) for lease in done])
        batches = await dump_all(store)
        kinds = [type(batch) for batch in batches]
        assert kinds.count(FinalBatch) == 1
        assert kinds[-1] is FinalBatch
        assert max(index for index, kind in enumerate(kinds) if kind is LaneBatch) < kinds.index(RequestBatch)
        assert kinds.count(ItemBatch) > 1
        assert kinds.count(RequestBatch) > 1
        await load_all(other_store, batches)
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

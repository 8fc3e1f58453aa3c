"""What is large goes to the server in pieces, and comes from it in pieces.

The server takes no more than a megabyte at once, and the sizes that Uttu works with are as much smaller.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.frontier.redis_crawls import COUNT, crawl_at, depot_at, new_name
from tests.frontier.test_sqlite_transfer import SqliteStore
from tests.harness.servers import RedisServer

from uttu.errors import StoreError
from uttu.frontier.base import Order
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.redis import connection, records, transfer
from uttu.frontier.redis.connection import StoreConnection
from uttu.frontier.transfer import DeadBatch, HistoryBatch, ItemBatch, MovedItem, RequestBatch
from uttu.model import Dead, Done, Lease, Outcome, Retry
from uttu.testing.clock import FakeClock
from uttu.testing.contracts.store import EASY, list_dead, numbers, page, pages
from uttu.testing.contracts.transfer import ORDERS, rules_of

T = TypeVar("T")
ITEM = b'"%s"' % (b"x" * 250_000)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(settings={"proto-max-bulk-len": "1mb"}) as server:
        yield server


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "OPERATION_BYTES", 600_000)
    monkeypatch.setattr(connection, "LARGEST_BYTES", 800_000)


async def in_time(work: Awaitable[T]) -> T:
    return await asyncio.wait_for(work, 30)


async def leased(store: CrawlStore, count: int) -> list[Lease]:
    await store.frontier.put(pages(count))
    leases = await store.frontier.lease(count, "w")
    assert len(leases) == count
    return leases


async def test_outcomes_that_are_large_together_are_settled_in_pieces(server: RedisServer) -> None:
    async with crawl_at(server.url) as store:
        leases = await leased(store, 12)
        outcomes = [Done(lease=lease, items=(b"%d" % number, ITEM)) for number, lease in enumerate(leases)]
        assert await in_time(store.frontier.settle(outcomes)) == set()
        counts = await store.frontier.counts()
        assert (counts.leased, counts.done, counts.items) == (0, 12, 24)
        items = [each.json async for each in all_items(store)]
        assert items == [item for outcome in outcomes for item in outcome.items]


async def all_items(store: CrawlStore) -> AsyncIterator[MovedItem]:
    async for batch in store.transfer.dump():
        if isinstance(batch, ItemBatch):
            for item in batch.items:
                yield item


async def test_children_count_as_well(server: RedisServer) -> None:
    async with crawl_at(server.url) as store:
        leases = await leased(store, 10)
        outcomes = [
            Done(lease=lease, children=(page(100 + number, meta={"long": "é" * 100_000}),))
            for number, lease in enumerate(leases)
        ]
        assert await in_time(store.frontier.settle(outcomes)) == set()
        assert (await store.frontier.counts()).pending == 10


async def test_the_lost_of_all_pieces_are_told_and_a_lease_ends_once(server: RedisServer) -> None:
    async with crawl_at(server.url) as store:
        leases = await leased(store, 8)
        assert await store.frontier.settle([Retry(lease=leases[0]), Retry(lease=leases[7])]) == set()
        outcomes = [Done(lease=lease, items=(ITEM,)) for lease in leases]
        again = [Done(lease=lease) for lease in leases]
        assert await in_time(store.frontier.settle(outcomes + again)) == {leases[0].id, leases[7].id}
        counts = await store.frontier.counts()
        assert (counts.pending, counts.done, counts.items) == (2, 6, 6)


async def test_a_page_that_is_too_large_is_dead_and_says_so(server: RedisServer) -> None:
    async with crawl_at(server.url) as store:
        first, large, failed, last = (await leased(store, COUNT))[:4]
        outcomes: list[Outcome] = [
            Done(lease=first, items=(ITEM,)),
            Done(lease=large, items=(ITEM,) * 4, children=(page(100),), status=200, size=7),
            Dead(lease=failed, kind="http", reason="404", detail="a\nb", status=404, items=(ITEM,) * 4),
            Done(lease=last, items=(ITEM,)),
        ]
        assert await in_time(store.frontier.settle(outcomes)) == set()
        counts = await store.frontier.counts()
        assert (counts.pending, counts.done, counts.dead, counts.items) == (0, 2, 2, 2)
        letters = {letter.request.url: letter for letter in await list_dead(store.inspector)}
        letter = letters[large.request.url]
        dropped = "its 4 items and 1 links are 1.0 MB and were dropped; of one page the store takes 0.8 MB"
        assert (letter.kind, letter.reason) == ("handler", dropped)
        letter = letters[failed.request.url]
        assert (letter.kind, letter.detail) == ("http", "a\nb")
        assert letter.reason.startswith("404; its 4 items and 0 links")


@contextlib.asynccontextmanager
async def on_sqlite(folder: Path) -> AsyncIterator[SqliteStore]:
    async with contextlib.aclosing(SqliteStore(folder / "crawl.db", FakeClock())) as store:
        yield store


async def test_a_crawl_with_large_things_moves_in_and_out(server: RedisServer, tmp_path: Path) -> None:
    async with on_sqlite(tmp_path) as store, depot_at(server.url) as catalog:
        frontier = await store.frontier(EASY)
        await frontier.put([page(number, meta={"long": "x" * 200_000}) for number in range(30)])
        leases = await frontier.lease(20, "w")
        await frontier.settle([Done(lease=lease, items=(ITEM,)) for lease in leases[:10]])
        await frontier.settle([Dead(lease=lease, kind="k", reason="r", detail="x" * 100_000) for lease in leases[10:]])
        there = await catalog.create(new_name(), EASY)
        async for batch in (await store.transfer()).dump():
            await in_time(there.transfer.fill(batch))
        assert await there.frontier.counts() == await frontier.counts()
        assert [each.json async for each in all_items(there)] == [ITEM] * 10


async def test_an_item_that_is_too_large_can_not_be_moved(server: RedisServer) -> None:
    async with crawl_at(server.url) as store:
        batch = ItemBatch([MovedItem(1, 1, 0, b"1"), MovedItem(2, 1, 1, b'"%s"' % (b"x" * 900_000))])
        with pytest.raises(StoreError, match=r"an item of the crawl has 0\.9 MB, and Redis accepts 0\.8 MB at most"):
            await in_time(store.transfer.fill(batch))


async def test_batches_that_are_poured_end_at_so_many_bytes(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_BYTES", 400_000)
    async with crawl_at(server.url) as store:
        leases = await leased(store, 9)
        await store.frontier.settle([Done(lease=lease, items=(ITEM,)) for lease in leases[:5]])
        detail = "x" * 250_000
        await store.frontier.settle([Dead(lease=lease, kind="k", reason="r", detail=detail) for lease in leases[5:]])
        await store.frontier.put([page(number, meta={"long": "x" * 250_000}) for number in range(100, 103)])
        batches = [batch async for batch in store.transfer.dump()]
        assert [len(batch.items) for batch in batches if isinstance(batch, ItemBatch)] == [2, 2, 1]
        assert [len(batch.dead) for batch in batches if isinstance(batch, DeadBatch)] == [2, 2]
        assert [len(batch.requests) for batch in batches if isinstance(batch, RequestBatch)] == [2, 1]


async def test_streams_are_read_by_their_size(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_BYTES", 350_000)
    monkeypatch.setattr(records, "_FIRST", 1)
    there = await StoreConnection.connect(server.url)
    sizes = [100_000] * 9 + [10] * 2000 + [500_000]
    for number, size in enumerate(sizes):
        await there.command("XADD", "a-stream", f"{number + 1}-0", "j", "x" * size)
    found = [piece async for piece in records.scan_stream(there, "a-stream")]
    await there.close()
    assert [name for piece in found for name, _ in piece] == [b"%d-0" % (n + 1) for n in range(len(sizes))]
    assert [len(piece) for piece in found[:4]] == [1, 3, 3, 3]
    assert max(len(piece) for piece in found) == 1000


async def test_the_history_is_poured_in_large_batches_and_moments_stay_whole(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_HISTORY", 10)
    async with crawl_at(server.url) as store:
        leases = await leased(store, 18)
        for first in range(0, 18, 3):
            await store.frontier.settle([Done(lease=lease) for lease in leases[first : first + 3]])
        batches = [batch async for batch in store.transfer.dump()]
        histories = [batch.done for batch in batches if isinstance(batch, HistoryBatch)]
        assert [len(done) for done in histories] == [12, 6]
        poured = [each.fingerprint for done in histories for each in done]
        assert poured == [lease.fingerprint for lease in leases]


@pytest.mark.parametrize("order", ORDERS)
async def test_a_lane_is_poured_in_its_order_a_piece_at_a_time(
    server: RedisServer, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (transfer, records):
        monkeypatch.setattr(module, "_AT_ONCE", 3)
    async with depot_at(server.url) as catalog:
        store = await catalog.create(new_name(), rules_of(order))
        await store.frontier.put([page(number, priority=number % 3 - 1) for number in range(40)])
        leases = await store.frontier.lease(20, "w")
        await store.frontier.settle(
            [Retry(lease=lease, counted=number % 2 == 0) for number, lease in enumerate(leases)]
        )
        await store.frontier.put([page(number, priority=number % 3 - 1) for number in range(40, 50)])
        reads = commands_read(server)
        found: list[str] = []
        most = 0
        async for batch in store.transfer.dump():
            if isinstance(batch, RequestBatch):
                if not found:
                    most = commands_read(server) - reads
                found += [each.record for each in batch.requests]
        assert most <= 4, "it does not read the lane to its end before it pours the first"
        assert commands_read(server) - reads > 15
        handed_out = await store.frontier.lease(50, "w")
        assert found == [lease.request.record().decode() for lease in handed_out]
        assert len(numbers(handed_out)) == 50


def commands_read(server: RedisServer) -> int:
    """How often lanes were read."""
    about = server.info("commandstats")
    said = [about.get(f"cmdstat_{name}", "calls=0,") for name in ("lrange", "zrange")]
    return sum(int(each.partition("calls=")[2].partition(",")[0]) for each in said)

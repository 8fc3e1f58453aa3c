"""Lists of lanes and dead letters on Redis: letters of the version before, the index of lanes, long queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.frontier.redis_crawls import LossyProxy, depot_at, new_name
from tests.harness.servers import RedisServer

from uttu.errors import StoreError
from uttu.frontier.base import Order, Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.redis import cache, dead_letters, inspector, lanes
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.model import Dead, Done, Pace, Retry
from uttu.model.history import EventKind
from uttu.model.inspection import DeadQuery, LaneFilter, LaneQuery
from uttu.model.lease import RequestState
from uttu.testing.contracts.listing import check_groups
from uttu.testing.contracts.store import EASY, HOST, page, pages
from uttu.testing.contracts.transfer import ORDERS


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
async def catalog(server: RedisServer) -> AsyncIterator[RedisCatalog]:
    async with depot_at(server.url) as catalog:
        yield catalog


@pytest.fixture
def name() -> str:
    return new_name()


def scans(server: RedisServer) -> int:
    """How many times a hash was scanned."""
    said = server.info("commandstats").get("cmdstat_hscan", "calls=0,")
    return int(said.partition("calls=")[2].partition(",")[0])


async def bury(store: CrawlStore, count: int, kinds: tuple[str, ...] = ("http", "dns", "timeout")) -> None:
    await store.frontier.put(pages(count))
    leases = await store.frontier.lease(count, "w")
    reasons = ("answered with status 404", "No answer within 30 s", "")
    await store.frontier.settle(
        [
            Dead(lease=lease, kind=kinds[number % len(kinds)], reason=reasons[number // 2 % len(reasons)])
            for number, lease in enumerate(leases)
        ]
    )


def forget_groups(server: RedisServer, name: str, *ids: int) -> None:
    """Leave the dead letters as the version before did, without groups or without some of them."""
    prefix = f"uttu:{{{name}}}:1:dead:"
    server.ask("DEL", *(f"{prefix}{each}" for each in ids or range(1, 100)))
    if not ids:
        server.ask("DEL", f"{prefix}groups")


@pytest.mark.parametrize("ids", [(), (2,), (1, 3)])
async def test_dead_letters_of_the_version_before_get_groups(
    server: RedisServer, catalog: RedisCatalog, name: str, ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_AT_ONCE", 7)
    store = await catalog.create(name, EASY)
    await bury(store, 50)
    expected = await store.inspector.dead_groups()
    letters = await store.inspector.dead(DeadQuery(limit=1000))
    forget_groups(server, name, *ids)
    async with depot_at(server.url) as other:
        again = (await other.open(name, EASY)).inspector
        first, second = await asyncio.gather(again.dead_groups(), again.dead_groups())
        assert first == second
        assert {(each.kind, each.message, each.count) for each in first} == {
            (each.kind, each.message, each.count) for each in expected
        }
        assert await again.dead(DeadQuery(limit=1000)) == letters
        await check_groups(again)
        assert await again.revive() == 50
    assert await store.inspector.dead_groups() == []


async def test_grouping_goes_on_if_nobody_waits(
    server: RedisServer, catalog: RedisCatalog, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_AT_ONCE", 7)
    store = await catalog.create(name, EASY)
    await bury(store, 50)
    forget_groups(server, name)
    async with depot_at(server.url) as other:
        again = await other.open(name, EASY)
        cached = other._caches.find(f"uttu:{{{name}}}:1:")
        look = asyncio.create_task(again.inspector.dead_groups())
        while cached.grouping is None:  # noqa: ASYNC110 - it changes without an event
            await asyncio.sleep(0)
        look.cancel()
        await asyncio.gather(look, return_exceptions=True)
        # No second scan is begun while the first one runs.
        before = scans(server)
        await cached.grouping
        assert sum(group.count for group in await again.inspector.dead_groups()) == 50
        assert scans(server) - before <= 1


async def test_letters_that_workers_of_the_version_before_add_are_found_later(
    server: RedisServer, catalog: RedisCatalog, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await catalog.create(name, EASY)
    await bury(store, 9)
    await check_groups(store.inspector)
    forget_groups(server, name)
    assert await store.inspector.dead_groups() == []
    monkeypatch.setattr(dead_letters, "_REGROUP_SECONDS", -1.0)
    await check_groups(store.inspector)


async def test_many_letters_that_died_at_once_come_page_by_page(catalog: RedisCatalog, name: str) -> None:
    store = await catalog.create(name, EASY)
    await bury(store, 1200)
    found, after = [], ""
    while True:
        got = await store.inspector.dead(DeadQuery(limit=70, after=after))
        found += [letter.request.url for letter in got.letters]
        after = got.next
        if not after:
            break
        assert len(got.letters) == 70
    assert found == [each.url for each in reversed(pages(1200))]


async def test_a_page_ends_at_a_letter_that_is_gone(catalog: RedisCatalog, name: str) -> None:
    store = await catalog.create(name, EASY)
    await bury(store, 9, ("http",))
    first = await store.inspector.dead(DeadQuery(limit=3))
    assert await store.inspector.revive(url=first.letters[-1].request.url) == 1
    second = await store.inspector.dead(DeadQuery(limit=3, after=first.next))
    assert [letter.request for letter in second.letters] == [page(5), page(4), page(3)]


async def test_urls_are_searched_as_they_are(catalog: RedisCatalog, name: str) -> None:
    store = await catalog.create(name, EASY)
    await store.frontier.put([page(1), page(2, "B.example:8080"), page(3).to("http://c.example/3?q=é", meta={"m": 1})])
    await store.frontier.settle([Dead(lease=each, kind="k", reason="r") for each in await store.frontier.lease(9, "w")])

    async def found(match: str) -> set[str]:
        letters = (await store.inspector.dead(DeadQuery(match=match))).letters
        return {letter.request.url.rpartition("/")[2][:1] for letter in letters}

    assert await found("HTTPS://") == {"1", "2"}
    assert await found("http://c.example/3?Q=%c3") == {"3"}
    assert await found("example:8080/2") == {"2"}
    assert await found('"') == await found("meta") == set()


@pytest.fixture
def few_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_FEW_LANES", 10)


async def names(store: CrawlStore, limit: int = 100, only: LaneFilter = LaneFilter.ALL) -> list[str]:
    return [lane.name for lane in (await store.inspector.lanes(LaneQuery(limit=limit, only=only))).lanes]


@pytest.mark.usefixtures("few_lanes")
async def test_many_lanes_are_scanned_once_for_many_pages(
    server: RedisServer, catalog: RedisCatalog, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await catalog.create(name, EASY)
    await store.frontier.put([page(number, f"h{number % 37:02}.example") for number in range(100)])
    whole = await names(store)
    assert len(whole) == 37
    before = scans(server)
    found, after = [], ""
    while True:
        opened = await catalog.open(name, EASY)
        got = await opened.inspector.lanes(LaneQuery(limit=5, after=after))
        found += [lane.name for lane in got.lanes]
        after = got.next
        if not after:
            break
    assert (found, got.total, scans(server)) == (whole, 37, before)
    # The numbers of a page are not those of the index.
    await store.frontier.put([page(1000 + number, whole[0]) for number in range(7)])
    (lane,) = (await store.inspector.lanes(LaneQuery(limit=1))).lanes
    assert (lane.name, lane.pending, scans(server)) == (whole[0], 10, before)
    # An index that is not fresh is used, while a new one is made.
    await store.frontier.put([page(number, "new.example") for number in range(50)])
    monkeypatch.setattr(lanes, "_FRESH_SECONDS", 0.0)
    assert await names(store, 1) == [whole[0]]
    async with asyncio.timeout(10):
        while await names(store, 1) != ["new.example"]:  # noqa: ASYNC110, the scan is not the test's
            await asyncio.sleep(0.01)
    assert scans(server) > before


@pytest.mark.usefixtures("few_lanes")
async def test_lanes_that_have_changed_since_the_scan_leave_no_gap(catalog: RedisCatalog, name: str) -> None:
    store = await catalog.create(name, Rules(pace=Pace(0.0, 1), ahead=0.0))
    await store.frontier.put([page(0, f"h{number:02}.example") for number in range(30)])
    assert len(await names(store)) == 30
    leases = await store.frontier.lease(10, "w")
    await store.frontier.settle([Done(lease=lease) for lease in leases])
    ended = {lease.lane for lease in leases}
    expected = [f"h{number:02}.example" for number in range(30) if f"h{number:02}.example" not in ended]
    assert await names(store, 8) == expected[:8]
    assert await names(store) == expected


@pytest.mark.usefixtures("few_lanes")
async def test_an_index_that_is_too_old_is_waited_for(
    catalog: RedisCatalog, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await catalog.create(name, EASY)
    await store.frontier.put([page(0, f"h{number:02}.example") for number in range(30)])
    assert len(await names(store)) == 30
    await store.frontier.put(pages(5, "new.example"))
    monkeypatch.setattr(lanes, "_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(lanes, "_STALE_SECONDS", 0.0)
    found = await asyncio.gather(*(names(store, 1) for _ in range(5)))
    assert found == [["new.example"]] * 5


@pytest.mark.usefixtures("few_lanes")
async def test_a_catalog_may_be_closed_while_it_scans(server: RedisServer, name: str) -> None:
    async with depot_at(server.url) as catalog:
        store = await catalog.create(name, EASY)
        await store.frontier.put([page(0, f"h{number:03}.example") for number in range(300)])
        listing = asyncio.create_task(names(store))
        while catalog._caches.find(f"uttu:{{{name}}}:1:").lanes._scan is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
    with pytest.raises(StoreError, match="was closed"):
        await listing


async def test_indexes_that_nobody_uses_are_forgotten(
    catalog: RedisCatalog, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await catalog.create(name, EASY)
    await catalog.create(new_name(), EASY)
    assert len(catalog._caches._caches) == 2
    monkeypatch.setattr(cache, "_FORGET_SECONDS", -1.0)
    await catalog.open(name, EASY)
    assert len(catalog._caches._caches) == 1


@pytest.mark.parametrize("lane", ["", HOST, "other.example"])
async def test_a_dead_letter_is_found_among_many(
    catalog: RedisCatalog, name: str, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "_LETTERS_AT_ONCE", 16)
    store = await catalog.create(name, Rules(pace=Pace(0.0, 0), ahead=0.0))
    await bury(store, 2000)
    trace = await store.inspector.trace(page(1234).fingerprint, lane)
    expected = RequestState.DONE if lane == "other.example" else RequestState.DEAD
    assert trace.state is expected
    assert lane == "other.example" or trace.request == page(1234)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("lane", ["", HOST])
async def test_the_place_in_a_long_queue(
    catalog: RedisCatalog, name: str, order: Order, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "_AT_ONCE", 16)
    store = await catalog.create(name, Rules(pace=Pace(0.0, 0), ahead=0.0, order=order))
    await store.frontier.put([page(number, priority=number % 3 - 1) for number in range(100)])
    leases = await store.frontier.lease(60, "w")
    await store.frontier.settle([Retry(lease=lease, counted=False) for lease in leases[::2]])
    await store.frontier.settle([Done(lease=lease) for lease in leases[1::2]])
    traces = {
        number: await store.inspector.trace(page(number).fingerprint, lane)
        for number in range(100)
        if page(number).url not in {lease.request.url for lease in leases[1::2]}
    }
    assert {trace.state for trace in traces.values()} == {RequestState.PENDING}
    expected = [lease.request.url for lease in await store.frontier.lease(100, "w")]
    assert {page(number).url: trace.ahead for number, trace in traces.items()} == {
        url: place for place, url in enumerate(expected)
    }


async def test_events_are_added_once_if_the_answer_is_lost(server: RedisServer, name: str) -> None:
    async with LossyProxy(server.port) as proxy, depot_at(proxy.url) as catalog:
        store = await catalog.create(name, EASY)
        await store.history.add_events([(EventKind.STATE, {"state": "running"})])
        proxy.lose(b"add_events")
        await store.history.add_events([(EventKind.STATE, {"state": "paused"})] * 3)
        assert proxy.lost.is_set()
        events = await store.history.events(0, 99)
        assert [event.fields["state"] for event in events] == ["running", *["paused"] * 3]

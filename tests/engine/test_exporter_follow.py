"""Following a crawl from outside: to its end, through restarts, and behind another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.engine.test_exporter import MemorySink, raising, until
from uttu.engine import exporter as drain_module
from uttu.engine import exporter as follow_module
from uttu.engine.exporter import ItemFollower
from uttu.errors import SinkError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Done, Pace, Request
from uttu.model.crawl import CrawlState, WorkerReport
from uttu.sinks.json import JsonLines

RULES = Rules(pace=Pace(0, 0))


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "INTERVAL_SECONDS", 0.001)
    monkeypatch.setattr(follow_module, "_LOOK_SECONDS", 0.001)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CrawlStore]:
    store = await SqliteCatalog(tmp_path).create("crawl", RULES)
    await store.ledger.note(state=CrawlState.RUNNING)
    yield store
    await store.frontier.close()


def follower(
    store: CrawlStore, sink: MemorySink | JsonLines, owner: str = "me", said: list[str] | None = None
) -> ItemFollower:
    said = said if said is not None else []
    return ItemFollower(
        frontier=store.frontier, outbox=store.outbox, ledger=store.ledger, sink=sink, owner=owner, waiting=said.append
    )


async def make_items(store: CrawlStore, first: int, count: int) -> None:
    await store.frontier.put([Request(url=f"https://a.example/{n}") for n in range(first, first + count)])
    leases = await store.frontier.lease(count, "w")
    await store.frontier.settle([Done(lease=lease, items=(b'"%s"' % lease.request.url.encode(),)) for lease in leases])


async def test_it_ends_with_the_crawl_and_has_every_item(store: CrawlStore) -> None:
    sink = MemorySink()
    await make_items(store, 0, 5)
    following = asyncio.create_task(follower(store, sink).run())
    await until(lambda: len(sink.ids) == 5)
    await make_items(store, 5, 5)
    await store.ledger.note(state=CrawlState.FINISHED)
    async with asyncio.timeout(10):
        assert await following == 10
    assert sink.ids == [item.id for item in await store.outbox.items(0, 99)]
    assert sink.events[-1] == "finished"
    assert await store.ledger.claimed() == {}


async def test_a_paused_crawl_is_not_over_and_a_stopped_one_can_go_on(store: CrawlStore) -> None:
    sink = MemorySink()
    await store.ledger.note(state=CrawlState.PAUSED)
    following = asyncio.create_task(follower(store, sink).run())
    await make_items(store, 0, 3)
    await until(lambda: len(sink.ids) == 3)
    assert not following.done()
    await store.ledger.note(state=CrawlState.STOPPED)
    async with asyncio.timeout(10):
        assert await following == 3
    assert sink.events[-1] == "closed"


async def test_it_goes_on_where_it_was(store: CrawlStore, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    await make_items(store, 0, 5)
    first = follower(store, JsonLines(path), "first")
    following = asyncio.create_task(first.run())
    await until(lambda: path.exists() and path.read_bytes().count(b"\n") == 5)
    first.stop()
    async with asyncio.timeout(10):
        await following
    # What was written after the last cursor, by one that was killed then, is not counted.
    with path.open("ab") as file:
        file.write(b'"half a li')
    await make_items(store, 5, 5)
    await store.ledger.note(state=CrawlState.LIMITED)
    async with asyncio.timeout(10):
        assert await follower(store, JsonLines(path), "second").run() == 5
    expected = [item.json for item in await store.outbox.items(0, 99)]
    assert path.read_bytes().splitlines() == expected


async def test_pages_in_flight_when_the_crawl_was_stopped_are_waited_for(store: CrawlStore) -> None:
    sink = MemorySink()
    await store.frontier.put([Request(url="https://a.example/")])
    (lease,) = await store.frontier.lease(1, "w")
    await store.ledger.report("w", msgspec.json.encode(WorkerReport(held=1)))
    await store.ledger.note(state=CrawlState.STOPPED)
    following = asyncio.create_task(follower(store, sink).run())
    await until(lambda: sink.events == ["open"])
    await store.frontier.settle([Done(lease=lease, items=(b"1",))])
    async with asyncio.timeout(10):
        assert await following == 1


async def test_it_says_behind_whom_it_waits(store: CrawlStore) -> None:
    sink, said = MemorySink(), list[str]()
    await make_items(store, 0, 1)
    assert await store.ledger.claim("drain memory", "you", 60)
    following = asyncio.create_task(follower(store, sink, said=said).run())
    await until(lambda: said == ["you"])
    assert sink.events == []
    await store.ledger.release("drain memory", "you")
    await until(lambda: len(sink.ids) == 1)
    await store.ledger.note(state=CrawlState.FINISHED)
    async with asyncio.timeout(10):
        await following
    assert said == ["you"]


async def test_a_sink_that_fails_ends_it(store: CrawlStore) -> None:
    sink = MemorySink()
    sink.on_write = raising(SinkError("disk full"))
    await make_items(store, 0, 1)
    async with asyncio.timeout(10):
        with pytest.raises(SinkError, match="disk full"):
            await follower(store, sink).run()
    assert await store.ledger.claimed() == {}

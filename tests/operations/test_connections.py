"""Connections that a program keeps: used again, quick to say that a server is away, and back when it is back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import make_crawl
from tests.frontier.redis_crawls import new_name
from tests.harness.servers import RedisServer
from uttu.errors import StoreError, UttuError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Request
from uttu.model.inspection import LaneQuery
from uttu.operations import connections, crawls
from uttu.operations.connections import connect_frontier, kept_connections
from uttu.runtime.registry import open_frontier


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(appendonly=True) as server:
        yield server


async def make(url: str) -> str:
    name = new_name()
    async with connect_frontier(url) as catalog:
        store = await catalog.create(name, Rules())
        await store.frontier.put([Request(url="http://a.example/")])
        await catalog.keep(name)
    return name


async def fails_quickly(url: str, name: str) -> None:
    began = time.monotonic()
    with pytest.raises(StoreError):
        await crawls.read_details(name, url, print)
    assert time.monotonic() - began < 2.0


async def works_again(url: str, name: str) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                details = await crawls.read_details(name, url, print)
            except StoreError:
                await asyncio.sleep(0.1)
            else:
                break
    assert details.status.counts.pending == 1


async def test_a_catalog_is_opened_once(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    async def count(url: str, folder: Path) -> object:
        opened.append(url)
        return await open_frontier(url, folder)

    monkeypatch.setattr(connections, "open_frontier", count)
    name = await make(server.url)
    opened.clear()
    async with kept_connections() as kept:
        await asyncio.gather(*(crawls.read_details(name, server.url, print) for _ in range(5)))
        with kept.use():
            await crawls.read_all(server.url)
        assert opened == [server.url]
    await crawls.read_all(server.url)
    assert len(opened) == 2


async def test_a_frozen_server_fails_and_is_back(server: RedisServer) -> None:
    name = await make(server.url)
    async with kept_connections():
        await crawls.read_details(name, server.url, print)
        server.pause()
        try:
            await fails_quickly(server.url, name)
            began = time.monotonic()
            await fails_quickly(server.url, name)
            assert time.monotonic() - began < 0.5, "it is known by now"
        finally:
            server.resume()
        await works_again(server.url, name)


async def test_a_killed_server_fails_and_is_back(server: RedisServer) -> None:
    name = await make(server.url)
    async with kept_connections():
        await crawls.read_details(name, server.url, print)
        server.kill()
        await fails_quickly(server.url, name)
        server.restart()
        await works_again(server.url, name)


async def test_an_operation_takes_as_long_as_it_needs(server: RedisServer) -> None:
    name = await make(server.url)
    async with kept_connections(), connect_frontier(server.url) as catalog:
        await asyncio.sleep(2 * connections.PATIENCE_SECONDS)
        assert name in await catalog.names()


def test_folders_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        make_crawl(name)
    monkeypatch.chdir(tmp_path)

    async def look() -> list[str]:
        async with kept_connections():
            return [(await crawls.read_all("", tmp_path / name)).crawls[0].name for name in ("one", "two")]

    assert asyncio.run(look()) == ["one", "two"]


def count_opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    opened: list[str] = []
    real = SqliteCatalog.open

    async def count(self: SqliteCatalog, crawl: str, rules: Rules) -> CrawlStore:
        opened.append(crawl)
        return await real(self, crawl, rules)

    monkeypatch.setattr(SqliteCatalog, "open", count)
    return opened


class TestStoresThatAreKept:
    @pytest.fixture(autouse=True)
    def shop(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        make_crawl()

    async def test_a_file_is_opened_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = count_opened(monkeypatch)
        async with kept_connections():
            for _ in range(5):
                await crawls.read_details("shop", "", print)
        assert opened == ["shop"]

    async def test_operations_at_the_same_time_share_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = count_opened(monkeypatch)
        async with kept_connections():
            for _ in range(2):
                await asyncio.gather(*(crawls.read_details("shop", "", print) for _ in range(3)))
        assert opened == ["shop"] * 3

    async def test_a_crawl_that_was_started_again_is_opened_again(self) -> None:
        async with kept_connections():
            assert (await crawls.read_details("shop", "", print)).status.counts.seen
            catalog = SqliteCatalog(Path(".uttu"))
            await (await catalog.create("shop", Rules())).frontier.close()
            await catalog.keep("shop")
            assert not (await crawls.read_details("shop", "", print)).status.counts.seen
            await catalog.discard("shop")
            with pytest.raises(StoreError):
                await crawls.read_details("shop", "", print)

    async def test_idle_files_are_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections, "IDLE_SECONDS", 0.05)
        opened = count_opened(monkeypatch)
        async with kept_connections() as kept:
            await crawls.read_details("shop", "", print)
            assert len(kept._idle) == 1
            async with asyncio.timeout(10):
                while kept._idle:  # noqa: ASYNC110, the task has no event
                    await asyncio.sleep(0.01)
            await crawls.read_details("shop", "", print)
        assert opened == ["shop", "shop"]
        assert not list(Path(".uttu/crawls").glob("*.db-wal"))

    async def test_a_store_that_failed_is_not_used_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = count_opened(monkeypatch)
        async with kept_connections():
            with pytest.raises(UttuError):
                await crawls.read_lanes("shop", "", LaneQuery(after="nowhere"), print)
            await crawls.read_details("shop", "", print)
        assert opened == ["shop", "shop"]

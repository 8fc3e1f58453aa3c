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
from uttu.errors import StoreError
from uttu.frontier.base import Rules
from uttu.model import Request
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

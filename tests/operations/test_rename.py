"""What Weft left behind is refused, or renamed: stores are made by Uttu, then given the names that Weft used."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Uttu, make_crawl
from tests.cli.conftest import uttu as uttu
from tests.cli.statuses import standing
from tests.crawl.conftest import Project
from tests.crawl.conftest import project as project
from tests.frontier.redis_crawls import check_whole, crawl_on, depot_at
from tests.harness.servers import RedisCluster, RedisServer
from uttu import former
from uttu.bus import Bus, Delivery, Message, SubscribeOptions, connect
from uttu.clients.redis.address import make_clients
from uttu.clients.redis.connection import close_clients, execute_at
from uttu.errors import BusRefused, ConfigError, StoreError, UttuError
from uttu.file_locks import lock_file, unlock
from uttu.frontier.sqlite.database import Database
from uttu.frontier.sqlite.layout import APPLICATION
from uttu.jobs.embedded import Embedded
from uttu.jobs.schedules.redis import RedisScheduleStore
from uttu.jobs.schedules.schedule import Schedule, create_state
from uttu.jobs.schedules.sqlite import SqliteScheduleStore
from uttu.jobs.schedules.triggers import Every
from uttu.operations.move import Renamed, rename_former
from uttu.runtime.registry import open_frontier
from uttu.settings import DATA_FOLDER, find_misspelled_variables, load_settings
from uttu.testing.contracts.store import EASY, pages
from uttu.testing.site import Site, SiteProcess, fetches

CRAWL = "shop"
FORMER = 0x57656674


@pytest.fixture(scope="module", params=["redis", "valkey", "cluster"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server for these tests alone: its keys are renamed back and forth."""
    made = RedisCluster("redis") if request.param == "cluster" else RedisServer(request.param)
    with made as running:
        yield running.url


@pytest.fixture
def url(server: str) -> Iterator[str]:
    yield server
    asyncio.run(_flush(server))


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Any]:
    client, beside = make_clients(url)
    try:
        yield client
    finally:
        await close_clients(client, beside)


async def _flush(url: str) -> None:
    async with client_of(url) as client:
        for key in await keys_of(client, "*"):
            await execute_at(client, key, "DEL", key)


async def keys_of(client: Any, pattern: str) -> list[str]:
    return sorted([key.decode() async for key in client.scan_iter(match=pattern, count=1000)])


async def _age(client: Any, wanted: str) -> None:
    """Give the keys the names that Weft used."""
    for key in await keys_of(client, "uttu:*"):
        old = key.replace("uttu", "weft")
        if old.startswith("weft:") and wanted in key:
            data = await execute_at(client, key, "DUMP", key)
            await execute_at(client, old, "RESTORE", old, 0, data)
            await execute_at(client, key, "DEL", key)


async def age(url: str, wanted: str = "") -> None:
    async with client_of(url) as client:
        await _age(client, wanted)


async def make_former_crawl(url: str) -> None:
    async with depot_at(url) as catalog:
        store = await catalog.create(CRAWL, EASY)
        await catalog.keep(CRAWL)
        await store.frontier.put(pages(6))
        await store.frontier.close()
    await age(url)


async def test_crawls_on_redis_are_refused_then_renamed(url: str) -> None:
    await make_former_crawl(url)
    with pytest.raises(StoreError, match=r"crawls of Weft.* uttu move --rename redis"):
        await open_frontier(url, DATA_FOLDER)
    done = await rename_former(url)
    assert done == Renamed(place=done.place, crawls=(CRAWL,), keys=done.keys)
    assert done.keys > 4
    async with client_of(url) as client:
        assert not await keys_of(client, "weft:*")
    async with depot_at(url) as catalog:
        assert await catalog.names() == [CRAWL]
        store = await catalog.open(CRAWL, EASY)
        await crawl_on(store)
        await check_whole(store)
        await store.frontier.close()
    assert await rename_former(url) == Renamed(place=done.place)


async def test_a_rename_that_was_cut_short_goes_on(url: str) -> None:
    await make_former_crawl(url)
    async with client_of(url) as client:
        for old in (await keys_of(client, "weft:{*"))[::2]:
            await execute_at(client, old, "RENAME", old, old.replace("weft:", "uttu:"))
    with pytest.raises(StoreError, match="crawls of Weft"):
        await open_frontier(url, DATA_FOLDER)
    assert (await rename_former(url)).crawls == (CRAWL,)
    async with depot_at(url) as catalog:
        store = await catalog.open(CRAWL, EASY)
        await crawl_on(store)
        await check_whole(store)
        await store.frontier.close()


async def test_a_crawl_that_is_there_under_both_names_is_left_alone(url: str) -> None:
    await make_former_crawl(url)
    async with client_of(url) as client:
        await execute_at(client, f"uttu:{{{CRAWL}}}", "HSET", f"uttu:{{{CRAWL}}}", "number", 1)
        before = await keys_of(client, "weft:*")
        with pytest.raises(StoreError, match="exists under two names"):
            await rename_former(url)
        assert await keys_of(client, "weft:*") == before


async def test_keys_of_other_programs_stay(url: str) -> None:
    async with client_of(url) as client:
        await execute_at(client, "weft:other", "SET", "weft:other", "1")
        assert (await rename_former(url)).keys == 0
        assert await keys_of(client, "weft:*") == ["weft:other"]
    await (await open_frontier(url, DATA_FOLDER)).close()


@pytest.mark.parametrize("sign", ["supervisor", "worker"])
async def test_a_crawl_that_runs_is_left_alone(url: str, sign: str) -> None:
    await make_former_crawl(url)
    async with client_of(url) as client:
        if sign == "supervisor":
            key = f"weft:{{{CRAWL}}}:supervisor"
            await execute_at(client, key, "SET", key, "host-1", "PX", 60_000)
        else:
            key = f"weft:{{{CRAWL}}}:1:workers"
            await execute_at(client, key, "HSET", key, "w1", f"{time.time()} {{}}", "w0", "1.5 {}")
        before = await keys_of(client, "weft:*")
        with pytest.raises(UttuError, match=r"Stop (it|them) first"):
            await rename_former(url)
        assert await keys_of(client, "weft:*") == before
        if sign == "worker":
            await execute_at(client, key, "HSET", key, "w1", f"{time.time() - 60} {{}}")
            assert (await rename_former(url)).crawls == (CRAWL,)


async def test_a_bus_on_redis_is_refused_then_renamed(url: str) -> None:
    bus = await connect(url)
    await _subscribe(bus, [])
    await bus.publish([Message(topic="shop.books", payload=b"1"), Message(topic="shop.books", payload=b"2")])
    await bus.close()
    await age(url)
    with pytest.raises(BusRefused, match=r"a bus of Weft.* uttu move --rename redis"):
        await connect(url)
    async with client_of(url) as client:
        beats = "weft:bus:{weft}:beats:indexer"
        await execute_at(client, beats, "ZADD", beats, int(time.time() * 1000), "reader")
        with pytest.raises(StoreError, match="subscribers"):
            await rename_former(url)
        await execute_at(client, beats, "DEL", beats)
    done = await rename_former(url)
    assert (done.buses, done.crawls) == (("weft",), ())
    bus = await connect(url)
    assert [group.name for group in await bus.groups("indexer")] == ["indexer"]
    got: list[bytes] = []
    await _subscribe(bus, got, wait=2)
    assert sorted(got) == [b"1", b"2"]
    await bus.close()


async def _subscribe(bus: Bus, got: list[bytes], wait: int = 0) -> None:
    """A subscription that ends when it has so many messages; without ``wait`` it handles none."""
    enough = asyncio.Event()

    async def handle(messages: list[Delivery]) -> None:
        got.extend(message.payload for message in messages)
        if len(got) >= wait:
            enough.set()

    subscription = await bus.subscribe(SubscribeOptions(topics=("shop.*",), group="indexer"), handle)
    if wait:
        async with asyncio.timeout(20):
            await enough.wait()
    await subscription.close()


async def test_a_copy_between_slots_that_was_cut_short_is_completed(url: str) -> None:
    old, new = "weft:bus:{weft}:groups", "uttu:bus:{uttu}:groups"
    async with client_of(url) as client:
        await execute_at(client, old, "HSET", old, "a", "1")
        await execute_at(client, new, "HSET", new, "a", "1")
        if "cluster" in url:
            assert (await rename_former(url)).keys == 1
            await execute_at(client, old, "HSET", old, "a", "2")
        with pytest.raises(StoreError, match=r"exists\. Remove it"):
            await rename_former(url)
        assert await keys_of(client, "*") == [new, old]


SCHEDULE = Schedule(name="each day", task="uttu.crawl", when=Every(seconds=60.0), source="uttu.toml")


def test_schedules_on_redis_are_taken_over(server: str) -> None:
    if "cluster" in server:
        pytest.skip("schedules are kept on one server")
    store = RedisScheduleStore(server, "uttu")
    store.put(SCHEDULE, create_state(SCHEDULE, _now()))
    store.close()
    asyncio.run(_age_schedules(server))
    store = RedisScheduleStore(server, "uttu")
    with pytest.raises(StoreError, match="A beat of Weft"):
        store.entries()
    asyncio.run(_delete(server, "weft:{weft}:jobs:leader"))
    assert [kept.entry for kept in store.entries()] == [SCHEDULE]
    assert store.remove(SCHEDULE.name)
    store.close()
    asyncio.run(_flush(server))


async def _age_schedules(url: str) -> None:
    async with client_of(url) as client:
        await _age(client, "jobs")
        entries, leader = "weft:{weft}:jobs:entries", "weft:{weft}:jobs:leader"
        for name, text in (await execute_at(client, entries, "HGETALL", entries)).items():
            await execute_at(client, entries, "HSET", entries, name, text.replace(b"uttu.", b"weft."))
        await execute_at(client, leader, "HSET", leader, "owner", "me")


async def _delete(url: str, key: str) -> None:
    async with client_of(url) as client:
        await execute_at(client, key, "DEL", key)


def _now() -> Any:
    from uttu.jobs.schedules.catalog import utc_now

    return utc_now()


def test_schedules_in_a_file_are_read(tmp_path: Path) -> None:
    store = SqliteScheduleStore(tmp_path / "schedules.db")
    store.put(SCHEDULE, create_state(SCHEDULE, _now()))
    with sqlite3.connect(tmp_path / "schedules.db") as connection:
        connection.execute("UPDATE entry SET entry = replace(entry, 'uttu.', 'weft.')")
    assert [kept.entry for kept in store.entries()] == [SCHEDULE]


def _mark(file: Path, application: int) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA application_id = {application}")


def _read_mark(file: Path) -> int:
    with sqlite3.connect(file) as connection:
        return int(connection.execute("PRAGMA application_id").fetchone()[0])


def test_a_folder_is_refused_then_renamed(uttu: Uttu, tmp_path: Path) -> None:
    make_crawl()
    counts = standing().counts
    _mark(Path(".uttu/crawls/shop.db"), FORMER)
    Path(".uttu").rename(".weft")
    for words in (
        ("status",),
        ("why", "https://shop.example/"),
        ("export",),
        ("push", "shop", "https://shop.example/x"),
    ):
        told = uttu(*words)
        assert (told.code, told.out) == (3, "")
        assert told.err.endswith("Keep its crawls and jobs with: mv .weft .uttu\n")
    assert not Path(".uttu").exists()
    assert uttu("status", "--frontier", f"sqlite:{tmp_path}").code == 3
    Path(".weft").rename(".uttu")
    assert "shop" in uttu("status").out
    assert standing().counts == counts
    assert _read_mark(Path(".uttu/crawls/shop.db")) == APPLICATION == int.from_bytes(b"Uttu", "big")


def test_the_command_renames_a_folder(uttu: Uttu) -> None:
    make_crawl()
    Path(".uttu").rename(".weft")
    Path("weft.toml").write_text("delay = 3\n")
    told = uttu("status")
    assert (told.code, told.err) == (
        3,
        "uttu: weft.toml is not read any more, as Weft is called Uttu now: rename it to uttu.toml\n",
    )
    lock = lock_file(Path(".weft/crawls/shop.db.supervisor"))
    told = uttu("move", "--rename")
    assert (told.code, told.err.split(":")[1]) == (
        1,
        " A process of Weft uses .weft (crawls/shop.db.supervisor is locked)",
    )
    unlock(lock)
    assert uttu("move", "--rename").out == ".weft renamed\nweft.toml renamed\n"
    assert uttu("move", "--rename").out == "Nothing to rename at .\n"
    assert standing().counts.items == 2
    assert load_settings().delay == 3
    Path("weft.toml").touch()
    assert uttu("status").code == 0
    assert uttu("move", "--rename").code == 1
    assert Path("weft.toml").exists()


def test_the_command_renames_keys(uttu: Uttu, url: str) -> None:
    asyncio.run(make_former_crawl(url))
    told = uttu("status", "--frontier", url)
    assert told.code == 4
    told = uttu("move", "--rename", url)
    assert (told.code, told.err) == (0, "")
    assert told.out.endswith("\n  crawls: shop\n")
    assert "shop" in uttu("status", "--frontier", url).out
    assert uttu("move", "--rename", url).out.startswith("Nothing to rename at redis")


def test_a_crawl_goes_on_after_the_folder_is_renamed(project: Project) -> None:
    with SiteProcess(Site(pages=60)) as site:
        crawl = ("crawl", "spider.py", "-o", "out.jsonl", "--resume", "-s")
        assert project.run(*crawl, "max_pages=20", START=site.url + "p/0").returncode == 0
        data = project.folder / ".uttu"
        _mark(data / "crawls" / "pages.db", FORMER)
        data.rename(project.folder / ".weft")
        refused = project.run(*crawl, "max_pages=0", START=site.url + "p/0")
        assert (refused.returncode, data.exists()) == (3, False)
        (project.folder / ".weft").rename(data)
        done = project.run(*crawl, "max_pages=0", START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
        assert len({row["url"] for row in project.rows()}) == len(project.rows()) == 60
        assert set(fetches(site.records()).values()) == {1}


def test_wrong_usage(uttu: Uttu) -> None:
    assert uttu("move").code == 2
    assert uttu("move", ".").code == 2
    assert uttu("move", "--rename", ".", "other").code == 2
    assert uttu("move", "--rename", "kafka://host").code == 2


def test_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    Database.open(file).close()
    _mark(file, FORMER)
    with pytest.raises(StoreError, match=r"made by Weft.* move it to \.uttu/crawls/"):
        Database.open(file)
    assert _read_mark(file) == FORMER


def test_the_private_server_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / ".weft" / "jobs").mkdir(parents=True)
    with pytest.raises(ConfigError, match="mv "):
        _ = Embedded(tmp_path).url
    with pytest.raises(ConfigError, match="mv "):
        Embedded(tmp_path).hold()
    assert not (tmp_path / ".uttu").exists()


def test_variables_of_the_environment(uttu: Uttu, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_misspelled_variables({"WEFT_TEST_REDIS": "1", "WEFT_OTHER": "1", "WEFTY": "1"}) == {}
    monkeypatch.setenv("WEFT_DELAY", "3")
    monkeypatch.setenv("WEFT_JOBS_BROKER", "redis://host")
    lines = uttu("version").err.splitlines()
    assert "uttu: WEFT_DELAY is not read any more, as Weft is called Uttu now: set UTTU_DELAY instead" in lines
    assert [line for line in lines if "WEFT_JOBS_BROKER" in line and "set UTTU_JOBS_BROKER" in line]
    assert load_settings(environment=dict(os.environ)).delay == 0.5


def test_names_of_keys() -> None:
    assert former.rename_key("weft:{weft}:3:queue:a{b}") == "uttu:{weft}:3:queue:a{b}"
    assert former.rename_key("weft:{shop}") == "uttu:{shop}"
    assert former.rename_key("weft:{weft}:jobs:entries") == "uttu:{uttu}:jobs:entries"
    assert former.rename_key("weft:{mine}:jobs:mark:1") == "uttu:{mine}:jobs:mark:1"
    assert former.rename_key("weft:bus:{weft}:ready:a") == "uttu:bus:{uttu}:ready:a"
    assert former.rename_key("weft:crawls") is former.rename_key("weft:other") is former.rename_key("uttu:{a}") is None

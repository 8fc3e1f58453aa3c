"""The depot's contract on SQLite and Redis, and what only a folder has."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from weft.errors import ConfigError, StoreError
from weft.frontier.base import Rules
from weft.frontier.depot import Depot
from weft.frontier.redis.depot import RedisDepot
from weft.frontier.sqlite.depot import SqliteDepot
from weft.testing.depot_contract import DepotContract


@pytest.fixture
def crawl() -> str:
    return f"test-{secrets.token_hex(6)}"


class TestSqlite(DepotContract):
    @pytest.fixture
    def depot(self, tmp_path: Path) -> Depot:
        return SqliteDepot(tmp_path)


class TestRedis(DepotContract):
    @pytest.fixture(params=["redis_url", "redis_cluster_url"])
    async def depot(self, request: pytest.FixtureRequest, crawl: str) -> AsyncIterator[Depot]:
        depot = await RedisDepot.connect(request.getfixturevalue(request.param))
        yield depot
        await depot.remove(crawl)
        await depot.close()


async def test_a_supervisor_that_was_killed_is_noticed_at_once(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from weft.frontier.sqlite.depot import SqliteDepot
async def hold():
    async with SqliteDepot(Path(sys.argv[1])).supervise("a"):
        print("held", flush=True)
        await asyncio.Event().wait()
asyncio.run(hold())
"""
    depot = SqliteDepot(tmp_path)
    command = (sys.executable, "-c", code, str(tmp_path))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout
        assert await process.stdout.readline() == b"held\n"
        assert await depot.is_supervised("a")
    finally:
        process.kill()
        await process.wait()
    assert not await depot.is_supervised("a")


async def test_the_former_crawl_outlives_several_that_never_began(tmp_path: Path) -> None:
    depot = SqliteDepot(tmp_path)
    first = await depot.create("a", Rules())
    await first.ledger.note(which="the first")
    await first.frontier.close()
    for _ in range(3):
        await (await depot.create("a", Rules())).frontier.close()
    await depot.restore("a")
    back = await depot.open("a", Rules())
    assert await back.ledger.facts() == {"which": "the first"}
    await back.frontier.close()


async def test_a_log_that_was_left_behind_does_not_meet_another_crawl(tmp_path: Path) -> None:
    depot = SqliteDepot(tmp_path)
    await (await depot.create("a", Rules())).frontier.close()
    # A kill in the middle of dropping the former crawl.
    log = tmp_path / "crawls" / "a.former-wal"
    log.write_bytes(b"the log of another database")
    await (await depot.create("a", Rules())).frontier.close()
    assert not log.exists()


async def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """A name with slashes in it would be the path of a file elsewhere."""
    mine = tmp_path / "mine.db"
    mine.write_bytes(b"not a crawl")
    depot = SqliteDepot(tmp_path / ".weft")
    for name in ("../../mine", str(mine.with_suffix(""))):
        for use in (depot.create(name, Rules()), depot.open(name, Rules()), depot.keep(name), depot.restore(name)):
            with pytest.raises(ConfigError):
                await use
    assert mine.read_bytes() == b"not a crawl"
    assert list(tmp_path.iterdir()) == [mine]


async def test_a_file_that_no_crawl_can_be_named_after_is_none(tmp_path: Path) -> None:
    depot = SqliteDepot(tmp_path)
    await (await depot.create("a", Rules())).frontier.close()
    (tmp_path / "crawls" / "a copy.db").write_bytes(b"")
    assert await depot.names() == ["a"]


async def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "crawls").write_text("a file where the folder should be")
    depot = SqliteDepot(tmp_path)
    assert await depot.names() == []
    assert not await depot.is_supervised("a")
    with pytest.raises(StoreError, match="Weft keeps the state of crawls there"):
        async with depot.supervise("a"):
            pass

"""The depot's contract on SQLite and Redis, and what only a folder has."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from uttu.errors import ConfigError, StoreError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlCatalog
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model.facts import CrawlFacts
from uttu.testing.contracts.catalog import CatalogContract


@pytest.fixture
def crawl() -> str:
    return f"test-{secrets.token_hex(6)}"


class TestSqlite(CatalogContract):
    @pytest.fixture
    def catalog(self, tmp_path: Path) -> CrawlCatalog:
        return SqliteCatalog(tmp_path)


class TestRedis(CatalogContract):
    @pytest.fixture(params=["redis_url", "redis_cluster_url"])
    async def catalog(self, request: pytest.FixtureRequest, crawl: str) -> AsyncIterator[CrawlCatalog]:
        catalog = await RedisCatalog.connect(request.getfixturevalue(request.param))
        yield catalog
        await catalog.remove(crawl)
        await catalog.close()


async def test_a_supervisor_that_was_killed_is_noticed_at_once(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from uttu.frontier.sqlite.catalog import SqliteCatalog
async def hold():
    async with SqliteCatalog(Path(sys.argv[1])).supervise("a"):
        print("held", flush=True)
        await asyncio.Event().wait()
asyncio.run(hold())
"""
    catalog = SqliteCatalog(tmp_path)
    command = (sys.executable, "-c", code, str(tmp_path))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout
        assert await process.stdout.readline() == b"held\n"
        assert await catalog.is_supervised("a")
    finally:
        process.kill()
        await process.wait()
    assert not await catalog.is_supervised("a")


async def test_the_former_crawl_outlives_several_that_never_began(tmp_path: Path) -> None:
    catalog = SqliteCatalog(tmp_path)
    first = await catalog.create("a", Rules())
    await first.ledger.note(spider="the first")
    await first.frontier.close()
    for _ in range(3):
        await (await catalog.create("a", Rules())).frontier.close()
    await catalog.restore("a")
    back = await catalog.open("a", Rules())
    assert await back.ledger.facts() == CrawlFacts(spider="the first")
    await back.frontier.close()


async def test_a_log_that_was_left_behind_does_not_meet_another_crawl(tmp_path: Path) -> None:
    catalog = SqliteCatalog(tmp_path)
    await (await catalog.create("a", Rules())).frontier.close()
    # A kill in the middle of dropping the former crawl.
    log = tmp_path / "crawls" / "a.former-wal"
    log.write_bytes(b"the log of another database")
    await (await catalog.create("a", Rules())).frontier.close()
    assert not log.exists()


async def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """A name with slashes in it would be the path of a file elsewhere."""
    mine = tmp_path / "mine.db"
    mine.write_bytes(b"not a crawl")
    catalog = SqliteCatalog(tmp_path / ".uttu")
    for name in ("../../mine", str(mine.with_suffix(""))):
        for use in (
            catalog.create(name, Rules()),
            catalog.open(name, Rules()),
            catalog.keep(name),
            catalog.restore(name),
        ):
            with pytest.raises(ConfigError):
                await use
    assert mine.read_bytes() == b"not a crawl"
    assert list(tmp_path.iterdir()) == [mine]


async def test_a_file_that_no_crawl_can_be_named_after_is_none(tmp_path: Path) -> None:
    catalog = SqliteCatalog(tmp_path)
    await (await catalog.create("a", Rules())).frontier.close()
    (tmp_path / "crawls" / "a copy.db").write_bytes(b"")
    assert await catalog.names() == ["a"]


async def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "crawls").write_text("a file where the folder should be")
    catalog = SqliteCatalog(tmp_path)
    assert await catalog.names() == []
    assert not await catalog.is_supervised("a")
    with pytest.raises(StoreError, match="Uttu keeps the state of crawls there"):
        async with catalog.supervise("a"):
            pass

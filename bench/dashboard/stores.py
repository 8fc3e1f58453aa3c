"""The project folder of the benchmark: a large crawl and many small ones, on SQLite or on Redis."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from bench.frontier.inspect import RULES, fill
from tests.harness.servers import RedisServer

from uttu.frontier.catalog import CrawlCatalog
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Request
from uttu.model.crawl import CrawlState, SettingValue
from uttu.settings import DATA_FOLDER, Settings

CRAWL = "bench"
_DUMP = "dump.rdb"


class Project(msgspec.Struct, frozen=True):
    """A folder whose crawls a dashboard shows. ``server`` is the Redis server; None with SQLite."""

    folder: Path
    store: str
    """The name of the store in addresses of the dashboard."""
    frontier: str = ""
    server: RedisServer | None = None

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[CrawlCatalog]:
        """The catalog of the folder."""
        catalog: CrawlCatalog
        if self.frontier:
            catalog = await RedisCatalog.connect(self.frontier)
        else:
            catalog = SqliteCatalog(self.folder / DATA_FOLDER)
        try:
            yield catalog
        finally:
            await catalog.close()


@contextlib.contextmanager
def open_project(name: str, kind: Any, urls: int, crawls: int, keep: Path | None) -> Iterator[Project]:
    """Build the crawls, or copy those of an earlier run from ``keep``. Crawls in ``keep`` never change."""
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        kept = keep / f"{name}-{urls}-{crawls}" if keep else None
        if kept is not None and kept.exists():
            shutil.copytree(kept, folder, dirs_exist_ok=True)
        if name == "sqlite":
            project = Project(folder, "local")
        else:
            settings = {"dir": str(folder), "dbfilename": _DUMP}
            server = stack.enter_context(RedisServer(kind, settings=settings))
            jobs = server.url.removesuffix("/0") + "/1"
            settings_file = f'frontier = "{server.url}"\nbus = "{jobs}"\n[jobs]\nbroker = "{jobs}"\n'
            (folder / "uttu.toml").write_text(settings_file)
            project = Project(folder, f"redis-127.0.0.1-{server.port}-0", server.url, server)
        if kept is None or not kept.exists():
            began = time.perf_counter()
            uvloop.run(_build(project, urls, crawls))
            print(f"{name}: built {urls:,} URLs in {time.perf_counter() - began:.0f} s", flush=True)
            if kept is not None:
                if project.server is not None:
                    project.server.ask("BGSAVE")
                    while project.server.info("persistence")["rdb_bgsave_in_progress"] != "0":
                        time.sleep(0.2)
                shutil.copytree(folder, kept)
        os.sync()
        yield project


async def _build(project: Project, urls: int, crawls: int) -> None:
    settings = tuple(SettingValue(name, value) for name, value in msgspec.to_builtins(Settings()).items())
    async with project.connect() as catalog:
        store = await catalog.create(CRAWL, RULES)
        await store.ledger.note(
            state=CrawlState.RUNNING, spider=CRAWL, file="bench.py", began=time.time(), seeded=True, settings=settings
        )
        await fill(store, urls)
        await store.frontier.close()
        for number in range(crawls - 1):
            small = await catalog.create(f"small-{number:02}", RULES)
            await small.frontier.put([Request(url=f"https://small.example/{each}") for each in range(20)])
            facts = {"spider": "small", "file": "small.py", "began": time.time() - 60 * number, "seeded": True}
            await small.ledger.note(state=CrawlState.FINISHED, **facts)  # type: ignore[arg-type]
            await small.frontier.close()

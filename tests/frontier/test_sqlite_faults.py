"""A crawl's file that is damaged, cut, removed or closed: every error is one of ours, and says which file it is."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from uttu.errors import StoreError
from uttu.frontier.base import Cursor
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.jobs.schedules.sqlite import SqliteScheduleStore
from uttu.model import Dead, Done, Retry
from uttu.model.history import CrawlSample, EventKind
from uttu.model.inspection import DeadQuery, LaneQuery
from uttu.testing.contracts.store import EASY, page, pages

PAGE = 4096


def calls(store: CrawlStore) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Everything that a store offers."""
    return {
        "put": lambda: store.frontier.put(pages(300)),
        "crawl": lambda: crawl(store),
        "counts": store.frontier.counts,
        "hold": lambda: store.frontier.hold("b.example", 1.0, "why"),
        "items": lambda: store.outbox.items(0, 1000),
        "cursor": lambda: store.outbox.cursor("x"),
        "claim": lambda: store.ledger.claim("drain x", "me", 60),
        "advance": lambda: store.outbox.advance("x", Cursor(1, b"s"), "me"),
        "trim": lambda: store.outbox.trim(["x"], 1),
        "trimmed": store.outbox.trimmed,
        "facts": store.ledger.facts,
        "note": lambda: store.ledger.note(spider="b"),
        "report": lambda: store.ledger.report("w", b"{}"),
        "reports": store.ledger.reports,
        "claimed": store.ledger.claimed,
        "recall": lambda: store.memo.recall("k"),
        "remember": lambda: store.memo.remember("k", b"v", 60),
        "lanes": lambda: store.inspector.lanes(LaneQuery()),
        "dead": lambda: store.inspector.dead(DeadQuery(limit=100)),
        "search": lambda: store.inspector.dead(DeadQuery(match="40", kind="http")),
        "groups": store.inspector.dead_groups,
        "record": lambda: store.history.record(CrawlSample(at=time.time())),
        "samples": lambda: store.history.samples(0.0),
        "add events": lambda: store.history.add_events([(EventKind.STATE, {"state": "running"})]),
        "events": lambda: store.history.events(0, 100),
        "latest": lambda: store.outbox.latest(100),
        "trace": lambda: store.inspector.trace(page(3).fingerprint),
        "pin": lambda: store.inspector.pin("a.example", 1.0),
        "revive": store.inspector.revive,
        "pour": lambda: dump(store),
    }


async def crawl(store: CrawlStore) -> None:
    leases = await store.frontier.lease(30, "w")
    await store.frontier.extend(leases)
    kinds = (
        lambda lease: Done(lease=lease, items=(b'{"a":1}', b"[]"), children=tuple(pages(400))),
        lambda lease: Retry(lease=lease, after=5.0),
        lambda lease: Dead(lease=lease, kind="http", reason="404"),
    )
    await store.frontier.settle([kinds[number % 3](lease) for number, lease in enumerate(leases)])


async def dump(store: CrawlStore) -> None:
    async for _ in store.transfer.dump():
        pass


async def made(folder: Path) -> tuple[SqliteCatalog, Path]:
    """A crawl with something in every table, at rest."""
    catalog = SqliteCatalog(folder)
    store = await catalog.create("shop", EASY)
    for call in calls(store).values():
        await call()
    await store.frontier.close()
    return catalog, catalog.path("shop")


async def failures(catalog: SqliteCatalog) -> dict[str, Exception]:
    """What the calls raise that is no error of ours."""
    try:
        store = await catalog.open("shop", EASY)
    except StoreError:
        return {}
    found = {}
    for name, call in calls(store).items():
        try:
            await call()
        except Exception as error:
            # One error is not about the file: the crawl is not at rest, so it can't be poured.
            if not isinstance(error, StoreError) or not any(word in str(error) for word in ("shop", "leased")):
                found[name] = error
    with contextlib.suppress(StoreError):
        await store.frontier.close()
    return found


@pytest.mark.parametrize("seed", range(20))
async def test_pages_of_noise(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    catalog, path = await made(tmp_path)
    data = bytearray(path.read_bytes())
    for _ in range(chance.randrange(1, 6)):
        start = chance.randrange(PAGE * (seed % 2), len(data) - PAGE, PAGE)
        length = chance.choice([16, 100, PAGE])
        data[start : start + length] = chance.randbytes(length)
    path.write_bytes(data)
    assert await failures(catalog) == {}


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
async def test_a_file_that_was_cut(tmp_path: Path, share: float) -> None:
    catalog, path = await made(tmp_path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    assert await failures(catalog) == {}


async def test_a_file_that_is_damaged_while_it_is_open(tmp_path: Path) -> None:
    catalog, path = await made(tmp_path)
    store = await catalog.open("shop", EASY)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(PAGE)
        file.write(random.Random(1).randbytes(size - PAGE))
    ends = await asyncio.gather(*(call() for call in calls(store).values()), return_exceptions=True)
    assert {repr(end) for end in ends if isinstance(end, Exception) and not isinstance(end, StoreError)} == set()
    assert any(isinstance(end, StoreError) for end in ends)
    with contextlib.suppress(StoreError):
        await store.frontier.close()


async def test_a_file_whose_tables_are_gone(tmp_path: Path) -> None:
    catalog, path = await made(tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        for table in ("outbox", "lanes", "claims", "memo"):
            db.execute(f"DROP TABLE {table}")
    assert await failures(catalog) == {}


async def test_a_store_that_is_closed(tmp_path: Path) -> None:
    catalog, _ = await made(tmp_path)
    store = await catalog.open("shop", EASY)
    await store.frontier.close()
    ends = await asyncio.gather(*(call() for call in calls(store).values()), return_exceptions=True)
    wrong = [end for end in ends if isinstance(end, Exception) and not isinstance(end, StoreError)]
    assert wrong == []


@pytest.mark.parametrize("seed", range(10))
def test_schedules_in_a_file_that_is_damaged(tmp_path: Path, seed: int) -> None:
    chance, path = random.Random(seed), tmp_path / "schedules.db"
    store = SqliteScheduleStore(path)
    store.lead("me", 60.0)
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    start = chance.randrange(0, len(data), PAGE)
    data[start : start + PAGE] = chance.randbytes(PAGE)
    path.write_bytes(data)
    store = SqliteScheduleStore(path)
    for call in (store.entries, store.runs, lambda: store.lead("me", 60.0), lambda: store.marks(["x"])):
        with contextlib.suppress(StoreError):
            call()
    with contextlib.suppress(StoreError):
        store.close()

"""Stores that the version before wrote: the same facts and notes are read from them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from redis.asyncio import Redis
from tests.frontier.redis_crawls import depot_at, new_name

from uttu.errors import StoreError
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Done, Pace, Redirect
from uttu.model.crawl import CrawlState, Reason, ReasonKind, Rules
from uttu.model.facts import CrawlFacts, FileRecord, SliceMark
from uttu.testing.contracts.store import EASY, pages

# As the version before stored them.
FACTS = {
    "arguments": '{"q":"a b"}',
    "began": "1794977458",
    "fed": "",
    "file": "/home/me/shop.py",
    "flags": '{"delay":2}',
    "job some id": "3 1700000000.125",
    "job another": "1",
    "outputs": '["a.jsonl"]',
    "pace": '{"delay":2.0,"limit":3}',
    "reason": "limit of 100 pages",
    "rules": '{"order":"fifo","pace":{"delay":2.0,"limit":3},"probe":false,"lease_seconds":60.0,"ahead":0.2,'
    '"max_losses":8,"max_pages":0,"max_items":0,"max_per_lane":0}',
    "seeded": "yes",
    "spider": "shop",
    "start_hosts": "a.example b.example:81",
    "state": "stopped",
    "unattended": "yes",
    "withheld": '{"proxy":true}',
    "written /home/me/a b.jsonl": '{"inode":1,"size":2,"mtime_ns":3,"closed":true}',
}
MEANT = CrawlFacts(
    state=CrawlState.STOPPED,
    reason=Reason("limit of 100 pages"),
    spider="shop",
    file="/home/me/shop.py",
    arguments={"q": "a b"},
    flags={"delay": 2},
    withheld={"proxy": True},
    outputs=("a.jsonl",),
    began=1794977458.0,
    pace=Pace(2.0, 3),
    rules=Rules(pace=Pace(2.0, 3)),
    start_hosts=frozenset({"a.example", "b.example:81"}),
    seeded=True,
    fed=False,
    unattended=True,
    written={"/home/me/a b.jsonl": FileRecord(inode=1, size=2, mtime_ns=3, closed=True)},
    slices={"some id": SliceMark(3, 1700000000.125), "another": SliceMark(1)},
)


class FormerStore(NamedTuple):
    """An open crawl, and a function that writes text to its facts."""

    crawl: CrawlStore
    write: Callable[[dict[str, str]], Awaitable[None]]


@contextlib.asynccontextmanager
async def on_sqlite(folder: Path) -> AsyncIterator[FormerStore]:
    catalog = SqliteCatalog(folder)
    crawl = await catalog.create("shop", EASY)

    async def write(facts: dict[str, str]) -> None:
        with contextlib.closing(sqlite3.connect(folder / "crawls" / "shop.db")) as db:
            db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
            db.commit()

    yield FormerStore(crawl, write)
    await crawl.frontier.close()
    await catalog.close()


@contextlib.asynccontextmanager
async def on_redis(url: str) -> AsyncIterator[FormerStore]:
    name = new_name()
    async with depot_at(url) as catalog, Redis.from_url(url) as client:
        crawl = await catalog.create(name, EASY)
        (tally,) = [key async for key in client.scan_iter(f"uttu:{{{name}}}:*:tally")]

        async def write(facts: dict[str, str]) -> None:
            words = [word for pair in facts.items() for word in pair]
            await client.hset(tally.decode().replace(":tally", ":facts"), items=words)

        yield FormerStore(crawl, write)
        await crawl.frontier.close()
        await catalog.remove(name)


@pytest.fixture(params=["sqlite", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FormerStore]:
    opened = on_sqlite(tmp_path) if request.param == "sqlite" else on_redis(request.getfixturevalue("redis_url"))
    async with opened as store:
        yield store


async def test_facts_are_read(store: FormerStore) -> None:
    await store.write(FACTS)
    assert await store.crawl.ledger.facts() == MEANT


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Reason()),
        ("interrupted", Reason(kind=ReasonKind.INTERRUPTED)),
        ("revoked", Reason(kind=ReasonKind.REVOKED)),
        ("moved to redis://h", Reason("redis://h", ReasonKind.MOVED)),
        ("being moved here from sqlite:/a b", Reason("sqlite:/a b", ReasonKind.MOVING)),
        ("moved from redis://h", Reason("moved from redis://h")),
        ("{curly}", Reason("{curly}")),
        ('{"a":1}', Reason('{"a":1}')),
    ],
)
async def test_sentences_become_reasons(store: FormerStore, text: str, reason: Reason) -> None:
    await store.write({"state": "stopped", "reason": text})
    facts = await store.crawl.ledger.facts()
    assert facts.reason == reason
    assert str(facts.reason) == text


@pytest.mark.parametrize(
    ("note", "read"),
    [
        ("", ("", None)),
        ("from the cache", ("from the cache", None)),
        ("redirected to https://a.example/x?y", ("", Redirect("https://a.example/x?y"))),
        (
            "redirected to https://b.example/, which is not fetched: outside the allowed domains",
            ("", Redirect("https://b.example/", "outside the allowed domains")),
        ),
    ],
)
async def test_the_note_of_a_page_tells_where_it_redirected_to(
    store: FormerStore, note: str, read: tuple[str, Redirect | None]
) -> None:
    frontier, inspector = store.crawl.frontier, store.crawl.inspector
    await frontier.put(pages(1))
    (lease,) = await frontier.lease(1, "w")
    await frontier.settle([Done(lease=lease, status=301, note=note)])  # the version before stored this text
    trace = await inspector.trace(lease.fingerprint)
    assert (trace.reason, trace.redirect) == read


async def test_facts_of_a_newer_version_are_ignored_or_refused(store: FormerStore) -> None:
    await store.write(FACTS | {"later": "x", "later on": "y"})
    assert await store.crawl.ledger.facts() == MEANT
    await store.write({"state": "hibernating"})
    with pytest.raises(StoreError, match=r"Cannot read the crawl's state .*hibernating.*newer Uttu"):
        await store.crawl.ledger.facts()

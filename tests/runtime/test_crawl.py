"""Which crawls go on, which start anew, and which do neither without being told."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from uttu.errors import StoreError, UttuError
from uttu.frontier.base import Rules
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Counts, Request
from uttu.model.crawl import CrawlState, Reason
from uttu.runtime import crawl
from uttu.settings import Settings

FED = Settings(feed="redis://h")


@pytest.fixture
async def catalog(tmp_path: Path) -> SqliteCatalog:
    """With a crawl that ended at its limit, a page before the end."""
    catalog = SqliteCatalog(tmp_path)
    store = await catalog.create("shop", Rules())
    await store.frontier.put([Request.to("https://shop.example/")])
    await store.ledger.note(state=CrawlState.LIMITED, reason=Reason("limit of 100 pages"))
    await store.frontier.close()
    await catalog.keep("shop")
    return catalog


async def test_pages_from_a_feed_are_not_dropped_by_the_way(catalog: SqliteCatalog) -> None:
    with pytest.raises(UttuError, match=r"ended at its limit of 100 pages, with 1 pages to do .* --resume .* --fresh"):
        await crawl.open_crawl(catalog, "shop", FED, fresh=False, resume=False)


@pytest.mark.parametrize(
    ("settings", "fresh", "resume", "left"),
    [(FED, False, True, 1), (FED, True, False, 0), (Settings(), False, False, 0), (Settings(), False, True, 1)],
)
async def test_a_crawl_that_ended_at_its_limit(
    catalog: SqliteCatalog, settings: Settings, fresh: bool, resume: bool, left: int
) -> None:
    opened = await crawl.open_crawl(catalog, "shop", settings, fresh=fresh, resume=resume)
    assert (opened.resumed, (await opened.store.frontier.counts()).work) == (bool(left), left)
    await opened.store.frontier.close()


async def test_a_crawl_whose_facts_can_not_be_read_is_only_started_again(
    catalog: SqliteCatalog, tmp_path: Path
) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "crawls" / "shop.db")) as db:
        db.execute("INSERT OR REPLACE INTO facts VALUES ('state', 'hibernating'), ('flags', '?')")
        db.commit()
    with pytest.raises(StoreError, match=r"Cannot read .*\. Was it written by a newer Uttu\?"):
        await crawl.open_crawl(catalog, "shop", Settings(), fresh=False, resume=True)
    opened = await crawl.open_crawl(catalog, "shop", Settings(), fresh=True, resume=False)
    assert (opened.created, await opened.store.frontier.counts()) == (True, Counts())
    await opened.store.frontier.close()

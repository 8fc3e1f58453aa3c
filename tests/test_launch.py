"""Which crawls go on, which start anew, and which do neither without being told."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft import launch
from weft.config import Settings
from weft.engine.states import State
from weft.errors import WeftError
from weft.frontier.base import Rules
from weft.frontier.sqlite.depot import SqliteDepot
from weft.model import Request

FED = Settings(feed="redis://h")


@pytest.fixture
async def depot(tmp_path: Path) -> SqliteDepot:
    """With a crawl that ended at its limit, a page before the end."""
    depot = SqliteDepot(tmp_path)
    store = await depot.create("shop", Rules())
    await store.frontier.put([Request.to("https://shop.example/")])
    await store.ledger.note(state=State.LIMITED, reason="limit of 100 pages")
    await store.frontier.close()
    await depot.keep("shop")
    return depot


async def test_pages_from_a_feed_are_not_dropped_by_the_way(depot: SqliteDepot) -> None:
    with pytest.raises(WeftError, match=r"ended at its limit of 100 pages, with 1 pages to do .* --resume .* --fresh"):
        await launch.open_crawl(depot, "shop", FED, fresh=False, resume=False)


@pytest.mark.parametrize(
    ("settings", "fresh", "resume", "left"),
    [(FED, False, True, 1), (FED, True, False, 0), (Settings(), False, False, 0), (Settings(), False, True, 1)],
)
async def test_a_crawl_that_ended_at_its_limit(
    depot: SqliteDepot, settings: Settings, fresh: bool, resume: bool, left: int
) -> None:
    opened = await launch.open_crawl(depot, "shop", settings, fresh=fresh, resume=resume)
    assert (opened.resumed, (await opened.store.frontier.counts()).work) == (bool(left), left)
    await opened.store.frontier.close()

"""``uttu retry``: dead letters queued again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.cli.conftest import HOST, Uttu, depot_here, make_crawl, supervised
from uttu.model.crawl import CrawlState, Reason, ReasonKind
from uttu.operations.crawls import CrawlStatus, open_store, read_status
from uttu.testing.site import Site, SiteProcess


def standing(name: str = "shop") -> CrawlStatus:
    async def look() -> CrawlStatus:
        async with open_store(depot_here(), name) as store:
            return await read_status(depot_here(), name, store)

    return asyncio.run(look())


def test_all_of_a_crawl_that_finished(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.FINISHED)
    told = uttu("retry")
    assert told.code == 0
    assert told.out == "3 dead letters queued again; resume it with: uttu crawl shop.py\n"
    now = standing()
    assert (now.counts.dead, now.counts.pending) == (0, 7)
    assert now.state == CrawlState.STOPPED
    assert " pending " in uttu("why", f"{HOST}/gone").out


def test_of_one_kind(uttu: Uttu) -> None:
    make_crawl()
    assert json.loads(uttu("retry", "shop", "--kind", "handler", "--json").out)["revived"] == 1
    assert standing().counts.dead == 2


def test_one_url(uttu: Uttu) -> None:
    make_crawl()
    told = uttu("retry", "--url", "shop.example/gone#here")
    assert told.code == 0
    assert told.out.startswith("1 dead letter queued again")
    assert standing().counts.dead == 2


def test_in_a_crawl_that_runs(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.RUNNING)
    with supervised():
        told = uttu("retry")
        assert standing().facts.state == CrawlState.RUNNING
    assert told.out == "3 dead letters queued again; the running crawl fetches them\n"


def test_a_crawl_that_was_moved_is_left_as_it_is(uttu: Uttu) -> None:
    make_crawl(reason=Reason("redis://localhost", ReasonKind.MOVED))
    told = uttu("retry")
    assert told.code == 1
    assert "moved to redis://localhost" in told.err
    assert standing().counts.dead == 3


def test_none_of_that_kind_or_url(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.FINISHED)
    told = uttu("retry", "--kind", "dns")
    assert told.code == 1
    assert "no dead letter of kind 'dns'; there are: " in told.err
    assert uttu("retry", "--url", f"{HOST}/").code == 1
    assert standing().state == CrawlState.FINISHED


def test_none_at_all(uttu: Uttu) -> None:
    make_crawl()
    uttu("retry")
    told = uttu("retry")
    assert told.code == 0
    assert told.err == "no dead letter\n"


def test_no_crawl(uttu: Uttu) -> None:
    assert uttu("retry").code == 4
    assert uttu("retry", "nope").code == 4
    assert uttu("retry", "--url", "no url").code == 2


def test_a_site_whose_robots_was_given_up_a_moment_ago_is_asked(uttu: Uttu) -> None:
    site = Site(pages=3, links=2, robots=(500, 500, 500, 500, None))
    with SiteProcess(site) as running:
        Path("spider.py").write_text(
            "from uttu import Spider\n"
            f"spider = Spider('pages', start='{running.url}', delay=0)\n"
            "@spider.page\ndef page(page):\n    yield {'url': page.url}\n"
        )
        assert uttu("crawl", "spider.py").code == 1
        assert uttu("retry").out.startswith("1 dead letter queued again")
        told = uttu("crawl", "spider.py")
        assert told.code == 0, told.err
        assert [record.path for record in running.records()] == ["/robots.txt"] * 5 + ["/"]

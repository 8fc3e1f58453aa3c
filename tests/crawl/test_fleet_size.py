"""Four machines, twenty thousand pages, one Redis server: the whole of it once, and politely."""

from __future__ import annotations

import secrets
from collections import Counter
from urllib.parse import urlsplit

import pytest

from tests.crawl.conftest import Project, wait_for
from uttu.testing.site import Site, SiteProcess, fetches, gaps, overlaps

PAGES, HOSTS, DELAY = 20_000, 50, 0.02
SPIDER = """
import os
from uttu import Page, Spider

spider = Spider("fleet", start=os.environ["START"], private=True, delay=float(os.environ["DELAY"]))

@spider.page
def page(page: Page):
    yield {"path": page.url, "pid": os.getpid()}
    yield page.follow_all("a")
"""


def test_four_workers_take_each_page_once_and_keep_the_delay(
    project: Project, tmp_path_factory: pytest.TempPathFactory, redis_url: str
) -> None:
    crawl = f"test-{secrets.token_hex(6)}"
    others = [Project(tmp_path_factory.mktemp("machine")) for _ in range(3)]
    for each in (project, *others):
        each.write("spider.py", SPIDER)
    with SiteProcess(Site(hosts=HOSTS, pages=PAGES, links=32)) as site:
        environment = {"START": site.url + "p/0", "UTTU_FRONTIER": redis_url, "DELAY": str(DELAY)}
        main = project.start("crawl", "spider.py", "--crawl", crawl, "-o", "out.jsonl", **environment)
        wait_for(site, 20)
        workers = [each.start("worker", "spider.py", "--crawl", crawl, **environment) for each in others]
        for process in (main, *workers):
            _, err = process.communicate(timeout=240)
            assert process.returncode == 0, err
        records = site.records()
    rows = project.rows()
    assert Counter(urlsplit(row["path"]).path for row in rows) == Counter(
        {f"/p/{number}": 1 for number in range(PAGES)}
    )
    assert len({row["pid"] for row in rows}) == 1 + len(workers)
    assert set(fetches(records).values()) == {1}, "robots.txt included: once per host"
    assert min(gap for each in gaps(records).values() for gap in each) >= DELAY
    assert set(overlaps(records).values()) == {1}

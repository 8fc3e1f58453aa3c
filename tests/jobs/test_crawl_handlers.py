"""Handlers that take the process of a slice down: the page is dead, the job goes on and finishes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jobs.conftest import MakeWorkshop
from tests.jobs.crawl_jobs import Crawling
from uttu.testing.site import Site, SiteProcess

PAGES = 12
SPIDER = """
import ctypes, os, signal, subprocess
from uttu import Page, Spider

spider = Spider({name!r}, start=["{url}p/%d" % n for n in range({pages})], private=True, robots=False, delay=0,
                per_host=0, concurrency=4, max_block=1)

@spider.page
def page(page: Page):
    if page.url.endswith("/p/7"):
        open("reached-{name}", "a").write("x")
        {body}
    yield {{"url": page.url}}
"""
# What the handler does, and how often its page is tried at most.
DEATHS = {
    "exit": ("os._exit(0)", 1),
    "segfault": ("ctypes.string_at(0)", 1),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", 2),
    "closes-files": ("os.closerange(3, 1024)", 2),
    "limits-files": ("import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))", 2),
    "in-C": ("sum(range(10**13))", 1),
    "leaves-a-copy": ("if os.fork(): os._exit(1)\n        import time; time.sleep(70); os._exit(0)", 1),
}


@pytest.fixture(scope="module")
def site() -> Iterator[SiteProcess]:
    with SiteProcess(Site(pages=PAGES)) as running:
        yield running


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, redis_url: str, site: SiteProcess) -> Crawling:
    workshop = workshops(broker=redis_url, backend=redis_url)
    crawling = Crawling(workshop, site)
    crawling.worker = workshop.worker("-c", "2").pid
    return crawling


@pytest.mark.parametrize(
    ("name", "workers"), [*((name, 1) for name in DEATHS), ("exit", 2), ("segfault", 2), ("killed", 2)]
)
def test_a_page_that_takes_its_process_down_is_dead(shop: Crawling, name: str, workers: int) -> None:
    body, most = DEATHS[name]
    crawl = f"{name}-{workers}"
    text = SPIDER.format(name=crawl, url=shop.site.url, pages=PAGES, body=body)
    (shop.workshop.folder / f"{crawl}.py").write_text(text)
    summary = shop.get(shop.crawl(f"{crawl}.py", output=f"{crawl}.jsonl", workers=workers).apply_async())
    assert summary["state"] == "finished"
    assert (summary["done"], summary["dead_kinds"]) == (PAGES - 1, {"lost": 1})
    assert sorted(shop.rows(f"{crawl}.jsonl")) == sorted(f"/p/{n}" for n in range(PAGES) if n != 7)
    assert len((shop.workshop.folder / f"reached-{crawl}").read_text()) <= most * workers
    assert "took the worker down" in shop.workshop.uttu("status", crawl, "--dead").stdout

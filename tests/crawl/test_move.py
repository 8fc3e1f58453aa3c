"""A crawl that moves while it is on its way: from a folder to Redis and back, with the same output throughout."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit

from tests.crawl.conftest import Project, wait_for
from tests.harness.servers import RedisServer
from uttu.testing.site import Site, SiteProcess, fetches

PAGES = 2000


def test_to_redis_and_back(project: Project) -> None:
    with SiteProcess(Site(pages=PAGES, latency=0.02)) as site, RedisServer("any", appendonly=True) as server:
        start = site.url + "p/0"
        crawl = ("crawl", "spider.py", "-o", "out.jsonl", "-s", "concurrency=4")
        stages = [(".", server.url), (server.url, "sqlite:other")]
        for pages, (here, there) in zip((300, 900), stages, strict=True):
            frontier = ("--frontier", here) if here != "." else ()
            running = project.start(*crawl, *frontier, START=start)
            wait_for(site, pages)
            assert project.run("stop", "pages", *frontier).returncode == 0
            running.communicate(timeout=60)
            moved = project.run("move", here, there)
            assert moved.returncode == 0, moved.stderr
        done = project.run(*crawl, "--frontier", "sqlite:other", START=start)
        assert done.returncode == 0, done.stderr
        assert Counter(urlsplit(row["url"]).path for row in project.rows()) == Counter(
            {f"/p/{number}": 1 for number in range(PAGES)}
        )
        assert set(fetches(site.records()).values()) == {1}

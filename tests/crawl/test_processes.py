"""Several processes on one crawl: the same result, no page twice, and politeness over all of them."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit

import pytest

from tests.crawl.conftest import SPIDER, Project
from weft.testing.site import Site, SiteProcess, fetches, gaps, overlaps


@pytest.mark.parametrize("workers", [2, 4])
def test_no_page_is_fetched_twice(project: Project, workers: int) -> None:
    with SiteProcess(Site(pages=6000)) as site:
        done = project.run("crawl", "spider.py", "-o", "out.jsonl", "--workers", str(workers), START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
        assert Counter(urlsplit(row["url"]).path for row in project.rows()) == Counter(
            {f"/p/{n}": 1 for n in range(6000)}
        )
        assert set(fetches(site.records()).values()) == {1}


@pytest.mark.parametrize("workers", [2, 4])
def test_the_delay_holds_over_all_processes(project: Project, workers: int) -> None:
    delay = 0.1
    with SiteProcess(Site(hosts=30, pages=900, links=8, page_bytes=1000)) as site:
        done = project.run(
            "crawl", "spider.py", "-o", "out.jsonl", "--workers", str(workers),
            "-s", f"delay={delay}", "-s", "per_host=1", "-s", "robots=true", START=site.url + "p/0",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        records = site.records()
        assert min(gap for each in gaps(records).values() for gap in each) >= delay
        assert set(overlaps(records).values()) == {1}
        assert set(fetches(records).values()) == {1}, "robots.txt included: once per host"
        assert len([record for record in records if record.path == "/robots.txt"]) == 30
        assert len(project.rows()) == 900


def test_another_process_joins(project: Project) -> None:
    with SiteProcess(Site(pages=3000, latency=0.02)) as site:
        first = project.start("crawl", "spider.py", "-o", "out.jsonl", START=site.url + "p/0")
        while not (project.folder / "out.jsonl").exists():
            assert first.poll() is None
        second = project.run("worker", "spider.py", START=site.url + "p/0")
        assert second.returncode == 0, second.stderr
        _, err = first.communicate(timeout=120)
        assert first.returncode == 0, err
        assert len(project.rows()) == 3000
        assert set(fetches(site.records()).values()) == {1}


def test_a_second_supervisor_is_refused(project: Project) -> None:
    with SiteProcess(Site(pages=3000, latency=0.02)) as site:
        first = project.start("crawl", "spider.py", START=site.url + "p/0")
        while not (project.folder / ".weft").exists():
            assert first.poll() is None
        second = project.run("crawl", "spider.py", START=site.url + "p/0")
        assert second.returncode == 1
        assert "is running already" in second.stderr
        assert "weft worker" in second.stderr


def test_a_message_is_above_only_if_there_was_one(project: Project) -> None:
    project.write("spider.py", SPIDER.replace("yield {", "os._exit(9)\n    yield {"))
    with SiteProcess(Site(pages=3)) as site:
        done = project.run("crawl", "spider.py", "--workers", "2", START=site.url + "p/0")
    assert done.returncode == 1
    assert "a worker process failed with exit code 9; something in the spider ended it" in done.stderr
    assert "above" not in done.stderr

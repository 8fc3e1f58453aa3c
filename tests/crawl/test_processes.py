"""Several processes on one crawl: the same result, no page twice, and politeness over all of them."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit

import pytest

from tests.crawl.conftest import SPIDER, Project
from uttu.testing.site import Site, SiteProcess, fetches, gaps, overlaps
from uttu.testing.waiting import wait_until


@pytest.mark.parametrize("workers", [2, 4])
def test_no_page_is_fetched_twice(project: Project, workers: int) -> None:
    with SiteProcess(Site(pages=3000)) as site:
        done = project.run("crawl", "spider.py", "-o", "out.jsonl", "--workers", str(workers), START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
        assert Counter(urlsplit(row["url"]).path for row in project.rows()) == Counter(
            {f"/p/{n}": 1 for n in range(3000)}
        )
        assert set(fetches(site.records()).values()) == {1}


@pytest.mark.parametrize("workers", [2, 4])
def test_the_delay_holds_over_all_processes(project: Project, workers: int) -> None:
    delay = 0.1
    with SiteProcess(Site(hosts=30, pages=900, links=8, page_bytes=1000)) as site:
        done = project.run(
            "crawl",
            "spider.py",
            "-o",
            "out.jsonl",
            "--workers",
            str(workers),
            "-s",
            f"delay={delay}",
            "-s",
            "per_host=1",
            "-s",
            "robots=true",
            START=site.url + "p/0",
        )
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
        wait_until(lambda: first.poll() is not None or (project.folder / "out.jsonl").exists(), "it has begun")
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
        wait_until(lambda: first.poll() is not None or (project.folder / ".uttu").exists(), "it has begun")
        assert first.poll() is None
        second = project.run("crawl", "spider.py", START=site.url + "p/0")
        assert second.returncode == 1
        assert "is running already" in second.stderr
        assert "uttu worker" in second.stderr


def test_a_message_is_above_only_if_there_was_one(project: Project) -> None:
    project.write("spider.py", SPIDER + "\nimport sys\nif '--tied' in sys.argv: os._exit(9)\n")
    with SiteProcess(Site(pages=3)) as site:
        done = project.run("crawl", "spider.py", "--workers", "2", START=site.url + "p/0")
    assert done.returncode == 1
    assert "A worker process failed with exit code 9; something in the spider ended it" in done.stderr
    assert "above" not in done.stderr


LOGIN = (
    SPIDER
    + """
@spider.start
def login():
    method = os.environ["METHOD"]
    yield Request.to(os.environ["LOGIN"], handler="landed", method=method, body=b"a=b" if method == "POST" else b"")

@spider.page
def landed(page: Page):
    yield page.follow(url="/p/0", to="page")
"""
)


@pytest.mark.parametrize(
    ("method", "path", "flags", "warned"),
    [
        ("POST", "odd/cookies/set?id=1", ("--workers", "3"), True),
        ("GET", "odd/cookies/set?session=1", ("--workers", "2"), True),
        ("POST", "odd/cookies/set?id=1", ("--workers", "3", "--json"), True),
        ("POST", "odd/cookies/set?id=1", ("--workers", "1"), False),
        ("POST", "odd/cookies/set?id=1", ("--workers", "3", "-s", "cookies=false"), False),
        ("GET", "odd/cookies/set?lang=de", ("--workers", "3"), False),
        ("POST", "odd/form", ("--workers", "3"), False),
    ],
)
def test_a_login_with_several_processes(
    project: Project, method: str, path: str, flags: tuple[str, ...], warned: bool
) -> None:
    project.write("spider.py", LOGIN.replace("import Page", "import Page, Request"))
    with SiteProcess(Site(pages=50)) as site:
        done = project.run(
            "crawl", "spider.py", "-o", "out.jsonl", *flags, START="", LOGIN=site.url + path, METHOD=method
        )
        assert done.returncode == 0, done.stderr
        host = site.url.removeprefix("http://").strip("/")
        assert done.stderr.count("workers keeps its own cookies") == warned
        assert (f"warning: {host} uses cookies with a login" in done.stderr) is warned

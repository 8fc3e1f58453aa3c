"""One crawl on several machines: here, folders that have nothing in common but a server."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.crawl.conftest import Project, wait_for
from uttu.testing.site import Site, SiteProcess

PAGES = 1000
EACH = Counter({f"/p/{number}": 1 for number in range(PAGES)})
# So that the others come in time.
SLOW = ("-s", "concurrency=2")
SPIDER = """
import os
from uttu import Page, Spider

spider = Spider("fleet", start=os.environ["START"], private=True, robots=False, delay=0, per_host=0)

@spider.page
def page(page: Page):
    yield {"path": page.url, "pid": os.getpid(), "mark": spider.args.get("mark")}
    yield page.follow_all("a")
"""


class Fleet:
    """Two folders, a server, and a site."""

    def __init__(self, here: Project, there: Project, site: SiteProcess, url: str) -> None:
        self.here, self.there, self.site = here, there, site
        self.crawl = f"test-{secrets.token_hex(6)}"
        self.environment = {"START": site.url + "p/0", "UTTU_FRONTIER": url}
        for project in (here, there):
            project.write("spider.py", SPIDER)

    @property
    def words(self) -> list[str]:
        return ["crawl", "spider.py", "--crawl", self.crawl, "-a", "mark=7", "-o", "out.jsonl"]

    @property
    def joining(self) -> list[str]:
        return ["worker", "spider.py", "--crawl", self.crawl]

    def standing(self) -> dict[str, object]:
        told = self.there.run("status", self.crawl, "--json", **self.environment)
        found: dict[str, object] = json.loads(told.stdout)
        return found

    def paths(self) -> Counter[str]:
        return Counter(urlsplit(row["path"]).path for row in self.here.rows())


@pytest.fixture
def fleet(project: Project, tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[Fleet]:
    there = Project(tmp_path_factory.mktemp("there"))
    with SiteProcess(Site(pages=PAGES, latency=0.02)) as site:
        fleet = Fleet(project, there, site, redis_url)
        try:
            yield fleet
        finally:
            for process in there.started:
                process.kill()
                process.communicate()


def test_a_worker_joins_from_another_machine(fleet: Fleet) -> None:
    main = fleet.here.start(*fleet.words, *SLOW, **fleet.environment)
    wait_for(fleet.site, 20)
    worker = fleet.there.start(*fleet.joining, **fleet.environment)
    _, err = main.communicate(timeout=120)
    assert main.returncode == 0, err
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == 0, err
    assert fleet.paths() == EACH
    rows = fleet.here.rows()
    assert len({row["pid"] for row in rows} - {main.pid, worker.pid}) == 2, "each has a guardian"
    assert {row["mark"] for row in rows} == {"7"}, "the arguments of the crawl are its workers', too"
    assert not (fleet.there.folder / ".uttu" / "crawls").exists()


def test_a_crawl_outlives_its_supervisor(fleet: Fleet) -> None:
    main = fleet.here.start(*fleet.words, *SLOW, "-s", "timeout=5", "-s", "lease_seconds=6", **fleet.environment)
    wait_for(fleet.site, 20)
    worker = fleet.there.start(*fleet.joining, **fleet.environment)
    while len(fleet.standing()["workers"]) < 2:  # type: ignore[arg-type]
        assert worker.poll() is None
    main.kill()
    main.wait()
    _, err = worker.communicate(timeout=200)
    assert worker.returncode == 0, err
    assert fleet.standing()["state"] == "finished"
    done = fleet.here.run(*fleet.words, **fleet.environment)
    assert done.returncode == 0, done.stderr
    assert fleet.paths() == EACH

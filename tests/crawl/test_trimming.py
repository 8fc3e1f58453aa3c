"""Whole crawls whose items are removed from the store behind their outputs, also when everything is killed."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
from collections import Counter
from urllib.parse import urlsplit

import pytest

from tests.crawl.conftest import Project, wait_for
from uttu.testing.site import Site, SiteProcess

PAGES = 3000
EACH = Counter({f"/p/{number}": 1 for number in range(PAGES)})
KEEP = ("-s", "keep_items=100")


def frontier_of(kind: str, project: Project, redis_url: str) -> str:
    return redis_url if kind == "redis" else f"sqlite:{project.folder}"


def paths(project: Project, name: str = "out.jsonl") -> Counter[str]:
    return Counter(urlsplit(row["url"]).path for row in project.rows(name))


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_killed_again_and_again_every_item_is_in_the_output_once(project: Project, redis_url: str, kind: str) -> None:
    seed = int(os.environ.get("UTTU_TEST_SEED") or random.randrange(2**32))
    print(f"UTTU_TEST_SEED={seed}")
    moments = sorted(random.Random(seed).sample(range(200, PAGES * 9 // 10), 4))
    crawl = f"test-{secrets.token_hex(6)}"
    with SiteProcess(Site(pages=PAGES)) as site:
        environment = {"START": site.url + "p/0", "UTTU_FRONTIER": frontier_of(kind, project, redis_url)}
        leases = ("-s", "timeout=4", "-s", "lease_seconds=5")
        command = ("crawl", "spider.py", "--crawl", crawl, "-o", "out.jsonl", "-o", "out.db", *KEEP, *leases)
        for moment in moments:
            process = project.start(*command, **environment)
            wait_for(site, moment)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        last = project.run(*command, **environment)
        assert last.returncode == 0, last.stderr
        assert paths(project) == EACH
        status = json.loads(project.run("status", crawl, "--json", **environment).stdout)
        assert status["counts"]["items"] == PAGES
        # Most of them are gone from the store. What needs them is refused, and does not touch what is there.
        (project.folder / "again.jsonl").write_text("mine\n")
        export = project.run("export", crawl, "-o", "again.jsonl", "--overwrite", **environment)
        assert export.returncode == 1
        assert "items have been removed from the crawl's store" in export.stderr
        assert "keep_items=0" in export.stderr
        assert "Traceback" not in export.stderr
        assert (project.folder / "again.jsonl").read_text() == "mine\n"


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_new_output_of_a_crawl_whose_items_were_removed_is_refused(
    project: Project, redis_url: str, kind: str
) -> None:
    crawl = f"test-{secrets.token_hex(6)}"
    with SiteProcess(Site(pages=1000)) as site:
        environment = {"START": site.url + "p/0", "UTTU_FRONTIER": frontier_of(kind, project, redis_url)}
        command = ("crawl", "spider.py", "--crawl", crawl, "-o", "out.jsonl", *KEEP)
        first = project.run(*command, "--limit", "700", **environment)
        assert first.returncode == 0, first.stderr
        refused = project.run(*command, "-o", "new.jsonl", "--resume", **environment)
        assert refused.returncode == 1
        assert "new.jsonl can't be written from the first item on" in refused.stderr
        assert not (project.folder / "new.jsonl").exists()
        # Nothing is broken by that: the same command as before goes on.
        last = project.run(*command, "--resume", **environment)
        assert last.returncode == 0, last.stderr
    assert sum(paths(project).values()) == 1000
    assert set(paths(project).values()) == {1}


def test_a_crawl_that_was_moved_goes_on_where_its_outputs_are(project: Project, redis_url: str) -> None:
    crawl = f"test-{secrets.token_hex(6)}"
    with SiteProcess(Site(pages=1000)) as site:
        here = {"START": site.url + "p/0", "UTTU_FRONTIER": f"sqlite:{project.folder}"}
        there = here | {"UTTU_FRONTIER": redis_url}
        command = ("crawl", "spider.py", "--crawl", crawl, "-o", "out.jsonl", *KEEP)
        assert project.run(*command, "--limit", "600", **here).returncode == 0
        moved = project.run("move", str(project.folder), redis_url, "--crawl", crawl)
        assert moved.returncode == 0, moved.stderr
        last = project.run(*command, "--resume", **there)
        assert last.returncode == 0, last.stderr
        assert project.run("export", crawl, "-o", "again.jsonl", **there).returncode == 1
    assert sum(paths(project).values()) == 1000
    assert set(paths(project).values()) == {1}


def test_by_default_a_small_crawl_can_be_written_again(project: Project) -> None:
    with SiteProcess(Site(pages=500)) as site:
        assert project.run("crawl", "spider.py", "-o", "out.jsonl", START=site.url + "p/0").returncode == 0
        assert project.run("export", "pages", "-o", "again.csv", "-o", "again.jsonl").returncode == 0
    assert paths(project, "again.jsonl") == paths(project)

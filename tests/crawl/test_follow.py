"""``uttu export --follow``: the items of a running crawl, written elsewhere, each once whatever is killed."""

from __future__ import annotations

import secrets
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.crawl.conftest import Project, wait_for
from uttu.testing.site import Site, SiteProcess

PAGES = 1500
EACH = Counter({f"/p/{number}": 1 for number in range(PAGES)})


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_follower_that_is_killed_goes_on(
    project: Project, tmp_path_factory: pytest.TempPathFactory, kind: str, redis_url: str
) -> None:
    there = Project(tmp_path_factory.mktemp("there"))
    crawl = f"test-{secrets.token_hex(6)}"
    with SiteProcess(Site(pages=PAGES, latency=0.02)) as site:
        frontier = redis_url if kind == "redis" else f"sqlite:{project.folder}"
        environment = {"START": site.url + "p/0", "UTTU_FRONTIER": frontier}
        main = project.start("crawl", "spider.py", "--crawl", crawl, "-s", "concurrency=4", **environment)
        wait_for(site, 20)
        words = ("export", crawl, "--follow", "-o", "out.jsonl")
        for _ in range(2):
            follower = there.start(*words, **environment)
            _wait_for_more(there, follower)
            follower.kill()
            follower.communicate()
        done = there.run(*words, **environment)
        assert done.returncode == 0, done.stderr
        _, err = main.communicate(timeout=120)
        assert main.returncode == 0, err
    assert Counter(urlsplit(row["url"]).path for row in there.rows()) == EACH


def test_told_to_stop_it_stops(project: Project) -> None:
    with SiteProcess(Site(pages=PAGES, latency=0.02)) as site:
        main = project.start("crawl", "spider.py", "--crawl", "long", "-s", "concurrency=2", START=site.url + "p/0")
        wait_for(site, 20)
        follower = project.start("export", "long", "--follow", "-o", "out.jsonl")
        _wait_for_more(project, follower)
        follower.send_signal(signal.SIGTERM)
        _, err = follower.communicate(timeout=30)
        assert follower.returncode == 143, err
        assert main.poll() is None


def _wait_for_more(project: Project, follower: subprocess.Popen[str]) -> None:
    """Until the follower has written something. Often looked at, so that it is killed in the middle of its work."""
    size = _size(project)
    while _size(project) == size:
        assert follower.poll() is None
        time.sleep(0.002)


def _size(project: Project) -> int:
    out = Path(project.folder, "out.jsonl")
    return out.stat().st_size if out.exists() else 0

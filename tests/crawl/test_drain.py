"""One worker is drained: it finishes its pages and leaves, the others go on, and nothing is lost or done twice."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from tests.crawl.conftest import Project, wait_for
from tests.crawl.test_fleet import EACH, SLOW, Fleet, fleet
from uttu.testing.site import Site, SiteProcess, fetches

__all__ = ["fleet"]

PAGES = 600


def workers_of(project: Project, crawl: str, count: int, **environment: str) -> list[dict[str, Any]]:
    """The living workers of a crawl, once there are this many."""
    deadline = time.monotonic() + 30
    while True:
        told = project.run("workers", crawl, "--json", **environment)
        found: list[dict[str, Any]] = json.loads(told.stdout or "[]")
        if len(found) == count:
            return found
        assert time.monotonic() < deadline, told


def test_a_worker_process_leaves_and_is_not_replaced(project: Project) -> None:
    with SiteProcess(Site(pages=PAGES, latency=0.02)) as site:
        # At this pace the crawl takes half a minute.
        words = ("crawl", "spider.py", "-o", "out.jsonl", "--workers", "2", "-s", "concurrency=2", "-s", "delay=0.05")
        main = project.start(*words, START=site.url + "p/0")
        wait_for(site, 20)
        first, second = workers_of(project, "pages", 2)
        told = project.run("drain", "pages", first["name"])
        assert told.returncode == 0, told.stderr
        assert "and leaves; 1 worker goes on" in told.stdout
        project.wait_for_end([first["pid"]], 15)
        refused = project.run("drain", "pages", second["name"])
        assert refused.returncode == 1
        assert "is the last worker of crawl 'pages'" in refused.stderr
        assert [each["name"] for each in workers_of(project, "pages", 1)] == [second["name"]]
        assert len(project.worker_pids(main)) == 1
        assert project.run("rate", "pages", site.url, "--delay", "0").returncode == 0
        _, err = main.communicate(timeout=120)
        assert main.returncode == 0, err
        assert Counter(urlsplit(row["url"]).path for row in project.rows()) == Counter(
            {f"/p/{number}": 1 for number in range(PAGES)}
        )
        assert set(fetches(site.records()).values()) == {1}
        events = [json.loads(line) for line in project.run("events", "pages", "--json").stdout.splitlines()]
        drained = [event["fields"] for event in events if event["fields"].get("action") == "drain"]
        assert [fields["worker"] for fields in drained] == [first["name"]]
        assert events[-1]["fields"] == {"state": "finished", "reason": ""}


def test_the_worker_of_the_supervisor_leaves_and_another_machine_goes_on(fleet: Fleet) -> None:
    main = fleet.here.start(*fleet.words, *SLOW, **fleet.environment)
    wait_for(fleet.site, 20)
    (first,) = workers_of(fleet.there, fleet.crawl, 1, **fleet.environment)
    worker = fleet.there.start(*fleet.joining, *SLOW, **fleet.environment)
    workers_of(fleet.there, fleet.crawl, 2, **fleet.environment)
    told = fleet.there.run("drain", fleet.crawl, first["name"], **fleet.environment)
    assert told.returncode == 0, told.stderr
    _, err = main.communicate(timeout=120)
    assert main.returncode == 0, err
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == 0, err
    assert fleet.paths() == EACH


def test_a_worker_that_joined_leaves(fleet: Fleet) -> None:
    main = fleet.here.start(*fleet.words, *SLOW, **fleet.environment)
    wait_for(fleet.site, 20)
    (first,) = workers_of(fleet.there, fleet.crawl, 1, **fleet.environment)
    worker = fleet.there.start(*fleet.joining, *SLOW, **fleet.environment)
    both = workers_of(fleet.there, fleet.crawl, 2, **fleet.environment)
    (other,) = [each["name"] for each in both if each["name"] != first["name"]]
    told = fleet.there.run("drain", fleet.crawl, other, **fleet.environment)
    assert told.returncode == 0, told.stderr
    _, err = worker.communicate(timeout=30)
    assert worker.returncode == 0, err
    assert main.poll() is None
    _, err = main.communicate(timeout=120)
    assert main.returncode == 0, err
    assert fleet.paths() == EACH

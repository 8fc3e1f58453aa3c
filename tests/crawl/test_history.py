"""The history of real crawls: nothing is counted twice over resumed runs and several processes, on each store."""

from __future__ import annotations

import json
import secrets
import signal
from typing import Any

import pytest

from tests.crawl.conftest import Project, wait_for
from uttu.testing.site import Site, SiteProcess

PAGES = 800


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_the_numbers_of_two_runs_add_up(project: Project, kind: str, request: pytest.FixtureRequest) -> None:
    crawl = f"test-{secrets.token_hex(6)}"
    with SiteProcess(Site(pages=PAGES, latency=0.05)) as site:
        environment = {"START": site.url + "p/0"}
        if kind == "redis":
            environment["UTTU_FRONTIER"] = request.getfixturevalue("redis_url")
        words = ("crawl", "spider.py", "--crawl", crawl, "--workers", "2", "-s", "concurrency=4", "-s", "retries=7")
        main = project.start(*words, **environment)
        wait_for(site, 100)
        main.send_signal(signal.SIGINT)
        main.communicate(timeout=60)
        again = project.run(*words, **environment)
        assert again.returncode == 0, again.stderr
        fetched = len(site.records())

    def read(*asked: str) -> Any:
        told = project.run(*asked, "--json", **environment)
        assert told.returncode == 0, told.stderr
        return [json.loads(line) for line in told.stdout.splitlines()]

    (points,) = read("history", crawl, "-n", "1000")
    assert sum(point["pages"] * point["seconds"] for point in points) == pytest.approx(PAGES)
    answers = sum(rate * point["seconds"] for point in points for rate in point["statuses"].values())
    assert answers == pytest.approx(fetched)
    assert all(0.05 <= point["latency_mean"] < 5 for point in points if point["statuses"])
    states = [event["fields"]["state"] for event in read("events", crawl, "-n", "100") if event["kind"] == "state"]
    assert [state for state in states if state != "stopping"] == ["running", "stopped", "running", "finished"]
    (settings,) = read("settings", crawl)
    sources = {each["name"]: each["source"] for each in settings}
    assert (sources["retries"], sources["private"], sources["timeout"]) == ("flag", "spider", "default")
    assert sources["frontier"] == ("environment" if kind == "redis" else "default")

"""``uttu pause``, ``uttu resume`` and ``uttu stop``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Uttu, make_crawl, supervised
from tests.cli.statuses import standing
from tests.crawl.conftest import Project, wait_for
from tests.crawl.conftest import project as project
from uttu.model.crawl import CrawlState, Reason
from uttu.testing.site import Site, SiteProcess, fetches

CRAWL = ("crawl", "spider.py", "-o", "out.jsonl")
PAGES = 1500
# Nine seconds and more for the pages of these tests with two workers, if nobody comes between.
LATENCY = 0.05
SLOWLY = (*CRAWL, "-s", "concurrency=4")


def test_a_crawl_that_runs_is_paused_goes_on_and_stops(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.RUNNING)
    with supervised():
        told = uttu("pause", "shop")
        assert told.code == 0
        assert told.out.startswith("shop is paused: ")
        assert told.out.endswith("with 5 pages to do. Resume it with: uttu resume shop\n")
        assert (standing().state, standing().reason) == (CrawlState.PAUSED, Reason("paused by the operator"))
        assert uttu("pause", "shop").out == "shop is already paused. Resume it with: uttu resume shop\n"
        told = uttu("resume", "shop.py")
        assert (told.code, told.out, told.err) == (0, "shop is resumed, with 5 pages to do\n", "of shop\n")
        assert (standing().state, standing().reason) == (CrawlState.RUNNING, Reason())
        assert uttu("resume", "shop").out == "shop is running already\n"
        told = uttu("stop", "shop")
        assert told.code == 0
        assert told.out.endswith("5 pages to do stay in the queue. Resume it with: uttu crawl shop.py\n")
        assert (standing().state, standing().reason) == (CrawlState.STOPPING, Reason("stopped by the operator"))
        assert uttu("stop", "shop").out == "shop is stopping already (stopped by the operator)\n"
        told = uttu("pause", "shop")
        assert told.code == 1
        assert "can't be paused: it is stopping (stopped by the operator)" in told.err


def test_a_paused_crawl_is_stopped(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.PAUSED)
    with supervised():
        assert uttu("stop", "shop").code == 0
        assert standing().state == CrawlState.STOPPING


@pytest.mark.parametrize("state", [CrawlState.RUNNING, CrawlState.PAUSED])
def test_a_crawl_that_nobody_works_on_is_stopped_for_those_who_come_back(uttu: Uttu, state: CrawlState) -> None:
    make_crawl(state=state)
    told = uttu("stop", "shop")
    assert told.code == 0
    assert told.out == "shop is stopped; it had no workers. Resume it with: uttu crawl shop.py\n"
    assert (standing().state, standing().reason) == (CrawlState.STOPPED, Reason("stopped by the operator"))


def test_a_paused_crawl_that_nobody_works_on_needs_someone(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.PAUSED)
    told = uttu("resume", "shop")
    assert told.code == 0
    assert told.out == "shop is no longer paused, but has no workers. Resume it with: uttu crawl shop.py\n"
    assert standing().facts.state == CrawlState.RUNNING


@pytest.mark.parametrize(
    ("command", "state", "said"),
    [
        ("pause", CrawlState.FINISHED, "is not running, so it can't be paused: it is finished (why)"),
        ("pause", CrawlState.STOPPED, "is not running, so it can't be paused: it is stopped (why)"),
        ("pause", CrawlState.RUNNING, "is not running, so it can't be paused: it is cut short"),
        (
            "resume",
            CrawlState.FINISHED,
            "is not paused: it is finished (why). Start a new crawl with: uttu crawl shop.py",
        ),
        (
            "resume",
            CrawlState.LIMITED,
            "is not paused: it is limited (why). Resume it with: uttu crawl shop.py --resume",
        ),
        ("resume", CrawlState.STOPPED, "is not paused: it is stopped (why). Resume it with: uttu crawl shop.py"),
        ("stop", CrawlState.FINISHED, "is not running, so it can't be stopped: it is finished (why)"),
        ("stop", CrawlState.STOPPED, "is not running, so it can't be stopped: it is stopped (why)"),
    ],
)
def test_what_makes_no_sense_is_refused(uttu: Uttu, command: str, state: CrawlState, said: str) -> None:
    make_crawl(state=state, reason=Reason("why"))
    told = uttu(command, "shop")
    assert (told.code, told.out, told.err) == (1, "", f"uttu: Crawl 'shop' {said}\n")
    assert standing().facts.state == state


@pytest.mark.parametrize("command", ["pause", "resume", "stop"])
def test_no_such_crawl(uttu: Uttu, command: str) -> None:
    assert uttu(command, "shop").code == 4
    assert uttu(command).code == 2


def status(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.run("status", "pages", "--json").stdout)
    return found


@pytest.mark.parametrize("workers", ["1", "2"])
def test_all_workers_pause_and_go_on(project: Project, workers: str) -> None:
    with SiteProcess(Site(pages=PAGES, latency=LATENCY)) as site:
        crawl = project.start(*SLOWLY, "--workers", workers, START=site.url + "p/0")
        wait_for(site, 100)
        done = project.run("pause", "pages")
        assert done.returncode == 0, done.stderr
        # Given back, or finished and settled.
        while status(project)["counts"]["leased"]:
            assert crawl.poll() is None
        seen = len(site.records())
        found = status(project)
        assert found["state"] == "paused"
        assert found["counts"]["pending"] > 0
        assert project.run("top", "pages").stdout.startswith("paused  pages (paused by the operator)\n")
        assert len(site.records()) == seen
        assert crawl.poll() is None
        assert project.run("resume", "pages").returncode == 0
        wait_for(site, seen + 100)
        assert status(project)["state"] == "running"
        assert project.run("stop", "pages").returncode == 0
        crawl.communicate(timeout=60)
        assert_finishes(project, site)


@pytest.mark.parametrize("paused", [False, True])
def test_all_workers_stop(project: Project, paused: bool) -> None:
    with SiteProcess(Site(pages=PAGES, latency=LATENCY)) as site:
        crawl = project.start(*SLOWLY, "--workers", "2", START=site.url + "p/0")
        wait_for(site, 100)
        if paused:
            assert project.run("pause", "pages").returncode == 0
        done = project.run("stop", "pages")
        assert done.returncode == 0, done.stderr
        _, err = crawl.communicate(timeout=60)
        assert crawl.returncode == 1, err
        assert "stopped (stopped by the operator); the same command resumes it" in err
        assert project.leased() == set()
        assert status(project)["state"] == "stopped"
        assert_finishes(project, site)


def assert_finishes(project: Project, site: SiteProcess) -> None:
    """The same command goes on, and in the end each page was fetched once and has one row."""
    done = project.run(*CRAWL, START=site.url + "p/0")
    assert done.returncode == 0, done.stderr
    assert len({row["url"] for row in project.rows()}) == len(project.rows()) == PAGES
    assert set(fetches(site.records()).values()) == {1}

"""``weft pause``, ``weft resume`` and ``weft stop``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Weft, make_crawl, supervised
from tests.cli.looks import standing
from tests.crawl.conftest import Project, wait_for
from tests.crawl.conftest import project as project
from weft.engine.states import State
from weft.testing.site import Site, SiteProcess, fetches

CRAWL = ("crawl", "spider.py", "-o", "out.jsonl")
# Ten seconds and more for the pages of these tests, if nobody comes between.
SLOWLY = (*CRAWL, "-s", "concurrency=4")


def test_a_crawl_that_runs_is_paused_goes_on_and_stops(weft: Weft) -> None:
    make_crawl(state=State.RUNNING)
    with supervised():
        told = weft("pause", "shop")
        assert told.code == 0
        assert told.out.startswith("shop is paused: ")
        assert told.out.endswith("with 5 pages to do. Go on with: weft resume shop\n")
        assert (standing().state, standing().reason) == (State.PAUSED, "paused by the operator")
        assert weft("pause", "shop").out == "shop is paused already; go on with: weft resume shop\n"
        told = weft("resume", "shop.py")
        assert (told.code, told.out, told.err) == (0, "shop goes on, with 5 pages to do\n", "of shop\n")
        assert (standing().state, standing().reason) == (State.RUNNING, "")
        assert weft("resume", "shop").out == "shop is running already\n"
        told = weft("stop", "shop")
        assert told.code == 0
        assert told.out.endswith("5 pages to do stay. Go on with: weft crawl shop.py\n")
        assert (standing().state, standing().reason) == (State.STOPPING, "stopped by the operator")
        assert weft("stop", "shop").out == "shop is stopping already (stopped by the operator)\n"
        told = weft("pause", "shop")
        assert told.code == 1
        assert "can't be paused: it is stopping (stopped by the operator)" in told.err


def test_a_paused_crawl_is_stopped(weft: Weft) -> None:
    make_crawl(state=State.PAUSED)
    with supervised():
        assert weft("stop", "shop").code == 0
        assert standing().state == State.STOPPING


@pytest.mark.parametrize("state", [State.RUNNING, State.PAUSED])
def test_a_crawl_that_nobody_works_on_is_stopped_for_those_who_come_back(weft: Weft, state: State) -> None:
    make_crawl(state=state)
    told = weft("stop", "shop")
    assert told.code == 0
    assert told.out == "shop is stopped; nobody worked on it. Go on with: weft crawl shop.py\n"
    assert (standing().state, standing().reason) == (State.STOPPED, "stopped by the operator")


def test_a_paused_crawl_that_nobody_works_on_needs_someone(weft: Weft) -> None:
    make_crawl(state=State.PAUSED)
    told = weft("resume", "shop")
    assert told.code == 0
    assert told.out == "shop is paused no more, but nobody works on it. Go on with: weft crawl shop.py\n"
    assert standing().facts["state"] == State.RUNNING


@pytest.mark.parametrize(
    ("command", "state", "said"),
    [
        ("pause", State.FINISHED, "does not run, so it can't be paused: it is finished (why)"),
        ("pause", State.STOPPED, "does not run, so it can't be paused: it is stopped (why)"),
        ("pause", State.RUNNING, "does not run, so it can't be paused: it is cut short"),
        ("resume", State.FINISHED, "is not paused: it is finished (why). It starts anew with: weft crawl shop.py"),
        ("resume", State.LIMITED, "is not paused: it is limited (why). It goes on with: weft crawl shop.py --resume"),
        ("resume", State.STOPPED, "is not paused: it is stopped (why). It goes on with: weft crawl shop.py"),
        ("stop", State.FINISHED, "does not run, so it can't be stopped: it is finished (why)"),
        ("stop", State.STOPPED, "does not run, so it can't be stopped: it is stopped (why)"),
    ],
)
def test_what_makes_no_sense_is_refused(weft: Weft, command: str, state: State, said: str) -> None:
    make_crawl(state=state, reason="why")
    told = weft(command, "shop")
    assert (told.code, told.out, told.err) == (1, "", f"weft: crawl 'shop' {said}\n")
    assert standing().facts["state"] == state


@pytest.mark.parametrize("command", ["pause", "resume", "stop"])
def test_no_such_crawl(weft: Weft, command: str) -> None:
    assert weft(command, "shop").code == 4
    assert weft(command).code == 2


def status(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.run("status", "pages", "--json").stdout)
    return found


@pytest.mark.parametrize("workers", ["1", "2"])
def test_all_workers_pause_and_go_on(project: Project, workers: str) -> None:
    with SiteProcess(Site(pages=4000, latency=0.02)) as site:
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
    with SiteProcess(Site(pages=4000, latency=0.02)) as site:
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
    assert len({row["url"] for row in project.rows()}) == len(project.rows()) == 4000
    assert set(fetches(site.records()).values()) == {1}

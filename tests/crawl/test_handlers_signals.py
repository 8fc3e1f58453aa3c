"""Signals always work, whatever a handler does: they reach the process that works, and end the crawl."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.crawl.conftest import Project, wait_for
from tests.crawl.handlers import AT_WORK_IN_C, IN_C, PAGES, SWALLOWS, reached, write
from uttu.testing.site import Site, SiteProcess
from uttu.testing.waiting import wait_until

STUCK = {
    "loop": ("", "while True: pass"),
    "sleep": ("", "time.sleep(70)"),
    "regular expression": ("", 're.match(r"(a+)+$", "a" * 40 + "b")'),
    "in C": ("", IN_C),
    "at work in C": ("", AT_WORK_IN_C),
    "swallows": ("", SWALLOWS),
    "hangs": ("async", "await asyncio.sleep(10**6)"),
    "hangs and swallows": (
        "async",
        "while True:\n    try:\n        await asyncio.sleep(10**6)\n    except BaseException:\n        pass",
    ),
}


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("kind", "body"), STUCK.values(), ids=STUCK)
def test_a_second_signal_ends_a_crawl_whatever_runs(project: Project, kind: str, body: str, workers: str) -> None:
    write(project, body, kind)
    with SiteProcess(Site(pages=PAGES)) as site:
        process = project.start("crawl", "spider.py", "--workers", workers, START=site.url)
        wait_until(lambda: reached(project), "the handler runs")
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # as a person would
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130, err
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("kind", "body"), STUCK.values(), ids=STUCK)
def test_sigterm_ends_a_crawl_within_its_grace(project: Project, kind: str, body: str, workers: str) -> None:
    write(project, body, kind)
    with SiteProcess(Site(pages=PAGES)) as site:
        process = project.start("crawl", "spider.py", "--workers", workers, START=site.url)
        wait_until(lambda: reached(project), "the handler runs")
        wait_for(site, PAGES // 2)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 143, err
        assert time.monotonic() - began < 15
        write(project, "pass")
        assert project.run("crawl", "spider.py", "-o", "out.jsonl", START=site.url).returncode == 0
        assert len(project.rows()) == PAGES, "the page was given back"


def test_one_interrupt_is_enough_where_it_can_be_interrupted(project: Project) -> None:
    write(project, "while True: pass")
    with SiteProcess(Site(pages=PAGES)) as site:
        process = project.start("crawl", "spider.py", START=site.url)
        wait_until(lambda: reached(project), "the handler runs")
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130, err
        assert time.monotonic() - began < 6


def test_stopping_the_process_that_was_started_stops_the_one_that_works(project: Project) -> None:
    write(project, "time.sleep(3)")
    with SiteProcess(Site(pages=PAGES)) as site:
        process = project.start("crawl", "spider.py", "-o", "out.jsonl", START=site.url)
        wait_until(lambda: reached(project), "the handler runs")
        (child,) = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: child.status() == psutil.STATUS_STOPPED, "the child stands still", 10)
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert len(project.rows()) == PAGES


def test_killing_the_process_that_was_started_kills_the_one_that_works(project: Project) -> None:
    write(project, AT_WORK_IN_C)
    with SiteProcess(Site(pages=PAGES)) as site:
        process = project.start("crawl", "spider.py", START=site.url)
        wait_until(lambda: reached(project), "the handler runs")
        (child,) = psutil.Process(process.pid).children()
        process.kill()
        process.communicate(timeout=10)
        project.wait_for_end([child.pid], 10)


@pytest.mark.parametrize("to", ["the group", "the guardian", "the child"])
def test_a_signal_counts_once_whoever_gets_it(project: Project, to: str) -> None:
    """A terminal sends Ctrl-C to both processes. That is one request to end, not two: pages in flight are finished."""
    write(project, "await asyncio.sleep(2)", "async")
    with SiteProcess(Site(pages=PAGES)) as site:
        process = subprocess.Popen(
            [sys.executable, "-m", "uttu", "crawl", "spider.py", "-o", "out.jsonl"],
            cwd=project.folder,
            text=True,
            env=os.environ | {"START": site.url},
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        project.started.append(process)
        wait_until(lambda: reached(project), "the handler runs")
        if to == "the group":
            os.killpg(process.pid, signal.SIGINT)
        elif to == "the child":
            psutil.Process(process.pid).children()[0].send_signal(signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert f"{site.url}p/7" in {row["url"] for row in project.rows()}, err
        assert process.returncode in (0, 130), err

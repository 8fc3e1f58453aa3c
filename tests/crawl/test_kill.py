"""kill -9, again and again: one row per page, and nothing fetched twice that was not in flight."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from urllib.parse import urlsplit

from tests.crawl.conftest import Project, wait_for
from weft.testing.site import Record, Site, SiteProcess, fetches

PAGES = 20_000


def kill_and_resume(project: Project, site: SiteProcess, kills: int, *extra: str) -> Counter[str]:
    """Kill the crawl at random moments; returns how often each path was in a worker's hands just then."""
    rng = random.Random(7)
    in_flight: Counter[str] = Counter()
    command = ("crawl", "spider.py", "-o", "out.jsonl", *extra)
    moments = sorted(rng.sample(range(PAGES // 20, PAGES - PAGES // 10), kills))
    for moment in moments:
        process = project.start(*command, START=site.url + "p/0")
        wait_for(site, moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
        in_flight.update(urlsplit(url).path for url in project.leased())
    last = project.run(*command, START=site.url + "p/0")
    assert last.returncode == 0, last.stderr
    assert "resuming crawl pages" in last.stderr
    assert "finished" in last.stderr
    return in_flight


def check(project: Project, records: list[Record], in_flight: Counter[str]) -> None:
    rows = Counter(urlsplit(row["url"]).path for row in project.rows())
    assert rows == Counter({f"/p/{number}": 1 for number in range(PAGES)})
    again = {path: count - 1 for (_, path), count in fetches(records).items() if count > 1}
    assert {path: count for path, count in again.items() if count > in_flight[path]} == {}


def test_killed_and_resumed(project: Project) -> None:
    with SiteProcess(Site(pages=PAGES)) as site:
        in_flight = kill_and_resume(project, site, 6)
        assert sum(in_flight.values()) > 0
        check(project, site.records(), in_flight)


def test_a_worker_process_is_killed(project: Project) -> None:
    """The supervisor replaces it; its pages are done by others."""
    with SiteProcess(Site(pages=3000)) as site:
        process = project.start("crawl", "spider.py", "-o", "out.jsonl", "--workers", "2", START=site.url + "p/0")
        wait_for(site, 500)
        os.kill(project.worker_pids(process)[0], signal.SIGKILL)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert Counter(urlsplit(row["url"]).path for row in project.rows()) == Counter(
            {f"/p/{n}": 1 for n in range(3000)}
        )


def test_a_supervisor_is_killed(project: Project) -> None:
    """Its workers end by themselves, and the same command goes on."""
    with SiteProcess(Site(pages=3000)) as site:
        command = ("crawl", "spider.py", "-o", "out.jsonl", "--workers", "2")
        process = project.start(*command, START=site.url + "p/0")
        wait_for(site, 500)
        workers = project.worker_pids(process)
        assert len(workers) == 2
        process.send_signal(signal.SIGKILL)
        process.wait()
        project.wait_for_end(workers)
        last = project.run(*command, START=site.url + "p/0")
        assert last.returncode == 0, last.stderr
        assert Counter(urlsplit(row["url"]).path for row in project.rows()) == Counter(
            {f"/p/{n}": 1 for n in range(3000)}
        )

"""kill -9, again and again: one row per page, and nothing fetched twice that was not in flight."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
from collections import Counter
from urllib.parse import urlsplit

import psutil
import pytest

from tests.crawl.conftest import SPIDER, Project, wait_for
from uttu.testing.site import Record, Site, SiteProcess, fetches
from uttu.testing.waiting import wait_until

COMMAND = ("crawl", "spider.py", "-o", "out.jsonl")
# Half of the pages to start with at once, the others when there is a file "go".
SEEDING = """
@spider.start
async def start():
    import asyncio, pathlib
    for number in range({pages}):
        while number == {pages} // 2 and not pathlib.Path("go").exists():
            await asyncio.sleep(0.02)
        yield f"{{os.environ['SITE']}}p/{{number}}"
"""


def paths(urls: set[str]) -> list[str]:
    return [urlsplit(url).path for url in urls]


def halt(pid: int) -> None:
    """Until it goes on, or is killed, nothing of it changes."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "it stands still")


def kill(project: Project, process: subprocess.Popen[str]) -> list[str]:
    """A whole crawl, its worker processes included; returns the paths that were in its hands."""
    halt(process.pid)  # lest it replace a worker that is killed
    pids = [process.pid, *project.worker_pids(process)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    project.wait_for_end(pids)
    return paths(project.leased())


def some_moments(count: int, most: int) -> list[int]:
    """After how many requests to kill: others each time. A failure shows the seed that has them once more."""
    seed = int(os.environ.get("UTTU_TEST_SEED") or random.randrange(2**32))
    moments = sorted(random.Random(seed).sample(range(1, most), count))
    print(f"UTTU_TEST_SEED={seed}: killed after {moments} requests")
    return moments


def check(project: Project, records: list[Record], in_flight: Counter[str], pages: int) -> None:
    rows = Counter(urlsplit(row["url"]).path for row in project.rows())
    assert rows == Counter({f"/p/{number}": 1 for number in range(pages)})
    again = {path: count - 1 for (_, path), count in fetches(records).items() if count > 1}
    assert {path: count for path, count in again.items() if count > in_flight[path]} == {}


def finish(project: Project, *command: str, **environment: str) -> None:
    """The same command goes on, to the end."""
    last = project.run(*command, **environment)
    assert last.returncode == 0, last.stderr
    assert "resuming crawl pages" in last.stderr
    assert "finished" in last.stderr


@pytest.mark.parametrize(("workers", "pages", "kills"), [("1", 6000, 6), ("2", 5000, 2)])
def test_killed_and_resumed(project: Project, workers: str, pages: int, kills: int) -> None:
    moments = some_moments(kills, pages * 9 // 10)
    in_flight: Counter[str] = Counter()
    with SiteProcess(Site(pages=pages)) as site:
        command, start = (*COMMAND, "--workers", workers), site.url + "p/0"
        for moment in moments:
            process = project.start(*command, START=start)
            wait_for(site, moment)
            assert process.poll() is None
            in_flight.update(kill(project, process))
        finish(project, *command, START=start)
        assert sum(in_flight.values()) > 0
        check(project, site.records(), in_flight, pages)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_killed_while_it_puts_the_pages_to_start_with(project: Project, workers: str) -> None:
    pages = 3000
    project.write("spider.py", SPIDER.replace("yield page.follow_all", "page.follow_all") + SEEDING.format(pages=pages))
    (moment,) = some_moments(1, 1000)  # they are put by the thousand
    with SiteProcess(Site(pages=pages)) as site:
        command, environment = (*COMMAND, "--workers", workers), {"START": "", "SITE": site.url}
        process = project.start(*command, **environment)
        wait_for(site, moment)
        in_flight = Counter(kill(project, process))
        (project.folder / "go").touch()
        finish(project, *command, **environment)
        check(project, site.records(), in_flight, pages)


def test_killed_when_only_the_outputs_are_not_complete(project: Project) -> None:
    """Nobody reads its first output, so the second can't go on either."""
    pages = 3000
    command = ("crawl", "spider.py", "-o", "-", "-o", "out.jsonl")
    with SiteProcess(Site(pages=pages)) as site:
        process = project.start(*command, START=site.url + "p/0")
        wait_until(lambda: done(project) == pages, "all pages are done", 120)
        assert kill(project, process) == []
        assert len((project.folder / "out.jsonl").read_text().splitlines()) < pages
        finish(project, *command, START=site.url + "p/0")
        check(project, site.records(), Counter(), pages)


def done(project: Project) -> int:
    """How many pages, by the store; none while there is no store yet."""
    try:
        db = sqlite3.connect(f"file:{project.folder}/.uttu/crawls/pages.db?mode=ro", uri=True)
    except sqlite3.OperationalError:
        return 0
    try:
        return int(db.execute("SELECT done FROM tally").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        db.close()


def test_a_worker_process_is_killed(project: Project) -> None:
    """The supervisor replaces it; its pages are done by others."""
    pages = 3000
    with SiteProcess(Site(pages=pages)) as site:
        process = project.start(*COMMAND, "--workers", "2", START=site.url + "p/0")
        wait_for(site, 500)
        killed = project.worker_pids(process)[0]
        halt(killed)
        in_flight = Counter(paths(project.leased(by=killed)))
        os.kill(killed, signal.SIGKILL)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        check(project, site.records(), in_flight, pages)


def test_a_supervisor_is_killed(project: Project) -> None:
    """Its workers settle what they have begun and end by themselves, and the same command goes on."""
    pages = 3000
    with SiteProcess(Site(pages=pages)) as site:
        command = (*COMMAND, "--workers", "2")
        process = project.start(*command, START=site.url + "p/0")
        wait_for(site, 500)
        workers = project.worker_pids(process)
        assert len(workers) == 2
        process.send_signal(signal.SIGKILL)
        process.communicate()
        project.wait_for_end(workers)
        assert project.leased() == set()
        finish(project, *command, START=site.url + "p/0")
        check(project, site.records(), Counter(), pages)

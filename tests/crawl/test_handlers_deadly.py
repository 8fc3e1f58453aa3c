"""Handlers that end or harm their process: the page is dead, and another process does the others."""

from __future__ import annotations

import psutil
import pytest

from tests.crawl.conftest import Project
from tests.crawl.handlers import PAGES, check_others, crawl, dead, reached, write
from uttu.testing.site import Site, SiteProcess
from uttu.testing.waiting import wait_until

DEATHS = {
    "os._exit(0)": "os._exit(0)",
    "os._exit(3)": "os._exit(3)",
    "segmentation fault": "ctypes.string_at(0)",
    "abort": "os.abort()",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("body", DEATHS.values(), ids=DEATHS)
def test_a_handler_that_takes_its_process_down(project: Project, body: str, workers: str) -> None:
    write(project, body)
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site, workers=workers)
        assert done.returncode == 0, done.stderr
        assert f"{site.url}p/7. The page is dead" in done.stderr
        check_others(project, site)
    assert "took the worker down: its process" in dead(project)
    times = len((project.folder / "reached").read_text())
    assert times <= 2


# What it does, and the reason that its page is dead.
HARMS = {
    "stops the loop": ("asyncio.get_running_loop().stop()", "must not stop the event loop"),
    "cancels all": ("for task in asyncio.all_tasks(): task.cancel()", "its handler cancelled tasks of the crawl"),
    "closes all files": ("os.closerange(0, 1024)", "its handler closed the files of the process"),
    "closes all other files": ("os.closerange(3, 1024)", "its handler closed the files of the process"),
    "limits files": (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))",
        "forbade files to grow",
    ),
}


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("body", "reason"), HARMS.values(), ids=HARMS)
def test_a_handler_that_harms_its_process(project: Project, body: str, reason: str, workers: str) -> None:
    """The process fails after the handler has returned."""
    write(project, body)
    with SiteProcess(Site(pages=PAGES)) as site:
        done, seconds = crawl(project, site, workers=workers)
        assert done.returncode == 0, done.stderr
        assert seconds < 30
        check_others(project, site)
    assert reason in dead(project)
    # Once in each worker, until one of them fails; the worker that is started then finds the handler out.
    assert len((project.folder / "reached").read_text()) <= int(workers) + 1


# The same, but its process does not survive it, and nobody knows which page it was.
LATER = {
    "exits in a thread": "import threading; threading.Timer(0.2, os._exit, (0,)).start()",
    "cancels all": """
async def cancel():
    await asyncio.sleep(0.2)
    for task in asyncio.all_tasks(): task.cancel()
asyncio.get_running_loop().task = asyncio.ensure_future(cancel())
""",
    "blocks in C": "import itertools; asyncio.get_running_loop().call_later(0.2, any, itertools.repeat(False))",
}


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("body", LATER.values(), ids=LATER)
def test_a_process_that_fails_after_its_handler(project: Project, body: str, workers: str) -> None:
    write(project, f"if not os.path.exists('once'):\n    open('once', 'w')\n{_indented(body)}")
    with SiteProcess(Site(pages=PAGES, latency=0.1)) as site:
        done, seconds = crawl(project, site, "-s", "max_block=1", "-s", "per_host=1", workers=workers)
        assert done.returncode == 0, done.stderr
        assert seconds < 60
    assert len({row["url"] for row in project.rows()}) == PAGES


def _indented(body: str) -> str:
    return "\n".join("    " + line for line in body.strip().splitlines())


def test_a_process_that_dies_after_an_await(project: Project) -> None:
    write(project, "await asyncio.sleep(0.3)\nos._exit(0)", "async")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site)
        assert done.returncode == 0, done.stderr
        check_others(project, site)
    assert "took the worker down" in dead(project)


def test_a_process_that_ends_outside_of_a_handler(project: Project) -> None:
    """There is no page to blame: the crawl is not started again, and says so."""
    write(project, "pass")
    spider = (project.folder / "spider.py").read_text()
    project.write("spider.py", spider + "\nos._exit(0)\n")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site)
        assert done.returncode == 1
        assert "ended with exit code 0, and no handler was running" in done.stderr


@pytest.mark.parametrize("page", ["is not to blame", "is to blame"])
def test_a_restart_goes_on_with_the_crawl_and_does_not_start_again(project: Project, page: str) -> None:
    """Also with --fresh, which is for the first start only."""
    die = "os._exit(1)" if page == "is to blame" else "time.sleep(2)"
    write(project, die)
    with SiteProcess(Site(pages=PAGES)) as site:
        process = project.start("crawl", "spider.py", "--fresh", "-o", "out.jsonl", START=site.url)
        wait_until(lambda: reached(project), "the handler runs")
        if page == "is not to blame":
            psutil.Process(process.pid).children()[0].kill()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "resuming crawl pages" in err
        assert len(project.rows()) == PAGES - (page == "is to blame")

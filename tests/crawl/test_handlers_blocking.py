"""Handlers that block the event loop, in real processes: they are interrupted, or their process is replaced."""

from __future__ import annotations

import re

import pytest

from tests.crawl.conftest import Project
from tests.crawl.handlers import AT_WORK_IN_C, BAD, IN_C, PAGES, SWALLOWS, check_others, crawl, dead, write
from uttu.testing.site import Site, SiteProcess

BLOCKED = {
    "loop": "while True: pass",
    "sleep": "time.sleep(70)",
    "regular expression": 're.match(r"(a+)+$", "a" * 40 + "b")',
}


@pytest.mark.parametrize("kind", ["", "async"])
@pytest.mark.parametrize("body", BLOCKED.values(), ids=BLOCKED)
def test_a_handler_that_blocks_is_interrupted(project: Project, body: str, kind: str) -> None:
    write(project, body, kind)
    with SiteProcess(Site(pages=PAGES)) as site:
        done, seconds = crawl(project, site, "-s", "max_block=2")
        assert done.returncode == 0, done.stderr
        assert seconds < 40
        check_others(project, site)
    assert re.search(r"blocked the worker for \d+ s at spider.py:15 in page", dead(project))


def test_a_task_that_a_handler_started_and_that_blocks(project: Project) -> None:
    write(project, "async def forever():\n    while True: pass\nawait asyncio.create_task(forever())", "async")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site, "-s", "max_block=1")
        assert done.returncode == 0, done.stderr
        check_others(project, site)
    assert "spider.py:16 in forever" in dead(project)


def test_a_blocked_worker_is_said_to_be(project: Project) -> None:
    write(project, "time.sleep(6)")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site)
        assert f"{site.url}p/7 has blocked the worker for 5 s at spider.py:15 in page" in done.stderr
        assert done.returncode == 0
        assert len(project.rows()) == PAGES, "a warning only"


UNINTERRUPTIBLE = {"in C": IN_C, "at work in C": AT_WORK_IN_C, "swallows": SWALLOWS}


@pytest.mark.parametrize(
    ("kind", "workers"),
    [("in C", "1"), ("in C", "2"), ("at work in C", "1"), ("at work in C", "2"), ("swallows", "1"), ("swallows", "2")],
)
def test_a_handler_that_cannot_be_interrupted(project: Project, kind: str, workers: str) -> None:
    write(project, UNINTERRUPTIBLE[kind])
    with SiteProcess(Site(pages=PAGES)) as site:
        done, seconds = crawl(project, site, "-s", "max_block=1", workers=workers)
        assert done.returncode == 0, done.stderr
        assert seconds < 60
        check_others(project, site)
    assert f"{BAD}  took the worker down" in dead(project) or kind == "swallows"
    assert "the worker" in dead(project)


DEAF = """
for number in signal.valid_signals():
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
while True: time.sleep(1)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_handler_that_ignores_all_signals(project: Project, workers: str) -> None:
    write(project, DEAF)
    with SiteProcess(Site(pages=PAGES)) as site:
        done, seconds = crawl(project, site, "-s", "max_block=1", workers=workers)
        assert done.returncode == 0, done.stderr
        assert seconds < 60
        check_others(project, site)
    assert f"{BAD}  took the worker down: it blocked the worker" in dead(project)
    assert len((project.folder / "reached").read_text()) == 1


STARTS = """
import asyncio, os
from uttu import Spider

spider = Spider("pages", private=True, robots=False, delay=0, per_host=0)

@spider.start
async def start():
    for n in range({pages}):
        yield os.environ["START"] + "p/%d" % n
    while not os.path.exists("reached"):
        await asyncio.sleep(0)

@spider.page
async def page(page):
    if page.url.endswith("{bad}"):
        open("reached", "a").write("x")
        await asyncio.sleep(0.1)
        {body}
    yield {{"url": page.url}}
"""


def test_a_handler_that_blocks_when_the_start_function_ends(project: Project) -> None:
    """Both have a watchdog, and the end of one must not hide the heartbeat of the other."""
    project.write("spider.py", STARTS.format(pages=PAGES, bad=BAD, body=AT_WORK_IN_C))
    with SiteProcess(Site(pages=PAGES)) as site:
        done, seconds = crawl(project, site, "-s", "max_block=1")
        assert done.returncode == 0, done.stderr
        assert seconds < 60
        check_others(project, site)
    assert f"{BAD}  took the worker down" in dead(project)


def test_the_text_of_an_error_that_blocks(project: Project) -> None:
    write(project, "class Bad(Exception):\n    def __str__(self):\n        while True: pass\nraise Bad")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site, "-s", "max_block=1")
        assert done.returncode == 0, done.stderr
        check_others(project, site)
    assert "Bad, whose text blocked the worker" in dead(project)


def test_a_generator_that_blocks_when_it_is_closed(project: Project) -> None:
    write(project, "try:\n    yield object()\nfinally:\n    time.sleep(70)")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site, "-s", "max_block=1")
        assert done.returncode == 0, done.stderr
        check_others(project, site)
    assert "blocked the worker" in dead(project)

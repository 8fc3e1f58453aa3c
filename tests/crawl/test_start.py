"""Start functions that block the event loop, in real processes: they are interrupted, and signals always work."""

from __future__ import annotations

import re
import signal
import time

import pytest

from tests.crawl.conftest import Project, wait_for
from uttu.testing.site import Site, SiteProcess
from uttu.testing.waiting import wait_until

# "async" or "" before the function's def; what it does before its first request, and after it.
SPIDER = """
import asyncio, os, time
from uttu import Page, Request, Spider

spider = Spider("pages", private=True, robots=False, delay=0, per_host=0)

def block():
    open("reached", "a").write("x")
    {body}

@spider.start
{kind}def start():
    {before}
    yield os.environ["START"] + "p/0"
    {pause}
    {after}

@spider.page
def page(page: Page):
    yield {{"url": page.url}}
"""
BLOCKS = {"loop": "while True: pass", "sleep": "time.sleep(70)"}
# When it blocks, and what kind of function it is.
WHEN = {
    "at once": ("", True),
    "at once, async": ("async ", True),
    "later": ("", False),
    "later, async": ("async ", False),
}


def write(project: Project, body: str, kind: str, first: bool) -> None:
    pause = "await asyncio.sleep(1)" if kind else "pass"
    before, after = ("block()", "pass") if first else ("pass", "block()")
    project.write("spider.py", SPIDER.format(body=body, kind=kind, before=before, after=after, pause=pause))


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("kind", "first"), WHEN.values(), ids=WHEN)
def test_a_start_that_blocks_is_interrupted(project: Project, kind: str, first: bool, workers: str) -> None:
    write(project, "time.sleep(70)", kind, first)
    with SiteProcess(Site(pages=2)) as site:
        began = time.monotonic()
        done = project.run("crawl", "spider.py", "-s", "max_block=2", "--workers", workers, START=site.url)
        assert time.monotonic() - began < 30
    assert done.returncode == 1, done.stderr
    assert re.search(
        r"@spider.start of spider.py blocked the worker for \d s at spider.py:9 in block \(max_block=2\)",
        done.stderr,
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("kind", "first"), WHEN.values(), ids=WHEN)
def test_one_signal_ends_a_start_that_blocks(
    project: Project, kind: str, first: bool, number: signal.Signals, workers: str
) -> None:
    write(project, BLOCKS["loop" if kind else "sleep"], kind, first)
    with SiteProcess(Site(pages=2)) as site:
        process = project.start("crawl", "spider.py", "--workers", workers, START=site.url)
        wait_until(lambda: (project.folder / "reached").exists(), "the start function runs")
        if kind and not first:
            wait_for(site, 1)
        process.send_signal(number)
        began = time.monotonic()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 128 + number, err
        assert time.monotonic() - began < 8
        assert "Traceback" not in err
        # It is not taken for a start that is over.
        write(project, "return", kind, first)
        done = project.run("crawl", "spider.py", "-o", "out.jsonl", START=site.url)
        assert done.returncode == 0, done.stderr
        assert len(project.rows()) == 1


def test_a_start_that_is_slow_but_goes_on(project: Project) -> None:
    """What counts is the time without a turn for the loop, not that of the whole function."""
    write(project, "pass", "", True)
    slow = 'for n in range(8):\n        time.sleep(0.5)\n        yield os.environ["START"] + "p/%d" % n'
    text = (project.folder / "spider.py").read_text().replace('yield os.environ["START"] + "p/0"', slow)
    project.write("spider.py", text)
    with SiteProcess(Site(pages=8)) as site:
        done = project.run("crawl", "spider.py", "-o", "out.jsonl", "-s", "max_block=2", START=site.url)
        assert done.returncode == 0, done.stderr
        assert len(project.rows()) == 8

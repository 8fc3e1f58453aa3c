"""A spider whose handler misbehaves on one of its pages, and the crawl of it."""

from __future__ import annotations

import subprocess
import time

from tests.crawl.conftest import Project
from uttu.testing.site import SiteProcess

PAGES = 12
BAD = "/p/7"
# "async" or "" before the handler's def, and what it does on the bad page.
SPIDER = """
import asyncio, ctypes, os, re, signal, sys, time
from uttu import Page, Request, Spider

spider = Spider("pages", start=[os.environ["START"] + "p/%d" % n for n in range({pages})], private=True, robots=False,
                delay=0, per_host=0)

class Own(BaseException):
    pass

@spider.page
{kind}def page(page: Page):
    if page.url.endswith("{bad}"):
        open("reached", "a").write("x")
{body}
    yield {{"url": page.url}}
"""
# C code that does not look for signals: at work, and in wait for itself, which takes no time of a processor.
AT_WORK_IN_C = "sum(range(10**12))"
IN_C = (
    "import ctypes; lock = ctypes.create_string_buffer(64); take = ctypes.PyDLL(None).pthread_mutex_lock; "
    "take(lock); take(lock)"
)

SWALLOWS = """
def swallow():
    try:
        while True: pass
    except BaseException:
        return
while True:
    swallow()
"""


def write(project: Project, body: str, kind: str = "") -> None:
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    project.write("spider.py", SPIDER.format(pages=PAGES, kind=kind and "async ", bad=BAD, body=lines))


def crawl(
    project: Project, site: SiteProcess, *more: str, workers: str = "1"
) -> tuple[subprocess.CompletedProcess[str], float]:
    began = time.monotonic()
    done = project.run("crawl", "spider.py", "-o", "out.jsonl", "--workers", workers, *more, START=site.url)
    return done, time.monotonic() - began


def dead(project: Project) -> str:
    return project.run("status", "pages", "--dead").stdout


def check_others(project: Project, site: SiteProcess) -> None:
    expected = sorted(f"{site.url}p/{n}" for n in range(PAGES) if f"/p/{n}" != BAD)
    assert sorted(row["url"] for row in project.rows()) == expected


def reached(project: Project) -> bool:
    return (project.folder / "reached").exists()

"""A page with very many links does not stop its worker, and does not make it large."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psutil
import pytest

from tests.crawl.conftest import Project

LINKS = 300_000
# It measures how long the event loop does not get a turn: in seconds of computing, so that other programs on the
# machine don't count.
SPIDER = """
import asyncio, os, time
from uttu import Page, Request, Spider

spider = Spider("pages", private=True, robots=False, delay=0, per_host=0, max_pages=40)

async def beat():
    longest = 0.0
    while True:
        began = time.process_time()
        await asyncio.sleep(0.01)
        if time.process_time() - began > longest:
            longest = time.process_time() - began
            open("gap", "w").write(str(longest))

@spider.start
async def start():
    spider.beating = asyncio.create_task(beat())
    yield os.environ["BAD"] + "/links"

@spider.page
def page(page: Page):
    yield {{"url": page.url}}
    if page.url.endswith("/links"):
        {body}
"""


class Handler(BaseHTTPRequestHandler):
    body = b"".join(b"<a href=/x/%d>" % n for n in range(LINKS))

    def do_GET(self) -> None:
        body = self.body if self.path == "/links" else b"<p>a page</p>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def run(project: Project, body: str, *more: str) -> tuple[str, float, float]:
    """What it said, the longest gap, and the most memory of a process in MB."""
    project.write("spider.py", SPIDER.format(body=body))
    with serving() as url:
        process = project.start("crawl", "spider.py", *more, BAD=url)
        most = 0
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                everyone = psutil.Process(process.pid).children(recursive=True)
                most = max([most, *(each.memory_info().rss for each in everyone)])
            time.sleep(0.05)
        _, err = process.communicate()
        assert process.returncode in (0, 1), err  # 1: its only page is dead
    return err, float((project.folder / "gap").read_text()), most / 1e6


@pytest.mark.parametrize("frontier", ["sqlite", "redis"])
def test_the_first_links_of_a_page_are_followed(project: Project, frontier: str, redis_url: str) -> None:
    more = () if frontier == "sqlite" else ("-s", f"frontier={redis_url}", "--fresh")
    err, gap, memory = run(project, "yield page.follow_all('a')", *more)
    # Of the page, the first 150,000 elements are parsed.
    assert re.search(r"/links: the last (99,99\d|100,000) of its links were left out: max_links_per_page=50000", err)
    assert gap < 1
    assert memory < 500


def test_requests_that_are_made_one_by_one(project: Project) -> None:
    body = "for n in range(1_000_000): yield Request(url=page.url + str(n))"
    _, gap, memory = run(project, body)
    assert "yielded more requests than max_links_per_page=50000" in project.run("status", "pages", "--dead").stdout
    assert gap < 0.7
    assert memory < 400


def test_as_many_as_are_allowed(project: Project) -> None:
    """They are stored with the page, in one step, beside the loop."""
    _, gap, memory = run(project, "for n in range(50_000): yield Request(url=page.url + str(n))")
    assert gap < 0.7
    assert memory < 400
    with contextlib.closing(sqlite3.connect(project.folder / ".uttu" / "crawls" / "pages.db")) as db:
        assert db.execute("SELECT links FROM history ORDER BY seq LIMIT 1").fetchone() == (50_000,)

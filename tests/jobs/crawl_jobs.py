"""Crawls as jobs: a folder with a spider in it, a site whose log is the truth, and workers that can be killed."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from celery.result import AsyncResult

from tests.jobs.conftest import Workshop
from uttu.model.facts import CrawlFacts, decode_facts
from uttu.testing.site import SiteProcess, fetches
from uttu.testing.waiting import wait_until

PATIENCE = 90.0
SPIDER = """
from uttu import Page, Spider

spider = Spider({name!r}, start={start!r}, private=True, robots=False, delay=0, per_host=0, concurrency={concurrency})

@spider.page
def page(page: Page):
    yield {{"url": page.url}}
    yield page.follow_all("a")
"""
ECHO = """
from celery import shared_task

@shared_task
def echo(said):
    return said
"""


class Crawling:
    """A workshop with spiders for one site."""

    def __init__(self, workshop: Workshop, site: SiteProcess, concurrency: int = 4) -> None:
        self.workshop = workshop
        self.site = site
        self.pages = site.site.pages
        self._concurrency = concurrency
        self._seen = 0
        self.worker = 0
        """The process id of the worker, once there is one."""
        self.spider("pages")
        (workshop.folder / "echo.py").write_text(ECHO)

    def spider(self, name: str) -> str:
        """A spider of its own name, and so a crawl of its own."""
        text = SPIDER.format(name=name, start=f"{self.site.url}p/0", concurrency=self._concurrency)
        (self.workshop.folder / f"{name}.py").write_text(text)
        return f"{name}.py"

    def crawl(self, *args: Any, **kwargs: Any) -> Any:
        """The signature of the task."""
        return self.workshop.app.signature("uttu.crawl", args or ("pages.py",), kwargs)

    def task(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.workshop.app.signature(name, args, kwargs)

    def get(self, result: AsyncResult[Any]) -> Any:
        return result.get(timeout=PATIENCE)

    def until_fetched(self, count: int) -> None:
        """Until so many pages were asked for since :meth:`forget`."""
        wait_until(lambda: len(self.records()) >= count, f"the site sees {count} requests", PATIENCE)

    def forget(self) -> None:
        self._seen = len(self.site.records())

    def records(self) -> Any:
        return self.site.records()[self._seen :]

    def fetched(self) -> Counter[str]:
        """How often each page was asked for since :meth:`forget`."""
        found: Counter[str] = Counter()
        for (_, path), count in fetches(self.records()).items():
            found[path] += count
        return found

    @property
    def every_page_once(self) -> Counter[str]:
        return Counter({f"/p/{number}": 1 for number in range(self.pages)})

    def rows(self, name: str = "out.jsonl") -> Counter[str]:
        """How often each page is in the output."""
        lines = (self.workshop.folder / name).read_text().splitlines()
        return Counter(urlsplit(json.loads(line)["url"]).path for line in lines)

    def facts(self, crawl: str = "pages") -> CrawlFacts:
        db = sqlite3.connect(self._file(crawl))
        try:
            return decode_facts(dict(db.execute("SELECT key, value FROM facts")))
        finally:
            db.close()

    def status(self, crawl: str = "pages") -> Any:
        """What ``uttu status`` says of it."""
        return json.loads(self.workshop.uttu("status", crawl, "--json").stdout)

    def leased(self, crawl: str = "pages") -> set[str]:
        """The pages that are in a worker's hands, by the store."""
        db = sqlite3.connect(self._file(crawl))
        try:
            return {urlsplit(url).path for (url,) in db.execute("SELECT record ->> 'u' FROM leases")}
        finally:
            db.close()

    def _file(self, crawl: str) -> Path:
        return self.workshop.folder / ".uttu" / "crawls" / f"{crawl}.db"


def slices(worker: int) -> list[psutil.Process]:
    """The processes of slices that a worker has started."""
    found = psutil.Process(worker).children(recursive=True)
    return [each for each in found if "uttu.jobs.crawl_task.runner" in _words(each)]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def until(condition: Callable[[], object], what: str) -> None:
    wait_until(condition, what, PATIENCE)

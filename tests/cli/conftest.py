"""Commands run in a folder of their own, and crawls made there through the store's own contracts."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from uttu import cli
from uttu.frontier.base import Rules
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Dead, Done, Lease, Pace, Redirect, Request, Retry
from uttu.model.crawl import CrawlState, WorkerReport
from uttu.model.facts import FactChanges
from uttu.policy import robots
from uttu.settings import DATA_FOLDER
from uttu.testing.site import Site, SiteProcess

HOST = "https://shop.example"
TRACEBACK = 'Traceback (most recent call last):\n  File "shop.py", line 9, in each\nValueError: no price'
SPIDER = f"""
from uttu import Spider

spider = Spider("shop", start="{HOST}/", domains=["shop.example"])

@spider.page
def each(page):
    yield {{"url": page.url}}
"""


class Told(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str


Uttu = Callable[..., Told]


@pytest.fixture
def uttu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Uttu:
    """Runs a command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Told:
        monkeypatch.setattr(sys, "argv", ["uttu", *words])
        code = cli.run()
        out, err = capsys.readouterr()
        return Told(code, out, err)

    return run


@pytest.fixture(scope="session")
def site() -> Iterator[SiteProcess]:
    with SiteProcess(Site(pages=30, products=40)) as running:
        yield running


def depot_here() -> SqliteCatalog:
    return SqliteCatalog(DATA_FOLDER)


@contextlib.contextmanager
def supervised(crawl: str = "shop") -> Iterator[None]:
    """As if another process ran the crawl."""
    with asyncio.Runner() as runner:
        holding = depot_here().supervise(crawl)
        runner.run(_coroutine(holding.__aenter__()))
        try:
            yield
        finally:
            runner.run(_coroutine(holding.__aexit__(None, None, None)))


async def _coroutine(work: Awaitable[Any]) -> None:
    await work


async def _make(name: str, facts: FactChanges) -> None:
    """A crawl with a request in every state: see the paths below."""
    store = await depot_here().create(name, Rules(pace=Pace(0.0, 0)))
    await depot_here().keep(name)
    frontier = store.frontier
    paths = ("/", "/moved", "/broken", "/gone", "/private/", "/again", "/leased")
    await frontier.put([Request(url=HOST + path) for path in paths])
    leases = {lease.request.url.removeprefix(HOST): lease for lease in await frontier.lease(10, "w1")}
    await frontier.settle(
        [
            Done(
                lease=leases["/"],
                children=(Request(url=f"{HOST}/1"), Request(url=f"{HOST}/2")),
                status=200,
                size=6000,
                items=(b'{"n":1}', b'{"n":2}'),
            ),
            Done(lease=leases["/moved"], status=301, redirect=Redirect(f"{HOST}/")),
            _dead(leases["/broken"], "handler", "ValueError: no price", detail=TRACEBACK, status=200),
            _dead(leases["/gone"], "http", "answered with status 404", status=404),
            _dead(leases["/private/"], "robots", "disallowed by the site's robots.txt"),
            Retry(lease=leases["/again"], after=600.0, reason="answered with status 500"),
        ]
    )
    await frontier.put([Request(url="https://slow.example/a"), Request(url="https://slow.example/b")])
    await frontier.hold("slow.example", 300.0, "answered with status 429")
    await store.memo.remember(f"robots {HOST}", robots.dump(robots.parse(b"User-agent: *\nDisallow: /private/")), 3600)
    report = WorkerReport(pid=4711, started=1.0, pages=2, in_flight=1, held=1)
    await store.ledger.report("w1", msgspec.json.encode(report))
    await store.ledger.note(**facts)
    await frontier.close()


def _dead(lease: Lease, kind: str, reason: str, **more: Any) -> Dead:
    return Dead(lease=lease, kind=kind, reason=reason, **more)


def make_crawl(name: str = "shop", state: CrawlState | None = CrawlState.STOPPED, **facts: Any) -> str:
    """A crawl in this folder, of the spider in ``shop.py``; returns its name."""
    Path("shop.py").write_text(SPIDER)
    known: FactChanges = {"spider": "shop", "file": str(Path("shop.py").resolve()), "arguments": {}, "flags": {}}
    if state is not None:
        known["state"] = state
    asyncio.run(_make(name, known | facts))  # type: ignore[arg-type]
    return name

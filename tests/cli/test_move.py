"""``uttu move``: a crawl goes on elsewhere."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Unpack

import pytest

from tests.cli.conftest import HOST, Uttu, make_crawl, supervised
from tests.cli.statuses import in_store, standing
from tests.crawl.conftest import Project, wait_for
from tests.crawl.conftest import project as project
from uttu.errors import StoreError
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.frontier.sqlite.transfer import SqliteTransfer
from uttu.frontier.transfer import FinalBatch, TransferBatch
from uttu.model import Counts
from uttu.model.crawl import CrawlState, Reason, ReasonKind, Rules
from uttu.model.facts import FactChanges
from uttu.settings import DATA_FOLDER
from uttu.testing.site import Site, SiteProcess, fetches

OTHER = Path("other") / DATA_FOLDER
# The one that its worker left behind is back in line.
COUNTS = Counts(pending=5, delayed=1, done=2, dead=3, items=2, bytes=6000)


def test_everything_is_there_and_the_old_one_says_where_it_went(uttu: Uttu, tmp_path: Path) -> None:
    make_crawl(state=CrawlState.PAUSED)
    told = uttu("move", ".", "other")
    assert (told.code, told.err) == (0, "")
    there = f"sqlite:{tmp_path}/other"
    command = f"uttu crawl shop.py --frontier {there}"
    assert told.out == f"shop is moved to {there}, with 6 pages to do and 2 items. Resume it with: {command}\n"
    new = standing(folder=OTHER)
    assert (new.state, new.reason, new.counts) == (CrawlState.STOPPED, Reason(f"moved from sqlite:{tmp_path}"), COUNTS)
    assert new.facts.spider == "shop"
    assert uttu("why", f"{HOST}/gone", "--frontier", there).out.splitlines()[1].startswith("  dead ")
    assert uttu("export", "--frontier", "sqlite:other").out == '{"n":1}\n{"n":2}\n'
    old = standing()
    assert (old.state, old.reason) == (CrawlState.STOPPED, Reason(there, ReasonKind.MOVED))
    about = (("pause",), ("stop",), ("resume",), ("retry",), ("push", HOST), ("rate", HOST, "--reset"))
    for command, *more in about:
        told = uttu(command, "shop", *more)
        assert told.code == 1
        assert told.err == f"uttu: Crawl 'shop' was moved to {there}. Give that frontier with --frontier\n"
    assert uttu("move", ".", "third").err == f"uttu: Crawl 'shop' was already moved to {there}\n"
    assert uttu("move", ".", "other").code == 1


def test_there_and_back_again(uttu: Uttu) -> None:
    make_crawl()
    assert uttu("move", ".", "sqlite:other").code == 0
    assert uttu("move", "other/.uttu", ".").code == 0
    assert (standing().counts, standing().facts.state) == (COUNTS, CrawlState.STOPPED)
    assert standing(folder=OTHER).reason.kind is ReasonKind.MOVED
    assert uttu("move", ".", "other").code == 0


@pytest.mark.parametrize("state", [CrawlState.LIMITED, CrawlState.FINISHED])
def test_a_crawl_that_ended_stays_ended(uttu: Uttu, state: CrawlState) -> None:
    make_crawl(state=state, reason=Reason("why"))
    assert uttu("move", ".", "other").code == 0
    assert (standing(folder=OTHER).state, standing(folder=OTHER).reason) == (state, Reason("why"))


def test_a_crawl_that_runs_stays(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.RUNNING)
    with supervised():
        told = uttu("move", ".", "other")
    assert (told.code, told.err) == (1, "uttu: Crawl 'shop' has workers. Stop it first: uttu stop shop\n")
    assert not OTHER.exists()


def test_one_that_is_there_already_is_kept_unless_told_otherwise(uttu: Uttu) -> None:
    make_crawl()
    assert uttu("move", ".", "other").code == 0
    make_crawl(state=CrawlState.PAUSED)
    told = uttu("move", ".", "other")
    assert told.code == 1
    assert "There is already a crawl 'shop' at sqlite:" in told.err
    assert told.err.endswith("Replace it with --replace\n")
    assert standing().state == CrawlState.PAUSED
    assert uttu("push", "shop", f"{HOST}/new").code == 0
    assert uttu("move", ".", "other", "--replace").code == 0
    assert standing(folder=OTHER).counts.pending == 6
    assert not list(OTHER.glob("crawls/*.former*"))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("kind", [FinalBatch, None])
def test_a_move_that_fails_is_done_again(
    uttu: Uttu, monkeypatch: pytest.MonkeyPatch, replace: bool, kind: type[TransferBatch] | None
) -> None:
    make_crawl()
    if replace:
        assert uttu("move", ".", "other").code == 0
        make_crawl()
        former = standing(folder=OTHER)
        asyncio.run(_note(folder=OTHER, reason=Reason("mine")))
    with monkeypatch.context() as broken:

        async def fail(self: SqliteTransfer, batch: TransferBatch) -> None:
            if kind is None or isinstance(batch, kind):
                raise StoreError("the disk is full")
            await fill(self, batch)

        fill = SqliteTransfer.fill
        broken.setattr(SqliteTransfer, "fill", fail)
        told = uttu("move", ".", "other", *(["--replace"] if replace else []))
    assert (told.code, told.err) == (4, "uttu: the disk is full\n")
    assert standing().counts == COUNTS
    assert standing().reason.kind is not ReasonKind.MOVED
    if replace:
        assert (standing(folder=OTHER).counts, standing(folder=OTHER).reason) == (former.counts, Reason("mine"))
    else:
        told = uttu("crawl", "shop.py", "--frontier", "sqlite:other")
        assert told.code == 1
        assert "Crawl 'shop' is being moved here from sqlite:" in told.err
    assert uttu("move", ".", "other", *(["--replace"] if replace else [])).code == 0
    assert standing(folder=OTHER).counts == COUNTS


async def _note(folder: Path, **facts: Unpack[FactChanges]) -> None:
    store = await SqliteCatalog(folder).open("shop", Rules())
    await store.ledger.note(**facts)
    await store.frontier.close()


def test_a_move_that_was_killed_between_the_two_marks_is_done_again(uttu: Uttu, tmp_path: Path) -> None:
    make_crawl()
    assert uttu("move", ".", "other").code == 0
    asyncio.run(_note(folder=OTHER, reason=Reason("somewhere", ReasonKind.MOVING)))
    assert uttu("move", ".", "other").code == 0
    assert standing(folder=OTHER).counts == COUNTS
    assert standing(folder=OTHER).reason == Reason(f"moved from sqlite:{tmp_path}")


def test_which_crawl_has_to_be_clear(uttu: Uttu) -> None:
    make_crawl("a")
    make_crawl("b")
    told = uttu("move", ".", "other")
    assert told.code == 1
    assert told.err == "uttu: There are several crawls here. Choose one with --crawl: b, a\n"
    assert uttu("move", ".", "other", "--crawl", "a").code == 0
    assert uttu("move", ".", "other").out.startswith("b is moved to ")
    assert uttu("move", ".", "other", "--crawl", "c").code == 4


def test_what_can_not_be(uttu: Uttu) -> None:
    assert uttu("move", ".", "other").code == 4
    make_crawl()
    assert uttu("move", ".").code == 2
    told = uttu("move", ".", "nosuch://place")
    assert told.code == 3
    told = uttu("move", ".", "./.uttu")
    assert told.code == 1
    assert standing().counts.items == 2
    assert in_store(lambda store: store.ledger.facts()).state == CrawlState.STOPPED


def test_it_goes_on_there_as_if_nothing_had_happened(project: Project) -> None:
    with SiteProcess(Site(pages=4000, latency=0.02)) as site:
        start = site.url + "p/0"
        crawl = project.start("crawl", "spider.py", "-o", "out.jsonl", "-s", "concurrency=4", START=start)
        wait_for(site, 200)
        assert project.run("stop", "pages").returncode == 0
        crawl.communicate(timeout=60)
        done = project.run("move", ".", "other")
        assert done.returncode == 0, done.stderr
        refused = project.run("crawl", "spider.py", "-o", "out.jsonl", START=start)
        assert refused.returncode == 1
        assert "Crawl 'pages' was moved to sqlite:" in refused.stderr
        done = project.run("crawl", "spider.py", "-o", "out.jsonl", "--frontier", "sqlite:other", START=start)
        assert done.returncode == 0, done.stderr
        assert len({row["url"] for row in project.rows()}) == len(project.rows()) == 4000
        assert set(fetches(site.records()).values()) == {1}
        fresh = project.run("crawl", "spider.py", "--fresh", "--limit", "3", START=start)
        assert fresh.returncode == 0, fresh.stderr


@pytest.mark.parametrize("terminal", [True, False])
def test_the_progress_is_drawn_on_a_terminal_only(uttu: Uttu, monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    make_crawl(state=CrawlState.PAUSED)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    told = uttu("move", ".", "other")
    assert told.out.startswith("shop is moved to ")
    assert (told.err.startswith("\rmoving: "), told.err.endswith("\r")) == (terminal, terminal)

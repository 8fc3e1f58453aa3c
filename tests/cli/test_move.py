"""``weft move``: a crawl goes on elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cli.conftest import HOST, Weft, make_crawl, supervised
from tests.cli.looks import in_store, standing
from tests.crawl.conftest import Project, wait_for
from tests.crawl.conftest import project as project
from weft import launch
from weft.engine.states import State
from weft.errors import StoreError
from weft.frontier.moving import Batch, Rest
from weft.frontier.sqlite.depot import SqliteDepot
from weft.frontier.sqlite.mover import SqliteMover
from weft.model import Counts
from weft.testing.site import Site, SiteProcess, fetches

OTHER = Path("other") / launch.FOLDER
# The one that its worker left behind is back in line.
COUNTS = Counts(pending=5, delayed=1, done=2, dead=3, items=2, bytes=6000)


def test_everything_is_there_and_the_old_one_says_where_it_went(weft: Weft, tmp_path: Path) -> None:
    make_crawl(state=State.PAUSED)
    told = weft("move", ".", "other")
    assert (told.code, told.err) == (0, "")
    there = f"sqlite:{tmp_path}/other"
    command = f"weft crawl shop.py --frontier {there}"
    assert told.out == f"shop is moved to {there}, with 6 pages to do and 2 items. Go on with: {command}\n"
    new = standing(folder=OTHER)
    assert (new.state, new.reason, new.counts) == (State.STOPPED, f"moved from sqlite:{tmp_path}", COUNTS)
    assert new.facts["spider"] == "shop"
    assert weft("why", f"{HOST}/gone", "--frontier", there).out.splitlines()[1].startswith("  dead ")
    assert weft("export", "--frontier", "sqlite:other").out == '{"n":1}\n{"n":2}\n'
    old = standing()
    assert (old.state, old.reason) == (State.STOPPED, f"moved to {there}")
    about = (("pause",), ("stop",), ("resume",), ("retry",), ("push", HOST), ("rate", HOST, "--reset"))
    for command, *more in about:
        told = weft(command, "shop", *more)
        assert told.code == 1
        assert told.err == f"weft: crawl 'shop' was moved to {there}: give that as --frontier\n"
    assert weft("move", ".", "third").err == f"weft: crawl 'shop' was moved to {there} already\n"
    assert weft("move", ".", "other").code == 1


def test_there_and_back_again(weft: Weft) -> None:
    make_crawl()
    assert weft("move", ".", "sqlite:other").code == 0
    assert weft("move", "other/.weft", ".").code == 0
    assert (standing().counts, standing().facts["state"]) == (COUNTS, State.STOPPED)
    assert standing(folder=OTHER).reason.startswith("moved to ")
    assert weft("move", ".", "other").code == 0


@pytest.mark.parametrize("state", [State.LIMITED, State.FINISHED])
def test_a_crawl_that_ended_stays_ended(weft: Weft, state: State) -> None:
    make_crawl(state=state, reason="why")
    assert weft("move", ".", "other").code == 0
    assert (standing(folder=OTHER).state, standing(folder=OTHER).reason) == (state, "why")


def test_a_crawl_that_runs_stays(weft: Weft) -> None:
    make_crawl(state=State.RUNNING)
    with supervised():
        told = weft("move", ".", "other")
    assert (told.code, told.err) == (1, "weft: workers are at crawl 'shop'; stop it first: weft stop shop\n")
    assert not OTHER.exists()


def test_one_that_is_there_already_is_kept_unless_told_otherwise(weft: Weft) -> None:
    make_crawl()
    assert weft("move", ".", "other").code == 0
    make_crawl(state=State.PAUSED)
    told = weft("move", ".", "other")
    assert told.code == 1
    assert "there is a crawl 'shop' at sqlite:" in told.err
    assert told.err.endswith("already; --replace forgets it\n")
    assert standing().state == State.PAUSED
    assert weft("push", "shop", f"{HOST}/new").code == 0
    assert weft("move", ".", "other", "--replace").code == 0
    assert standing(folder=OTHER).counts.pending == 6
    assert not list(OTHER.glob("crawls/*.former*"))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("kind", [Rest, None])
def test_a_move_that_fails_is_done_again(
    weft: Weft, monkeypatch: pytest.MonkeyPatch, replace: bool, kind: type[Batch] | None
) -> None:
    make_crawl()
    if replace:
        assert weft("move", ".", "other").code == 0
        make_crawl()
        former = standing(folder=OTHER)
        asyncio.run(_note(folder=OTHER, reason="mine"))
    with monkeypatch.context() as broken:

        async def fail(self: SqliteMover, batch: Batch) -> None:
            if kind is None or isinstance(batch, kind):
                raise StoreError("the disk is full")
            await fill(self, batch)

        fill = SqliteMover.fill
        broken.setattr(SqliteMover, "fill", fail)
        told = weft("move", ".", "other", *(["--replace"] if replace else []))
    assert (told.code, told.err) == (4, "weft: the disk is full\n")
    assert standing().counts == COUNTS
    assert not standing().reason.startswith(launch.MOVED)
    if replace:
        assert (standing(folder=OTHER).counts, standing(folder=OTHER).reason) == (former.counts, "mine")
    else:
        told = weft("crawl", "shop.py", "--frontier", "sqlite:other")
        assert told.code == 1
        assert "crawl 'shop' is being moved here from sqlite:" in told.err
    assert weft("move", ".", "other", *(["--replace"] if replace else [])).code == 0
    assert standing(folder=OTHER).counts == COUNTS


async def _note(folder: Path, **facts: str) -> None:
    store = await SqliteDepot(folder).open("shop", launch.rules_of({}))
    await store.ledger.note(**facts)
    await store.frontier.close()


def test_a_move_that_was_killed_between_the_two_marks_is_done_again(weft: Weft) -> None:
    make_crawl()
    assert weft("move", ".", "other").code == 0
    asyncio.run(_note(folder=OTHER, reason=f"{launch.MOVING}somewhere"))
    assert weft("move", ".", "other").code == 0
    assert standing(folder=OTHER).counts == COUNTS
    assert not standing(folder=OTHER).reason.startswith(launch.MOVING)


def test_which_crawl_has_to_be_clear(weft: Weft) -> None:
    make_crawl("a")
    make_crawl("b")
    told = weft("move", ".", "other")
    assert told.code == 1
    assert told.err == "weft: there are several crawls here: say which with --crawl: b, a\n"
    assert weft("move", ".", "other", "--crawl", "a").code == 0
    assert weft("move", ".", "other").out.startswith("b is moved to ")
    assert weft("move", ".", "other", "--crawl", "c").code == 4


def test_what_can_not_be(weft: Weft) -> None:
    assert weft("move", ".", "other").code == 4
    make_crawl()
    assert weft("move", ".").code == 2
    told = weft("move", ".", "nosuch://place")
    assert told.code == 3
    told = weft("move", ".", "./.weft")
    assert told.code == 1
    assert standing().counts.items == 2
    assert in_store(lambda store: store.ledger.facts())["state"] == State.STOPPED


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
        assert "crawl 'pages' was moved to sqlite:" in refused.stderr
        done = project.run("crawl", "spider.py", "-o", "out.jsonl", "--frontier", "sqlite:other", START=start)
        assert done.returncode == 0, done.stderr
        assert len({row["url"] for row in project.rows()}) == len(project.rows()) == 4000
        assert set(fetches(site.records()).values()) == {1}
        fresh = project.run("crawl", "spider.py", "--fresh", "--limit", "3", START=start)
        assert fresh.returncode == 0, fresh.stderr

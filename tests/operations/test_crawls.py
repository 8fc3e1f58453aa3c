"""Operations on crawls as another program calls them: typed values, and a folder that is not the working directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.cli.conftest import HOST, SPIDER, make_crawl
from uttu.errors import StoreError, UsageError, UttuError
from uttu.model.crawl import CrawlState
from uttu.model.history import EventKind
from uttu.model.inspection import DeadQuery, LaneFilter, LaneQuery
from uttu.operations import control, crawls, history, items, monitor, seeds
from uttu.operations.explanation import explain
from uttu.operations.move import move_crawl

T = TypeVar("T")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a stopped crawl; the process works in another one."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    make_crawl()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    yield folder
    assert os.listdir(tmp_path / "elsewhere") == [], "nothing was written to the working directory"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def test_the_state_of_a_crawl(project: Path) -> None:
    said: list[str] = []
    (one,) = run(crawls.read_all("", project)).crawls
    details = run(crawls.read_details("", "", said.append, project))
    assert (one.name, one.state, one.command()) == ("shop", CrawlState.STOPPED, "uttu crawl shop.py")
    assert details.status.counts == one.counts
    assert details.dead_kinds == {"handler": 1, "http": 1, "robots": 1}
    assert {lane.name for lane in details.lanes.lanes} == {"shop.example", "slow.example"}
    assert [lane.name for lane in details.held.lanes] == ["slow.example"]
    assert (details.trimmed, said) == (0, [])


def test_lanes_and_dead_letters(project: Path) -> None:
    first = run(crawls.read_lanes("shop", "", LaneQuery(limit=1), print, project))
    second = run(crawls.read_lanes("shop", "", LaneQuery(limit=1, after=first.next), print, project))
    assert [lane.name for lane in first.lanes + second.lanes] == ["shop.example", "slow.example"]
    every = run(crawls.read_lanes("shop", "", LaneQuery(limit=0), print, project))
    assert [lane.name for lane in every.lanes] == ["shop.example", "slow.example"]
    held = run(crawls.read_lanes("shop", "", LaneQuery(only=LaneFilter.HELD), print, project))
    assert [lane.name for lane in held.lanes] == ["slow.example"]
    found = run(crawls.read_dead_letters("shop.py", "", DeadQuery(limit=0, kind="http"), print, project))
    assert [letter.request.url for letter in found.letters] == [f"{HOST}/gone"]
    assert found.kinds == {"handler": 1, "http": 1, "robots": 1}
    with pytest.raises(StoreError, match="there is no crawl 'shpo' here; there is: shop"):
        run(crawls.read_lanes("shpo", "", LaneQuery(), print, folder=project))


def test_groups_of_dead_letters(project: Path) -> None:
    found = run(crawls.read_dead_letters("shop", "", DeadQuery(limit=2), print, project))
    groups = {(group.kind, group.message): group.count for group in found.groups}
    assert groups[("http", "answered with status 404")] == 1
    rest = run(crawls.read_dead_letters("shop", "", DeadQuery(limit=2, after=found.next), print, project))
    assert (len(found.letters), len(rest.letters), rest.next) == (2, 1, "")
    done = run(control.retry_dead("shop", "", print, message="answered with status 404", by="ada", folder=project))
    assert (done.revived, done.kinds) == (1, {"handler": 1, "robots": 1})
    (event,) = run(history.read_events("shop", "", -1, 10, print, project))
    assert event.kind is EventKind.OPERATOR
    assert event.fields == {"by": "ada", "action": "retry", "revived": 1, "message": "answered with status 404"}


def test_items_are_paged_and_searched(project: Path) -> None:
    page = run(items.read_items("shop", "", 1, 0, "", print, project))
    assert [(row.value, row.url) for row in page.items] == [({"n": 2}, "")]
    assert page.columns == ["n"]
    rest = run(items.read_items("shop", "", 5, page.next, "", print, project))
    assert ([row.value for row in rest.items], rest.next) == ([{"n": 1}], 0)
    found = run(items.read_items("shop", "", 5, 0, '"N":1', print, project))
    assert ([row.value for row in found.items], found.next) == ([{"n": 1}], 0)
    assert run(items.read_items("shop", "", 5, 0, "nothing", print, project)).items == []


def test_the_settings_of_an_older_crawl_are_not_known(project: Path) -> None:
    assert run(crawls.read_settings("shop", "", print, project)) == []


def test_an_explanation_loads_no_file_from_elsewhere(project: Path, tmp_path: Path) -> None:
    mark, file = tmp_path / "mark", tmp_path / "elsewhere.py"
    file.write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n{SPIDER}")
    os.chdir(project)
    make_crawl("far", file=str(file))
    os.chdir(tmp_path / "elsewhere")
    explained = run(explain("far", "", f"{HOST}/unknown", print, confined=True, folder=project))
    assert not mark.exists()
    assert "outside of the project's folder" in explained.chain[0].guesses[-1]
    run(explain("far", "", f"{HOST}/unknown", print, folder=project))
    assert mark.exists()


def test_a_snapshot(project: Path) -> None:
    async def look() -> monitor.CrawlSnapshot:
        async with monitor.watch_crawl("shop", "", print, project) as watch:
            return await watch.look()

    found = run(look())
    assert (found.standing.name, found.workers, found.gone) == ("shop", [], 1)


def test_items_are_exported_to_the_folder(project: Path) -> None:
    done = run(items.export_items("shop.py", "", ["out/items.jsonl"], print, folder=project))
    assert (done.crawl, done.items) == ("shop", {"out/items.jsonl": 2})
    assert (project / "out" / "items.jsonl").read_text() == '{"n":1}\n{"n":2}\n'
    (project / "notes.csv").write_text("mine")
    with pytest.raises(UsageError, match=f"{project}/notes.csv is there already, and Uttu did not write it"):
        run(items.export_items("shop", "", ["notes.csv"], print, folder=project))


def test_a_relative_frontier_is_below_the_folder(project: Path) -> None:
    (project / "other").mkdir()
    (project / ".uttu").rename(project / "other" / ".uttu")
    assert [each.name for each in run(crawls.read_all("sqlite:other", project)).crawls] == ["shop"]
    (project / "uttu.toml").write_text('frontier = "sqlite:other"\n')
    assert [each.name for each in run(crawls.read_all("", project)).crawls] == ["shop"]


def test_start_urls_are_pushed(project: Path) -> None:
    said: list[str] = []
    entries = [f"{HOST}/new".encode(), f"{HOST}/".encode(), b"", b"what is this"]
    done = run(seeds.push_seeds("shop", "", [], "", said.append, entries=entries, folder=project))
    assert (done.crawl, done.new, done.known, done.bad) == ("shop", 1, 1, 1)
    assert len(said) == 1
    assert said[0].startswith("the entries, line 4: ")


def test_dead_letters_are_put_back(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frontier = f"sqlite:{project}"
    done = run(control.retry_dead("shop", frontier, print, kind="http"))
    assert (done.revived, done.kinds) == (1, {"handler": 1, "robots": 1})
    done = run(control.retry_dead("shop", frontier, print, url=f"{HOST}/none"))
    assert done.revived == 0


def test_the_pace_of_a_host(project: Path) -> None:
    assert control.parse_lane("https://SHOP.example:443/x") == control.parse_lane("shop.example") == "shop.example"
    with pytest.raises(ValueError, match="no URL"):
        control.parse_lane("no host")
    frontier = f"sqlite:{project}"
    change = run(control.set_rate("shop", frontier, "shop.example", 2.0, print))
    assert (change.lane, change.delay) == ("shop.example", 2.0)
    lanes = run(crawls.read_lanes("shop", frontier, LaneQuery(), print)).lanes
    assert [lane.pinned for lane in lanes if lane.name == "shop.example"] == [True]


def test_a_state_that_can_not_be_changed(project: Path) -> None:
    with pytest.raises(UttuError, match="does not run, so it can't be paused"):
        run(control.change_state("shop", f"sqlite:{project}", control.pause, print))


def test_a_move_reports_its_progress(project: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shares: list[float] = []
    source, target = f"sqlite:{project}", f"sqlite:{tmp_path}/target"
    said = run(move_crawl(source, target, "shop", replace=False, progress=shares.append))
    assert said.startswith("shop is moved to ")
    assert shares == sorted(shares)
    assert 0 < shares[-1] <= 1
    assert capfd.readouterr() == ("", "")

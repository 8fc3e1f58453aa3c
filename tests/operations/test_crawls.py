"""Operations on crawls as another program calls them: typed values, and a folder that is not the working directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.cli.conftest import HOST, make_crawl
from uttu.errors import StoreError, UsageError, UttuError
from uttu.model.crawl import CrawlState
from uttu.operations import control, crawls, items, monitor, seeds
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
    assert {lane.name for lane in details.lanes} == {"shop.example", "slow.example"}
    assert (details.trimmed, said) == (0, [])


def test_lanes_and_dead_letters(project: Path) -> None:
    lanes = run(crawls.read_lanes("shop", "", print, 1, project))
    assert len(lanes) == 1
    found = run(crawls.read_dead_letters("shop.py", "", print, 0, "http", project))
    assert [letter.request.url for letter in found.letters] == [f"{HOST}/gone"]
    assert found.kinds == {"handler": 1, "http": 1, "robots": 1}
    with pytest.raises(StoreError, match="There is no crawl 'shpo' here, but there is: shop"):
        run(crawls.read_lanes("shpo", "", print, folder=project))


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
    with pytest.raises(UsageError, match=f"{project}/notes.csv exists already, and Uttu did not write it"):
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
    with pytest.raises(ValueError, match="not a web URL"):
        control.parse_lane("no host")
    frontier = f"sqlite:{project}"
    change = run(control.set_rate("shop", frontier, "shop.example", 2.0, print))
    assert (change.lane, change.delay) == ("shop.example", 2.0)
    lanes = run(crawls.read_lanes("shop", frontier, print))
    assert [lane.pinned for lane in lanes if lane.name == "shop.example"] == [True]


def test_a_state_that_can_not_be_changed(project: Path) -> None:
    with pytest.raises(UttuError, match="is not running, so it can't be paused"):
        run(control.change_state("shop", f"sqlite:{project}", control.pause, print))


def test_a_move_reports_its_progress(project: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shares: list[float] = []
    source, target = f"sqlite:{project}", f"sqlite:{tmp_path}/target"
    said = run(move_crawl(source, target, "shop", replace=False, progress=shares.append))
    assert said.startswith("shop is moved to ")
    assert shares == sorted(shares)
    assert 0 < shares[-1] <= 1
    assert capfd.readouterr() == ("", "")

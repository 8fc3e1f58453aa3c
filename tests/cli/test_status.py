"""``weft status``: the crawls of a folder, and one of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import HOST, TRACEBACK, Weft, make_crawl, supervised
from weft.engine.states import State


def test_no_crawl_is_no_failure(weft: Weft) -> None:
    told = weft("status")
    assert told.code == 0
    assert told.out == ""
    assert "no crawl was started in this folder" in told.err
    assert weft("status", "--json").out == "[]\n"


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (State.RUNNING, "cut short"), (State.STOPPING, "cut short"), (None, "cut short"), (State.STOPPED, "stopped"),
        (State.LIMITED, "limited"), (State.FINISHED, "finished"),
    ],
)  # fmt: skip
def test_states_of_crawls_that_do_not_run(weft: Weft, state: State | None, shown: str) -> None:
    make_crawl(state=state)
    told = weft("status")
    assert told.code == 0
    head, row = told.out.splitlines()
    assert head.split()[:2] == ["crawl", "state"]
    assert row.startswith(f"shop   {shown}")
    assert json.loads(weft("status", "--json").out)[0]["state"] == shown


def test_a_crawl_that_runs(weft: Weft) -> None:
    make_crawl(state=State.RUNNING)
    with supervised():
        told = weft("status", "shop")
        data = json.loads(weft("status", "shop", "--json").out)
    assert told.out.startswith("running  shop\n")
    assert "1 page with 1 worker, 1 of them in flight" in told.out
    assert "go on" not in told.out
    assert data["state"] == "running"
    assert data["supervised"]
    assert data["workers"]["w1"]["pid"] == 4711


def test_one_crawl_and_what_it_waits_for(weft: Weft) -> None:
    make_crawl(state=State.STOPPED, reason="interrupted")
    told = weft("status", "shop")
    assert told.code == 0
    assert told.out.startswith("stopped  shop (interrupted)\n")
    for text in (
        "2 done, 3 dead: ", "4 pending, 1 leased, 1 delayed", "6.0 kB", "1 page of workers that are gone",
        "1 page to be tried again later", "slow.example, held for 5 min more: answered with status 429",
        "weft crawl shop.py", "4711", "shop.example",
    ):  # fmt: skip
        assert text in told.out, text
    data = json.loads(weft("status", "shop", "--json").out)
    assert data["counts"] == {"pending": 4, "leased": 1, "delayed": 1, "done": 2, "dead": 3, "items": 2, "bytes": 6000}
    assert data["dead_kinds"] == {"handler": 1, "http": 1, "robots": 1}
    assert {lane["name"] for lane in data["lanes"]} == {"shop.example", "slow.example"}


def test_the_command_that_goes_on_names_what_is_needed(weft: Weft) -> None:
    make_crawl("mine", arguments='{"q":"a b"}', flags='{"delay":"2"}')
    assert "weft crawl shop.py -a 'q=a b' -s delay=2 --crawl mine" in weft("status", "mine").out


def test_dead_letters(weft: Weft) -> None:
    make_crawl()
    told = weft("status", "--dead")
    assert told.code == 0
    assert f"{HOST}/broken" in told.out
    assert f"{HOST}/gone" in told.out
    assert TRACEBACK.splitlines()[0] not in told.out
    told = weft("status", "shop", "--dead", "--kind", "handler", "--detail")
    assert f"{HOST}/gone" not in told.out
    for line in TRACEBACK.splitlines():
        assert line in told.out
    letters = json.loads(weft("status", "--kind", "http", "--json").out)
    assert [(each["url"], each["kind"], each["status"], each["attempt"]) for each in letters] == [
        (f"{HOST}/gone", "http", 404, 1)
    ]


def test_no_such_dead_letters(weft: Weft) -> None:
    make_crawl()
    told = weft("status", "--kind", "dns")
    assert told.code == 0
    assert "no dead letters of kind 'dns'; there are: " in told.err


def test_a_long_list_is_cut_and_says_so(weft: Weft) -> None:
    make_crawl()
    told = weft("status", "--dead", "-n", "2")
    assert len(told.out.splitlines()) == 3
    assert "the latest 2 of 3" in told.err
    assert len(weft("status", "--dead", "-n", "0").out.splitlines()) == 4


def test_lanes(weft: Weft) -> None:
    make_crawl()
    told = weft("status", "--lanes")
    assert [line.split()[0] for line in told.out.splitlines()] == ["lane", "shop.example", "slow.example"]
    assert told.out.splitlines()[2].endswith("in 5 min  answered with status 429")
    assert json.loads(weft("status", "--lanes", "--json").out)[0]["pace"] == {"delay": 0.0, "limit": 0}


def test_a_crawl_by_its_spider_file(weft: Weft) -> None:
    make_crawl("other")
    told = weft("status", "shop.py")
    assert told.code == 0
    assert told.err == "of other\n"


def test_a_crawl_that_is_not_there(weft: Weft) -> None:
    make_crawl()
    told = weft("status", "shep")
    assert told.code == 4
    assert told.err == "weft: there is no crawl 'shep' here; there is: shop (weft status lists all)\n"


def test_a_crawl_that_can_not_be_read_does_not_hide_the_others(weft: Weft) -> None:
    make_crawl()
    Path(".weft/crawls/bad.db").write_bytes(b"no database" * 100)
    told = weft("status")
    assert told.code == 0
    assert {line.split()[0] for line in told.out.splitlines()} == {"crawl", "shop", "bad"}
    assert "unreadable" in told.out
    assert weft("status", "bad").code == 4


def test_the_latest_is_the_one_last_worked_on(weft: Weft) -> None:
    make_crawl("old")
    make_crawl("young")
    assert [line.split()[0] for line in weft("status").out.splitlines()[1:]] == ["young", "old"]
    assert weft("status", "--dead").err.splitlines()[0] == "of young, the latest of 2 crawls here"

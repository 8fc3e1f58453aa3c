"""``uttu status``: the crawls of a folder, and one of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.cli.conftest import HOST, TRACEBACK, Uttu, depot_here, make_crawl, supervised
from uttu.cli.history import describe_problem
from uttu.frontier.base import Cursor, Rules
from uttu.model import Done, Request
from uttu.model.crawl import INTERRUPTED, CrawlState
from uttu.operations.diagnosis import Problem, ProblemKind


def test_no_crawl_is_no_failure(uttu: Uttu) -> None:
    told = uttu("status")
    assert told.code == 0
    assert told.out == ""
    assert "no crawl was started in this folder" in told.err
    assert uttu("status", "--json").out == "[]\n"


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (CrawlState.RUNNING, "cut short"),
        (CrawlState.STOPPING, "cut short"),
        (None, "cut short"),
        (CrawlState.STOPPED, "stopped"),
        (CrawlState.LIMITED, "limited"),
        (CrawlState.FINISHED, "finished"),
    ],
)
def test_states_of_crawls_that_do_not_run(uttu: Uttu, state: CrawlState | None, shown: str) -> None:
    make_crawl(state=state)
    told = uttu("status")
    assert told.code == 0
    head, row = told.out.splitlines()
    assert head.split()[:2] == ["crawl", "state"]
    assert row.startswith(f"shop   {shown}")
    assert json.loads(uttu("status", "--json").out)[0]["state"] == shown


def test_what_is_wrong(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.RUNNING)
    told = uttu("status")
    assert told.err.startswith("shop: it was cut short with ")
    assert "Continue with: uttu crawl shop.py" in told.err
    assert "it was cut short" in uttu("status", "shop").out
    data = json.loads(uttu("status", "shop", "--json").out)
    assert [each["kind"] for each in data["problems"]] == ["cut short"]
    assert 0 < data["progress"]["share"] <= 1
    with supervised():
        assert "of the known pages" in uttu("status", "shop").out


@pytest.mark.parametrize("kind", ProblemKind)
def test_every_problem_has_words(kind: ProblemKind) -> None:
    fields: dict[str, str | int | float] = {"reason": "r", "command": "c", "pages": 1, "workers": 1, "example": "w"}
    assert describe_problem(Problem(kind, "shop", fields | {"share": 0.5, "seconds": 60.0}))


def test_a_crawl_that_runs(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.RUNNING)
    with supervised():
        told = uttu("status", "shop")
        data = json.loads(uttu("status", "shop", "--json").out)
    assert told.out.startswith("running  shop\n")
    assert "1 page with 1 worker, 1 of them in flight" in told.out
    assert "go on" not in told.out
    assert data["state"] == "running"
    assert data["supervised"]
    assert data["workers"]["w1"]["pid"] == 4711


def test_one_crawl_and_what_it_waits_for(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.STOPPED, reason=INTERRUPTED)
    told = uttu("status", "shop")
    assert told.code == 0
    assert told.out.startswith("stopped  shop (interrupted)\n")
    for text in (
        "2 done, 3 dead: ",
        "4 pending, 1 leased, 1 delayed",
        "6.0 kB",
        "1 page of workers that are gone",
        "1 page to be retried later",
        "slow.example, held for 5 min more: answered with status 429",
        "uttu crawl shop.py",
        "4711",
        "shop.example",
    ):
        assert text in told.out, text
    data = json.loads(uttu("status", "shop", "--json").out)
    assert data["counts"] == {"pending": 4, "leased": 1, "delayed": 1, "done": 2, "dead": 3, "items": 2, "bytes": 6000}
    assert data["dead_kinds"] == {"handler": 1, "http": 1, "robots": 1}
    assert {lane["name"] for lane in data["lanes"]} == {"shop.example", "slow.example"}


def test_the_command_that_goes_on_names_what_is_needed(uttu: Uttu) -> None:
    make_crawl("mine", arguments={"q": "a b"}, flags={"delay": "2"})
    assert "uttu crawl shop.py -a 'q=a b' -s delay=2 --crawl mine" in uttu("status", "mine").out


def test_dead_letters(uttu: Uttu) -> None:
    make_crawl()
    told = uttu("status", "--dead")
    assert told.code == 0
    assert f"{HOST}/broken" in told.out
    assert f"{HOST}/gone" in told.out
    assert TRACEBACK.splitlines()[0] not in told.out
    told = uttu("status", "shop", "--dead", "--kind", "handler", "--detail")
    assert f"{HOST}/gone" not in told.out
    for line in TRACEBACK.splitlines():
        assert line in told.out
    letters = json.loads(uttu("status", "--kind", "http", "--json").out)
    assert [(each["url"], each["kind"], each["status"], each["attempt"]) for each in letters] == [
        (f"{HOST}/gone", "http", 404, 1)
    ]


def test_no_such_dead_letters(uttu: Uttu) -> None:
    make_crawl()
    told = uttu("status", "--kind", "dns")
    assert told.code == 0
    assert "no dead letters of kind 'dns'; there are: " in told.err


def test_a_long_list_is_cut_and_says_so(uttu: Uttu) -> None:
    make_crawl()
    told = uttu("status", "--dead", "-n", "2")
    assert len(told.out.splitlines()) == 3
    assert "the latest 2 of 3" in told.err
    assert len(uttu("status", "--dead", "-n", "0").out.splitlines()) == 4


def test_lanes(uttu: Uttu) -> None:
    make_crawl()
    told = uttu("status", "--lanes")
    assert [line.split()[0] for line in told.out.splitlines()] == ["lane", "shop.example", "slow.example"]
    assert told.out.splitlines()[2].endswith("in 5 min  answered with status 429")
    assert json.loads(uttu("status", "--lanes", "--json").out)[0]["pace"] == {"delay": 0.0, "limit": 0}


def test_a_crawl_by_its_spider_file(uttu: Uttu) -> None:
    make_crawl("other")
    told = uttu("status", "shop.py")
    assert told.code == 0
    assert told.err == "of other\n"


def test_a_crawl_that_is_not_there(uttu: Uttu) -> None:
    make_crawl()
    told = uttu("status", "shep")
    assert told.code == 4
    assert told.err == "uttu: There is no crawl 'shep' here, but there is: shop (uttu status lists all)\n"


def test_a_crawl_that_can_not_be_read_does_not_hide_the_others(uttu: Uttu) -> None:
    make_crawl()
    Path(".uttu/crawls/bad.db").write_bytes(b"no database" * 100)
    told = uttu("status")
    assert told.code == 0
    assert {line.split()[0] for line in told.out.splitlines()} == {"crawl", "shop", "bad"}
    assert "unreadable" in told.out
    assert uttu("status", "bad").code == 4


def test_the_latest_is_the_one_last_worked_on(uttu: Uttu) -> None:
    make_crawl("old")
    make_crawl("young")
    assert [line.split()[0] for line in uttu("status").out.splitlines()[1:]] == ["young", "old"]
    assert uttu("status", "--dead").err.splitlines()[0] == "of young, the latest of 2 crawls here"


def test_items_that_were_removed_behind_the_outputs(uttu: Uttu) -> None:
    async def remove() -> None:
        store = await depot_here().open("shop", Rules())
        await store.frontier.put([Request(url=f"{HOST}/many")])
        leases = await store.frontier.lease(100, "w")
        many = tuple(b"%d" % number for number in range(250))
        done = [Done(lease=lease, items=many) for lease in leases if lease.request.url.endswith("/many")]
        assert len(done) == 1
        await store.frontier.settle(done)
        items = await store.outbox.items(0, 1000)
        assert await store.ledger.claim("drain out.jsonl", "me", 10)
        assert await store.outbox.advance("out.jsonl", Cursor(items[-2].position, b"note"), "me")
        # A cut is made at a mark, and these are set as items are stored.
        await store.frontier.put([Request(url=f"{HOST}/last")])
        leases = await store.frontier.lease(100, "w")
        await store.frontier.settle([Done(lease=lease, items=many) for lease in leases])
        items = await store.outbox.items(0, 1000)
        assert await store.outbox.advance("out.jsonl", Cursor(items[-1].position, b"note"), "me")
        while await store.outbox.trim(["out.jsonl"], 10):
            pass
        assert (await store.outbox.trimmed()).count == 252
        await store.frontier.close()

    make_crawl()
    assert "keep_items" not in uttu("status", "shop").out
    asyncio.run(remove())
    assert (
        "502: the latest 250 are in the store, 252 are in the outputs only (keep_items)" in uttu("status", "shop").out
    )
    assert json.loads(uttu("status", "shop", "--json").out)["trimmed"] == 252

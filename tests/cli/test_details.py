"""``uttu items``, ``history``, ``events``, ``workers``, ``drain``, ``settings``, and the lists of ``uttu status``."""

from __future__ import annotations

import asyncio
import getpass
import json
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest

from tests.cli.conftest import HOST, Uttu, depot_here, make_crawl, supervised
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.model.crawl import CrawlState, LogLine, SettingSource, SettingValue, WorkerReport
from uttu.model.history import CrawlSample, EventKind

T = TypeVar("T")


def in_store(work: Callable[[CrawlStore], Awaitable[T]]) -> T:
    async def run() -> T:
        store = await depot_here().open("shop", Rules())
        try:
            return await work(store)
        finally:
            await store.frontier.close()

    return asyncio.run(run())


def report(name: str, **fields: object) -> None:
    made = WorkerReport(pid=7, started=time.time() - 10, **fields)  # type: ignore[arg-type]
    in_store(lambda store: store.ledger.report(name, msgspec.json.encode(made)))


def test_lanes_are_matched_and_filtered(uttu: Uttu) -> None:
    make_crawl()
    told = uttu("status", "shop", "--lanes", "--match", "slow", "--json")
    assert [lane["name"] for lane in json.loads(told.out)] == ["slow.example"]
    told = uttu("status", "shop", "--only", "held")
    assert "slow.example" in told.out
    assert "shop.example" not in told.out
    assert uttu("status", "shop", "--lanes", "--match", "nobody").err == "no such lane\n"


def test_dead_letters_are_grouped_and_searched(uttu: Uttu) -> None:
    make_crawl()
    groups = json.loads(uttu("status", "shop", "--groups", "--json").out)
    assert {(group["kind"], group["count"]) for group in groups} == {("http", 1), ("handler", 1), ("robots", 1)}
    assert "answered with status 404" in uttu("status", "shop", "--groups").out
    found = json.loads(uttu("status", "shop", "--dead", "--match", "/gone", "--json").out)
    assert [letter["url"] for letter in found] == [f"{HOST}/gone"]
    told = uttu("retry", "shop", "--message", "no such message")
    assert (told.code, told.err.startswith("no dead letter with 'no such message'; there are:")) == (1, True)
    assert uttu("retry", "shop", "--message", "answered with status 404").out.startswith("1 dead letter queued again")
    told = uttu("events", "shop")
    assert f"{getpass.getuser()}: retry (revived=1, message=answered with status 404)" in told.out


def test_items(uttu: Uttu) -> None:
    make_crawl()
    assert uttu("items", "shop", "--json").out == '{"n":2}\n{"n":1}\n'
    told = uttu("items", "shop", "-n", "1")
    assert told.out == "n\n2\n"
    assert told.err.startswith("there are more: --before ")
    assert uttu("items", "shop", "--match", '"n":1', "--json").out == '{"n":1}\n'
    assert uttu("items", "shop", "--match", "nothing").err == "no items\n"


def test_history(uttu: Uttu) -> None:
    make_crawl()
    now = time.time()

    async def record(store: CrawlStore) -> None:
        for number in range(3):
            at, done = now - 30 + 10 * number, 50 * number
            await store.history.record(CrawlSample(at=at, done=done, fetched=done, statuses={"200": done}, workers=1))

    in_store(record)
    points = json.loads(uttu("history", "shop", "--minutes", "10", "-n", "60", "--json").out)
    assert [point["pages"] for point in points][:2] == [pytest.approx(5.0), pytest.approx(5.0)]
    assert "100% 2xx" in uttu("history", "shop", "--minutes", "10", "-n", "60").out


def test_events_are_followed(uttu: Uttu) -> None:
    make_crawl()
    assert uttu("events", "shop").err == "nothing has happened yet\n"
    fields: dict[str, str | int | float] = {"lane": "a.example", "lanes": 5, "seconds": 30, "reason": "status 429"}
    in_store(lambda store: store.history.add_events([(EventKind.LANE, fields)]))
    assert "a.example and 4 more are held for 30 s: status 429" in uttu("events", "shop").out
    (event,) = [json.loads(line) for line in uttu("events", "shop", "--json").out.splitlines()]
    assert (event["kind"], event["fields"]) == ("lane", fields)


def test_workers_and_their_logs(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.RUNNING)
    report("w2", host="box", pages=20, log=[LogLine(time.time(), "info", "Worker w2 has joined")])
    with supervised():
        told = uttu("workers", "shop", "--log")
        assert "box" in told.out
        assert "info    Worker w2 has joined" in told.out
        found = json.loads(uttu("workers", "shop", "--json").out)
        assert {each["name"] for each in found} == {"w1", "w2"}
    assert uttu("workers", "shop").err.startswith("no worker is at it")
    assert "gone" in uttu("workers", "shop", "--gone").out


def test_drain(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.RUNNING)
    report("w2", in_flight=3)
    with supervised():
        assert uttu("drain", "shop", "w").err.startswith("uttu: Several workers of crawl 'shop' begin with 'w': w1, w2")
        assert "has no worker 'x'; there are: w1, w2" in uttu("drain", "shop", "x").err
        assert uttu("drain", "shop", "w2").out == "w2 finishes 3 pages and leaves; 1 worker goes on\n"
        assert uttu("drain", "shop", "w2").out == "w2 is leaving already; 1 worker goes on\n"
        told = uttu("drain", "shop", "w1")
        assert (told.code, "is the last worker" in told.err) == (1, True)
        assert "leaving" in uttu("workers", "shop").out
    assert in_store(lambda store: store.ledger.facts()).draining.keys() == {"w2"}


def test_settings(uttu: Uttu) -> None:
    values = (SettingValue("delay", 2.0, SettingSource.FLAG), SettingValue("robots", True))
    make_crawl(settings=values)
    told = uttu("settings", "shop")
    assert told.out.splitlines()[1].split() == ["delay", "2.0", "flag"]
    found = json.loads(uttu("settings", "shop", "--given", "--json").out)
    assert found == [{"name": "delay", "value": 2.0, "source": "flag"}]
    make_crawl()
    assert "an older Uttu started it" in uttu("settings", "shop").err

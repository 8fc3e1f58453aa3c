"""``uttu bus``: groups, lag, peek, purge, and what can't be."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Told, Uttu, make_crawl, supervised
from tests.cli.statuses import standing
from uttu.bus.base import REASON_HEADER, Bus, Rejected
from uttu.cli.foreground import ForegroundSpec
from uttu.model.crawl import CrawlState
from uttu.operations import control
from uttu.runtime import registry
from uttu.testing.contracts.broker import eventually, message, subscribe_to


class Desk:
    """A topic and a group of their own on a real broker, and commands about them."""

    def __init__(self, uttu: Uttu, url: str) -> None:
        self.url = url
        self.topic = f"t{secrets.token_hex(6)}.news"
        self.group = f"{self.topic}-readers"
        self._uttu = uttu

    def __call__(self, command: str, *words: str) -> Told:
        return self._uttu("bus", command, *words, "--bus", self.url)

    def open_group(self) -> None:
        told = self("subscribe", self.topic, "--group", self.group, "--count", "0")
        assert told.code == 0, told.err

    def lines(self, command: str, *words: str) -> list[dict[str, Any]]:
        told = self(command, *words)
        assert told.code == 0, told.err
        return [json.loads(line) for line in told.out.splitlines()]


on_every_broker = pytest.mark.parametrize("desk", ["redis_url", "rabbitmq_url", "kafka_url"], indirect=True)


@pytest.fixture
def desk(uttu: Uttu, request: pytest.FixtureRequest) -> Iterator[Desk]:
    desk = Desk(uttu, request.getfixturevalue(getattr(request, "param", "redis_url")))
    yield desk
    desk("purge", desk.group, "--forget", "--yes")


def bury(desk: Desk) -> None:
    """Make a dead letter in the desk's group."""

    async def run() -> None:
        bus = await registry.open_bus(desk.url)

        async def reject(deliveries: list[Any]) -> None:
            raise Rejected({delivery.position: "no use" for delivery in deliveries})

        await bus.subscribe(subscribe_to(desk.topic, group=desk.group), reject)
        await bus.publish([message(desk.topic, '{"bad": 1}', key="k")])

        async def dead() -> bool:
            return (await bus.groups(desk.group))[0].dead == 1

        await eventually(dead)
        await bus.close()

    asyncio.run(run())


@on_every_broker
def test_a_group_and_how_far_behind_it_is(desk: Desk) -> None:
    desk.open_group()
    assert desk("publish", desk.topic, "1", "2", "3", "--key", "k").out == "3 messages confirmed\n"
    (lag,) = desk.lines("lag", desk.group)
    assert (lag["name"], lag["lag"], lag["ready"], lag["dead"]) == (desk.group, 3, 3, 0)
    assert lag in desk.lines("groups", "--json")
    shown = desk.lines("peek", desk.group, "-n", "2")
    assert [line["payload"] for line in shown] == [1, 2]
    assert shown[0]["topic"] == desk.topic
    assert desk("purge", desk.group).code == 2
    assert desk("purge", desk.group, "--yes").out == "3 messages thrown away\n"
    assert desk.lines("lag", desk.group)[0]["lag"] == 0


@on_every_broker
def test_dead_letters_say_why_and_can_be_published_again(desk: Desk) -> None:
    bury(desk)
    told = desk("peek", desk.group, "--dead")
    (dead,) = [json.loads(line) for line in told.out.splitlines()]
    assert (dead["payload"], dead["headers"]) == ({"bad": 1}, {REASON_HEADER: "no use"})
    with open("dead.jsonl", "w") as file:
        file.write(told.out)
    assert desk("publish", "--messages", "-f", "dead.jsonl").out == "1 message confirmed\n"
    (again,) = desk.lines("peek", desk.group)
    assert (again["payload"], again["key"], again["headers"], again["id"]) == ({"bad": 1}, "k", {}, dead["id"])
    told = desk("purge", desk.group, "--dead", "--yes", "--json")
    assert json.loads(told.out) == {"group": desk.group, "thrown": 1, "forgotten": False}
    assert desk("purge", desk.group, "--forget", "--yes").out.endswith(f"; the group {desk.group} is forgotten\n")
    assert desk("lag", desk.group).code == 4
    desk.open_group()


def test_tables_for_people(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    bury(desk)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys.stdout.__class__, "isatty", lambda self: True)
    told = desk("lag", desk.group)
    assert all(word in told.out for word in ("group", "lag", "ready", "held", desk.group, desk.topic))
    told = desk("peek", desk.group, "--dead")
    assert "no use" in told.out
    assert desk("peek", desk.group).err == "no messages\n"


def test_a_watch_ends_by_a_signal(desk: Desk) -> None:
    desk.open_group()
    command = [sys.executable, "-m", "uttu", "bus", "lag", desk.group, "--watch", "--bus", desk.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        for _ in range(2):
            assert json.loads(watch.stdout.readline())["lag"] == 0
        watch.send_signal(signal.SIGINT)
        assert watch.wait(timeout=20) == 0


def test_the_bus_of_the_settings(desk: Desk, uttu: Uttu, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.open_group()
    told = uttu("bus", "groups")
    assert told.code == 2
    assert "say which bus: --bus URL, or the setting bus" in told.err
    with open("uttu.toml", "w") as file:
        file.write(f'bus = "{desk.url}"\n')
    assert desk.group in uttu("bus", "groups").out
    monkeypatch.setenv("UTTU_BUS", "memory:")
    assert uttu("bus", "groups").out == ""


def test_a_command_to_a_crawl_does_not_depend_on_the_bus(uttu: Uttu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTTU_BUS", "redis://u:secret@127.0.0.1:9/0")
    make_crawl(state=CrawlState.RUNNING)
    with supervised():
        told = uttu("pause", "shop")
    assert (told.code, standing().state) == (0, CrawlState.PAUSED)
    assert "So the workers hear of it within a second or two, not at once" in told.err
    assert "secret" not in told.err


def test_a_command_is_told_on_the_bus_that_the_crawl_was_started_with(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.RUNNING, flags={"bus": "redis://127.0.0.1:9/0"})
    with supervised():
        assert "redis://127.0.0.1:9/0" in uttu("pause", "shop").err
        assert uttu("rate", "shop", "shop.example", "--delay", "1").err == ""


def test_a_command_does_not_wait_long_for_the_bus(uttu: Uttu, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(url: str) -> Bus:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    monkeypatch.setattr(registry, "open_bus", never)
    monkeypatch.setattr(control, "_ANNOUNCE_SECONDS", 0.1)
    monkeypatch.setenv("UTTU_BUS", "redis://u:secret@h")
    make_crawl(state=CrawlState.RUNNING)
    with supervised():
        told = uttu("pause", "shop")
    assert (told.code, told.out[:15]) == (0, "shop is paused:")
    assert told.err.startswith("redis://u:***@h does not answer. So the workers")


@pytest.mark.parametrize(("command", "state"), [("pause", "running"), ("resume", "paused"), ("stop", "running")])
def test_a_command_answers_before_it_notifies_the_bus(
    uttu: Uttu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, state: str
) -> None:
    printed: list[str] = []

    async def away(url: str) -> Bus:
        printed.append(capsys.readouterr().out)
        raise TimeoutError

    monkeypatch.setattr(registry, "open_bus", away)
    monkeypatch.setenv("UTTU_BUS", "redis://h")
    make_crawl(state=CrawlState(state))
    with supervised():
        told = uttu(command, "shop")
    assert told.code == 0
    assert [text.startswith("shop ") for text in printed] == [True]


def test_passwords_are_not_kept_with_a_crawl() -> None:
    addresses = {"frontier": "redis://:secret@h", "bus": "redis://u:secret@h", "feed": "amqp://u:secret@h?topic=a"}
    plan = ForegroundSpec(file=Path("shop.py"), flags={**addresses, "delay": 1})
    assert plan.noted_flags == {"feed": "amqp://u:***@h?topic=a", "delay": 1}
    assert ForegroundSpec(file=Path("shop.py"), flags={"bus": "redis://h"}).noted_flags == {"bus": "redis://h"}


@pytest.mark.parametrize("command", [["groups"], ["publish", "a", "1"], ["subscribe", "a"], ["lag", "g"]])
def test_a_broker_that_is_not_there(uttu: Uttu, command: list[str]) -> None:
    told = uttu("bus", *command, "--bus", "redis://u:secret@127.0.0.1:9/0")
    assert told.code == 4, told.err
    assert "127.0.0.1:9" in told.err
    assert "secret" not in told.err


def test_what_is_no_bus(uttu: Uttu) -> None:
    told = uttu("bus", "groups", "--bus", "carrier-pigeon://loft")
    assert (told.code, told.err.startswith("uttu: there is no bus 'carrier-pigeon://loft'; write one of")) == (3, True)


@on_every_broker
def test_republish_returns_dead_letters(desk: Desk) -> None:
    desk.open_group()
    bury(desk)
    assert desk.lines("republish", desk.group, "--json") == [{"group": desk.group, "republished": 1}]
    assert desk.lines("peek", desk.group, "--dead") == []
    (back,) = desk.lines("peek", desk.group)
    assert (back["topic"], back["attempt"]) == (desk.topic, 1)
    assert REASON_HEADER not in back.get("headers", {})
    assert "0 dead letters republished" in desk("republish", desk.group).out


WHAT_ONLY_IT_HAS = {
    "redis": {"Keys"},
    "rabbitmq": {"Exchanges", "Bindings", "Queues"},
    "kafka": {"Brokers", "Partitions", "Offsets of groups"},
}


@on_every_broker
def test_describe_shows_what_only_this_broker_has(desk: Desk) -> None:
    desk.open_group()
    desk("publish", desk.topic, '{"n": 1}')
    (found,) = desk.lines("describe")
    tables = {table["title"]: table for table in found["tables"]}
    assert tables.keys() == WHAT_ONLY_IT_HAS[found["kind"]]
    assert found["version"]
    assert found["nodes"]
    assert desk.topic in {topic["name"] for topic in found["topics"]}
    cells = {str(cell) for table in tables.values() for row in table["rows"] for cell in row}
    assert any(desk.group in cell for cell in cells)


def test_republish_to_a_group_that_does_not_exist(desk: Desk) -> None:
    told = desk("republish", "nobody")
    assert told.code != 0
    assert "There is no group nobody" in told.err

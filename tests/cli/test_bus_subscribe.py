"""``uttu bus subscribe``: a line a message, acknowledged once it is printed."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys

import pytest

from tests.cli.conftest import Uttu
from tests.cli.test_bus import Desk, on_every_broker
from tests.cli.test_bus import desk as desk
from uttu.bus.base import Bus
from uttu.bus.memory import MemoryBroker, MemoryBus
from uttu.cli.bus import print_messages
from uttu.runtime import registry
from uttu.testing.contracts.broker import message, subscribe_to


def start(desk: Desk, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "uttu", "bus", "subscribe", *words, "--bus", desk.url]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@on_every_broker
def test_so_many_and_no_more_are_taken(desk: Desk) -> None:
    desk.open_group()
    assert desk("publish", desk.topic, *map(str, range(5)), "--key", "k").code == 0
    told = desk("subscribe", desk.topic, "--group", desk.group, "--count", "3")
    assert (told.code, told.err) == (0, "3 messages\n")
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert [line["payload"] for line in lines] == [0, 1, 2]
    assert {(line["topic"], line["key"], line["attempt"]) for line in lines} == {(desk.topic, "k", 1)}
    (lag,) = desk.lines("lag", desk.group)
    assert lag["lag"] == 2
    rest = desk.lines("subscribe", desk.topic, "--group", desk.group, "--count", "2")
    assert [line["payload"] for line in rest] == [3, 4]


def test_to_make_a_group_is_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        broker, taken = MemoryBroker(), subscribe_to("a", group="g")

        async def open_bus(url: str) -> Bus:
            return MemoryBus(broker)

        monkeypatch.setattr(registry, "open_bus", open_bus)
        await print_messages("x://", taken, 0, None)
        await MemoryBus(broker).publish([message("a", "1")])
        await print_messages("x://", taken, 0, None)
        (waiting,) = await MemoryBus(broker).peek("g")
        assert waiting.attempt == 1

    asyncio.run(run())


def test_without_a_group_until_a_signal(desk: Desk) -> None:
    with start(desk, desk.topic, "--where", "lang=de", "--where", "kind=page", "--any") as listening:
        assert listening.stdout is not None
        # Nobody tells that it listens, so it is told again and again.
        while not select.select([listening.stdout], [], [], 0)[0]:
            assert listening.poll() is None
            assert desk("publish", desk.topic, '"no"', "--header", "lang=en").code == 0
            assert desk("publish", desk.topic, '"yes"', "--header", "kind=page").code == 0
        listening.send_signal(signal.SIGINT)
        out, err = listening.communicate(timeout=30)
        assert listening.returncode == 0, err
        assert {json.loads(line)["payload"] for line in out.splitlines()} == {"yes"}
        assert err.endswith(("messages\n", "1 message\n"))


def test_it_ends_after_some_time(desk: Desk) -> None:
    told = desk("subscribe", desk.topic, "--seconds", "0.2")
    assert (told.code, told.out, told.err) == (0, "", "0 messages\n")


def test_what_could_not_be_printed_is_not_acknowledged(desk: Desk) -> None:
    desk.open_group()
    assert desk("publish", desk.topic, "1").code == 0
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "uttu", "bus", "subscribe", desk.topic, "--group", desk.group, "--bus", desk.url]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writing)
    assert done.returncode == 1, done.stderr
    assert desk.lines("lag", desk.group)[0]["lag"] == 1


@pytest.mark.parametrize(
    "words",
    [[], ["a b"], ["a..b"], ["a", "--any"], ["a", "--group", "a b"], ["a", "--prefetch", "0"], ["a", "--where", "x"]],
)
def test_wrong_usage(uttu: Uttu, words: list[str]) -> None:
    assert uttu("bus", "subscribe", *words, "--bus", "memory:").code == 2


@pytest.mark.parametrize("desk", ["kafka_url"], indirect=True)
def test_a_new_group_may_start_with_what_is_kept(desk: Desk) -> None:
    assert desk("publish", desk.topic, "1", "2", "--key", "k").code == 0
    found = desk.lines("subscribe", desk.topic, "--group", desk.group, "--from-start", "--count", "2")
    assert [line["payload"] for line in found] == [1, 2]


def test_what_the_broker_lacks_is_refused_by_name(uttu: Uttu) -> None:
    told = uttu("bus", "subscribe", "a", "--group", "g", "--from-start", "--bus", "memory:")
    assert (told.code, "lacks REPLAY" in told.err) == (4, True)

"""``uttu bus publish``: payloads from the command line, files and pipes."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Uttu
from tests.cli.test_bus import Desk, on_every_broker
from tests.cli.test_bus import desk as desk


@on_every_broker
def test_payloads_of_the_command_line(desk: Desk) -> None:
    desk.open_group()
    told = desk(
        "publish",
        desk.topic,
        '{"n": 1}',
        '"text"',
        "--key",
        "k",
        "--header",
        "lang=de",
        "--header",
        "kind=a=b",
        "--json",
    )
    assert (told.code, json.loads(told.out), told.err) == (0, {"confirmed": 2}, "")
    first, second = desk.lines("peek", desk.group)
    assert (first["payload"], first["key"], first["headers"]) == ({"n": 1}, "k", {"lang": "de", "kind": "a=b"})
    assert second["payload"] == "text"
    assert desk("publish", desk.topic, "3", "--id", "mine", "--key", "k").code == 0
    assert desk.lines("peek", desk.group)[2]["id"] == "mine"


def test_a_message_for_later(desk: Desk) -> None:
    desk.open_group()
    assert desk("publish", desk.topic, "1", "--delay", "600").code == 0
    (lag,) = desk.lines("lag", desk.group)
    assert (lag["lag"], lag["ready"], lag["delayed"]) == (1, 0, 1)


@on_every_broker
def test_lines_of_a_file_in_batches(desk: Desk) -> None:
    desk.open_group()
    Path("lines").write_text("".join(f'{{"n": {number}}}\n\n' for number in range(250)))
    assert desk("publish", desk.topic, "-f", "lines", "--key", "k").out == "250 messages confirmed\n"
    assert [line["payload"]["n"] for line in desk.lines("peek", desk.group, "-n", "300")] == list(range(250))


def test_a_line_that_is_not_json_is_named_and_ends_it(desk: Desk) -> None:
    desk.open_group()
    Path("lines").write_text("1\n2\n{nope}\n4\n")
    told = desk("publish", desk.topic, "-f", "lines")
    assert (told.code, told.out) == (2, "2 messages confirmed\n")
    assert told.err.startswith("uttu: lines, line 3: '{nope}' is not JSON: ")
    assert [line["payload"] for line in desk.lines("peek", desk.group)] == [1, 2]


def test_arguments_are_looked_at_before_anything_is_sent(desk: Desk) -> None:
    desk.open_group()
    told = desk("publish", desk.topic, "1", "", "3")
    assert told.code == 2
    assert told.err.startswith("uttu: argument 2: '' is not JSON")
    assert desk.lines("peek", desk.group) == []


def test_whole_messages(desk: Desk) -> None:
    desk.open_group()
    lines = [
        {"payload": [1], "headers": {"b": "2"}},
        {"topic": desk.topic, "text": "plain", "key": "other", "id": "x"},
        {"base64": base64.b64encode(b"\xff\x00").decode(), "attempt": 3},
    ]
    Path("lines").write_text("\n".join(map(json.dumps, lines)))
    told = desk("publish", desk.topic, "--messages", "-f", "lines", "--key", "k", "--header", "a=1")
    assert told.out == "3 messages confirmed\n"
    first, second, third = desk.lines("peek", desk.group)
    assert (first["payload"], first["key"], first["headers"]) == ([1], "k", {"a": "1", "b": "2"})
    assert (second["text"], second["key"], second["id"]) == ("plain", "other", "x")
    assert third["base64"] == "/wA="


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"payload": 1}', "has no topic"),
        ('{"topic": "a b", "payload": 1}', "is not a topic"),
        ('{"topic": "a", "colour": 1}', "unknown field `colour`"),
        ('{"topic": "a", "base64": "?"}', "not Base64"),
        ("[]", "is not a message"),
        ('{"topic": "a", "payload": 1, "priority": 10}', "The priority of a message must be 0 to 9, not 10"),
        ('{"topic": "a", "payload": 1, "priority": -1}', "The priority of a message must be 0 to 9, not -1"),
        ('{"topic": "a", "payload": 1, "delay": -1}', "The delay of a message must be seconds, 0 or more, not -1.0"),
    ],
)
def test_what_is_no_message(desk: Desk, line: str, why: str) -> None:
    Path("lines").write_text(line)
    told = desk("publish", "--messages", "-f", "lines")
    assert told.code == 2
    assert told.err.startswith("uttu: lines, line 1: ")
    assert why in told.err


def test_what_comes_through_a_pipe_is_sent_as_it_comes(desk: Desk) -> None:
    desk.open_group()
    command = [sys.executable, "-m", "uttu", "bus", "publish", desk.topic, "-f", "-", "--bus", desk.url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as publish:  # type: ignore[call-overload]
        publish.stdin.write("1\n")
        publish.stdin.flush()
        while not desk.lines("peek", desk.group):
            assert publish.poll() is None
        out, err = publish.communicate("bad\n", timeout=30)
    assert (publish.returncode, out) == (2, "1 message confirmed\n")
    assert "uttu: standard input, line 2: 'bad' is not JSON" in err


def test_a_publisher_waits_for_its_readers(desk: Desk) -> None:
    desk.open_group()
    assert desk("publish", desk.topic, "1", "2", "--max-lag", "2").code == 0
    command = [sys.executable, "-m", "uttu", "bus", "publish", desk.topic, "3", "--max-lag", "1", "--bus", desk.url]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as publish:
        assert publish.stderr is not None
        while (line := publish.stderr.readline()) != f"waiting: the group {desk.group} is behind by 2 messages\n":
            assert line
        for _ in range(3):  # it looks again meanwhile
            assert len(desk.lines("peek", desk.group)) == 2
        assert desk("purge", desk.group, "--yes").code == 0
        out, _ = publish.communicate(timeout=30)
    assert (publish.returncode, out) == (0, "1 message confirmed\n")


@pytest.mark.parametrize(
    "words",
    [
        ["a"],
        ["a b", "1"],
        ["a.*", "1"],
        ["a", "1", "2", "--id", "x"],
        ["a", "1", "--header", "x"],
        ["--messages"],
        ["-f", "x"],
        ["a", "1", "--priority", "10"],
        ["a", "1", "--delay", "-1"],
    ],
)
def test_wrong_usage(uttu: Uttu, words: list[str]) -> None:
    assert uttu("bus", "publish", *words, "--bus", "memory:").code == 2


def test_a_delay_without_end(uttu: Uttu) -> None:
    told = uttu("bus", "publish", "a", "1", "--delay", "inf", "--bus", "memory:")
    assert told.code == 2
    assert told.err == "uttu: argument 1: The delay of a message must be seconds, 0 or more, not inf\n"


def test_a_file_that_is_not_there(uttu: Uttu) -> None:
    told = uttu("bus", "publish", "a", "-f", "nowhere", "--bus", "memory:")
    assert (told.code, told.err) == (1, "uttu: nowhere: No such file or directory\n")


def test_within_one_process_nobody_listens(uttu: Uttu) -> None:
    assert uttu("bus", "publish", "a", "1", "--priority", "3", "--bus", "memory:").out == "1 message confirmed\n"

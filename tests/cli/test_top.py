"""``uttu top``: a crawl over all its workers."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Uttu, make_crawl, supervised
from uttu.cli.inspect import format_wait
from uttu.model import Pace
from uttu.model.crawl import INTERRUPTED, CrawlState
from uttu.model.lease import LaneState


def test_once_without_a_terminal(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.RUNNING)
    with supervised():
        told = uttu("top")
    assert (told.code, told.err) == (0, "")
    lines = [line.split() for line in told.out.splitlines()]
    assert lines[0] == ["running", "shop"]
    assert lines[1][:5] == ["pages", "2", "done,", "3", "dead,"]
    assert ["items", "2"] in lines
    assert ["to", "do", "4", "pending,", "1", "leased,", "1", "delayed"] in lines
    assert ["workers", "1", "at", "work"] in lines
    worker = next(line for line in lines if line[:1] == ["w1"])
    assert worker[2:5] == ["2", "1", "1"], "pages, in flight, held"
    slow = next(line for line in told.out.splitlines() if line.startswith("slow.example"))
    assert slow.endswith("answered with status 429, 5 min more")


def test_as_json(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.RUNNING)
    with supervised():
        data = json.loads(uttu("top", "shop", "--json").out)
    assert data["state"] == "running"
    assert data["counts"]["pending"] == 4
    assert data["workers"]["w1"].keys() == {"rate", "pages", "in_flight", "held", "age"}
    lanes = {lane["name"]: lane for lane in data["lanes"]}
    assert lanes["shop.example"]["waits_for"] == "a worker"
    assert lanes["shop.example"]["pace"] == {"delay": 0.0, "limit": 0}


def test_of_a_crawl_that_does_not_run(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.STOPPED, reason=INTERRUPTED)
    told = uttu("top", "shop")
    assert told.out.startswith("stopped  shop (interrupted)\n")
    assert "0 at work, 1 gone" in told.out
    assert uttu("top", "nope").code == 4


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"pending": 1}, "a worker"),
        ({"pending": 0, "active": 1}, "the page that is out"),
        ({"active": 3, "pace": Pace(0.5, 3), "wait": 2.0}, "the 3 pages that are out"),
        ({"active": 3, "pace": Pace(0.0, 0)}, "a worker"),
        ({"wait": 0.4}, "its delay, 0.4 s more"),
        ({"wait": 90.0, "reason": "answered with status 429"}, "answered with status 429, 90 s more"),
        ({"wait": 0.0, "reason": "answered with status 429"}, "a worker"),
        ({"pending": 0, "pace": Pace(0.0, 0)}, ""),
    ],
)
def test_why_a_lane_waits(fields: dict[str, object], said: str) -> None:
    known = {"name": "a.example", "pending": 5, "active": 0, "total": 9, "pace": Pace(0.5, 1), "wait": 0.0}
    assert format_wait(LaneState(**(known | fields))) == said  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["q", "signal"])
def test_live_on_a_terminal_until_it_is_ended(uttu: Uttu, tmp_path: Path, way: str) -> None:
    make_crawl(state=CrawlState.RUNNING)
    ours, theirs = pty.openpty()
    top = subprocess.Popen(
        [sys.executable, "-m", "uttu", "top", "shop"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=os.environ | {"TERM": "xterm"},
        # As a terminal would have it: shells let what they start in the background ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    try:
        shown = b""
        while shown.count(b"q ends") < 2:
            shown += os.read(ours, 4096)
        assert b"cut short" in shown
        if way == "q":
            os.write(ours, b"q")
        else:
            top.send_signal(signal.SIGINT)
        while True:
            try:
                if not os.read(ours, 4096):
                    break
            except OSError:  # how Linux says that nobody is on the other side
                break
        _, err = top.communicate(timeout=30)
        assert (top.returncode, err) == (0, b"")
    finally:
        top.kill()
        top.wait()
        os.close(ours)

"""The log tells the truth, in memory and in its file; the site in its own process."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import msgspec
import psutil
import pytest
from pyreqwest.client import ClientBuilder

from uttu.testing.site import Record, Site, SiteProcess, fetches, gaps, overlaps, serve
from uttu.testing.site.log import LogReader


def record(time: float, ended: float | None, host: str = "a", path: str = "/", lost: float | None = None) -> Record:
    return Record(0, time, host, "GET", path, 1, 200, ended, lost)


def test_gaps() -> None:
    seen = [record(1.0, None), record(4.0, None), record(2.5, None), record(9.0, None, "b")]
    assert gaps(seen) == {"a": [1.5, 1.5], "b": []}


def test_fetches() -> None:
    seen = [record(1, None, path="/x"), record(2, None, path="/x"), record(3, None, "b", "/x")]
    assert fetches(seen) == {("a", "/x"): 2, ("b", "/x"): 1}


def test_overlaps() -> None:
    one_by_one = [record(1, 2), record(2, 3), record(4, None, lost=5), record(6, 7)]
    assert overlaps(one_by_one) == {"a": 1}
    assert overlaps([record(1, None), record(2, 3), record(2.5, 4), record(9, 10), record(0, 99, "b")]) == {
        "a": 3,
        "b": 1,
    }


async def test_times_lie_between_those_of_the_client() -> None:
    async with serve() as running, ClientBuilder().build() as client:
        for number in range(50):
            before = time.monotonic()
            await client.get(f"{running.url}p/{number}").build().send()
            after = time.monotonic()
            seen = running.log[number]
            assert seen.ended
            assert before <= seen.time <= seen.ended <= after
            assert (seen.host, seen.method, seen.path, seen.status) == ("127.77.0.1", "GET", f"/p/{number}", 200)
        assert overlaps(running.log) == {"127.77.0.1": 1}
        assert len({seen.connection for seen in running.log}) == 1


async def test_overlaps_are_seen() -> None:
    async with serve(Site(latency=0.1)) as running, ClientBuilder().build() as client:
        await asyncio.gather(*(client.get(f"{running.url}p/{number}").build().send() for number in range(5)))
        assert overlaps(running.log) == {"127.77.0.1": 5}
        assert len({seen.connection for seen in running.log}) == 5


async def test_log_file_equals_log_in_memory(tmp_path: Path) -> None:
    """Also of requests that were written to it before they ended."""
    path = tmp_path / "log.jsonl"
    async with serve(log=path) as running, ClientBuilder().build() as client:
        slow = asyncio.create_task(client.get(running.url + "odd/slow?seconds=0.2").build().send())
        await running.until(lambda log: len(log) == 1)
        for number in range(20):
            await client.get(f"{running.url}p/{number}").build().send()
        running.flush()
        reader = LogReader(path)
        assert reader.records() == running.log
        assert reader.records()[0].ended is None
        await slow
        hanging = asyncio.create_task(client.get(running.url + "odd/hang").build().send())
        await running.until(lambda log: len(log) == 22)
    with pytest.raises(Exception, match=r"(?i)error|connection|closed"):
        await hanging
    assert reader.records() == LogReader(path).records() == running.log
    assert running.log[0].ended
    assert running.log[-1].lost


def test_incomplete_log_line_is_read_later(tmp_path: Path) -> None:
    path, records = tmp_path / "log.jsonl", [Record(number, 0.5, "h", "GET", f"/{number}", 0) for number in range(3)]
    text = msgspec.json.Encoder().encode_lines(records)
    reader = LogReader(path)
    for place in range(len(text) + 1):
        path.write_bytes(text[:place])
        assert reader.records() == records[: text[:place].count(b"\n")]


async def test_the_file_is_written_soon(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    async with serve(log=path, keep=False) as running, ClientBuilder().build() as client:
        await client.get(running.url + "p/0").build().send()
        async with asyncio.timeout(1):
            while not LogReader(path).records():  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.005)
        assert running.log == []


def test_site_in_its_own_process() -> None:
    site = Site(hosts=3, pages=30, robots="#" * 600_000)
    with SiteProcess(site) as running:
        for number in range(30):
            with urlopen(f"{running.urls[number % 3]}p/{number}") as answer:
                assert answer.status == 200
            # Without waiting: what was answered is in the records.
            assert len(running.records()) == number + 1
        with urlopen(running.url + "robots.txt") as answer:
            assert len(answer.read()) == 600_000
        seen = running.records()
        assert set(fetches(seen).values()) == {1}
        assert all(one.ended for one in seen)
        pid = running.pid
        with socket.create_connection(("127.77.0.1", int(running.url.split(":")[2].strip("/")))) as idle:
            idle.sendall(b"GET /odd/hang HTTP/1.1\r\n\r\n")
    assert not psutil.pid_exists(pid)


def test_records_of_a_site_that_was_killed() -> None:
    with SiteProcess() as running:
        with urlopen(running.url) as answer:
            assert answer.status == 200
        assert len(running.records()) == 1
        psutil.Process(running.pid).kill()
        assert len(running.records()) == 1


def test_a_site_that_can_not_start() -> None:
    with SiteProcess() as running:
        port = int(running.url.split(":")[2].strip("/"))
        with pytest.raises(RuntimeError, match="in use"), SiteProcess(Site(port=port)):
            pass


def test_site_process_ends_with_its_parent(tmp_path: Path) -> None:
    """The end of its input is its end."""
    command = [sys.executable, "-m", "uttu.testing.site", "--pages", "5", "--piped", "--log", str(tmp_path / "log")]
    reading, writing = os.pipe()
    child = subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE)
    os.close(reading)
    assert child.stdout
    with child.stdout:
        assert child.stdout.readline().startswith(b"ready http://127.77.0.1:")
        os.close(writing)
        assert child.wait(10) == 0


def test_help_and_mistakes() -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "uttu.testing.site", *arguments], capture_output=True, text=True)

    assert "--pages" in run("--help").stdout
    wrong = run("--base", "10.0.0.1")
    assert wrong.returncode == 1
    assert "127.0.0.0/8" in wrong.stderr

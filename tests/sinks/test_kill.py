"""Every file format through real kills: a process that drains is killed at any moment, and goes on."""

from __future__ import annotations

import csv
import json
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

TOTAL = 3000

DRAIN = """
import asyncio, os, sys
import msgspec
from uttu.engine import exporter, sink_writer
from uttu.frontier.base import Cursor, StoredItem, Trimmed
from uttu.runtime.registry import create_sink

target, cursor_file, total = sys.argv[1], sys.argv[2], int(sys.argv[3])
sink_writer.BATCH_ITEMS = 20
exporter.INTERVAL_SECONDS = 0.001

class Outbox:
    async def items(self, after, limit):
        numbers = range(after + 1, min(after + min(limit, 20), total) + 1)
        return [StoredItem(n, f"id-{n}", b'{"n":%d,"text":"%s"}' % (n, b"x" * (n % 300))) for n in numbers]

    async def cursor(self, sink):
        if not os.path.exists(cursor_file):
            return Cursor()
        with open(cursor_file, "rb") as file:
            return msgspec.msgpack.decode(file.read(), type=Cursor)

    async def advance(self, sink, cursor, owner):
        with open(cursor_file + ".new", "wb") as file:
            file.write(msgspec.msgpack.encode(cursor))
        os.replace(cursor_file + ".new", cursor_file)
        return True

    async def trimmed(self):
        return Trimmed()

    async def trim(self, sinks, keep):
        return False

    async def claim(self, role, owner, seconds):
        return True

    async def release(self, role, owner):
        pass

async def main():
    moving = exporter.Exporter(Outbox(), [create_sink(target, "crawl")], Outbox(), "me")
    await moving.open()
    print("open", flush=True)
    stop = asyncio.Event()
    running = asyncio.create_task(moving.run(stop))
    while (await Outbox().cursor("")).position < total:
        await asyncio.sleep(0.001)
    stop.set()
    await running
    await moving.finish(True)

asyncio.run(main())
"""


def jsonl(path: Path) -> list[int]:
    return [json.loads(line)["n"] for line in path.read_bytes().splitlines()]


def array(path: Path) -> list[int]:
    return [row["n"] for row in json.loads(path.read_bytes())]


def table(path: Path) -> list[int]:
    with path.open(newline="") as file:
        return [int(row["n"]) for row in csv.DictReader(file)]


def database(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as db:
        return [n for (n,) in db.execute("SELECT n FROM items ORDER BY rowid")]


def parquet(path: Path) -> list[int]:
    pq = pytest.importorskip("pyarrow.parquet")
    numbers: list[int] = pq.read_table(path).column("n").to_pylist()
    return numbers


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("out.jsonl", jsonl),
        ("out.json", array),
        ("out.csv", table),
        ("out.db", database),
        ("out.parquet", parquet),
    ],
)
def test_exact_after_kills(tmp_path: Path, name: str, read: Callable[[Path], list[int]]) -> None:
    target, cursor = tmp_path / name, tmp_path / "cursor"
    command = [sys.executable, "-c", DRAIN, str(target), str(cursor), str(TOTAL)]
    moments = random.Random(name)
    kills = 0
    for _ in range(6):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(moments.uniform(0, 0.05))
            process.kill()
            process.stdout.read()
        kills += process.returncode != 0
    assert kills
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert read(target) == list(range(1, TOTAL + 1))

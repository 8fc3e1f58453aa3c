"""Real processes on one SQLite file, by the real clock. Each child is this file, run with a task."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, cast

from uttu.frontier.base import Rules
from uttu.frontier.sqlite import Database, SqliteFrontier
from uttu.frontier.sqlite.outbox import SqliteOutbox
from uttu.model import Counts, Done, Pace, Request
from uttu.testing.contracts.store import EASY, numbers, page, pages

# Leases that no test lives to see the end of.
PATIENT = Rules(pace=EASY.pace, lease_seconds=1e6)
TREE = 3_000
FILES = 30


async def test_what_a_killed_process_had_is_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "crawl.db"
    async with opened(path) as first, opened(path) as second:
        await first.put(pages(3))
        with process("hold_three", path) as doomed:
            assert doomed.stdout.readline() == b"leased\n"
            assert await first.lease(9, "first") == []
            doomed.send_signal(signal.SIGKILL)
            doomed.wait()
        leases = await second.lease(9, "second")
        assert (numbers(leases), [lease.attempt for lease in leases]) == ([0, 1, 2], [2, 2, 2])
        assert await second.counts() == Counts(leased=3)


async def test_two_processes_do_every_page_once(tmp_path: Path) -> None:
    path = tmp_path / "crawl.db"
    with process("hammer", path) as one, process("hammer", path) as other:
        start_together(one, other)
        done = [int(number) for each in (one, other) for number in each.communicate()[0].split()]
        assert (one.returncode, other.returncode) == (0, 0)
    assert sorted(done) == list(range(TREE))
    async with opened(path) as frontier:
        assert await frontier.counts() == Counts(done=TREE, items=TREE, bytes=TREE)
        items = await SqliteOutbox(frontier.database).items(0, 2 * TREE)
    assert len({item.id for item in items}) == TREE
    assert sorted(int(item.json) for item in items) == list(range(TREE))


def test_a_new_file_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    with contextlib.ExitStack() as running:
        children = [running.enter_context(process("open_many", tmp_path)) for _ in range(4)]
        for _ in range(FILES):
            start_together(*children)
        assert [child.wait() for child in children] == [0] * 4


@contextlib.asynccontextmanager
async def opened(path: Path, rules: Rules = PATIENT) -> AsyncIterator[SqliteFrontier]:
    frontier = SqliteFrontier(Database.open(path), rules)
    try:
        yield frontier
    finally:
        await frontier.close()


class Child(subprocess.Popen[bytes]):
    """A process with pipes to and from it."""

    stdin: IO[bytes]
    stdout: IO[bytes]


@contextlib.contextmanager
def process(task: str, path: Path) -> Iterator[Child]:
    command = [sys.executable, __file__, task, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            yield cast("Child", child)
        finally:
            child.kill()


def start_together(*children: Child) -> None:
    assert {child.stdout.readline() for child in children} == {b"ready\n"}
    for child in children:
        child.stdin.write(b"go\n")
        child.stdin.flush()


def wait_for_the_others() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


async def open_many(folder: Path) -> None:
    for number in range(FILES):
        wait_for_the_others()
        Database.open(folder / f"{number}.db").close()


async def hold_three(path: Path) -> None:
    async with opened(path) as frontier:
        assert len(await frontier.lease(3, "doomed")) == 3
        print("leased", flush=True)
        await asyncio.Event().wait()


async def hammer(path: Path) -> None:
    """Crawl a tree of pages: each has two children, and links to some that others have, too."""

    def numbered(number: int) -> Request:
        return page(number, f"h{number % 11}.example")

    wait_for_the_others()
    async with opened(path, Rules(pace=Pace(0.0, 8), ahead=0.0)) as frontier:
        await frontier.put([numbered(0)])
        while not (await frontier.counts()).finished:
            outcomes = []
            for lease in await frontier.lease(16, f"worker-{os.getpid()}"):
                (number,) = numbers([lease])
                links = (2 * number + 1, 2 * number + 2, number // 2, number + 1)
                children = tuple(numbered(link) for link in links if link < TREE)
                outcomes.append(Done(lease=lease, children=children, items=(b"%d" % number,), size=1))
            assert await frontier.settle(outcomes) == set()
            print(*numbers(outcome.lease for outcome in outcomes))


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](Path(sys.argv[2])))

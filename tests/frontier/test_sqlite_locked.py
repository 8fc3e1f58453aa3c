"""Another program holds SQLite's own lock on a crawl's file: the event loop goes on, and so does the crawl after it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from pathlib import Path

import pytest

from uttu.errors import StoreError
from uttu.frontier.base import Rules
from uttu.frontier.sqlite import Database, SqliteFrontier, database
from uttu.model import Request

HELD_SECONDS = 1.0


async def longest_pause(until: asyncio.Task[object]) -> float:
    """The longest time that the event loop was blocked."""
    longest, last = 0.0, time.monotonic()
    while not until.done():
        await asyncio.sleep(0.01)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    return longest


@pytest.mark.parametrize("mode", ["EXCLUSIVE", "IMMEDIATE"])
async def test_the_loop_goes_on(tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    frontier = SqliteFrontier(Database.open(tmp_path / "crawl.db"), Rules())
    other = sqlite3.connect(tmp_path / "crawl.db", isolation_level=None)
    other.execute(f"BEGIN {mode}")
    asyncio.get_running_loop().call_later(HELD_SECONDS, other.execute, "COMMIT")
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "uttu.frontier"):
        putting = asyncio.create_task(frontier.put([Request(url="http://example.org/")]))
        assert await longest_pause(putting) < HELD_SECONDS / 2
    await putting
    assert time.monotonic() - began >= HELD_SECONDS
    assert "is locked by another program" in caplog.text
    assert (await frontier.counts()).pending == 1
    other.close()
    await frontier.close()


async def test_it_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.3)
    frontier = SqliteFrontier(Database.open(tmp_path / "crawl.db"), Rules())
    other = sqlite3.connect(tmp_path / "crawl.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match=r"locked\. Another program holds it"):
        await frontier.put([Request(url="http://example.org/")])
    other.execute("COMMIT")
    await frontier.put([Request(url="http://example.org/")])  # it has let go of its own lock
    other.close()
    await frontier.close()


async def test_one_that_is_cancelled_lets_go(tmp_path: Path) -> None:
    frontier = SqliteFrontier(Database.open(tmp_path / "crawl.db"), Rules())
    other = sqlite3.connect(tmp_path / "crawl.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    putting = asyncio.create_task(frontier.put([Request(url="http://example.org/")]))
    await asyncio.sleep(0.1)
    putting.cancel()
    await asyncio.gather(putting, return_exceptions=True)
    other.execute("COMMIT")
    await asyncio.wait_for(frontier.put([Request(url="http://example.org/")]), 10)
    other.close()
    await frontier.close()

"""What a running crawl shows, and on which terminal."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from uttu.cli.progress import LiveView, ProgressView, create_view
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Counts
from uttu.model.crawl import WorkerReport
from uttu.operations.monitor import CrawlProgress, ProgressMonitor, find_slowest


def hint(*words: str) -> str:
    return " ".join(words)


@pytest.fixture
async def store(tmp_path: Path) -> CrawlStore:
    return await SqliteCatalog(tmp_path).create("shop", Rules())


@pytest.mark.parametrize(
    ("terminal", "items_here", "expected"),
    [(True, False, LiveView), (True, True, ProgressView), (False, False, ProgressView)],
)
async def test_a_table_is_drawn_only_where_nothing_else_is_printed(
    store: CrawlStore, monkeypatch: pytest.MonkeyPatch, terminal: bool, items_here: bool, expected: type[ProgressView]
) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    assert type(create_view("shop", ProgressMonitor(store), hint, quiet=False, items_here=items_here)) is expected
    await store.frontier.close()


async def test_no_markup_is_shown_whatever_is_said_meanwhile(store: CrawlStore) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    async with LiveView("shop", ProgressMonitor(store), hint, console) as view:
        view.show(CrawlProgress(counts=Counts(done=7), reports=[WorkerReport(slowest=[("a[bold].example", 0.5)])]))
        view.say("stopping [/]")
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "stopping [/]" in shown
    assert "a[bold].example 500 ms" in shown
    assert shown.count("[bold") == shown.count("a[bold].example")
    await store.frontier.close()


def test_a_host_that_several_workers_ask_is_named_once() -> None:
    reports = [
        WorkerReport(slowest=[("a", 0.5), ("b", 0.2)]),
        WorkerReport(slowest=[("a", 0.7), ("c", 0.1), ("d", 0.3)]),
    ]
    assert find_slowest(reports) == [("a", 0.7), ("d", 0.3), ("b", 0.2)]


@pytest.mark.parametrize("turns", range(6))
async def test_the_end_and_a_look_at_the_same_time(store: CrawlStore, turns: int) -> None:
    """The view ends, whenever its next look is due."""
    async with asyncio.timeout(10):
        async with ProgressView("shop", ProgressMonitor(store), hint) as view:
            await asyncio.sleep(0.01)
            view._due.set()
            for _ in range(turns):
                await asyncio.sleep(0)
    await store.frontier.close()

"""A search that takes long goes on behind the page, and its result appears there."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.api.running import Dashboard, run_dashboard
from uttu.api.context import FRESH_SECONDS, Context, SharedCache
from uttu.api.data import crawls as data
from uttu.api.problems import StillSearching, Unavailable
from uttu.api.settings import load_config
from uttu.errors import StoreError
from uttu.operations import explanation
from uttu.testing.waiting import wait_until

URL = "https://shop.example/1"


class Slow:
    """An explanation that takes ``seconds``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.calls = 0
        self._seconds = seconds
        self._real = explanation.explain
        monkeypatch.setattr(explanation, "explain", self._explain)

    async def _explain(self, *words: Any, **named: Any) -> Any:
        self.calls += 1
        await asyncio.sleep(self._seconds)
        return await self._real(*words, **named)


def test_a_page_does_not_wait_for_a_search(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch, 3.0)
    with run_dashboard(folder) as dashboard:
        path = f"/crawls/local/shop/requests?url={URL}"
        assert b"data-searching" in dashboard.get(path).body
        wait_until(lambda: b'class="story"' in dashboard.get(path).body, "the story is shown", 20)
        assert b"data-searching" not in dashboard.get(path).body
        assert slow.calls == 1
        # The result counts for longer than that of a quick call.
        dashboard.context.cache.clock = lambda: time.monotonic() + 3 * FRESH_SECONDS
        assert b'class="story"' in dashboard.get(path).body
        assert slow.calls == 1


def test_the_api_says_when_to_ask_again(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    Slow(monkeypatch, 0.5)
    monkeypatch.setattr(data, "CALL_SECONDS", 0.1)
    path = f"/api/v1/crawls/local/shop/requests?url={URL}"
    answer = dashboard.get(path)
    assert answer.status == 503
    assert answer.headers["retry-after"]
    wait_until(lambda: dashboard.get(path).status == 200, "the search has ended", 10)


async def test_a_search_that_fails_is_repeated(tmp_path: Path) -> None:
    context = Context(load_config(tmp_path))
    calls = 0

    async def fail() -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.2)
        raise StoreError("away")

    with pytest.raises(StillSearching):
        await context.search("key", "The store", fail, 0.05)
    with pytest.raises(StoreError, match="away"):
        await context.search("key", "The store", fail, 5.0)
    assert calls == 1
    context.cache.clear()
    with pytest.raises(Unavailable):
        await context.search("key", "The store", fail, 5.0, limit=0.01)
    await context.close()


async def test_how_long_results_count() -> None:
    cache = SharedCache()
    calls = 0

    async def call(error: bool) -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.05)
        if error:
            raise StoreError("away")
        return calls

    assert await cache.get("a", lambda: call(False), 0.0, rest=100) == 1
    assert await cache.get("a", lambda: call(False), 0.0, rest=100) == 1
    assert await cache.get("a", lambda: call(False), 0.0) == 2
    for count in (3, 4):
        with pytest.raises(StoreError):
            await cache.get("b", lambda: call(True), 0.0, rest=100)
        assert calls == count

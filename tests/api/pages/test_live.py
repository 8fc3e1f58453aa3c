"""The live stream sends what changed, shares the work, and ends when nobody looks."""

from __future__ import annotations

import asyncio
import itertools

from tests.api.sample import SampleData
from tests.api.serving import create_sample_app
from uttu.api.pages import live
from uttu.api.pages.live import LiveHub, LiveKey, stream_events
from uttu.api.pages.shapes import Role
from uttu.errors import StoreError

KEY = LiveKey("/", (), Role.VIEWER, "en")


class Renderer:
    """Counts its calls; one of two fragments changes with each."""

    def __init__(self) -> None:
        self.calls = itertools.count(1)
        self.last = 0

    async def __call__(self, key: LiveKey) -> dict[str, str]:
        self.last = next(self.calls)
        return {"same": "a", "new": f"{key.language} {self.last}"}


async def test_first_everything_then_what_changed() -> None:
    watching = LiveHub(Renderer(), 0.01).watch(KEY)
    assert await anext(watching) == {"same": "a", "new": "en 1"}
    assert list(await anext(watching)) == ["new"]
    await watching.aclose()


async def test_viewers_of_one_page_share_it() -> None:
    renderer = Renderer()
    hub = LiveHub(renderer, 0.05)
    first, second = hub.watch(KEY), hub.watch(KEY)
    assert list(await asyncio.gather(anext(first), anext(second))) == [{"same": "a", "new": "en 1"}] * 2
    assert (renderer.last, hub.rooms) == (1, 1)
    await first.aclose()
    assert hub.rooms == 1
    await second.aclose()
    assert hub.rooms == 0


async def test_it_ends_when_nobody_looks() -> None:
    renderer = Renderer()
    watching = LiveHub(renderer, 0.01).watch(KEY)
    await anext(watching)
    await watching.aclose()
    before = renderer.last
    await asyncio.sleep(0.05)
    assert renderer.last <= before + 1


async def test_close_ends_streams() -> None:
    hub = LiveHub(Renderer(), 60)
    told = [text async for text in _until_closed(hub)]
    assert told[0].startswith("retry:")
    assert told[1].startswith("event: fragments\ndata: {")


async def _until_closed(hub: LiveHub):  # type: ignore[no-untyped-def]
    async for text in stream_events(hub.watch(KEY)):
        yield text
        if "fragments" in text:
            asyncio.get_running_loop().call_soon(asyncio.create_task, hub.close())


async def test_too_many_pages(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(live, "_MOST_ROOMS", 0)
    assert [text async for text in stream_events(LiveHub(Renderer()).watch(KEY))] == ["retry: 2000\n\n"]


class FailingData(SampleData):
    """A store that can be taken away."""

    away = False

    async def read_crawl(self, store: str, crawl: str):  # type: ignore[no-untyped-def]
        if self.away:
            raise StoreError("redis://10.0.0.5 does not answer")
        return await super().read_crawl(store, crawl)


async def test_page_says_that_its_store_is_away_and_recovers() -> None:
    data = FailingData()
    pages = create_sample_app(data).state.pages
    key = LiveKey("/crawls/local/shop-prices", (), Role.OPERATOR, "en")
    well = await pages._render_live(key)
    assert {"notice", "state", "numbers", "verbs", "charts"} <= well.keys()
    data.away = True
    away = await pages._render_live(key)
    assert list(away) == ["notice"]
    assert "does not answer" in away["notice"]
    data.away = False
    assert "does not answer" not in (await pages._render_live(key))["notice"]


async def test_fragments_hold_no_token_and_no_name() -> None:
    pages = create_sample_app().state.pages
    fragments = await pages._render_live(LiveKey("/crawls/local/shop-prices", (), Role.OPERATOR, "zh"))
    assert 'name="csrf" value=""' in fragments["verbs"]
    assert "暂停" in fragments["verbs"]


async def test_viewers_get_no_verbs() -> None:
    pages = create_sample_app().state.pages
    assert "verbs" not in await pages._render_live(LiveKey("/crawls/local/shop-prices", (), Role.VIEWER, "en"))

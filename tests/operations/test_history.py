"""Points of a history: differences of samples, in bounds, with gaps where nothing ran."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu import Page, Spider
from uttu.model.history import LATENCY_BOUNDS, CrawlSample, EventKind
from uttu.operations.history import estimate_quantile, make_point, make_points, read_events, read_history
from uttu.settings import DATA_FOLDER
from uttu.testing.crawls import crawl
from uttu.testing.site import Site, serve

NOW = time.time()


def sample(seconds_ago: float, done: int, **fields: int) -> CrawlSample:
    return CrawlSample(at=NOW - seconds_ago, done=done, fetched=done, **fields)  # type: ignore[arg-type]


def test_a_point_is_a_difference() -> None:
    latency = (0,) * len(LATENCY_BOUNDS)
    before = CrawlSample(at=0, done=10, items=5, bytes=100, fetched=10, seconds=1.0, latency=(10, *latency))
    after = CrawlSample(
        at=10,
        done=30,
        dead=10,
        items=25,
        bytes=1100,
        fetched=50,
        retries=10,
        seconds=5.0,
        latency=(10, 40, *latency[1:]),
        statuses={"200": 20, "404": 10, "0": 10},
        pending=7,
        delayed=1,
        workers=2,
    )
    point = make_point(before, after)
    assert (point.at, point.seconds, point.pages, point.items, point.errors) == (10, 10, 2.0, 2.0, 1.0)
    assert (point.retries, point.bytes, point.latency_mean) == (1.0, 100.0, 0.1)
    assert (point.pending, point.workers) == (8, 2)
    assert point.statuses == {"2xx": 2.0, "4xx": 1.0, "none": 1.0}
    assert point.latency_p50 == pytest.approx(0.075)
    assert make_point(after, before).pages == 0, "a moved crawl begins its totals anew"


def test_points_are_bounded_and_keep_the_totals() -> None:
    samples = [sample(3600 - 10 * number, 5 * number) for number in range(361)]
    points = make_points(samples, 3600, 60)
    assert 55 <= len(points) <= 60
    assert all(point.pages == pytest.approx(0.5) for point in points)
    assert make_points(samples[:1], 3600, 60) == []


def test_a_gap_is_no_time_of_zero_pages() -> None:
    samples = [sample(1000, 0), sample(990, 50), sample(100, 50), sample(90, 100)]
    assert [point.pages for point in make_points(samples, 1200, 10)] == [5.0, 5.0]


@given(st.lists(st.integers(0, 1000), min_size=len(LATENCY_BOUNDS) + 1, max_size=len(LATENCY_BOUNDS) + 1))
def test_quantiles_grow(latency: list[int]) -> None:
    low, high = estimate_quantile(latency, 0.5), estimate_quantile(latency, 0.95)
    if not any(latency):
        assert low is None
        assert high is None
    else:
        assert low is not None
        assert high is not None
        assert 0 <= low <= high <= 2 * LATENCY_BOUNDS[-1]


async def test_the_history_of_a_crawl(tmp_path: Path) -> None:
    async with serve(Site(pages=30)) as site:
        spider = Spider("pages", start=site.url + "p/0")

        @spider.page
        def page(page: Page) -> Iterator[Any]:
            yield {"url": page.url}
            yield page.follow_all("a")

        done = await crawl(spider, tmp_path / DATA_FOLDER, private=True)
    assert len(done.items) == 30
    history = await read_history("pages", "", 600, 100, print, tmp_path)
    assert sum(point.pages * point.seconds for point in history.points) == pytest.approx(30)
    assert sum(sum(point.statuses.values()) * point.seconds for point in history.points) == pytest.approx(30)
    events = await read_events("pages", "", -1, 10, print, tmp_path)
    assert [event.kind for event in events] == [EventKind.STATE, EventKind.WORKER, EventKind.WORKER, EventKind.STATE]
    assert events[-1].fields["state"] == "finished"
    assert await read_events("pages", "", events[1].position, 1, print, tmp_path) == events[2:3]

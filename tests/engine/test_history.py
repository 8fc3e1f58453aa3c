"""The history that workers write: samples by one of them, and events that don't flood it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from uttu.engine.history import _LANE_BURST, EventRecorder, Sampler, make_sample, record_last
from uttu.engine.stats import WorkerStats
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Counts, Request
from uttu.model.crawl import NO_REASON, CrawlState, WorkerReport
from uttu.model.history import LATENCY_BOUNDS, SAMPLE_SECONDS, EventKind
from uttu.testing.clock import FakeClock


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CrawlStore]:
    store = await SqliteCatalog(tmp_path).create("crawl", Rules())
    yield store
    await store.frontier.close()


def test_a_sample_adds_up_all_reports() -> None:
    stats = WorkerStats()
    for elapsed in (0.01, 0.05, 0.3, 99.0):
        stats.record_fetch("a.example", 200, 100, elapsed)
    stats.failed = 2
    fields = {"pid": 1, "started": 0.0, "in_flight": 0, "held": 0, "concurrency": 1}
    report = stats.report(flying=[], **fields)  # type: ignore[arg-type]
    old = WorkerReport(fetched=6, retries=1, statuses={"404": 6})
    sample = make_sample(7.0, Counts(pending=1, done=10, items=3, bytes=400), [(0.5, report), (9999.0, old)])
    assert (sample.at, sample.pending, sample.done, sample.items, sample.bytes) == (7.0, 1, 10, 3, 400)
    assert (sample.fetched, sample.retries, sample.workers) == (10, 1, 1)
    assert sample.statuses == {"200": 4, "404": 6, "0": 2}
    assert sample.latency == (2, 0, 0, 1, 0, 0, 0, 0, 0, 1)
    assert len(sample.latency) == len(LATENCY_BOUNDS) + 1
    assert sample.seconds == pytest.approx(99.36)


async def test_one_worker_takes_samples_and_another_takes_over(store: CrawlStore) -> None:
    clock = FakeClock()
    await store.frontier.put([Request(url="http://a.example/")])
    first, second = (Sampler(store.history, store.frontier, store.ledger, clock, name) for name in ("a", "b"))
    await store.ledger.report("a", msgspec.json.encode(WorkerReport(fetched=1)))
    for _ in range(3):
        await first.look()
        await second.look()
    assert [sample.fetched for sample in await store.history.samples(0)] == [1]
    assert (await store.ledger.claimed())["history"] == "a"
    await first.leave()
    clock.advance(SAMPLE_SECONDS)
    await store.ledger.report("b", msgspec.json.encode(WorkerReport(fetched=5)))
    await second.look()
    assert [sample.fetched for sample in await store.history.samples(0)] == [1, 6]
    await record_last(store.history, store.frontier, store.ledger, clock)
    assert len(await store.history.samples(0)) == 3, "although the slot has a sample"


async def test_events_are_kept(store: CrawlStore) -> None:
    async with EventRecorder(store.history, FakeClock()) as recorder:
        recorder.state(CrawlState.RUNNING, NO_REASON)
        recorder.worker("w", "joined", pid=7)
        recorder.lane("a.example", 30.0, "answered with status 429")
    events = await store.history.events(0, 10)
    assert [event.kind for event in events] == [EventKind.STATE, EventKind.WORKER, EventKind.LANE]
    assert events[2].fields == {"lane": "a.example", "seconds": 30.0, "reason": "answered with status 429"}


async def test_ten_thousand_held_hosts_are_few_events(store: CrawlStore) -> None:
    async with EventRecorder(store.history, FakeClock()) as recorder:
        for number in range(10_000):
            recorder.lane(f"h{number}.example", 30.0 + number % 2, "answered with status 429")
        recorder.worker("w", "left")
    events = await store.history.events(0, 2000)
    assert [event.kind for event in events].count(EventKind.LANE) == _LANE_BURST + 1
    summary = next(event.fields for event in events if "lanes" in event.fields)
    assert (summary["lanes"], summary["seconds"]) == (10_000 - _LANE_BURST, 31.0)
    assert summary["reason"] == "answered with status 429"

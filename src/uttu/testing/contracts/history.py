"""The contract of a crawl's history: samples over time that thin out with age, and events."""

from __future__ import annotations

import pytest

from uttu.model.history import MOST_EVENTS, SAMPLE_SECONDS, CrawlEvent, CrawlSample, EventKind, thin_out
from uttu.testing.contracts.store import EASY, StoreUnderTest, page

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


class HistoryContract:
    """Samples, one per slot, bounded however long the crawl takes."""

    async def test_samples_come_back_as_they_are(self, store: StoreUnderTest) -> None:
        history, other = await store.history(), await store.history()
        assert await history.samples(0.0) == []
        sample = CrawlSample(
            at=store.clock.time() + 0.125,
            pending=1,
            leased=2,
            delayed=3,
            workers=4,
            done=5,
            dead=6,
            items=2**40,
            bytes=2**52,
            fetched=9,
            retries=10,
            seconds=11.0625,
            latency=(1, 2, 3, 0, 0, 0, 0, 0, 0, 4),
            statuses={"200": 7, "0": 1},
        )
        await history.record(sample)
        await history.record(CrawlSample(at=sample.at + MINUTE))
        assert await other.samples(0.0) == [sample, CrawlSample(at=sample.at + MINUTE)]

    async def test_the_first_sample_of_a_slot_counts(self, store: StoreUnderTest) -> None:
        history, start = await store.history(), _start_of_slot(store)
        for seconds, done in ((1, 1), (0, 2), (9.875, 3), (10, 4), (19, 5), (20.5, 6)):
            await history.record(CrawlSample(at=start + seconds, done=done))
        assert [(sample.at - start, sample.done) for sample in await history.samples(0.0)] == [
            (1.0, 1),
            (10.0, 4),
            (20.5, 6),
        ]

    async def test_samples_come_in_any_order_and_are_read_by_time(self, store: StoreUnderTest) -> None:
        history, start = await store.history(), _start_of_slot(store)
        for number in (7, 2, 9, 0, 4, 1, 8, 3, 6, 5):
            await history.record(CrawlSample(at=start + SAMPLE_SECONDS * number, done=number))

        async def between(*times: float) -> list[int]:
            return [sample.done for sample in await history.samples(*(start + time for time in times))]

        assert await between(0) == list(range(10))
        assert await between(40, 60) == [4, 5, 6]
        assert await between(40.5, 59.5) == [5]
        assert await between(90) == [9]
        assert await between(91) == []
        assert await between(60, 40) == []

    async def test_samples_thin_out_with_age(self, store: StoreUnderTest) -> None:
        history, clock, times = await store.history(), store.clock, list[float]()

        async def record() -> None:
            times.append(clock.time())
            await history.record(CrawlSample(at=clock.time(), done=len(times)))

        # Ages of bursts of samples, each 20 minutes long, at the end of 70 days; between them a sample every six hours.
        begin = _start_of_slot(store) + SAMPLE_SECONDS
        clock.advance(begin - clock.time())
        for age in (65 * DAY, 30 * DAY, 2 * DAY, 25 * HOUR, 12 * HOUR, 3 * HOUR, 20 * MINUTE):
            while clock.time() + 6 * HOUR < begin + 70 * DAY - age:
                await record()
                clock.advance(6 * HOUR)
            clock.advance(begin + 70 * DAY - age - clock.time())
            for _ in range(120):
                await record()
                clock.advance(SAMPLE_SECONDS)
        await record()
        kept = [sample.at for sample in await history.samples(0.0)]
        dropped = set(thin_out(times, clock.time()))
        expected = [at for at in times if at not in dropped]
        assert set(expected) <= set(kept)
        assert len(kept) <= len(expected) + MINUTE / SAMPLE_SECONDS, "a store may thin out a minute late"
        assert kept == sorted(set(kept))
        assert (kept[0] >= clock.time() - 60 * DAY - MINUTE, kept[-1]) == (True, times[-1])
        assert len([at for at in kept if at >= clock.time() - 2 * HOUR]) == 121

    async def test_a_sample_from_long_ago_is_not_kept(self, store: StoreUnderTest) -> None:
        history, now = await store.history(), store.clock.time()
        await history.record(CrawlSample(at=now))
        await history.record(CrawlSample(at=now - 61 * DAY))
        await history.record(CrawlSample(at=now - 59 * DAY))
        store.clock.advance(MINUTE)
        await history.record(CrawlSample(at=now + MINUTE))
        assert [sample.at - now for sample in await history.samples(0.0)] == [-59 * DAY, 0.0, MINUTE]

    async def test_the_latest_sample_stays(self, store: StoreUnderTest) -> None:
        history, now = await store.history(), store.clock.time()
        await history.record(CrawlSample(at=now - 100 * DAY, done=1))
        assert [sample.done for sample in await history.samples(0.0)] == [1]

    async def test_the_history_is_found_again(self, store: StoreUnderTest) -> None:
        frontier, history = await store.frontier(EASY), await store.history()
        await history.record(CrawlSample(at=store.clock.time(), done=3))
        await history.add_events([(EventKind.STATE, {"state": "running"})])
        samples, events = await history.samples(0.0), await history.events(0, 9)
        await frontier.close()
        history = await store.history()
        assert (await history.samples(0.0), await history.events(0, 9)) == (samples, events)
        assert (len(samples), len(events)) == (1, 1)

    async def test_a_history_is_none_of_the_crawl_s_work(self, store: StoreUnderTest) -> None:
        frontier, history = await store.frontier(EASY), await store.history()
        await frontier.put([page(1)])
        before = await frontier.counts()
        await history.record(CrawlSample(at=store.clock.time()))
        await history.add_events([(EventKind.LANE, {"lane": "a.example", "seconds": 2.5, "reason": "Retry-After"})])
        assert await frontier.counts() == before


class EventContract:
    """What happened in a crawl, in order."""

    async def test_events_are_read_backwards(self, store: StoreUnderTest) -> None:
        history = await store.history()
        await history.add_events([(EventKind.STATE, {"number": number}) for number in range(5)])
        latest = await history.events(-1, 2)
        assert [event.fields["number"] for event in latest] == [3, 4]
        older = await history.events(-1, 2, latest[0].position)
        assert [event.fields["number"] for event in older] == [1, 2]
        assert [event.fields["number"] for event in await history.events(-1, 9, older[0].position)] == [0]

    async def test_events_come_back_as_they_are(self, store: StoreUnderTest) -> None:
        history, other = await store.history(), await store.history()
        assert await history.events(-1, 9) == await history.events(0, 9) == []
        fields: dict[str, str | int | float] = {"by": "é\u2028😀\n'\"", "count": 2**40, "seconds": 2.5, "empty": ""}
        await history.add_events([(kind, fields) for kind in EventKind])
        await history.add_events([])
        await history.add_events([(EventKind.STATE, {})])
        events = await other.events(0, 99)
        assert [(event.kind, event.fields) for event in events] == [
            *((kind, fields) for kind in EventKind),
            (EventKind.STATE, {}),
        ]
        assert [type(value) for value in events[0].fields.values()] == [str, int, float, str]
        assert [event.at for event in events] == [pytest.approx(store.clock.time(), abs=1e-3)] * len(events)

    async def test_positions_are_times_that_only_grow(self, store: StoreUnderTest) -> None:
        history, other = await store.history(), await store.history()
        for seconds in (0.0, 0.0, 0.125, 0.0, 5.0):
            store.clock.advance(seconds)
            await history.add_events(_numbered(range(3)))
            await other.add_events(_numbered(range(2)))
        events = await history.events(0, 99)
        positions = [event.position for event in events]
        assert len(events) == 25
        assert positions == sorted(set(positions))
        assert [event.fields["n"] for event in events] == [0, 1, 2, 0, 1] * 5
        assert positions[-5] == pytest.approx(store.clock.time() * 1e6, abs=1000)

    async def test_events_are_read_from_a_position(self, store: StoreUnderTest) -> None:
        history = await store.history()
        await history.add_events(_numbered(range(10)))
        events = await history.events(0, 99)
        assert await history.events(0, 4) == events[:4]
        assert await history.events(events[3].position, 4) == events[4:8]
        assert await history.events(events[3].position + 0, 0) == []
        assert await history.events(events[9].position, 4) == []
        assert await history.events(-1, 3) == events[7:]
        assert await history.events(-1, 99) == events
        await history.add_events(_numbered([10]))
        assert _numbers(await history.events(events[9].position, 4)) == [10]

    async def test_the_latest_events_are_kept(self, store: StoreUnderTest) -> None:
        history = await store.history()
        for first in range(0, MOST_EVENTS + 500, 250):
            await history.add_events(_numbered(range(first, first + 250)))
            store.clock.advance(1)
        assert _numbers(await history.events(0, 10_000)) == list(range(500, MOST_EVENTS + 500))
        await history.add_events(_numbered(range(2 * MOST_EVENTS)))
        assert _numbers(await history.events(0, 10_000)) == list(range(MOST_EVENTS, 2 * MOST_EVENTS))


def _start_of_slot(store: StoreUnderTest) -> float:
    return store.clock.time() // SAMPLE_SECONDS * SAMPLE_SECONDS


def _numbered(numbers: range | list[int]) -> list[tuple[EventKind, dict[str, str | int | float]]]:
    return [(EventKind.OPERATOR, {"n": number}) for number in numbers]


def _numbers(events: list[CrawlEvent]) -> list[str | int | float]:
    return [event.fields["n"] for event in events]

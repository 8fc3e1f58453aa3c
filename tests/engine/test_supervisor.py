"""What a supervisor does about pauses, stops and workers elsewhere; whole crawls are in tests/crawl."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.engine.test_exporter import MemorySink
from tests.engine.test_heartbeat import RULES, attentive, counted, member_of, reported_after, requests
from tests.engine.test_seeds_pushed import MemoryFeed
from uttu.bus.base import Message
from uttu.bus.memory import MemoryBus
from uttu.clock import SystemClock
from uttu.engine import supervisor as supervisor_module
from uttu.engine.exporter import Exporter
from uttu.engine.seeds import TopicSeeds
from uttu.engine.supervisor import DRAINED, HANDED_ON, Ending, Supervisor, WorkerGroup
from uttu.engine.worker_processes import CrashedPage
from uttu.errors import BusError, SinkError, SpiderError, StartError, StoreError, UttuError
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Counts, Done, Request
from uttu.model.crawl import INTERRUPTED, CrawlLimits, CrawlState, Reason, ReasonKind, WorkerReport
from uttu.testing.contracts.broker import eventually

__all__ = ["attentive"]

UNLIMITED = CrawlLimits()


@pytest.fixture(autouse=True)
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "_WATCH_SECONDS", 0.005)
    monkeypatch.setattr(supervisor_module, "_LINGER_SECONDS", 0.005)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CrawlStore]:
    store = await SqliteCatalog(tmp_path).create("crawl", RULES)
    yield store
    await store.frontier.close()


class Start:
    """Start requests, some of them when the test says so."""

    def __init__(self, first: Sequence[Request], then: Sequence[Request] = ()) -> None:
        self.go_on = asyncio.Event()
        self._first, self._then = first, then

    async def stream(self) -> AsyncIterator[Request]:
        for request in self._first:
            yield request
        if self._then:
            await self.go_on.wait()
        for request in self._then:
            yield request


async def singly(requests: AsyncIterator[Request]) -> AsyncIterator[list[Request]]:
    async for request in requests:
        yield [request]


def supervisor_of(
    store: CrawlStore,
    start: Start,
    *,
    sink: MemorySink | None = None,
    limits: CrawlLimits = UNLIMITED,
    feed: MemoryFeed | None = None,
    stay: bool = False,
    crew: WorkerGroup | None = None,
    topic_seeds: TopicSeeds | None = None,
    grace: float = 60.0,
) -> Supervisor:
    return Supervisor(
        start=singly(start.stream()),
        crew=crew or member_of(store, feed=None, stay=stay),
        frontier=store.frontier,
        ledger=store.ledger,
        drain=Exporter(store.outbox, [sink] if sink is not None else [], store.ledger, "supervisor"),
        limits=limits,
        clock=SystemClock(),
        feed=feed,
        stay=stay,
        topic_seeds=topic_seeds,
        grace=grace,
    )


async def ending_of(running: asyncio.Task[Ending]) -> Ending:
    async with asyncio.timeout(10):
        return await running


async def stated(store: CrawlStore, state: CrawlState) -> None:
    async with asyncio.timeout(10):
        while (await store.ledger.facts()).state != state:  # noqa: ASYNC110 (stores have no events)
            await asyncio.sleep(0.001)


async def test_a_crawl_that_stays_is_stopped_by_its_operator(store: CrawlStore) -> None:
    sink = MemorySink()
    supervisor = supervisor_of(store, Start(requests(3)), sink=sink, stay=True)
    await supervisor.open()
    running = asyncio.create_task(supervisor.run())
    await counted(store, Counts(done=3))
    await store.ledger.note(state=CrawlState.STOPPING, reason=Reason("stopped by the operator"))
    assert await ending_of(running) == Ending(CrawlState.STOPPED, Reason("stopped by the operator"))
    facts = await store.ledger.facts()
    assert (facts.state, facts.reason) == (CrawlState.STOPPED, Reason("stopped by the operator"))
    assert sink.events == ["open", "closed"]


async def test_an_operator_stops_a_crawl_with_work_left(store: CrawlStore) -> None:
    start = Start(requests(3), then=requests(3, first=3))
    running = asyncio.create_task(supervisor_of(store, start).run())
    await stated(store, CrawlState.RUNNING)
    await store.ledger.note(state=CrawlState.STOPPING, reason=Reason("stopped by the operator"))
    assert await ending_of(running) == Ending(CrawlState.STOPPED, Reason("stopped by the operator"))
    assert (await store.ledger.facts()).seeded is False


async def test_nothing_is_seeded_while_it_is_paused_and_then_it_goes_on(store: CrawlStore) -> None:
    start = Start([], then=requests(4))
    running = asyncio.create_task(supervisor_of(store, start).run())
    await stated(store, CrawlState.RUNNING)
    await store.ledger.note(state=CrawlState.PAUSED)
    await reported_after(store, "w")
    start.go_on.set()
    await reported_after(store, "w", 5)
    assert await store.frontier.counts() == Counts()
    await store.ledger.note(state=CrawlState.RUNNING)
    assert await ending_of(running) == Ending(CrawlState.FINISHED)
    assert await store.frontier.counts() == Counts(done=4)


async def test_time_goes_on_while_it_is_paused(store: CrawlStore) -> None:
    start = Start(requests(2), then=requests(2, first=2))
    running = asyncio.create_task(supervisor_of(store, start, limits=CrawlLimits(seconds=0.05)).run())
    await stated(store, CrawlState.RUNNING)
    await store.ledger.note(state=CrawlState.PAUSED)
    assert await ending_of(running) == Ending(CrawlState.LIMITED, Reason("limit of 0.05 seconds"))


async def test_a_signal_here_reaches_workers_elsewhere_and_their_items_are_in_the_output(store: CrawlStore) -> None:
    sink = MemorySink()
    await store.frontier.put(requests(1))
    (elsewhere,) = await store.frontier.lease(1, "far away")
    await store.ledger.report("far away", msgspec.json.encode(WorkerReport(held=1)))
    supervisor = supervisor_of(store, Start(requests(3, first=1)), sink=sink)
    await supervisor.open()
    running = asyncio.create_task(supervisor.run())
    await counted(store, Counts(leased=1, done=3))
    supervisor.drain(INTERRUPTED)
    await stated(store, CrawlState.STOPPING)
    assert not running.done()
    await store.frontier.settle([Done(lease=elsewhere, items=(b"1",))])
    await store.ledger.report("far away", msgspec.json.encode(WorkerReport()))
    assert (await ending_of(running)).state in (CrawlState.FINISHED, CrawlState.STOPPED)
    assert len(sink.ids) == 1


async def test_told_to_stop_at_once_it_does_not_wait_for_others(store: CrawlStore) -> None:
    await store.frontier.put(requests(1))
    await store.frontier.lease(1, "far away")
    await store.ledger.report("far away", msgspec.json.encode(WorkerReport(held=1)))
    supervisor = supervisor_of(store, Start(requests(3, first=1)))
    running = asyncio.create_task(supervisor.run())
    await counted(store, Counts(leased=1, done=3))
    supervisor.drain(INTERRUPTED)
    await stated(store, CrawlState.STOPPING)
    supervisor.stop(INTERRUPTED)
    assert await ending_of(running) == Ending(CrawlState.STOPPED, INTERRUPTED)


async def test_a_crawl_is_not_finished_while_its_feed_holds_something(store: CrawlStore) -> None:
    feed = MemoryFeed([b"http://example.org/9"])
    supervisor = supervisor_of(store, Start(requests(3)), feed=feed)
    assert await ending_of(asyncio.create_task(supervisor.run())) == Ending(CrawlState.STOPPED)


async def fed_by(store: CrawlStore) -> tuple[MemoryBus, TopicSeeds]:
    """A topic with one start URL that waits, and what takes it."""
    bus = MemoryBus()
    topic_seeds = TopicSeeds(bus, "feed.crawl", "crawl", store.frontier, (), SystemClock(), 0.0)
    taking = asyncio.create_task(topic_seeds.run())
    topic_seeds.pause()

    async def subscribed() -> bool:
        return len(await bus.groups()) == 1

    await eventually(subscribed)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await bus.publish([Message(topic="feed.crawl", payload=b"http://example.org/fed")])
    return bus, topic_seeds


class Lingering:
    """A crew that takes its time to drain."""

    def __init__(self) -> None:
        self.drained = asyncio.Event()
        self.over = asyncio.Event()
        self.called = 0

    async def run(self) -> None:
        await self.over.wait()

    async def bury(self, pages: Sequence[CrashedPage]) -> None:
        pass

    def drain(self) -> None:
        self.drained.set()

    def stop(self) -> None:
        self.over.set()

    def check_now(self) -> None:
        self.called += 1


async def test_the_crew_hears_of_each_batch_of_start_requests(store: CrawlStore) -> None:
    """Or else it would look for them only when its time to look has come."""
    crew = Lingering()
    running = asyncio.create_task(supervisor_of(store, Start(requests(3)), crew=crew).run())
    await counted(store, Counts(pending=3))
    crew.over.set()
    await ending_of(running)
    assert crew.called == 3


async def test_a_crew_that_lingers_does_not_keep_a_crawl_that_is_handed_on(store: CrawlStore) -> None:
    crew = Lingering()
    supervisor = supervisor_of(store, Start(requests(1)), crew=crew, grace=0.0)
    running = asyncio.create_task(supervisor.run())
    await counted(store, Counts(pending=1))
    supervisor.hand_on()
    assert await ending_of(running) == Ending(CrawlState.RUNNING, HANDED_ON)


async def test_a_crew_that_lingers_does_not_keep_a_crawl_that_failed(store: CrawlStore) -> None:
    class Broken(Start):
        async def stream(self) -> AsyncIterator[Request]:
            yield Request.from_canonical("mailto:nobody")

    with pytest.raises(SpiderError):
        await ending_of(asyncio.create_task(supervisor_of(store, Broken([]), crew=Lingering(), grace=0.0).run()))


async def test_a_crawl_at_its_limit_takes_nothing_from_its_feed(store: CrawlStore) -> None:
    await store.frontier.put(requests(1))
    (lease,) = await store.frontier.lease(1, "before")
    await store.frontier.settle([Done(lease=lease)])
    bus, topic_seeds = await fed_by(store)
    supervisor = supervisor_of(store, Start([]), limits=CrawlLimits(pages=1), topic_seeds=topic_seeds)
    assert (await ending_of(asyncio.create_task(supervisor.run()))).state == CrawlState.LIMITED
    assert (await bus.groups("crawl"))[0].lag == 1
    await bus.close()


async def test_a_crawl_that_stops_takes_nothing_more_from_its_feed(store: CrawlStore) -> None:
    bus, topic_seeds = await fed_by(store)
    crew = Lingering()
    running = asyncio.create_task(supervisor_of(store, Start([]), crew=crew, topic_seeds=topic_seeds).run())
    await counted(store, Counts(pending=1))
    await store.ledger.note(state=CrawlState.STOPPING, reason=Reason("stopped by the operator"))
    async with asyncio.timeout(10):
        await crew.drained.wait()
    await bus.publish([Message(topic="feed.crawl", payload=b"http://example.org/late")])
    await asyncio.sleep(0.1)
    crew.over.set()
    assert await ending_of(running) == Ending(CrawlState.STOPPED, Reason("stopped by the operator"))
    assert (await bus.groups("crawl"))[0].lag == 1
    assert not (await store.ledger.facts()).fed
    await bus.close()


async def test_a_crawl_that_fails_is_not_fed_any_more(store: CrawlStore) -> None:
    bus, topic_seeds = await fed_by(store)
    await bus.close()
    with pytest.raises(BusError):
        await ending_of(asyncio.create_task(supervisor_of(store, Start([]), topic_seeds=topic_seeds).run()))
    assert not (await store.ledger.facts()).fed


class FailingStart(Start):
    """Start requests that end with an error."""

    def __init__(self, first: Sequence[Request], error: Exception) -> None:
        super().__init__(first)
        self._error = error

    async def stream(self) -> AsyncIterator[Request]:
        async for request in super().stream():
            yield request
        raise self._error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StartError("at\nlength", "in short"), "in short"),
        (SpiderError("no URL\nat all"), "no URL"),
        (SinkError("the disk is full"), "the disk is full"),
    ],
)
async def test_a_crawl_that_fails_is_stopped_and_the_reason_noted(
    store: CrawlStore, error: UttuError, reason: str
) -> None:
    with pytest.raises(type(error)):
        await supervisor_of(store, FailingStart(requests(3), error)).run()
    facts = await store.ledger.facts()
    assert (facts.state, facts.reason) == (CrawlState.STOPPED, Reason(reason, ReasonKind.FAILED))
    assert not facts.seeded


async def test_what_was_given_before_a_start_raised_is_put(store: CrawlStore) -> None:
    with pytest.raises(StartError):
        await supervisor_of(store, FailingStart(requests(3), StartError("no"))).run()
    counts = await store.frontier.counts()
    assert counts.work + counts.done == 3


async def test_a_crawl_whose_store_fails_is_not_noted_as_stopped(store: CrawlStore) -> None:
    """Whoever goes on with it in a moment, as jobs do, must not take it for one that is over."""
    with pytest.raises(StoreError):
        await supervisor_of(store, FailingStart([], StoreError("away"))).run()
    assert (await store.ledger.facts()).state != CrawlState.STOPPED


async def test_a_crawl_that_its_workers_ended_is_attended_again(store: CrawlStore) -> None:
    await store.ledger.note(state=CrawlState.FINISHED, unattended=True, seeded=True)
    sink = MemorySink()
    supervisor = supervisor_of(store, Start([]), sink=sink)
    await supervisor.open()
    assert await ending_of(asyncio.create_task(supervisor.run())) == Ending(CrawlState.FINISHED)
    assert sink.events[-1] == "finished"
    assert (await store.ledger.facts()).unattended is False


async def test_outputs_that_others_write_are_named(store: CrawlStore) -> None:
    assert await store.ledger.claim("drain memory", "follower", 60)
    supervisor = supervisor_of(store, Start([]), sink=MemorySink())
    await supervisor.open()
    assert supervisor.elsewhere == {"memory": "follower"}
    await store.ledger.release("drain memory", "follower")
    assert await ending_of(asyncio.create_task(supervisor.run())) == Ending(CrawlState.FINISHED)


async def test_a_supervisor_stays_while_others_work_after_its_worker_was_drained(store: CrawlStore) -> None:
    supervisor = supervisor_of(store, Start(requests(3)), stay=True)
    running = asyncio.create_task(supervisor.run())
    await counted(store, Counts(done=3))
    other = asyncio.create_task(member_of(store, "other", stay=True).run())
    await reported_after(store, "other")
    await store.ledger.note(draining={"w": time.time()})
    await store.frontier.put(requests(3, first=3))
    await counted(store, Counts(done=6))
    assert not running.done()
    await store.ledger.note(state=CrawlState.STOPPING, reason=Reason("stopped by the operator"))
    assert await ending_of(running) == Ending(CrawlState.STOPPED, Reason("stopped by the operator"))
    await other


async def test_a_crawl_whose_last_worker_is_drained_stops(store: CrawlStore) -> None:
    running = asyncio.create_task(supervisor_of(store, Start(requests(3)), stay=True).run())
    await counted(store, Counts(done=3))
    await store.ledger.note(draining={"w": time.time()})
    assert await ending_of(running) == Ending(CrawlState.STOPPED, DRAINED)

"""Members of a crawl hear what is asked of all, and know its end, with and without a supervisor."""

from __future__ import annotations

import asyncio
import datetime
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from tests.engine.test_seeds_pushed import MemoryFeed
from uttu.clock import SystemClock
from uttu.engine import heartbeat as member_module
from uttu.engine.heartbeat import CrawlWorker, is_over
from uttu.engine.link_filter import LinkFilter
from uttu.engine.seeds import PushedSeeds
from uttu.engine.stats import WorkerStats
from uttu.engine.worker import ProcessPage, Worker
from uttu.errors import StoreError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Counts, Done, Lease, Outcome, Pace, Request
from uttu.model.crawl import INTERRUPTED, CrawlLimits, CrawlState, Reason, WorkerReport
from uttu.model.facts import CrawlFacts
from uttu.policy.scope import Scope
from uttu.policy.throttle import ConcurrencyController
from uttu.policy.traps import Traps

RULES = Rules(pace=Pace(0, 0))


@pytest.fixture(autouse=True)
def attentive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "_CHECK_SECONDS", 0.005)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CrawlStore]:
    store = await SqliteCatalog(tmp_path).create("crawl", RULES)
    await store.ledger.note(state=CrawlState.RUNNING, seeded=True)
    yield store
    await store.frontier.close()


async def visit(lease: Lease) -> Outcome:
    return Done(lease=lease)


async def nobody() -> bool:
    return False


def member_of(
    store: CrawlStore,
    name: str = "w",
    feed: MemoryFeed | None = None,
    is_supervised: Callable[[], Awaitable[bool]] | None = None,
    stay: bool = False,
    limits: CrawlLimits | None = None,
    visit: ProcessPage = visit,
    grace: float = 60.0,
) -> CrawlWorker:
    stats, clock = WorkerStats(), SystemClock()
    worker = Worker(
        name,
        frontier=store.frontier,
        visit=visit,
        link_filter=LinkFilter(Scope(), Traps(datetime.date(2026, 1, 1))),
        is_over=lambda: is_over(store.frontier, store.ledger, feed, stay=stay),
        stats=stats,
        controller=ConcurrencyController(8),
        lease_seconds=60,
        clock=clock,
    )
    pushed_seeds = PushedSeeds(feed, {"page"}) if feed is not None else None
    return CrawlWorker(
        worker,
        store.frontier,
        store.ledger,
        stats,
        clock,
        pushed_seeds=pushed_seeds,
        is_supervised=is_supervised,
        limits=limits,
        grace=grace,
    )


def requests(count: int, first: int = 0) -> list[Request]:
    return [Request(url=f"http://example.org/{number}") for number in range(first, first + count)]


async def counted(store: CrawlStore, counts: Counts) -> None:
    async with asyncio.timeout(10):
        while await store.frontier.counts() != counts:  # noqa: ASYNC110 (stores have no events)
            await asyncio.sleep(0.001)


async def reported_after(store: CrawlStore, name: str, times: int = 2) -> None:
    """Until a member has attended so often from now on."""
    async with asyncio.timeout(10):
        for _ in range(times):
            await store.ledger.report(name, b"")
            while (await store.ledger.reports())[name][1] == b"":  # noqa: ASYNC110 (stores have no events)
                await asyncio.sleep(0.001)


async def over(running: asyncio.Task[None]) -> None:
    async with asyncio.timeout(10):
        await running


async def test_a_paused_crawl_waits_and_is_not_over(store: CrawlStore) -> None:
    await store.ledger.note(state=CrawlState.PAUSED)
    await store.frontier.put(requests(5))
    running = asyncio.create_task(member_of(store).run())
    await reported_after(store, "w")
    assert await store.frontier.counts() == Counts(pending=5)
    await store.ledger.note(state=CrawlState.RUNNING)
    await over(running)
    assert await store.frontier.counts() == Counts(done=5)


async def test_it_pauses_in_the_middle_and_goes_on(store: CrawlStore) -> None:
    await store.frontier.put(requests(3))
    running = asyncio.create_task(member_of(store, stay=True).run())
    await counted(store, Counts(done=3))
    await store.ledger.note(state=CrawlState.PAUSED)
    await reported_after(store, "w")
    await store.frontier.put(requests(3, first=3))
    await reported_after(store, "w", 5)
    assert await store.frontier.counts() == Counts(pending=3, done=3)
    await store.ledger.note(state=CrawlState.RUNNING)
    await counted(store, Counts(done=6))
    await store.ledger.note(state=CrawlState.STOPPING)
    await over(running)


async def hangs(lease: Lease) -> Outcome:
    await asyncio.Event().wait()
    return Done(lease=lease)


async def report_of(store: CrawlStore, name: str = "w") -> WorkerReport:
    return msgspec.json.decode((await store.ledger.reports())[name][1], type=WorkerReport)


async def hanging(store: CrawlStore, grace: float) -> tuple[CrawlWorker, asyncio.Task[None]]:
    """A member with a page in flight whose handler never returns."""
    await store.frontier.put(requests(1))
    member = member_of(store, visit=hangs, grace=grace)
    running = asyncio.create_task(member.run())
    await counted(store, Counts(leased=1))
    await reported_after(store, "w")
    assert (await report_of(store)).flying == ["http://example.org/0"]
    return member, running


@pytest.mark.parametrize("reason", ["limit of 3 seconds", "stopped by the operator"])
async def test_a_crawl_that_is_to_end_does_not_wait_for_ever(store: CrawlStore, reason: str) -> None:
    _, running = await hanging(store, grace=0.0)
    await store.ledger.note(state=CrawlState.STOPPING, reason=Reason(reason))
    await over(running)
    assert await store.frontier.counts() == Counts(pending=1)
    assert (await report_of(store)).given_back == ["http://example.org/0"]


async def test_what_is_in_flight_has_its_time_of_grace(store: CrawlStore) -> None:
    member, running = await hanging(store, grace=3600.0)
    await store.ledger.note(state=CrawlState.STOPPING, reason=Reason("limit of 3 seconds"))
    await reported_after(store, "w", 5)
    assert not running.done()
    member.stop()
    await over(running)


async def test_a_signal_waits_for_another(store: CrawlStore) -> None:
    member, running = await hanging(store, grace=0.0)
    member.drain()
    await store.ledger.note(state=CrawlState.STOPPING, reason=INTERRUPTED)
    await reported_after(store, "w", 5)
    assert not running.done()
    member.stop()
    await over(running)
    assert await store.frontier.counts() == Counts(pending=1)


@pytest.mark.parametrize("state", [CrawlState.STOPPING, CrawlState.STOPPED, CrawlState.LIMITED, CrawlState.FINISHED])
@pytest.mark.parametrize("before", [CrawlState.RUNNING, CrawlState.PAUSED])
async def test_an_ended_crawl_ends_its_members(store: CrawlStore, state: CrawlState, before: CrawlState) -> None:
    await store.ledger.note(state=before)
    running = asyncio.create_task(member_of(store, stay=True).run())
    await reported_after(store, "w")
    assert not running.done()
    await store.ledger.note(state=state)
    await over(running)
    assert (await store.ledger.facts()).state == state


async def test_a_finished_crawl_ends_on_all_members(store: CrawlStore) -> None:
    await store.frontier.put(requests(50))
    async with asyncio.timeout(10):
        await asyncio.gather(*(member_of(store, name).run() for name in ("w1", "w2", "w3")))
    assert await store.frontier.counts() == Counts(done=50)


async def test_the_end_is_left_to_the_supervisor(store: CrawlStore) -> None:
    async def someone() -> bool:
        return True

    await member_of(store, is_supervised=someone).run()
    await member_of(store).run()
    assert (await store.ledger.facts()).state == CrawlState.RUNNING


async def test_without_a_supervisor_members_note_the_end(store: CrawlStore) -> None:
    await store.frontier.put(requests(5))
    async with asyncio.timeout(10):
        await asyncio.gather(*(member_of(store, name, is_supervised=nobody).run() for name in ("w1", "w2")))
    facts = await store.ledger.facts()
    assert (facts.state, facts.unattended) == (CrawlState.FINISHED, True)


async def test_a_feed_does_not_keep_members_once_its_supervisor_is_gone(store: CrawlStore) -> None:
    async def someone() -> bool:
        return True

    await store.ledger.note(fed=True)
    assert not await is_over(store.frontier, store.ledger)
    assert not await is_over(store.frontier, store.ledger, is_supervised=someone)
    assert await is_over(store.frontier, store.ledger, is_supervised=nobody)


@pytest.mark.parametrize("state", [CrawlState.STOPPED, CrawlState.LIMITED, CrawlState.FINISHED])
async def test_another_end_is_not_overwritten(store: CrawlStore, state: CrawlState) -> None:
    await store.ledger.note(state=state, reason=Reason("as it was"))
    await member_of(store, is_supervised=nobody).run()
    facts = await store.ledger.facts()
    assert (facts.state, facts.reason, facts.unattended) == (state, Reason("as it was"), False)


async def test_a_stop_without_a_supervisor_is_noted_as_done(store: CrawlStore) -> None:
    running = asyncio.create_task(member_of(store, is_supervised=nobody, stay=True).run())
    await store.ledger.note(state=CrawlState.STOPPING, reason=Reason("stopped by the operator"))
    await over(running)
    facts = await store.ledger.facts()
    assert (facts.state, facts.reason) == (CrawlState.STOPPED, Reason("stopped by the operator"))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (CrawlLimits(pages=5), "limit of 5 pages"),
        (CrawlLimits(items=10), "limit of 10 items"),
        (CrawlLimits(bytes=500), "limit of 500 bytes"),
    ],
)
async def test_without_a_supervisor_limits_end_the_crawl_on_all_members(
    tmp_path: Path, limits: CrawlLimits, reason: str
) -> None:
    # A page is left that is not due for an hour, so only the limit can end it.
    store = await SqliteCatalog(tmp_path).create("limited", Rules(pace=Pace(3600.0, 5), max_pages=limits.pages))
    await store.ledger.note(state=CrawlState.RUNNING, seeded=True)
    await store.frontier.put([Request(url=f"http://h{number}.example/") for number in range(5)])
    leases = await store.frontier.lease(5, "gone")
    await store.frontier.put([Request(url="http://h0.example/more")])
    members = [member_of(store, name, is_supervised=nobody, limits=limits) for name in ("w1", "w2")]
    running = [asyncio.create_task(member.run()) for member in members]
    for name in ("w1", "w2"):
        await reported_after(store, name)
    assert (await store.ledger.facts()).state == CrawlState.RUNNING
    await store.frontier.settle([Done(lease=lease, items=(b"1", b"2"), size=100) for lease in leases])
    for each in running:
        await over(each)
    facts, counts = await store.ledger.facts(), await store.frontier.counts()
    await store.frontier.close()
    assert (facts.state, facts.reason, facts.unattended) == (CrawlState.LIMITED, Reason(reason), True)
    assert counts == Counts(pending=1, done=5, items=10, bytes=500)


async def test_limits_are_left_to_the_supervisor(store: CrawlStore) -> None:
    async def someone() -> bool:
        return True

    await store.frontier.put(requests(5))
    running = asyncio.create_task(member_of(store, is_supervised=someone, stay=True, limits=CrawlLimits(pages=2)).run())
    await counted(store, Counts(done=5))
    await reported_after(store, "w")
    assert (await store.ledger.facts()).state == CrawlState.RUNNING
    await store.ledger.note(state=CrawlState.STOPPING)
    await over(running)


async def test_a_limit_that_is_reached_with_the_last_page_leaves_the_crawl_finished(store: CrawlStore) -> None:
    await store.frontier.put(requests(5))
    await over(asyncio.create_task(member_of(store, is_supervised=nobody, limits=CrawlLimits(pages=5)).run()))
    assert (await store.ledger.facts()).state == CrawlState.FINISHED


async def test_a_limit_ends_a_crawl_that_stays(store: CrawlStore) -> None:
    await store.frontier.put(requests(5))
    await over(
        asyncio.create_task(member_of(store, is_supervised=nobody, stay=True, limits=CrawlLimits(pages=5)).run())
    )
    assert (await store.ledger.facts()).state == CrawlState.LIMITED


async def test_a_limit_its_supervisor_noticed_before_it_died_is_noted_as_such(store: CrawlStore) -> None:
    await store.frontier.put(requests(3))
    (lease,) = await store.frontier.lease(1, "gone")
    await store.frontier.settle([Done(lease=lease)])
    await store.ledger.note(state=CrawlState.STOPPING, reason=Reason("limit of 1 pages"))
    await over(asyncio.create_task(member_of(store, is_supervised=nobody, limits=CrawlLimits(pages=1)).run()))
    facts = await store.ledger.facts()
    assert (facts.state, facts.reason, facts.unattended) == (CrawlState.LIMITED, Reason("limit of 1 pages"), True)


async def test_a_member_told_to_drain_does_not_end_the_crawl(store: CrawlStore) -> None:
    running = asyncio.create_task((member := member_of(store, is_supervised=nobody, stay=True)).run())
    await reported_after(store, "w")
    member.drain()
    await over(running)
    assert (await store.ledger.facts()).state == CrawlState.RUNNING


async def test_what_is_pushed_is_crawled_before_the_crawl_is_over(store: CrawlStore) -> None:
    class PuttingFeed(MemoryFeed):
        async def accept(self, requests, entries, refused) -> int:  # type: ignore[no-untyped-def]
            await super().accept(requests, entries, refused)
            return await store.frontier.put(requests)

    feed = PuttingFeed([b"http://example.org/1", b"rubbish", b'{"url":"http://example.org/2","handler":"page"}'])
    await over(asyncio.create_task(member_of(store, feed=feed).run()))
    assert await store.frontier.counts() == Counts(done=2)
    assert feed.refused == [b"rubbish"]


async def test_a_crawl_that_stays_takes_what_comes_later(store: CrawlStore) -> None:
    running = asyncio.create_task(member_of(store, stay=True, is_supervised=nobody).run())
    await reported_after(store, "w")
    await store.frontier.put(requests(2))
    await counted(store, Counts(done=2))
    assert not running.done()
    await store.ledger.note(state=CrawlState.STOPPING)
    await over(running)


async def test_it_is_not_over_before_it_was_seeded(store: CrawlStore) -> None:
    await store.ledger.note(seeded=False)
    running = asyncio.create_task(member_of(store).run())
    await reported_after(store, "w")
    assert not running.done()
    await store.ledger.note(seeded=True)
    await over(running)


async def test_a_member_that_can_not_hear_does_not_go_on(store: CrawlStore) -> None:
    member = member_of(store, stay=True)
    running = asyncio.create_task(member.run())
    await reported_after(store, "w")

    async def broken() -> CrawlFacts:
        raise StoreError("the disk is gone")

    store.ledger.facts = broken  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="the disk is gone"):
        await over(running)


async def test_one_worker_is_drained_and_the_other_goes_on(store: CrawlStore) -> None:
    await store.ledger.note(state=CrawlState.RUNNING)
    first, second = (asyncio.create_task(member_of(store, name, stay=True).run()) for name in ("w1", "w2"))
    await reported_after(store, "w1")
    await reported_after(store, "w2")
    await store.ledger.note(draining={"w1": 1.0})
    await over(first)
    await store.frontier.put(requests(3))
    await counted(store, Counts(done=3))
    assert (await store.ledger.facts()).state is CrawlState.RUNNING
    assert not second.done()
    await store.ledger.note(state=CrawlState.STOPPING)
    await over(second)


async def test_a_drained_worker_finishes_its_page(store: CrawlStore) -> None:
    member, running = await hanging(store, grace=0.0)
    await store.ledger.note(draining={"w": 1.0})
    await reported_after(store, "w", 5)
    assert not running.done()
    member.stop()
    await over(running)


async def test_the_report_has_the_log_and_the_machine(store: CrawlStore) -> None:
    await store.ledger.note(state=CrawlState.RUNNING)
    running = asyncio.create_task(member_of(store, stay=True).run())
    await reported_after(store, "w")
    report = await report_of(store)
    assert report.host == socket.gethostname()
    assert any("w has joined" in line.text for line in report.log)
    await store.ledger.note(state=CrawlState.STOPPING)
    await over(running)

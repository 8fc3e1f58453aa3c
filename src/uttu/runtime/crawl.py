"""Open, resume, lead and join a crawl. Commands, jobs and tests share these functions.

    open_crawl    open the crawl's store, new or resumed
    lead_crawl    open the store and its outputs, and build a supervisor; the caller holds ``catalog.supervise(name)``
    lead_program  connect the frontier and the message brokers, take the supervisor's role, and lead
    join_crawl    build a worker of a crawl that another process leads

A crawl is named after its spider and its arguments (:func:`uttu.runtime.spec.derive_crawl_name`). If the command is run
again, a crawl that was cut short is resumed. One that finished or reached a limit starts from the beginning, unless
``resume`` is set.

The caller stops the supervisor or worker, and shows its progress.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from uttu.clients.addresses import mask_password
from uttu.clock import SystemClock
from uttu.engine.aio import batch_stream
from uttu.engine.exporter import Exporter
from uttu.engine.heartbeat import CrawlWorker
from uttu.engine.history import EventRecorder
from uttu.engine.seeds import start_requests
from uttu.engine.supervisor import Ending, Supervisor, WorkerGroup, describe_failure
from uttu.engine.worker_processes import WorkerProcesses
from uttu.errors import StartError, StoreError, UttuError
from uttu.fetch.base import Fetcher
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlCatalog, CrawlStore
from uttu.model import Counts, Pace, Request
from uttu.model.crawl import CrawlState, Reason, ReasonKind
from uttu.model.facts import CrawlFacts
from uttu.model.inspection import count_kinds
from uttu.model.url import host_of
from uttu.runtime import factory, outputs
from uttu.runtime.messaging import CrawlMessaging, connect_messaging
from uttu.runtime.registry import open_frontier
from uttu.runtime.spec import CrawlSpec
from uttu.settings import DATA_FOLDER, Settings, export_secrets
from uttu.sinks.base import Sink
from uttu.spider import Spider

T = TypeVar("T")

# Start requests are put in batches of _SEED_BATCH, or after _SEED_SECONDS. The first batch determines the start hosts.
_SEED_BATCH, _SEED_SECONDS = 1000, 0.5
_log = logging.getLogger("uttu.crawl")


class OpenedCrawl(msgspec.Struct, frozen=True):
    """A crawl's open store, and how it was opened."""

    store: CrawlStore
    resumed: bool
    counts: Counts
    former: str = ""
    """How the crawl that this one replaces ended; or, if an ended crawl is resumed, how that one ended."""
    created: bool = False
    """Whether the store was created just now."""
    facts: CrawlFacts = CrawlFacts()
    """The facts of the last run with this name."""


async def open_crawl(catalog: CrawlCatalog, name: str, settings: Settings, *, fresh: bool, resume: bool) -> OpenedCrawl:
    """Open a crawl. Create it if it does not exist, if ``fresh`` is set, or if it has ended and ``resume`` is not set.

    A crawl that is replaced is only put aside: call ``keep`` or ``restore`` of the catalog to drop it or bring it back.

    :raises StoreError: the store can't be opened.
    :raises UttuError: the crawl was moved to another frontier, or start URLs taken from its feed would be lost.
    """
    former = ""
    facts = CrawlFacts()
    there = name in await catalog.names()
    if there and fresh:
        # Ignore errors: a crawl that can't be opened may be the reason to start again.
        with contextlib.suppress(StoreError):
            store = await catalog.open(name, settings.rules)
            try:
                await store.ledger.note(state=CrawlState.STOPPED, reason=Reason("started again"))
                facts = await store.ledger.facts()
            finally:
                await store.frontier.close()
    elif there:
        store = await catalog.open(name, settings.rules)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(store.frontier.close)
            facts, counts = await store.ledger.facts(), await store.frontier.counts()
            state, reason = facts.state or CrawlState.RUNNING, facts.reason
            if reason.kind is ReasonKind.MOVED:
                raise UttuError(f"crawl {name!r} was {reason}: go on with it there, or start again here with --fresh")
            if reason.kind is ReasonKind.MOVING:
                raise UttuError(
                    f"crawl {name!r} is {reason}; if that was cut short, move it again, or start with --fresh"
                )
            former = state.value if state is CrawlState.FINISHED else str(reason) or state.value
            # If it ended without its supervisor, its outputs must still be completed.
            if not state.ended or facts.unattended or resume:
                await _update_pace(store, facts.pace, settings.rules)
                ended = former if state.ended and not facts.unattended else ""
                stack.pop_all()
                return OpenedCrawl(store, facts.state is not None, counts, ended, facts=facts)
        if settings.feed and counts.work:
            # Messages taken from the feed are acknowledged, so their pages would be lost.
            raise UttuError(
                f"crawl {name!r} ended at its {former}, with {counts.work:,} pages to do that its feed does not have "
                "any more: go on with --resume and a higher limit, or drop them with --fresh"
            )
    store = await catalog.create(name, settings.rules)
    await _update_pace(store, None, settings.rules)
    return OpenedCrawl(store, False, Counts(), former, created=True, facts=facts)


async def _update_pace(store: CrawlStore, former: Pace | None, rules: Rules) -> None:
    """Lanes store their pace. If the setting has changed, update the lanes that had the former pace."""
    if former is not None and former != rules.pace:
        await store.inspector.repace(former, rules.pace)
    await store.ledger.note(pace=rules.pace, rules=rules)


async def open_start(
    spider: Spider, store: CrawlStore, max_block: float = 0.0
) -> tuple[frozenset[str], AsyncIterator[Sequence[Request]]]:
    """The start hosts, and the start requests in batches.

    The hosts come from the ledger if all start requests were put before, otherwise from the first batch.

    :param max_block: See :func:`start_requests`.
    """
    stream = batch_stream(start_requests(spider, max_block), _SEED_BATCH, _SEED_SECONDS)
    facts = await store.ledger.facts()
    if facts.seeded:
        return facts.start_hosts, stream
    first: list[Request] = await anext(stream, [])
    hosts = frozenset(host_of(request.url) for request in first)
    await store.ledger.note(start_hosts=hosts)
    return hosts, _chain(first, stream)


async def _chain(first: T, rest: AsyncIterator[T]) -> AsyncIterator[T]:
    yield first
    async for each in rest:
        yield each


async def create_supervisor(
    spider: Spider,
    settings: Settings,
    store: CrawlStore,
    fetcher: Fetcher,
    sinks: Sequence[Sink],
    workers: Sequence[str] = (),
    count: int = 1,
    wire: CrawlMessaging | None = None,
    spent: float = 0.0,
    recorder: EventRecorder | None = None,
) -> Supervisor:
    """Build the supervisor of a crawl, with one worker in this process or with worker processes.

    :param workers: The command of a worker process; empty for one worker in this process.
    :param count: The number of worker processes.
    :param wire: The process's message brokers.
    :param spent: See :class:`Supervisor`.
    :param recorder: Keeps the events of the crawl.
    """
    wire = wire or CrawlMessaging()
    hosts, start = await open_start(spider, store, factory.max_block_seconds(settings))
    crew: WorkerGroup
    if workers:
        crew = WorkerProcesses(workers, count, export_secrets(settings), store.frontier)
    else:
        crew = factory.create_worker(spider, settings, store, fetcher, hosts, events=wire.events, recorder=recorder)
    return Supervisor(
        start=start,
        crew=crew,
        frontier=store.frontier,
        ledger=store.ledger,
        drain=Exporter(store.outbox, sinks, store.ledger, factory.create_worker_name(), keep=settings.keep_items),
        limits=factory.create_limits(settings),
        clock=SystemClock(),
        feed=store.feed,
        stay=settings.stay,
        topic_seeds=wire.topic_seeds(store.frontier, spider.handlers),
        events=recorder,
        spent=spent,
        grace=factory.grace_seconds(settings),
        history=store.history,
    )


class CrawlSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How a crawl of this process ended."""

    crawl: str
    state: CrawlState
    """``finished``, ``limited`` (ended at a limit) or ``stopped`` (the same call resumes it)."""
    reason: str = ""
    """Why the crawl ended, if it did not finish: the limit, ``interrupted``, the reason of ``uttu stop``."""
    counts: Counts
    dead_kinds: dict[str, int]
    """Requests that were given up, by kind."""
    seconds: float
    """The duration of this run."""

    def facts(self) -> dict[str, Any]:
        """How the crawl ended, and its counts, as a JSON-compatible dict."""
        return _to_dict(self.state, self.reason, self.counts, self.dead_kinds)


class LeadSession(msgspec.Struct, frozen=True):
    """An open crawl and its supervisor."""

    catalog: CrawlCatalog
    name: str
    opened: OpenedCrawl
    supervisor: Supervisor

    async def run(self) -> CrawlSummary:
        """Run the crawl to its end; see :meth:`Supervisor.run`."""
        began = time.monotonic()
        ending = await self.supervisor.run()
        return await self.summarize(ending, time.monotonic() - began)

    async def summarize(self, ending: Ending, seconds: float) -> CrawlSummary:
        """The summary of a crawl that has ended."""
        return CrawlSummary(
            crawl=self.name,
            state=ending.state,
            reason=str(ending.reason),
            counts=await self.opened.store.frontier.counts(),
            dead_kinds=count_kinds(await self.opened.store.inspector.dead_groups()),
            seconds=seconds,
        )


@contextlib.asynccontextmanager
async def lead_crawl(
    plan: CrawlSpec,
    spider: Spider,
    settings: Settings,
    catalog: CrawlCatalog,
    name: str,
    sinks: Sequence[Sink],
    wire: CrawlMessaging,
    spent: float = 0.0,
    folder: Path = DATA_FOLDER,
) -> AsyncIterator[LeadSession]:
    """Open a crawl and its outputs, ready to run. The caller must hold ``catalog.supervise(name)``.

    :param spent: See :class:`Supervisor`.
    :param folder: Where the development cache is.
    :raises UttuError: the crawl or an output can't be opened. A crawl that it would have replaced is restored.
    """
    factory.tune()
    fetcher = factory.create_fetcher(settings, folder)
    crawl = await open_crawl(catalog, name, settings, fresh=plan.fresh, resume=plan.resume)
    store = crawl.store
    begun = False
    recorder = EventRecorder(store.history, SystemClock(), wire.events)
    try:
        if crawl.resumed and (crawl.counts.work or not crawl.facts.seeded):
            plan.check_going_on(settings, crawl.facts)
        if not plan.overwrite:
            await outputs.check_outputs(sinks, catalog, crawl.facts, store)
        await plan.note(store, spider, settings)
        command = plan.worker_command() if plan.workers > 1 else []
        try:
            supervisor = await create_supervisor(
                spider, settings, store, fetcher, sinks, command, plan.workers, wire, spent, recorder
            )
        except StartError as error:
            # Keep the crawl although it has no pages, so that ``uttu status`` shows the failure.
            reason = Reason(describe_failure(error), ReasonKind.FAILED)
            await store.ledger.note(state=CrawlState.STOPPED, reason=reason)
            begun = True
            raise
        if crawl.created:
            await outputs.inherit_records(crawl.facts, store)
        # Record the outputs before open(), in case the process is killed there, and after it, when the files exist.
        await outputs.record_outputs(sinks, store, closed=False)
        await supervisor.open()
        await outputs.record_outputs(sinks, store, closed=False)
        await catalog.keep(name)
        begun = True
        how = "Resumed" if crawl.resumed else "Opened"
        place, done, work = _place(settings), crawl.counts.done, crawl.counts.work
        _log.info(
            f"{how} crawl %(crawl)s in %(place)s: %(done)d done, %(work)d to do",
            {"crawl": name, "place": place, "done": done, "work": work, "resumed": crawl.resumed},
        )
        wire.hear(supervisor.check_now)
        try:
            async with recorder:
                yield LeadSession(catalog, name, crawl, supervisor)
        finally:
            # If the store is away, the files stay recorded as not closed, as after a kill.
            with contextlib.suppress(StoreError):
                mine = [sink for sink in sinks if sink.name not in supervisor.elsewhere]
                await outputs.record_outputs(mine, store, closed=True)
    finally:
        await fetcher.close()
        await store.frontier.close()
        if crawl.created and not begun:
            await catalog.discard(name)
        else:
            await catalog.restore(name)


@contextlib.asynccontextmanager
async def lead_program(
    spec: CrawlSpec,
    spider: Spider,
    settings: Settings,
    name: str,
    sinks: Sequence[Sink],
    must_resume: Callable[[CrawlCatalog], Awaitable[bool]] | None = None,
    folder: Path = DATA_FOLDER,
    report: Callable[[str], None] = _log.warning,
    spent: float = 0.0,
) -> AsyncIterator[LeadSession]:
    """Connect everything that a crawl needs, and lead it during the block.

    :param must_resume: An async function that says whether a crawl that has ended must be resumed.
    :param report: Receives messages for people, for example that the bus can't be reached.
    :param spent: See :class:`Supervisor`.
    :raises UttuError: the crawl or an output can't be opened, or a crawl of this name is running.
    """
    catalog = await open_frontier(settings.frontier, folder)
    try:
        async with catalog.supervise(name), connect_messaging(settings, name, report, fed=True) as wire:
            if must_resume is not None and await must_resume(catalog):
                spec = msgspec.structs.replace(spec, resume=True)
            async with lead_crawl(spec, spider, settings, catalog, name, sinks, wire, spent, folder) as session:
                yield session
    finally:
        await catalog.close()


class WorkerSession(msgspec.Struct, frozen=True):
    """An open crawl and a worker of it."""

    store: CrawlStore
    member: CrawlWorker


@contextlib.asynccontextmanager
async def join_crawl(
    spider: Spider, settings: Settings, catalog: CrawlCatalog, name: str, wire: CrawlMessaging
) -> AsyncIterator[WorkerSession]:
    """Open an existing crawl and build a worker for it, ready to run.

    :raises StoreError: the crawl can't be opened.
    """
    store = await catalog.open(name, settings.rules)
    factory.tune()
    fetcher = factory.create_fetcher(settings, DATA_FOLDER)
    try:
        hosts = (await store.ledger.facts()).start_hosts
        is_supervised = functools.partial(catalog.is_supervised, name)
        recorder = EventRecorder(store.history, SystemClock(), wire.events)
        member = factory.create_worker(spider, settings, store, fetcher, hosts, is_supervised, wire.events, recorder)
        _log.info("Joined crawl %(crawl)s in %(place)s", {"crawl": name, "place": _place(settings)})
        wire.hear(member.check_now)
        async with recorder:
            yield WorkerSession(store, member)
    finally:
        await fetcher.close()
        await store.frontier.close()


def _place(settings: Settings) -> str:
    """Where the crawl is kept, without a password."""
    return mask_password(settings.frontier) or str(DATA_FOLDER)


async def summarize_crawl(ending: Ending, store: CrawlStore) -> dict[str, Any]:
    """How a crawl ended, and its counts, as a JSON-compatible dict."""
    kinds = count_kinds(await store.inspector.dead_groups())
    return _to_dict(ending.state, str(ending.reason), await store.frontier.counts(), kinds)


def _to_dict(state: CrawlState, reason: str, counts: Counts, dead_kinds: dict[str, int]) -> dict[str, Any]:
    return {"state": state, "reason": reason, **msgspec.structs.asdict(counts), "dead_kinds": dead_kinds}

"""Starting and resuming crawls: what the command line, jobs and later the dashboard have in common.

A crawl is named after its spider; arguments make it another crawl. Run again, a crawl that was cut
short goes on; one that ended as it should starts anew, unless it is to be resumed.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import xxhash

from weft import assembly, config
from weft.clock import SystemClock
from weft.config import Settings
from weft.engine.crew import Processes
from weft.engine.drain import Drain
from weft.engine.states import State
from weft.engine.supervisor import Crew, Supervisor
from weft.engine.tasks import in_batches
from weft.errors import StoreError, WeftError
from weft.fetch.base import Fetcher
from weft.frontier.base import Rules
from weft.frontier.depot import Depot, Store
from weft.model import Counts, Pace, Request
from weft.model.url import host_of
from weft.sinks.base import Sink
from weft.spider import Spider
from weft.wire import Wire

T = TypeVar("T")

FOLDER = Path(".weft")
# How the reason begins of a crawl that was carried to another depot.
MOVED = "moved to "
# And of one that is not whole yet.
MOVING = "being moved here from "
# So many start requests are put at once, or after so long what there is; the first are looked at for their hosts.
_SEED_BATCH, _SEED_SECONDS = 1000, 0.5


def crawl_id(spider: Spider, given: dict[str, str]) -> str:
    """The spider's name; with arguments, a short hash of them behind it."""
    if not given:
        return spider.name
    return f"{spider.name}-{xxhash.xxh3_64_hexdigest(msgspec.json.encode(sorted(given.items())))[:12]}"


class Opened(msgspec.Struct, frozen=True):
    """A crawl's store, and whether it holds a crawl that goes on."""

    store: Store
    resumed: bool
    counts: Counts
    former: str = ""
    """How the crawl before this one ended, where it was replaced; or this one, where it had ended and is resumed."""


async def open_crawl(depot: Depot, name: str, settings: Settings, *, fresh: bool, resume: bool) -> Opened:
    """Open a crawl; make it new if it is not there, is to start again, or ended as it should and is not resumed. There
    is nothing to do for one that finished, but for outputs that are new.

    A crawl that is replaced is only put aside: ``keep`` or ``restore`` of the depot decides.

    :raises StoreError: it can't be opened.
    :raises WeftError: it goes on elsewhere, or start URLs that were taken from its feed would be lost.
    """
    former = ""
    there = name in await depot.names()
    if there and fresh:
        # A crawl that can't be opened may be the very reason to start again.
        with contextlib.suppress(StoreError):
            store = await depot.open(name, settings.rules)
            await store.ledger.note(state=State.STOPPED, reason="started again")
            await store.frontier.close()
    elif there:
        store = await depot.open(name, settings.rules)
        facts, counts = await store.ledger.facts(), await store.frontier.counts()
        state, reason = State(facts.get("state", State.RUNNING)), facts.get("reason", "")
        if reason.startswith(MOVED):
            await store.frontier.close()
            raise WeftError(f"crawl {name!r} was {reason}: go on with it there, or start again here with --fresh")
        if reason.startswith(MOVING):
            await store.frontier.close()
            raise WeftError(f"crawl {name!r} is {reason}; if that was cut short, move it again, or start with --fresh")
        # Of a crawl that ended without its supervisor, the outputs are still to be completed.
        unattended = facts.get("unattended") == "yes"
        former = state.value if state is State.FINISHED else reason or state.value
        if not state.ended or unattended or resume:
            await _keep_pace(store, facts.get("pace", ""), settings.rules)
            ended = former if state.ended and not unattended else ""
            return Opened(store, facts.get("state") is not None, counts, ended)
        await store.frontier.close()
        if settings.feed and counts.work:
            # What was taken from the feed is acknowledged, and would be lost.
            raise WeftError(
                f"crawl {name!r} ended at its {former}, with {counts.work:,} pages to do that its feed does not have "
                "any more: go on with --resume and a higher limit, or drop them with --fresh"
            )
    store = await depot.create(name, settings.rules)
    await _keep_pace(store, "", settings.rules)
    return Opened(store, False, Counts(), former)


async def _keep_pace(store: Store, noted: str, rules: Rules) -> None:
    """Lanes remember their pace. If the crawl's own was changed since, change it in those that had it."""
    former = msgspec.json.decode(noted, type=Pace) if noted else rules.pace
    if former != rules.pace:
        await store.inspector.repace(former, rules.pace)
    pace = msgspec.json.encode(rules.pace).decode()
    await store.ledger.note(pace=pace, rules=msgspec.json.encode(rules).decode())


def rules_of(facts: dict[str, str]) -> Rules:
    """The rules of a crawl by its ledger, for whoever opens it without its spider."""
    return msgspec.json.decode(facts["rules"], type=Rules) if "rules" in facts else Rules()


async def start_hosts(store: Store) -> frozenset[str]:
    """The hosts that the crawl may visit, private or not, because it started there."""
    return frozenset((await store.ledger.facts()).get("start_hosts", "").split())


async def start_of(spider: Spider, store: Store) -> tuple[frozenset[str], AsyncIterator[Sequence[Request]]]:
    """:func:`start_hosts`, found among the first of the start requests; and all of these, in batches."""
    stream = in_batches(spider.start_requests(), _SEED_BATCH, _SEED_SECONDS)
    if (await store.ledger.facts()).get("seeded") == "yes":
        return await start_hosts(store), stream
    first: list[Request] = await anext(stream, [])
    hosts = frozenset(host_of(request.url) for request in first)
    await store.ledger.note(start_hosts=" ".join(sorted(hosts)))
    return hosts, _chained(first, stream)


async def _chained(first: T, rest: AsyncIterator[T]) -> AsyncIterator[T]:
    yield first
    async for each in rest:
        yield each


async def supervisor_for(
    spider: Spider,
    settings: Settings,
    store: Store,
    fetcher: Fetcher,
    sinks: Sequence[Sink],
    workers: Sequence[str] = (),
    count: int = 1,
    wire: Wire | None = None,
    spent: float = 0.0,
) -> Supervisor:
    """The whole crawl: one worker in this process, or ``count`` processes that run the command ``workers``.

    ``spent``: see :class:`Supervisor`.
    """
    wire = wire or Wire()
    hosts, start = await start_of(spider, store)
    crew: Crew
    if workers:
        crew = Processes(workers, count, config.secrets_in_environment(settings))
    else:
        crew = assembly.member_for(spider, settings, store, fetcher, hosts, events=wire.events)
    return Supervisor(
        start=start,
        crew=crew,
        frontier=store.frontier,
        ledger=store.ledger,
        drain=Drain(store.outbox, sinks, store.ledger, assembly.worker_name()),
        limits=assembly.limits_for(settings),
        clock=SystemClock(),
        feed=store.feed,
        stay=settings.stay,
        intake=wire.intake(store.frontier, spider.handlers),
        events=wire.events,
        spent=spent,
        grace=assembly.grace_for(settings),
    )

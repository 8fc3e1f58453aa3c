"""The only place where settings become objects."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import date
from pathlib import Path
from typing import BinaryIO

from weft.bus.address import split_topic
from weft.bus.base import Bus
from weft.bus.topics import word
from weft.clock import SystemClock
from weft.config import Settings
from weft.drivers.urls import masked
from weft.engine.events import Events
from weft.engine.feeding import Feeding
from weft.engine.gate import Gate
from weft.engine.limits import Limits
from weft.engine.member import GRACE_SECONDS, Member, is_over
from weft.engine.names import PrivateNames
from weft.engine.robots import RobotsKeeper
from weft.engine.stats import Stats
from weft.engine.visit import Visitor
from weft.engine.worker import Worker
from weft.errors import ConfigError, UsageError
from weft.fetch.base import Fetcher
from weft.frontier.depot import Depot, Store
from weft.policy.concurrency import Gauge
from weft.policy.scope import Scope
from weft.policy.traps import Traps
from weft.process import tune
from weft.sinks import select
from weft.sinks.base import Sink
from weft.spider import Spider

_FRONTIERS = (
    "sqlite:FOLDER", "redis://HOST:PORT/DB", "rediss://…", "redis+unix://PATH", "redis+cluster://HOST:PORT",
    "rediss+cluster://…", "redis+sentinel://HOST:PORT/NAME",
)  # fmt: skip


async def open_depot(url: str, folder: Path) -> Depot:
    """Where crawls are kept: by default in ``folder``; ``sqlite:OTHER`` is the folder of this name in OTHER.

    :raises ConfigError: there is nothing of that kind, or what it needs is not installed.
    :raises StoreError: it can't be reached.
    """
    scheme, _, rest = url.partition(":")
    match scheme.lower():
        case "" | "sqlite":
            from weft.frontier.sqlite.depot import SqliteDepot

            other = rest.removeprefix("//")
            return SqliteDepot(Path(other).expanduser() / folder.name if other else folder, url)
        case "redis" | "rediss" | "redis+unix" | "redis+cluster" | "rediss+cluster" | "redis+sentinel":
            try:
                from weft.frontier.redis.depot import RedisDepot
            except ModuleNotFoundError as error:
                if error.name is None or error.name.partition(".")[0] != "redis":
                    raise
                raise ConfigError(f"{masked(url)} needs a package more: pip install weft[redis]") from error
            return await RedisDepot.connect(url)
    raise ConfigError(f"there is no frontier {masked(url)!r}; write one of {', '.join(_FRONTIERS)}")


_BUSES = ("memory:", "redis://HOST:PORT/DB", "amqp://HOST,HOST2/VHOST", "kafka://HOST:PORT,HOST2:PORT")

# So long a bus has to take its leave. What is not acknowledged by then is handed out again.
_CLOSE_SECONDS = 10.0


_EXTRAS = {
    "redis": "redis",
    "rediss": "redis",
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "kafka": "kafka",
    "kafkas": "kafka",
}


async def open_bus(url: str) -> Bus:
    """The message broker at ``url``, connected.

    :raises ConfigError: there is nothing of that kind, or what it needs is not installed.
    :raises BusError: it can't be reached, or says no.
    """
    scheme = url.partition(":")[0].lower()
    extra = _EXTRAS.get(scheme.partition("+")[0], "")
    try:
        match scheme:
            case "memory":
                from weft.bus.memory import MemoryBus

                return MemoryBus()
            case "redis" | "rediss" | "redis+unix" | "redis+cluster" | "rediss+cluster" | "redis+sentinel":
                from weft.bus.redis import RedisBus

                return await RedisBus.connect(url)
            case "amqp" | "amqps":
                from weft.bus.rabbitmq import RabbitBus

                return await RabbitBus.connect(url)
            case "kafka" | "kafkas":
                from weft.bus.kafka import KafkaBus

                return await KafkaBus.connect(url)
    except ModuleNotFoundError as error:
        if not extra or (error.name or "").startswith("weft"):
            raise
        raise ConfigError(f"{masked(url)} needs a package more: pip install weft[{extra}]") from error
    raise ConfigError(f"there is no bus {masked(url)!r}; write one of {', '.join(_BUSES)}")


@contextlib.asynccontextmanager
async def opened_bus(url: str) -> AsyncIterator[Bus]:
    """As :func:`open_bus`, until the block is left; also a broker that is away does not hold that up for long."""
    bus = await open_bus(url)
    try:
        yield bus
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await bus.close()


# The folder of crawls, wherever it is: an output there may be the store of a crawl.
_KEPT = (".weft", "crawls")


def sink_for(target: str, crawl: str, stdout: BinaryIO | None = None) -> Sink:
    """The output that a target on the command line means, for a crawl of this name: a topic, a file, or ``-``.

    :raises UsageError: there is nothing of that kind, or crawls are kept there.
    :raises SinkError: the format needs a package that is not installed.
    """
    if not is_bus(target):
        if Path(target).expanduser().resolve().parts[-3:-1] == _KEPT:
            raise UsageError(f"the output {target}: crawls are kept there, write it elsewhere")
        return select.sink_for(target, stdout)
    from weft.sinks.bus import BusSink

    try:
        url, topic = split_topic(target, f"items.{word(crawl)}")
    except ValueError as error:
        raise UsageError(f"the output {masked(target)}: {error}") from error
    return BusSink(f"{topic} on {masked(url)}", topic, crawl, lambda: open_bus(url))


def shown(target: str) -> str:
    """An output as it may be shown, and noted with the crawl: without passwords."""
    return masked(target) if is_bus(target) else target


def is_bus(url: str) -> bool:
    """Whether it is the address of a message broker."""
    scheme, found, _ = url.partition("://")
    return bool(found) and scheme.partition("+")[0].lower() in _EXTRAS


def fetcher_for(settings: Settings, folder: Path) -> Fetcher:
    """The way to fetch; with the development cache in ``folder`` where it is asked for."""
    from weft.fetch.http import HttpFetcher

    tune()
    fetcher = HttpFetcher(
        user_agent=settings.user_agent,
        timeout=settings.timeout,
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        max_body=settings.max_body,
        cookies=settings.cookies,
        http2=settings.http2,
        verify=settings.verify,
        ca_file=settings.ca_file,
        proxy=settings.proxy,
        headers=settings.headers,
    )
    if not settings.cache:
        return fetcher
    from weft.fetch.cache import CachingFetcher

    return CachingFetcher(fetcher, folder / "cache.db")


def scope_for(settings: Settings, start_hosts: frozenset[str]) -> Scope:
    return Scope(
        domains=settings.domains,
        start_hosts=start_hosts,
        private=settings.private,
        max_depth=settings.max_depth,
        max_url_length=settings.max_url_length,
    )


def limits_for(settings: Settings) -> Limits:
    return Limits(
        pages=settings.max_pages, items=settings.max_items, bytes=settings.max_bytes, seconds=settings.max_seconds
    )


def grace_for(settings: Settings) -> float:
    """How long a crawl that is to end waits for what is in flight: a fetch may take all of its time."""
    return settings.timeout + GRACE_SECONDS


def member_for(
    spider: Spider,
    settings: Settings,
    store: Store,
    fetcher: Fetcher,
    start_hosts: frozenset[str],
    is_supervised: Callable[[], Awaitable[bool]] | None = None,
    events: Events | None = None,
) -> Member:
    """A worker of a crawl, ready to run in this process. ``is_supervised``: see :class:`Member`."""
    clock, stats = SystemClock(), Stats()
    gate = Gate(scope_for(settings, start_hosts), Traps(date.today()))
    names = None if settings.private or settings.proxy else PrivateNames(start_hosts, store.memo, clock)

    async def hold(lane: str, seconds: float, reason: str) -> None:
        worker.rest(lane, seconds)
        if events is not None:
            events.lane(lane, seconds, reason)
        await store.frontier.hold(lane, seconds, reason)

    robots = RobotsKeeper(
        fetcher=fetcher,
        gate=gate,
        names=names,
        memo=store.memo,
        user_agent=settings.user_agent,
        pace=settings.rules.pace,
        hold=hold,
        clock=clock,
    )
    visitor = Visitor(
        spider=spider,
        fetcher=fetcher,
        gate=gate,
        robots=robots,
        names=names,
        hold=hold,
        is_held=lambda lease: worker.is_held(lease),
        settings=settings,
        stats=stats,
        clock=clock,
        events=events,
    )
    worker = Worker(
        worker_name(),
        frontier=store.frontier,
        visit=visitor.visit,
        gate=gate,
        is_over=lambda: is_over(
            store.frontier, store.ledger, store.feed, stay=settings.stay, is_supervised=is_supervised
        ),
        stats=stats,
        gauge=Gauge(settings.concurrency),
        lease_seconds=settings.lease_seconds,
        clock=clock,
        events=events,
    )
    feeding = Feeding(store.feed, spider.handlers) if store.feed is not None else None
    return Member(
        worker, store.frontier, store.ledger, stats, clock, feeding=feeding, is_supervised=is_supervised,
        limits=limits_for(settings), events=events, grace=grace_for(settings),
    )  # fmt: skip


def worker_name() -> str:
    """Unique over machines and time, and telling."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"

"""Build the engine's objects from settings: fetcher, scope, limits, and the worker of one process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import resource
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable
from datetime import date
from pathlib import Path

from uttu import blackbox
from uttu.clients.addresses import mask_logins
from uttu.clock import SystemClock
from uttu.engine.events import Events
from uttu.engine.handler_steps import StepTracker
from uttu.engine.heartbeat import GRACE_SECONDS, TERMINATE_SECONDS, CrawlWorker, is_over
from uttu.engine.history import EventRecorder
from uttu.engine.link_filter import LinkFilter
from uttu.engine.page_processor import PageProcessor
from uttu.engine.robots import RobotsCache
from uttu.engine.seeds import PushedSeeds
from uttu.engine.stats import WorkerStats
from uttu.engine.watchdog import Watchdog
from uttu.engine.worker import Worker
from uttu.fetch.base import Fetcher, ResolverAware
from uttu.fetch.resolver import GuardedResolver
from uttu.frontier.catalog import CrawlStore
from uttu.model.crawl import CrawlLimits
from uttu.policy.scope import Scope
from uttu.policy.throttle import ConcurrencyController
from uttu.policy.traps import Traps
from uttu.runtime.registry import load_fetcher
from uttu.settings import Settings
from uttu.spider import Spider


def create_fetcher(settings: Settings, folder: Path) -> Fetcher:
    """Build the fetcher, with the development cache in ``folder`` if the setting ``cache`` is on.

    :raises ConfigError: the setting ``fetcher`` names none, or one that can't be loaded.
    """
    fetcher: Fetcher = load_fetcher(settings.fetcher)(settings)
    if not settings.cache:
        return fetcher
    from uttu.fetch.cache import CachingFetcher

    return CachingFetcher(fetcher, folder / "cache.db")


def create_http_fetcher(settings: Settings) -> Fetcher:
    """Build the built-in fetcher, for HTTP/1.1 and HTTP/2."""
    from uttu.fetch.http import HttpFetcher

    return HttpFetcher(
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


def create_scope(settings: Settings, start_hosts: frozenset[str]) -> Scope:
    return Scope(
        domains=settings.domains,
        start_hosts=start_hosts,
        private=settings.private,
        max_depth=settings.max_depth,
        max_url_length=settings.max_url_length,
    )


def create_limits(settings: Settings) -> CrawlLimits:
    return CrawlLimits(
        pages=settings.max_pages, items=settings.max_items, bytes=settings.max_bytes, seconds=settings.max_seconds
    )


_log = logging.getLogger("uttu.lane")

# Leases are extended every third of their time, so a worker that is blocked for two thirds still keeps them.
_LEASE_SHARE = 2 / 3
# If a handler has not ended this long after its first interruption, it counts as not interruptible.
_INTERRUPT_SECONDS = 20.0


def grace_seconds(settings: Settings) -> float:
    """How long a crawl that is to end waits for pages in flight: the fetch timeout plus ``GRACE_SECONDS``."""
    return settings.timeout + GRACE_SECONDS


def create_worker(
    spider: Spider,
    settings: Settings,
    store: CrawlStore,
    fetcher: Fetcher,
    start_hosts: frozenset[str],
    is_supervised: Callable[[], Awaitable[bool]] | None = None,
    events: Events | None = None,
    recorder: EventRecorder | None = None,
) -> CrawlWorker:
    """Build the worker of this process, ready to run.

    :param events: Publishes pages and items on the bus.
    :param recorder: Keeps the events of workers and lanes, and publishes them.
    :param start_hosts: Hosts that may be fetched even if they are private.
    :param is_supervised: See :class:`CrawlWorker`.
    """
    clock, stats = SystemClock(), WorkerStats()
    box = blackbox.inherited()
    if box is not None:
        longest = max_block_seconds(settings)
        box.set_limits(TERMINATE_SECONDS, longest + _INTERRUPT_SECONDS if longest else 0.0)
    steps = StepTracker(box)
    link_filter = LinkFilter(create_scope(settings, start_hosts), Traps(date.today()))
    names = None if settings.private or settings.proxy else GuardedResolver(start_hosts, store.memo, clock)
    if names is not None and isinstance(fetcher, ResolverAware):
        fetcher.use_resolver(names.resolve)

    async def hold(lane: str, seconds: float, reason: str) -> None:
        worker.rest(lane, seconds)
        _log.info(
            "Lane %(lane)s is held for %(seconds).1f s: %(reason)s",
            {"lane": lane, "seconds": seconds, "reason": mask_logins(reason)},
        )
        if recorder is not None:
            recorder.lane(lane, seconds, reason)
        await store.frontier.hold(lane, seconds, reason)

    robots = RobotsCache(
        fetcher=fetcher,
        link_filter=link_filter,
        names=names,
        memo=store.memo,
        user_agent=settings.user_agent,
        pace=settings.rules.pace,
        hold=hold,
        clock=clock,
        max_crawl_delay=settings.max_crawl_delay,
        max_retry_after=settings.max_retry_after,
    )
    processor = PageProcessor(
        spider=spider,
        fetcher=fetcher,
        link_filter=link_filter,
        robots=robots,
        names=names,
        hold=hold,
        is_held=lambda lease: worker.is_held(lease),
        settings=settings,
        stats=stats,
        clock=clock,
        events=events,
        steps=steps,
        is_stopping=lambda: worker.is_stopping,
        memo=store.memo,
    )
    worker = Worker(
        create_worker_name(),
        frontier=store.frontier,
        visit=processor.visit,
        link_filter=link_filter,
        is_over=lambda: is_over(
            store.frontier, store.ledger, store.feed, stay=settings.stay, is_supervised=is_supervised
        ),
        stats=stats,
        controller=ConcurrencyController(settings.concurrency),
        lease_seconds=settings.lease_seconds,
        clock=clock,
        events=events,
    )
    pushed_seeds = None
    if store.feed is not None:
        pushed_seeds = PushedSeeds(store.feed, spider.handlers, proxy=settings.proxy, private=settings.private)
    return CrawlWorker(
        worker,
        store.frontier,
        store.ledger,
        stats,
        clock,
        pushed_seeds=pushed_seeds,
        is_supervised=is_supervised,
        limits=create_limits(settings),
        events=recorder,
        history=store.history,
        grace=grace_seconds(settings),
        watchdog=Watchdog(steps, max_block_seconds(settings), box),
    )


def max_block_seconds(settings: Settings) -> float:
    """How long a handler may block the worker: ``max_block``, but at most two thirds of ``lease_seconds``."""
    return min(settings.max_block, settings.lease_seconds * _LEASE_SHARE)


def create_worker_name() -> str:
    """A name that is unique over machines and time: host name, pid and a random part."""
    return f"{socket.gethostname()}-{blackbox.started_pid()}-{secrets.token_hex(3)}"


# The event loop and the HTTP client's thread share Python's global lock; by default a thread waits 5 ms for it.
_SWITCH_SECONDS = 0.00002

# By default glibc hands memory back to the system whenever 128 KB are free at its end, and asks for it again a
# moment later: with a parse tree made and dropped per page, four system calls and as many fresh pages each. And small
# blocks that are free it keeps apart ("fast"), to put them together again whenever a large one is freed, as those are.
_KEPT_BYTES = 64 * 1024 * 1024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MXFAST = -1, -3, 1

# Almost nothing a crawl makes is cyclic garbage, so it is looked for less often, and not among what was imported.
_COLLECT_AFTER = (20_000, 20, 20)


def tune() -> None:
    """Set up the process for thousands of pages a second, before the work begins; harmless if called twice."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    # Each host that is asked has a connection, and what is allowed at first is often 1,024 of them.
    with contextlib.suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.suppress(OSError, AttributeError):  # no glibc, nothing to do
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)
        mallopt(_M_MXFAST, 0)

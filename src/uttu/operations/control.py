"""Pause, resume and stop a crawl, set the pace of a host, and try dead letters again.

The wanted state is written to the crawl's ledger, if the present state allows it. Workers read the ledger every second,
on every machine. If a bus is set, they can be notified over it, and then read the ledger at once. That may take some
seconds if the broker is away, so it is a second step (:func:`announce_change`), after the caller has shown the result.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from uttu import settings
from uttu.clients.addresses import mask_logins, mask_password
from uttu.engine import throttled_hosts
from uttu.errors import BusError, ConfigError, UttuError
from uttu.model.crawl import NO_REASON, CrawlState, Reason, ReasonKind
from uttu.model.inspection import count_kinds
from uttu.model.url import canonical, host_of
from uttu.operations import Report, format_count
from uttu.operations.crawls import BrokenState, CrawlStatus, record_action, select_crawl
from uttu.operations.fetch import parse_web_url
from uttu.runtime.messaging import announce_control
from uttu.runtime.registry import connect_bus

BY_OPERATOR = Reason("stopped by the operator")
_ANNOUNCE_SECONDS: Final = 3.0


class ControlDecision(msgspec.Struct, frozen=True):
    """The message to print, and the state to write; None if there is nothing to do."""

    said: str
    state: CrawlState | None = None
    reason: Reason = NO_REASON


class StateChange(msgspec.Struct, frozen=True):
    """What :func:`change_state` did.

    ``said``: the result in words. ``action``: the name of the decision. ``is_live``: whether the state of a crawl has
    changed that processes work on, which :func:`announce_change` can notify.
    """

    status: CrawlStatus
    action: str
    said: str
    is_live: bool


async def change_state(
    crawl: str,
    frontier: str,
    decide: Callable[[CrawlStatus], ControlDecision],
    report: Report,
    *,
    by: str = "",
    folder: Path = Path(),
) -> StateChange:
    """Pause, resume or stop a crawl. The change is stored when this returns.

    :param decide: :func:`pause`, :func:`resume` or :func:`stop`.
    :param by: Who does it, for the history of the crawl.
    :raises UttuError: that makes no sense for the crawl.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        standing = await found.status()
        check_not_moved(standing)
        # Hold the supervisor lock of a crawl that is not running, so that it can't start in between.
        async with contextlib.nullcontext() if standing.alive else found.catalog.supervise(found.name):
            step = decide(standing)
            if step.state is not None:
                await found.store.ledger.note(state=step.state, reason=step.reason)
                await record_action(found.store, by, decide.__name__)
    return StateChange(standing, decide.__name__, step.said, step.state is not None and standing.alive)


async def announce_change(change: StateChange, report: Report, folder: Path = Path()) -> None:
    """Let the workers read the ledger at once, if there is a bus to notify them on; without it they look every second.

    Takes up to ``_ANNOUNCE_SECONDS`` if the broker does not answer, which is reported.

    :param folder: The project's folder, whose setting ``bus`` counts.
    """
    if not change.is_live:
        return
    url = settings.load_bus(folder=folder) or str(change.status.facts.flags.get("bus", ""))
    if not url:
        return
    try:
        async with asyncio.timeout(_ANNOUNCE_SECONDS), connect_bus(url) as bus:
            await announce_control(bus, change.status.name, change.action)
    except (BusError, ConfigError, TimeoutError) as error:
        why = str(error) or f"{mask_password(url)} does not answer"
        report(f"{why}. Workers notice the change within two seconds instead of at once")


def check_not_moved(standing: CrawlStatus) -> None:
    """Check that a crawl is complete and in this frontier.

    :raises UttuError: the crawl was moved to another frontier, or its copy is not complete.
    """
    if standing.reason.kind is ReasonKind.MOVED:
        raise UttuError(f"Crawl {standing.name!r} was {standing.reason}. Give that frontier with --frontier")
    if standing.reason.kind is ReasonKind.MOVING:
        raise UttuError(f"Crawl {standing.name!r} is {standing.reason}. If the move was interrupted, run it again")


def pause(standing: CrawlStatus) -> ControlDecision:
    name = standing.name
    if standing.state == CrawlState.PAUSED:
        return ControlDecision(f"{name} is already paused. Resume it with: {standing.words('resume', name)}")
    if standing.state != CrawlState.RUNNING:
        raise UttuError(f"Crawl {name!r} is not running, so it can't be paused: it is {_describe_state(standing)}")
    said = f"{name} is paused: its workers finish the pages in flight, then wait with {_describe_work(standing)}"
    return ControlDecision(
        f"{said}. Resume it with: {standing.words('resume', name)}", CrawlState.PAUSED, Reason("paused by the operator")
    )


def resume(standing: CrawlStatus) -> ControlDecision:
    name = standing.name
    if standing.state == CrawlState.RUNNING:
        return ControlDecision(f"{name} is running already")
    if standing.state != CrawlState.PAUSED:
        command = standing.command() + (" --resume" if standing.state == CrawlState.LIMITED else "")
        then = "Start a new crawl with" if standing.state == CrawlState.FINISHED else "Resume it with"
        raise UttuError(f"Crawl {name!r} is not paused: it is {_describe_state(standing)}. {then}: {command}")
    said = f"{name} is resumed, with {_describe_work(standing)}"
    if not standing.alive:
        said = f"{name} is no longer paused, but has no workers. Resume it with: {standing.command()}"
    return ControlDecision(said, CrawlState.RUNNING)


def stop(standing: CrawlStatus) -> ControlDecision:
    name = standing.name
    then = f"Resume it with: {standing.command()}"
    if standing.state == CrawlState.STOPPING:
        return ControlDecision(f"{name} is stopping already{standing.how}")
    if standing.alive and standing.state in (CrawlState.RUNNING, CrawlState.PAUSED):
        said = f"{name} stops: its workers finish the pages in flight; {_describe_work(standing)} stay in the queue"
        return ControlDecision(f"{said}. {then}", CrawlState.STOPPING, BY_OPERATOR)
    if standing.state in (BrokenState.CUT_SHORT, CrawlState.PAUSED):
        # Written although nobody works on it: a worker that could not reach the store may come back.
        return ControlDecision(f"{name} is stopped; it had no workers. {then}", CrawlState.STOPPED, BY_OPERATOR)
    raise UttuError(f"Crawl {name!r} is not running, so it can't be stopped: it is {_describe_state(standing)}")


def _describe_state(standing: CrawlStatus) -> str:
    return f"{standing.state}{standing.how}"


def _describe_work(standing: CrawlStatus) -> str:
    return f"{format_count(standing.counts.pending + standing.counts.delayed, 'page')} to do"


class RateChange(msgspec.Struct, frozen=True):
    """The pace that an operator set. ``delay``: seconds; None if the crawl decides again."""

    status: CrawlStatus
    lane: str
    delay: float | None


async def set_rate(
    crawl: str,
    frontier: str,
    lane: str,
    delay: float | None,
    report: Report,
    *,
    by: str = "",
    folder: Path = Path(),
) -> RateChange:
    """Pin a lane to a delay, with one request at a time, for all workers; None removes the pin.

    :param lane: As :func:`parse_lane` returns it.
    :param by: Who does it, for the history of the crawl.
    :raises UttuError: the crawl has finished, or was moved.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        standing = await found.status()
        check_not_moved(standing)
        if standing.state == CrawlState.FINISHED:
            raise UttuError(f"Crawl {found.name!r} has finished. Start a new one with: {standing.command()}")
        await found.store.inspector.pin(lane, delay)
        if delay is None:
            await record_action(found.store, by, "reset rate", lane=lane)
        else:
            await record_action(found.store, by, "rate", lane=lane, delay=delay)
    return RateChange(standing, lane, delay)


def parse_lane(host: str) -> str:
    """The lane of a host or of a URL, named as in requests: without the default port of the scheme.

    :raises ValueError: it is neither.
    """
    url = parse_web_url(host)
    if "://" in host:
        return host_of(url)
    rest = url.partition("://")[2]
    return min((host_of(canonical(f"{scheme}://{rest}")) for scheme in ("http", "https")), key=len)


class RetryResult(msgspec.Struct, frozen=True):
    """How many dead letters were put back, and how many are left by kind. ``status`` is that of before."""

    status: CrawlStatus
    revived: int
    kinds: dict[str, int]


async def retry_dead(
    crawl: str,
    frontier: str,
    report: Report,
    *,
    kind: str = "",
    url: str = "",
    message: str = "",
    by: str = "",
    folder: Path = Path(),
) -> RetryResult:
    """Queue dead letters again, as if they had never been tried: those of one kind, URL or message, or all.

    Hosts that were given up are tried again. A crawl that has ended is noted as stopped, so that the command that
    started it resumes it with these pages.

    :param url: A canonical URL.
    :param message: That of a :class:`~uttu.model.inspection.DeadGroup`.
    :param by: Who does it, for the history of the crawl.
    :raises UttuError: the crawl was moved.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        standing = await found.status()
        check_not_moved(standing)
        # A crawl that is not running must not be started while this changes its state.
        async with contextlib.nullcontext() if standing.alive else found.catalog.supervise(found.name):
            await throttled_hosts.write_retry_token(found.store.memo)
            revived = await found.store.inspector.revive(kind, url, message)
            if revived and not standing.alive:
                # A finished crawl would start anew; a stopped one is resumed.
                await found.store.ledger.note(state=CrawlState.STOPPED, reason=Reason("dead letters are queued again"))
            given = {"kind": kind, "url": mask_logins(url), "message": message}
            fields = {name: value for name, value in given.items() if value}
            await record_action(found.store, by, "retry", revived=revived, **fields)
            return RetryResult(standing, revived, count_kinds(await found.store.inspector.dead_groups()))

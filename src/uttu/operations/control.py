"""Pause, resume and stop a crawl by writing the wanted state to its ledger, if the present state allows it.

Workers read the ledger every second, on every machine. If a bus is set, they are notified over it and read the ledger
at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import msgspec

from uttu import settings
from uttu.clients.addresses import mask_password
from uttu.errors import BusError, ConfigError, UttuError
from uttu.frontier.catalog import CrawlCatalog
from uttu.model.crawl import NO_REASON, CrawlState, Reason, ReasonKind
from uttu.operations import Report, format_count
from uttu.operations.crawls import (
    BrokenState,
    CrawlStatus,
    connect_configured_frontier,
    find_crawl,
    open_store,
    read_status,
)
from uttu.runtime.messaging import announce_control
from uttu.runtime.registry import connect_bus

BY_OPERATOR = Reason("stopped by the operator")
_ANNOUNCE_SECONDS: Final = 3.0


class ControlDecision(msgspec.Struct, frozen=True):
    """The message to print, and the state to write; None if there is nothing to do."""

    said: str
    state: CrawlState | None = None
    reason: Reason = NO_REASON


async def change_state(
    crawl: str, frontier: str, decide: Callable[[CrawlStatus], ControlDecision], report: Report
) -> str:
    """Pause, resume or stop a crawl; returns what became of it, in words.

    :raises UttuError: that makes no sense for the crawl.
    """
    async with connect_configured_frontier(frontier) as catalog:
        name = await resolve_crawl(catalog, crawl, report)
        async with open_store(catalog, name) as store:
            standing = await read_status(catalog, name, store)
            check_not_moved(standing)
            # Hold the supervisor lock of a crawl that is not running, so that it can't start in between.
            async with contextlib.nullcontext() if standing.alive else catalog.supervise(name):
                step = decide(standing)
                if step.state is not None:
                    await store.ledger.note(state=step.state, reason=step.reason)
    if step.state is not None and standing.alive:
        await _announce(standing, decide.__name__, report)
    return step.said


async def _announce(standing: CrawlStatus, action: str, report: Report) -> None:
    """Let the workers look at once, if there is a bus to tell them on; without it they look every second."""
    url = settings.load_bus() or str(standing.facts.flags.get("bus", ""))
    if not url:
        return
    try:
        async with asyncio.timeout(_ANNOUNCE_SECONDS), connect_bus(url) as bus:
            await announce_control(bus, standing.name, action)
    except (BusError, ConfigError, TimeoutError) as error:
        why = str(error) or f"{mask_password(url)} does not answer"
        report(f"{why}. So the workers hear of it within a second or two, not at once")


async def resolve_crawl(catalog: CrawlCatalog, crawl: str, report: Report) -> str:
    """The crawl that is meant."""
    name, remark = await find_crawl(catalog, crawl)
    if remark:
        report(remark)
    return name


def check_not_moved(standing: CrawlStatus) -> None:
    """Check that a crawl is complete and in this frontier.

    :raises UttuError: the crawl was moved to another frontier, or its copy is not complete.
    """
    if standing.reason.kind is ReasonKind.MOVED:
        raise UttuError(f"crawl {standing.name!r} was {standing.reason}: give that as --frontier")
    if standing.reason.kind is ReasonKind.MOVING:
        raise UttuError(f"crawl {standing.name!r} is {standing.reason}; if that was cut short, move it again")


def pause(standing: CrawlStatus) -> ControlDecision:
    name = standing.name
    if standing.state == CrawlState.PAUSED:
        return ControlDecision(f"{name} is paused already; go on with: {standing.words('resume', name)}")
    if standing.state != CrawlState.RUNNING:
        raise UttuError(f"crawl {name!r} does not run, so it can't be paused: it is {_describe_state(standing)}")
    said = f"{name} is paused: its workers finish what is in flight and wait, with {_describe_work(standing)}"
    return ControlDecision(
        f"{said}. Go on with: {standing.words('resume', name)}", CrawlState.PAUSED, Reason("paused by the operator")
    )


def resume(standing: CrawlStatus) -> ControlDecision:
    name = standing.name
    if standing.state == CrawlState.RUNNING:
        return ControlDecision(f"{name} is running already")
    if standing.state != CrawlState.PAUSED:
        command = standing.command() + (" --resume" if standing.state == CrawlState.LIMITED else "")
        then = "starts anew with" if standing.state == CrawlState.FINISHED else "goes on with"
        raise UttuError(f"crawl {name!r} is not paused: it is {_describe_state(standing)}. It {then}: {command}")
    said = f"{name} goes on, with {_describe_work(standing)}"
    if not standing.alive:
        said = f"{name} is paused no more, but nobody works on it. Go on with: {standing.command()}"
    return ControlDecision(said, CrawlState.RUNNING)


def stop(standing: CrawlStatus) -> ControlDecision:
    name = standing.name
    then = f"Go on with: {standing.command()}"
    if standing.state == CrawlState.STOPPING:
        return ControlDecision(f"{name} is stopping already{standing.how}")
    if standing.alive and standing.state in (CrawlState.RUNNING, CrawlState.PAUSED):
        said = f"{name} stops: its workers finish what is in flight, {_describe_work(standing)} stay"
        return ControlDecision(f"{said}. {then}", CrawlState.STOPPING, BY_OPERATOR)
    if standing.state in (BrokenState.CUT_SHORT, CrawlState.PAUSED):
        # Written although nobody works on it: a worker that could not reach the store may come back.
        return ControlDecision(f"{name} is stopped; nobody worked on it. {then}", CrawlState.STOPPED, BY_OPERATOR)
    raise UttuError(f"crawl {name!r} does not run, so it can't be stopped: it is {_describe_state(standing)}")


def _describe_state(standing: CrawlStatus) -> str:
    return f"{standing.state}{standing.how}"


def _describe_work(standing: CrawlStatus) -> str:
    return f"{format_count(standing.counts.pending + standing.counts.delayed, 'page')} to do"

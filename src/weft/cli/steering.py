"""Pausing, resuming and stopping a crawl: what is asked of it in its ledger, and whether that makes sense.

The workers read the ledger every second, wherever they run; at once, if a bus is set to tell them on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from weft import assembly, config, launch
from weft.cli.crawls import CUT_SHORT, Standing, choose, depot_at, opened, standing_of
from weft.cli.words import number, say
from weft.drivers.urls import masked
from weft.engine import control
from weft.engine.states import State
from weft.errors import BusError, ConfigError, WeftError
from weft.frontier.depot import Depot

BY_OPERATOR = "stopped by the operator"
_ANNOUNCE_SECONDS: Final = 3.0


class Step(msgspec.Struct, frozen=True):
    """What to say and, unless there is nothing to do, the state to ask for."""

    said: str
    state: State | None = None
    reason: str = ""


async def steer(crawl: str, frontier: str, decide: Callable[[Standing], Step]) -> None:
    """:raises WeftError: that makes no sense for the crawl."""
    async with depot_at(frontier) as depot:
        name = await named(depot, crawl)
        async with opened(depot, name) as store:
            standing = await standing_of(depot, name, store)
            check_is_here(standing)
            # A crawl that is not running must not begin to in the middle of this.
            async with contextlib.nullcontext() if standing.alive else depot.supervise(name):
                step = decide(standing)
                if step.state is not None:
                    await store.ledger.note(state=step.state, reason=step.reason)
    print(step.said, flush=True)
    if step.state is not None and standing.alive:
        await _announce(standing, decide.__name__)


async def _announce(standing: Standing, action: str) -> None:
    """Let the workers look at once, if there is a bus to tell them on; without it they look every second."""
    flags: dict[str, Any] = msgspec.json.decode(standing.facts.get("flags", "{}"))
    url = config.load_bus() or str(flags.get("bus", ""))
    if not url:
        return
    try:
        async with asyncio.timeout(_ANNOUNCE_SECONDS), assembly.opened_bus(url) as bus:
            await control.announce(bus, standing.name, action)
    except (BusError, ConfigError, TimeoutError) as error:
        why = str(error) or f"{masked(url)} does not answer"
        say(f"{why}. So the workers hear of it within a second or two, not at once")


async def named(depot: Depot, crawl: str) -> str:
    """The crawl that is meant."""
    name, remark = await choose(depot, crawl)
    if remark:
        say(remark)
    return name


def check_is_here(standing: Standing) -> None:
    """:raises WeftError: the crawl was moved elsewhere, or is not wholly here yet."""
    if standing.reason.startswith(launch.MOVED):
        raise WeftError(f"crawl {standing.name!r} was {standing.reason}: give that as --frontier")
    if standing.reason.startswith(launch.MOVING):
        raise WeftError(f"crawl {standing.name!r} is {standing.reason}; if that was cut short, move it again")


def pause(standing: Standing) -> Step:
    name = standing.name
    if standing.state == State.PAUSED:
        return Step(f"{name} is paused already; go on with: {standing.words('resume', name)}")
    if standing.state != State.RUNNING:
        raise WeftError(f"crawl {name!r} does not run, so it can't be paused: it is {_how(standing)}")
    said = f"{name} is paused: its workers finish what is in flight and wait, with {_left(standing)}"
    return Step(f"{said}. Go on with: {standing.words('resume', name)}", State.PAUSED, "paused by the operator")


def resume(standing: Standing) -> Step:
    name = standing.name
    if standing.state == State.RUNNING:
        return Step(f"{name} is running already")
    if standing.state != State.PAUSED:
        command = standing.command() + (" --resume" if standing.state == State.LIMITED else "")
        then = "starts anew with" if standing.state == State.FINISHED else "goes on with"
        raise WeftError(f"crawl {name!r} is not paused: it is {_how(standing)}. It {then}: {command}")
    said = f"{name} goes on, with {_left(standing)}"
    if not standing.alive:
        said = f"{name} is paused no more, but nobody works on it. Go on with: {standing.command()}"
    return Step(said, State.RUNNING)


def stop(standing: Standing) -> Step:
    name = standing.name
    then = f"Go on with: {standing.command()}"
    if standing.state == State.STOPPING:
        return Step(f"{name} is stopping already{standing.how}")
    if standing.alive and standing.state in (State.RUNNING, State.PAUSED):
        said = f"{name} stops: its workers finish what is in flight, {_left(standing)} stay"
        return Step(f"{said}. {then}", State.STOPPING, BY_OPERATOR)
    if standing.state in (CUT_SHORT, State.PAUSED):
        # A worker that was out of reach may come back; it has to hear of it then.
        return Step(f"{name} is stopped; nobody worked on it. {then}", State.STOPPED, BY_OPERATOR)
    raise WeftError(f"crawl {name!r} does not run, so it can't be stopped: it is {_how(standing)}")


def _how(standing: Standing) -> str:
    return f"{standing.state}{standing.how}"


def _left(standing: Standing) -> str:
    return f"{number(standing.counts.pending + standing.counts.delayed, 'page')} to do"

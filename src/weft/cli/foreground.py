"""Running a crawl, or a worker of one, in the foreground: signals, progress, summary, exit code."""

from __future__ import annotations

import asyncio
import functools
import sys
import time
from collections.abc import Coroutine
from typing import Any, BinaryIO

import msgspec
import uvloop

from weft import assembly
from weft import plan as plans
from weft.cli.conditions import Condition, numbers_of
from weft.cli.crawls import Standing, command_at, connected, opened, place_of, standing_of
from weft.cli.exits import BROKEN, BY_SIGNAL, FAILED
from weft.cli.reserved import reserved
from weft.cli.signals import Signals
from weft.cli.view import View, named, view_for
from weft.cli.words import say
from weft.engine.member import Member
from weft.engine.states import State
from weft.engine.supervisor import Ending
from weft.errors import StoreError, WeftError
from weft.frontier.depot import Depot, Store
from weft.plan import Led, joined, led, summary_of
from weft.wire import wired


class Plan(plans.Plan, frozen=True, kw_only=True):
    """What a command line asks for."""

    conditions: tuple[Condition, ...] = ()
    as_json: bool = False


def run_plan(plan: Plan) -> int:
    """Run a crawl to its end; returns the exit code."""
    with reserved(plan.as_json or "-" in plan.outputs) as out:
        return _run_plan(plan, out)


def _run_plan(plan: Plan, out: BinaryIO) -> int:
    spider, settings, name = plan.load()
    sinks = [assembly.sink_for(target, name, out) for target in plan.outputs]

    async def crawl() -> int:
        async with (
            connected(settings.frontier) as depot,
            depot.supervise(name),
            wired(settings, name, say, fed=True) as wire,
            led(plan, spider, settings, depot, name, sinks, wire) as crawl,
        ):
            hint = functools.partial(command_at, depot)
            shown = {"quiet": plan.as_json, "items_here": "-" in plan.outputs and out.isatty()}
            view = view_for(spider.name, crawl.opened.store, hint, **shown)
            return await _crawl(plan, name, crawl, view, out)

    return _run(crawl())


def run_worker(plan: Plan, *, tied: bool) -> int:
    """Take part in a crawl until it is over; returns the exit code."""
    spider, own, name = plan.load()

    async def work() -> int:
        async with connected(own.frontier) as depot:
            standing = await _running(plan, depot, name)
            if not standing.supervised and not tied:
                say(f"crawl {name!r} has no supervisor now: its items stay in the store until: {standing.command()}")
            settings = plan.joining(spider, standing.facts)
            async with wired(settings, name, say) as wire, joined(spider, settings, depot, name, wire) as part:
                return await _work(part.member, tied)

    return _run(work())


async def _crawl(plan: Plan, name: str, crawl: Led, view: View, out: BinaryIO) -> int:
    began = time.monotonic()
    supervisor, store = crawl.supervisor, crawl.opened.store
    signals = Signals()
    view.opened(crawl.opened)
    for output, owner in supervisor.elsewhere.items():
        view.say(f"  {output} is being written by {owner}: it is left to that, and taken over when that is gone")
    signals.listen(supervisor, view)
    try:
        async with view:
            ending = await supervisor.run()
        about = {"crawl": name, "seconds": round(time.monotonic() - began, 3)}
        broken = await _conclude(plan, about, ending, store, view, out)
    finally:
        signals.deaf()
    if ending.state is State.STOPPED:
        return BY_SIGNAL + signals.received if signals.received else FAILED
    return BROKEN if broken else 0


async def _conclude(
    plan: Plan, about: dict[str, Any], ending: Ending, store: Store, view: View, out: BinaryIO
) -> list[str]:
    """Say how it ended; returns the conditions that are met. ``about`` goes before the numbers of the summary."""
    counts, kinds = await store.frontier.counts(), await store.inspector.dead_kinds()
    numbers = numbers_of(counts, kinds)
    broken = [condition.text for condition in plan.conditions if condition.met(numbers)]
    if plan.as_json:
        outputs = [assembly.shown(target) for target in plan.outputs]
        summary = {**about, **await summary_of(ending, store), "outputs": outputs, "broken": broken}
        stream = sys.stderr.buffer if "-" in plan.outputs else out
        stream.write(msgspec.json.encode(summary) + b"\n")
        stream.flush()
        return broken
    await view.closed(ending, counts)
    if counts.items and not plan.outputs:
        view.say(f"  the items are kept with the crawl: {view.hint('export', '-o', 'FILE')}")
    for text in broken:
        view.say(f"  --fail-on {text}: it is so")
    return broken


async def _running(plan: Plan, depot: Depot, name: str) -> Standing:
    """:raises WeftError: there is nothing to take part in."""
    command = command_at(depot, "crawl", str(plan.file))
    if name not in await depot.names():
        raise StoreError(f"there is no crawl {name!r} {place_of(depot)} to take part in; start it with: {command}")
    async with opened(depot, name) as store:
        standing = await standing_of(depot, name, store)
    state = standing.facts.get("state", "")
    if state not in (State.RUNNING, State.PAUSED):
        raise WeftError(f"crawl {name!r} is not running ({state}); start it with: {command}")
    return standing


async def _work(member: Member, tied: bool) -> int:
    signals = Signals()

    def drain() -> None:
        if not tied:
            flying = named(member.worker.flying(member.worker.in_flight), member.worker.in_flight)
            say(f"stopping: waiting for {flying or 'nothing'}; once more to stop at once")
        member.drain()

    signals.listen_plain(drain, member.stop)
    try:
        if tied:
            # Nobody is left who could tell it once more.
            gone = functools.partial(member.drain, hurried=True)
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), signals.supervisor_gone, gone)
        await member.run()
        return 0
    finally:
        signals.deaf()


def _run(work: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)

"""Running a crawl, or a worker of one, in the foreground: signals, progress, summary, exit code."""

from __future__ import annotations

import asyncio
import functools
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from weft import assembly, config, launch
from weft.cli.conditions import Condition, numbers_of
from weft.cli.crawls import Standing, command_at, connected, opened, place_of, standing_of
from weft.cli.exits import BROKEN, BY_SIGNAL, FAILED
from weft.cli.signals import Signals
from weft.cli.tables import say
from weft.cli.view import View, view_for
from weft.config import Settings
from weft.drivers.urls import masked
from weft.engine.states import State
from weft.engine.supervisor import Ending
from weft.errors import StoreError, WeftError
from weft.frontier.depot import Depot, Store
from weft.spider import Spider
from weft.spider.load import load_spider
from weft.wire import Wire, wired


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line asks for."""

    file: Path
    spider_name: str = ""
    arguments: dict[str, str] = {}
    flags: dict[str, Any] = {}
    outputs: tuple[str, ...] = ()
    workers: int = 1
    fresh: bool = False
    resume: bool = False
    crawl: str = ""
    conditions: tuple[Condition, ...] = ()
    as_json: bool = False

    def load(self) -> tuple[Spider, Settings, str]:
        """The spider, its settings, and the crawl's name.

        :raises ConfigError: one of them can't be had.
        """
        spider = load_spider(self.file, self.spider_name)
        spider.set_args(self.arguments)
        settings = config.load(spider.settings, self.flags)
        return spider, settings, self.crawl or launch.crawl_id(spider, self.arguments)

    def joining(self, spider: Spider, facts: dict[str, str]) -> Settings:
        """The settings of a worker that joins: those the crawl was started with, but for what it is told itself."""
        if not self.arguments:
            spider.set_args(msgspec.json.decode(facts.get("arguments", "{}"), type=dict[str, str]))
        return config.load(spider.settings, msgspec.json.decode(facts.get("flags", "{}")) | self.flags)

    @property
    def noted_flags(self) -> dict[str, Any]:
        """The flags that others may see, as addresses may hold a password. The feed is the supervisor's alone."""
        noted = {key: value for key, value in self.flags.items() if key not in ("frontier", "bus", "feed")}
        if (bus := str(self.flags.get("bus", ""))) and masked(bus) == bus:
            noted["bus"] = bus
        if "feed" in self.flags:
            noted["feed"] = masked(str(self.flags["feed"]))
        return noted

    def worker_command(self) -> list[str]:
        """The command that runs another process for the same crawl, if its environment names the frontier."""
        # -P: the folder it is run in must not hide Python's own modules, or ours.
        command = [sys.executable, "-P", "-m", "weft", "worker", str(self.file), "--tied"]
        for key, value in self.arguments.items():
            command += ["-a", f"{key}={value}"]
        for key, value in self.noted_flags.items():
            command += ["-s", f"{key}={value}"]
        if self.spider_name:
            command += ["--spider", self.spider_name]
        if self.crawl:
            command += ["--crawl", self.crawl]
        return command


def run_plan(plan: Plan) -> int:
    """Run a crawl to its end; returns the exit code."""
    spider, settings, name = plan.load()
    sinks = [assembly.sink_for(target, name) for target in plan.outputs]

    async def crawl() -> int:
        async with (
            connected(settings.frontier) as depot,
            depot.supervise(name),
            wired(settings, name, say, fed=True) as wire,
        ):
            return await _crawl(plan, spider, settings, depot, name, sinks, wire)

    return _run(crawl())


def run_worker(plan: Plan, *, tied: bool) -> int:
    """Take part in a crawl until it is over; returns the exit code."""
    spider, settings, name = plan.load()

    async def work() -> int:
        async with connected(settings.frontier) as depot:
            standing = await _running(plan, depot, name)
            if not standing.supervised and not tied:
                say(f"crawl {name!r} has no supervisor now: its items stay in the store until: {standing.command()}")
            joined = plan.joining(spider, standing.facts)
            async with wired(joined, name, say) as wire:
                return await _work(spider, joined, depot, name, tied, wire)

    return _run(work())


async def _crawl(
    plan: Plan, spider: Spider, settings: Settings, depot: Depot, name: str, sinks: list[Any], wire: Wire
) -> int:
    fetcher = assembly.fetcher_for(settings, launch.FOLDER)
    crawl = await launch.open_crawl(depot, name, settings, fresh=plan.fresh, resume=plan.resume)
    store = crawl.store
    hint = functools.partial(command_at, depot)
    view = view_for(spider.name, store, hint, quiet=plan.as_json)
    signals = Signals()
    try:
        await store.ledger.note(
            spider=spider.name,
            file=str(plan.file.resolve()),
            arguments=_json(plan.arguments),
            flags=_json(plan.noted_flags),
            outputs=_json([assembly.shown(target) for target in plan.outputs]),
            began=str(round(time.time())),
        )
        command = plan.worker_command() if plan.workers > 1 else []
        supervisor = await launch.supervisor_for(spider, settings, store, fetcher, sinks, command, plan.workers, wire)
        await supervisor.open()
        await depot.keep(name)
        view.opened(crawl)
        for output, owner in supervisor.elsewhere.items():
            view.say(f"  {output} is being written by {owner}: it is left to that, and taken over when that is gone")
        wire.hear(supervisor.heed)
        signals.listen(supervisor, view)
        async with view:
            ending = await supervisor.run()
        return await _conclude(plan, ending, store, view, signals)
    finally:
        signals.deaf()
        await fetcher.close()
        await store.frontier.close()
        await depot.restore(name)


async def _conclude(plan: Plan, ending: Ending, store: Store, view: View, signals: Signals) -> int:
    counts, kinds = await store.frontier.counts(), await store.inspector.dead_kinds()
    numbers = numbers_of(counts, kinds)
    broken = [condition.text for condition in plan.conditions if condition.met(numbers)]
    if plan.as_json:
        summary = {
            "state": ending.state,
            "reason": ending.reason,
            **msgspec.structs.asdict(counts),
            "dead_kinds": kinds,
            "broken": broken,
        }
        print(_json(summary), file=sys.stderr if "-" in plan.outputs else sys.stdout)
    else:
        view.closed(ending, counts, await store.inspector.dead(1), kinds)
        if counts.items and not plan.outputs:
            view.say(f"  the items are kept with the crawl: {view.hint('export', '-o', 'FILE')}")
        for text in broken:
            view.say(f"  --fail-on {text}: it is so")
    if ending.state is State.STOPPED:
        return BY_SIGNAL + signals.received if signals.received else FAILED
    return BROKEN if broken else 0


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


async def _work(spider: Spider, settings: Settings, depot: Depot, name: str, tied: bool, wire: Wire) -> int:
    store = await depot.open(name, settings.rules)
    fetcher = assembly.fetcher_for(settings, launch.FOLDER)
    signals = Signals()
    try:
        hosts = await launch.start_hosts(store)
        is_supervised = functools.partial(depot.is_supervised, name)
        member = assembly.member_for(spider, settings, store, fetcher, hosts, is_supervised, wire.events)
        wire.hear(member.heed)
        signals.listen_plain(member.drain, member.stop)
        if tied:
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), signals.supervisor_gone, member.drain)
        await member.run()
        return 0
    finally:
        signals.deaf()
        await fetcher.close()
        await store.frontier.close()


def _run(work: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

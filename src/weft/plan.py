"""What is asked for, by a command line or by a job; and the crawl, or the worker of one, that becomes of it.

How they are told to end, and what they show, is the asker's own.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from weft import assembly, config, launch
from weft.config import Settings
from weft.drivers.urls import masked
from weft.engine.member import Member
from weft.engine.states import State
from weft.engine.supervisor import Ending, Supervisor, reason_of
from weft.errors import ConfigError, SpiderError, StartError, UsageError
from weft.frontier.depot import Depot, Store, check_name
from weft.launch import Opened
from weft.sinks.base import Sink
from weft.spider import Spider
from weft.spider.load import load_spider
from weft.wire import Wire

# What a worker that joins has to be given by itself: a login may be in it, and without it others would see another
# visitor.
_WITHHELD = ("proxy", "headers")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl that someone wants."""

    file: Path
    spider_name: str = ""
    arguments: dict[str, str] = {}
    flags: dict[str, Any] = {}
    outputs: tuple[str, ...] = ()
    workers: int = 1
    fresh: bool = False
    resume: bool = False
    crawl: str = ""

    def load(self) -> tuple[Spider, Settings, str]:
        """The spider, its settings, and the crawl's name.

        :raises UsageError: what was asked for is wrong.
        :raises ConfigError: one of them can't be had.
        """
        if self.fresh and self.resume:
            raise UsageError("--fresh starts a crawl again, --resume goes on with it: give one of them")
        if self.crawl:
            check_name(self.crawl)
        spider = load_spider(self.file, self.spider_name)
        try:
            spider.set_args(self.arguments)
        except ConfigError as error:
            raise UsageError(str(error)) from error
        settings = config.load(spider.settings, self.flags)
        return spider, settings, self.crawl or launch.crawl_id(spider, self.arguments)

    def joining(self, spider: Spider, facts: dict[str, str]) -> Settings:
        """The settings of a worker that joins: those the crawl was started with, but for what it is told itself.

        :raises ConfigError: it would crawl without the proxy or the headers that the crawl was started with.
        """
        if not self.arguments:
            spider.set_args(msgspec.json.decode(facts.get("arguments", "{}"), type=dict[str, str]))
        settings = config.load(spider.settings, msgspec.json.decode(facts.get("flags", "{}")) | self.flags)
        for name in withheld_by(facts):
            if not getattr(settings, name) and name not in self.flags:
                raise ConfigError(
                    f"the crawl was started with the setting {name}, which is not kept with it, as it may hold a "
                    f"password. Give it to this worker, too: {config.ENVIRONMENT}{name.upper()} in the environment, "
                    f"or {name} in {config.FILE}. To go without: -s {name}={'{}' if name == 'headers' else ''}"
                )
        return settings

    @property
    def noted_flags(self) -> dict[str, Any]:
        """The flags that others may see, as addresses and headers may hold a password. The feed is the supervisor's
        alone."""
        kept_back = ("frontier", "bus", "feed", *_WITHHELD)
        noted = {key: value for key, value in self.flags.items() if key not in kept_back}
        if (bus := str(self.flags.get("bus", ""))) and masked(bus) == bus:
            noted["bus"] = bus
        # Of a proxy's login, the user alone may be the key.
        if "proxy" in self.flags and "@" not in str(self.flags["proxy"]):
            noted["proxy"] = self.flags["proxy"]
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

    def withheld(self, settings: Settings) -> dict[str, bool]:
        """The settings of the crawl that others have to be given again; True: by a flag, as this command was."""
        names = [name for name in _WITHHELD if getattr(settings, name) and name not in self.noted_flags]
        return {name: name in self.flags for name in names}

    async def note(self, store: Store, spider: Spider, settings: Settings) -> None:
        """Leave in the ledger what the crawl is, for those who join and for the same command again."""
        await store.ledger.note(
            spider=spider.name,
            file=str(self.file.resolve()),
            arguments=_json(self.arguments),
            flags=_json(self.noted_flags),
            withheld=_json(self.withheld(settings)),
            outputs=_json([assembly.shown(target) for target in self.outputs]),
            began=str(round(time.time())),
        )


def withheld_by(facts: dict[str, str]) -> dict[str, bool]:
    """See :meth:`Plan.withheld`; of a crawl, by its ledger."""
    return msgspec.json.decode(facts.get("withheld", "{}"), type=dict[str, bool])


class Led(msgspec.Struct, frozen=True):
    """A crawl that is open, and who leads it."""

    opened: Opened
    supervisor: Supervisor


@contextlib.asynccontextmanager
async def led(
    plan: Plan,
    spider: Spider,
    settings: Settings,
    depot: Depot,
    name: str,
    sinks: Sequence[Sink],
    wire: Wire,
    spent: float = 0.0,
) -> AsyncIterator[Led]:
    """A crawl with its outputs open, ready to run; its place of a supervisor must be taken. ``spent``: see there.

    :raises WeftError: it can't be opened, or one of its outputs. A crawl that it would replace is as it was.
    """
    fetcher = assembly.fetcher_for(settings, launch.FOLDER)
    crawl = await launch.open_crawl(depot, name, settings, fresh=plan.fresh, resume=plan.resume)
    store = crawl.store
    try:
        await plan.note(store, spider, settings)
        command = plan.worker_command() if plan.workers > 1 else []
        try:
            supervisor = await launch.supervisor_for(
                spider, settings, store, fetcher, sinks, command, plan.workers, wire, spent
            )
        except (SpiderError, StartError) as error:
            # It has no page yet; but where it replaces no other, it is what ``weft status`` shows.
            await store.ledger.note(state=State.STOPPED, reason=reason_of(error))
            raise
        await supervisor.open()
        await depot.keep(name)
        wire.hear(supervisor.heed)
        yield Led(crawl, supervisor)
    finally:
        await fetcher.close()
        await store.frontier.close()
        await depot.restore(name)


class Joined(msgspec.Struct, frozen=True):
    """A crawl that is open, and a worker of it."""

    store: Store
    member: Member


@contextlib.asynccontextmanager
async def joined(spider: Spider, settings: Settings, depot: Depot, name: str, wire: Wire) -> AsyncIterator[Joined]:
    """A worker of a crawl that is there, ready to run.

    :raises StoreError: it can't be opened.
    """
    store = await depot.open(name, settings.rules)
    fetcher = assembly.fetcher_for(settings, launch.FOLDER)
    try:
        hosts = await launch.start_hosts(store)
        is_supervised = functools.partial(depot.is_supervised, name)
        member = assembly.member_for(spider, settings, store, fetcher, hosts, is_supervised, wire.events)
        wire.hear(member.heed)
        yield Joined(store, member)
    finally:
        await fetcher.close()
        await store.frontier.close()


async def summary_of(ending: Ending, store: Store) -> dict[str, Any]:
    """How a crawl ended, and its numbers, as data."""
    return {
        "state": ending.state,
        "reason": ending.reason,
        **msgspec.structs.asdict(await store.frontier.counts()),
        "dead_kinds": await store.inspector.dead_kinds(),
    }


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

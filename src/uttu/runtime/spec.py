"""The specification of a crawl, from a command line, a job or a program: spider file, arguments, settings, outputs.

Passwords do not leave the process in clear text. Settings that may hold one (addresses, proxy, headers) are left out of
the crawl's ledger and of the command lines of its workers. A worker that joins must be given them again.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import xxhash

from uttu.clients.addresses import mask_password
from uttu.errors import ConfigError, UsageError
from uttu.frontier.catalog import CrawlStore
from uttu.model.crawl import check_crawl_name
from uttu.model.facts import CrawlFacts
from uttu.runtime.registry import mask_target
from uttu.settings import ENVIRONMENT_PREFIX, SETTINGS_FILE, Settings, describe_settings, load_settings
from uttu.spider import Spider
from uttu.spider.loader import load_spider

# Settings that a joining worker must be given again. They may hold a login, so they are not stored; and without them
# the worker would look like a different visitor to the sites.
_WITHHELD = ("proxy", "headers")


class CrawlSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl to run: everything that the user gave."""

    file: Path
    spider_name: str = ""
    arguments: dict[str, str] = {}
    flags: dict[str, Any] = {}
    outputs: tuple[str, ...] = ()
    workers: int = 1
    fresh: bool = False
    resume: bool = False
    overwrite: bool = False
    """Whether outputs may replace files that another program wrote."""
    crawl: str = ""

    def load(self) -> tuple[Spider, Settings, str]:
        """Load the spider, its settings, and the crawl's name.

        :raises UsageError: a flag or an argument is wrong.
        :raises ConfigError: the spider file or the settings can't be loaded.
        """
        if self.fresh and self.resume:
            raise UsageError("--fresh starts a crawl again, --resume goes on with it: give one of them")
        if self.crawl:
            check_crawl_name(self.crawl)
        spider = load_spider(self.file, self.spider_name)
        _set_arguments(spider, self.arguments)
        settings = load_settings(spider.settings, self.flags)
        return spider, settings, self.crawl or derive_crawl_name(spider, self.arguments)

    def joining(self, spider: Spider, facts: CrawlFacts) -> Settings:
        """The settings of a worker that joins: those that the crawl was started with, overridden by its own flags.

        :param facts: The facts of the crawl.
        :raises ConfigError: the worker would crawl without the proxy or headers that the crawl was started with.
        """
        if not self.arguments:
            spider.set_args(facts.arguments)
        settings = load_settings(spider.settings, facts.flags | self.flags)
        for name in facts.withheld:
            if not getattr(settings, name) and name not in self.flags:
                raise ConfigError(
                    f"the crawl was started with the setting {name}, which is not kept with it, as it may hold a "
                    f"password. Give it to this worker, too: {ENVIRONMENT_PREFIX}{name.upper()} in the "
                    f"environment, or {name} in {SETTINGS_FILE}. To go without: {_without(name)}"
                )
        return settings

    def check_going_on(self, settings: Settings, facts: CrawlFacts) -> None:
        """Check that a resumed crawl has the proxy and headers it was started with, in case an option was forgotten.

        :raises ConfigError: it had a proxy or headers, and this command gives none.
        """
        for name in _WITHHELD:
            had = name in facts.withheld or facts.flags.get(name)
            if had and not getattr(settings, name) and name not in self.flags:
                raise ConfigError(
                    f"The crawl was started with the setting {name} and would go on without it. Give it again: -s "
                    f"{name}=…, {ENVIRONMENT_PREFIX}{name.upper()} in the environment, or {name} in "
                    f"{SETTINGS_FILE}. To go on without: {_without(name)}"
                )

    @property
    def noted_flags(self) -> dict[str, Any]:
        """The flags that may be stored and shown: without addresses and headers that may hold a password.

        The feed is stored with its password masked; only the supervisor uses it.
        """
        kept_back = ("frontier", "bus", "feed", *_WITHHELD)
        noted = {key: value for key, value in self.flags.items() if key not in kept_back}
        if (bus := str(self.flags.get("bus", ""))) and mask_password(bus) == bus:
            noted["bus"] = bus
        # Left out if it has a login at all: the user name alone may be an API key.
        if "proxy" in self.flags and "@" not in str(self.flags["proxy"]):
            noted["proxy"] = self.flags["proxy"]
        if "feed" in self.flags:
            noted["feed"] = mask_password(str(self.flags["feed"]))
        return noted

    def worker_command(self) -> list[str]:
        """The command of a worker process for this crawl. Its environment must set the frontier."""
        # -P: modules in the current folder must not shadow Python's or Uttu's.
        command = [sys.executable, "-P", "-m", "uttu", "worker", str(self.file), "--tied"]
        for key, value in self.arguments.items():
            command += ["-a", f"{key}={value}"]
        for key, value in self.noted_flags.items():
            command += ["-s", f"{key}={_format_flag(value)}"]
        if self.spider_name:
            command += ["--spider", self.spider_name]
        if self.crawl:
            command += ["--crawl", self.crawl]
        return command

    def withheld(self, settings: Settings) -> dict[str, bool]:
        """The settings that other processes must be given again; the value says whether a flag set them here."""
        names = [name for name in _WITHHELD if getattr(settings, name) and name not in self.noted_flags]
        return {name: name in self.flags for name in names}

    async def note(self, store: CrawlStore, spider: Spider, settings: Settings) -> None:
        """Write the specification to the ledger, for workers that join and for the same command run again."""
        await store.ledger.note(
            spider=spider.name,
            # A spider that was typed into a notebook has no file.
            file=str(self.file.resolve()) if self.file.name else "FILE",
            arguments=self.arguments,
            flags=self.noted_flags,
            withheld=self.withheld(settings),
            settings=describe_settings(settings, spider.settings, self.flags),
            outputs=tuple(mask_target(target) for target in self.outputs),
            began=time.time(),
        )


def _without(name: str) -> str:
    return f"-s {name}={'{}' if name == 'headers' else ''}"


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def derive_crawl_name(spider: Spider, given: dict[str, str]) -> str:
    """The spider's name, followed by a short hash of the arguments if there are any."""
    if not given:
        return spider.name
    return f"{spider.name}-{xxhash.xxh3_64_hexdigest(msgspec.json.encode(sorted(given.items())))[:12]}"


def format_arguments(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Spider arguments as text, as on the command line; lists and dicts become JSON."""
    return {
        key: _encode(value) if isinstance(value, list | tuple | dict) else str(value)
        for key, value in arguments.items()
    }


def _format_flag(value: Any) -> str:
    """A setting as it is written on the command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return _encode(value) if isinstance(value, dict) else str(value)


class _SpiderUse:
    """The arguments of a spider object whose crawls run: as given, and as they were before; and how many crawls."""

    def __init__(self, given: dict[str, str], former: dict[str, Any]) -> None:
        self.given = given
        self.former = former
        self.crawls = 0


# By the id of the spider object.
_in_use: Final[dict[int, _SpiderUse]] = {}


@contextlib.contextmanager
def use_arguments(spider: Spider, given: dict[str, str]) -> Iterator[None]:
    """Set the arguments of a spider during the block. Afterwards it has its defaults again.

    :raises UsageError: an argument is wrong, or a crawl of the same object runs with others.
    """
    use = _in_use.get(id(spider)) or _SpiderUse(given, dict(spider.args))
    if use.given != given:
        raise UsageError(
            f"Spider {spider.name!r} runs a crawl with other arguments, and its handlers share spider.args: give each "
            "crawl its own Spider object"
        )
    _in_use[id(spider)] = use
    use.crawls += 1
    try:
        if use.crawls == 1:
            _set_arguments(spider, given)
        yield
    finally:
        use.crawls -= 1
        if not use.crawls:
            del _in_use[id(spider)]
            spider.args.clear()
            spider.args.update(use.former)


def _set_arguments(spider: Spider, given: dict[str, str]) -> None:
    try:
        spider.set_args(given)
    except ConfigError as error:
        raise UsageError(str(error)) from error

"""Settings of a crawl: typed, read once, from the weakest source to the strongest.

    defaults < the spider's own < ``uttu.toml`` < environment (``UTTU_DELAY=2``) < flags (``-s delay=2``)

Text may stand for any type, because the environment and flags have only text: a list is written with commas, a table
as JSON. Wrong values raise :class:`ConfigError`, or :class:`UsageError` if they come from a flag; the message names
the source, the setting and the expected form. Names of other crawlers' settings get a hint.
"""

from __future__ import annotations

import math
import os
import tomllib
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from uttu import __version__, former
from uttu.clients.addresses import mask_password
from uttu.errors import ConfigError, UsageError
from uttu.frontier.base import Order, Rules
from uttu.model import Pace
from uttu.model.crawl import SettingSource, SettingValue
from uttu.policy.retry import MAX_RETRY_AFTER
from uttu.policy.robots import MAX_CRAWL_DELAY
from uttu.setting_names import OTHER_CRAWLERS, TABLE_NAMES

USER_AGENT = f"Uttu/{__version__} (web crawler)"
SETTINGS_FILE = "uttu.toml"
ENVIRONMENT_PREFIX = "UTTU_"
# Not settings: they hold for a process and its children. See uttu.runtime.logs.
LOG_VARIABLES = tuple(ENVIRONMENT_PREFIX + name for name in ("LOG_LEVEL", "LOG_FILE", "LOG_FORMAT"))
# Settings that may hold a password and that all processes of a crawl need.
SECRET_SETTINGS = ("frontier", "bus", "proxy", "headers")
# Headers whose values are shown.
_PLAIN_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "cache-control", "referer", "user-agent"})
# Numbers must be 0 or more, except these: above 0, or at least the given value.
_ABOVE_0 = frozenset({"timeout", "connect_timeout", "read_timeout", "lease_seconds"})
_LEAST = {"concurrency": 1, "max_body": 1}
# Words for booleans, besides those of msgspec: true, false, 1 and 0.
_BOOLEAN_WORDS = {"yes": True, "on": True, "no": False, "off": False}
# Tables of uttu.toml that other modules read.
OTHER_TABLES = frozenset({"dashboard", "jobs"})


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a crawl. The defaults are polite to sites."""

    # Politeness
    user_agent: str = USER_AGENT
    robots: bool = True
    delay: float = 0.5
    per_host: int = 1
    throttle: bool = False
    max_crawl_delay: float = MAX_CRAWL_DELAY
    max_retry_after: float = MAX_RETRY_AFTER
    nofollow: bool = False
    noindex: bool = False

    # Scope
    domains: tuple[str, ...] = ()
    private: bool = False
    max_depth: int = 0
    max_url_length: int = 2000
    max_pages_per_host: int = 0

    # When the crawl ends; 0 means unlimited
    stay: bool = False
    max_pages: int = 0
    max_items: int = 0
    max_bytes: int = 0
    max_seconds: float = 0.0

    # Fetching
    concurrency: int = 64
    timeout: float = 30.0
    connect_timeout: float = 10.0
    read_timeout: float = 15.0
    max_body: int = 16 * 1024 * 1024
    retries: int = 3
    max_redirects: int = 10
    meta_refresh: bool = True
    cookies: bool = True
    http2: bool = True
    verify: bool = True
    ca_file: str = ""
    proxy: str = ""
    headers: dict[str, str] = {}
    cache: bool = False
    fetcher: str = "http"

    # The frontier
    frontier: str = ""
    keep_items: int = 100_000
    order: Order = "fifo"
    lease_seconds: float = 60.0

    # Messages
    bus: str = ""
    feed: str = ""
    feed_idle: float = 0.0

    # Handlers; 0 means unlimited
    handler_timeout: float = 300.0
    max_block: float = 20.0
    max_block_memory: int = 192 * 1024 * 1024
    max_links_per_page: int = 50_000
    max_items_per_page: int = 100_000
    max_item_size: int = 16 * 1024 * 1024
    max_items_size_per_page: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for name, value in self._numbers().items():
            least = _LEAST.get(name, 0)
            wanted = "more than 0" if name in _ABOVE_0 else f"at least {least}"
            # NaN fails every comparison, so it is rejected here too.
            if not (value > 0 if name in _ABOVE_0 else value >= least) or math.isinf(value):
                raise ConfigError(f"{name}={value} is out of range: it must be {wanted}")
        if self.timeout >= self.lease_seconds:
            raise ConfigError(
                f"timeout={self.timeout:g} must be shorter than lease_seconds={self.lease_seconds:g}: "
                "a fetch must end before its lease does"
            )

    def _numbers(self) -> dict[str, float]:
        return {name: getattr(self, name) for name, kind in _TYPES.items() if kind in (int, float)}

    @property
    def rules(self) -> Rules:
        """The settings that the frontier needs."""
        return Rules(
            order=self.order,
            pace=Pace(self.delay, self.per_host),
            probe=self.robots,
            lease_seconds=self.lease_seconds,
            max_pages=self.max_pages,
            max_items=self.max_items,
            max_per_lane=self.max_pages_per_host,
        )


def load_settings(
    spider: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    *,
    folder: Path = Path(),
    environment: Mapping[str, str] = os.environ,
    flag_source: str = "-s",
) -> Settings:
    """Merge the settings from all sources.

    :param flag_source: Where ``flags`` come from, for messages.
    :raises ConfigError: a setting is unknown or wrong; the message names the source, the setting and the expected form.
    :raises UsageError: the same, if one of the ``flags`` is wrong.
    """
    merged: dict[str, Any] = {}
    unflagged: dict[str, Any] = {}
    shown = {
        SettingSource.SPIDER: "the spider",
        SettingSource.FILE: str(folder / SETTINGS_FILE),
        SettingSource.ENVIRONMENT: "the environment",
        SettingSource.FLAG: flag_source,
    }
    for source, values in _read_sources(spider, flags, folder, environment).items():
        unflagged = dict(merged)
        for name, value in values.items():
            wrong = UsageError if source is SettingSource.FLAG else ConfigError
            merged[name] = _convert(shown[source], name, value, wrong)
    try:
        return Settings(**merged)
    except ConfigError as error:
        # Settings contradict each other: a ConfigError if they do so without the flags, else the flags are wrong.
        Settings(**unflagged)
        raise UsageError(str(error)) from error


def _read_sources(
    spider: Mapping[str, Any] | None, flags: Mapping[str, Any] | None, folder: Path, environment: Mapping[str, str]
) -> dict[SettingSource, Mapping[str, Any]]:
    """The settings of each source as they are given there, from the weakest source to the strongest."""
    file = read_settings_file(folder / SETTINGS_FILE)
    return {
        SettingSource.SPIDER: spider or {},
        SettingSource.FILE: {name: value for name, value in file.items() if name not in OTHER_TABLES},
        SettingSource.ENVIRONMENT: _from_environment(environment),
        SettingSource.FLAG: flags or {},
    }


def describe_settings(
    settings: Settings,
    spider: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    *,
    folder: Path = Path(),
    environment: Mapping[str, str] = os.environ,
) -> tuple[SettingValue, ...]:
    """All settings with the source of each, to show. Secrets are masked.

    :param settings: What :func:`load_settings` returned for the other arguments.
    :raises ConfigError: ``uttu.toml`` can't be read.
    """
    sources = {
        name: source for source, values in _read_sources(spider, flags, folder, environment).items() for name in values
    }
    return tuple(
        SettingValue(name, mask_setting(name, getattr(settings, name)), sources.get(name, SettingSource.DEFAULT))
        for name in _TYPES
    )


def restore_settings(values: Iterable[SettingValue]) -> Settings:
    """The settings of a crawl as they were stored; see :func:`describe_settings`. Secrets stay masked.

    :raises ConfigError: another version stored a value that this one does not take.
    """
    known = {each.name: _convert("the crawl", each.name, each.value) for each in values if each.name in _TYPES}
    return Settings(**known)


def mask_setting(name: str, value: Any) -> Any:
    """A setting that may be shown and stored: without passwords, and without values of headers that may hold one."""
    if name == "headers":
        return {key: text if key.lower() in _PLAIN_HEADERS else "***" for key, text in value.items()}
    if name == "proxy":
        # The user name alone may be an API key.
        scheme, found, rest = value.rpartition("://")
        login, at, place = rest.rpartition("@")
        return f"{scheme}{found}***@{place}" if login or at else value
    return mask_password(value) if name in ("frontier", "bus", "feed") else value


def load_frontier(*, folder: Path = Path(), environment: Mapping[str, str] = os.environ) -> str:
    """Only the setting ``frontier``, for commands without a spider.

    :raises ConfigError: ``uttu.toml`` can't be read, or the setting is not text.
    """
    return _load_one("frontier", folder, environment)


def load_bus(*, folder: Path = Path(), environment: Mapping[str, str] = os.environ) -> str:
    """Only the setting ``bus``; see :func:`load_frontier`."""
    return _load_one("bus", folder, environment)


def _load_one(name: str, folder: Path, environment: Mapping[str, str]) -> str:
    file = folder / SETTINGS_FILE
    given = environment.get(ENVIRONMENT_PREFIX + name.upper(), read_settings_file(file).get(name, ""))
    return str(_convert(str(file), name, given))


def export_secrets(settings: Settings) -> dict[str, str]:
    """Settings that must not appear in the list of processes, as environment variables."""
    values = {name: getattr(settings, name) for name in SECRET_SETTINGS}
    return {
        ENVIRONMENT_PREFIX + name.upper(): value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in values.items()
    }


def read_settings_file(file: Path) -> dict[str, Any]:
    """The content of ``uttu.toml``; empty if the file does not exist.

    :raises ConfigError: it can't be read, or there is only a ``weft.toml``.
    """
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError:
        former.check_settings_file(file)
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"Cannot read {file}: {error}") from error


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: environment[ENVIRONMENT_PREFIX + name.upper()]
        for name in Settings.__struct_fields__
        if ENVIRONMENT_PREFIX + name.upper() in environment
    }


def _convert(source: str, name: str, value: Any, wrong: type[ConfigError] = ConfigError) -> Any:
    if name not in _TYPES:
        raise wrong(f"{source}: unknown setting {name!r}{_suggest(name)}")
    try:
        return convert_setting(value, _TYPES[name])
    except msgspec.MsgspecError as error:
        raise wrong(f"{source}: {name}={value!r}: {_describe_type(_TYPES[name]) or error}") from error


def _describe_type(kind: Any) -> str:
    """The expected form of a type, if msgspec's message is not clear enough; else empty."""
    if kind is bool:
        return "give true or false"
    if kind is float:
        return "give a number, like 0.5"
    if kind is int:
        return "give a whole number, like 10"
    if kind == tuple[str, ...]:
        return "give a list of words; as text, with commas between them"
    if typing.get_origin(kind) is typing.Literal:
        return f"give one of {', '.join(typing.get_args(kind))}"
    return ""


def convert_setting(value: Any, expected: Any) -> Any:
    """Convert a value to a setting's type. Text may stand for any type: a list with commas, a table as JSON.

    :raises msgspec.MsgspecError: the value can't be converted.
    """
    if isinstance(value, str) and expected is bool:
        value = _BOOLEAN_WORDS.get(value.strip().lower(), value)
    if isinstance(value, str) and expected == tuple[str, ...]:
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, str) and typing.get_origin(expected) is dict:
        return msgspec.json.decode(value, type=expected)
    return msgspec.convert(value, expected, strict=False)


def convert_table_entry(source: str, name: str, value: Any, types: Mapping[str, Any]) -> Any:
    """Convert an entry of a table of ``uttu.toml``, such as ``[jobs]``.

    :param source: Where it was given, for the message.
    :param types: The types of all settings of the table.
    :raises ConfigError: there is no such setting, or the value can't be converted.
    """
    if name not in types:
        close = _closest(name, types)
        raise ConfigError(f"{source}: There is no such setting" + (f"; did you mean {close!r}?" if close else ""))
    try:
        return convert_setting(value, types[name])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{source} = {mask_password(str(value))}: {error}") from error


def _suggest(name: str) -> str:
    """A hint for the name of a setting that does not exist."""
    if hint := OTHER_CRAWLERS.get(name.upper(), OTHER_CRAWLERS.get(name.upper().replace("-", "_"), "")):
        return f"; in Uttu, {hint}"
    close = _closest(name.lower().replace("-", "_"), _TYPES)
    return f"; did you mean {close!r}?" if close else ""


def _closest(name: str, known: Iterable[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def find_misspelled_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that look like misspelled settings, with a message for each.

    Other variables that begin with ``UTTU_`` are left alone.
    """
    import difflib

    known = [ENVIRONMENT_PREFIX + name.upper() for name in (*_TYPES, *TABLE_NAMES)]
    known += LOG_VARIABLES
    found = {}
    for name in environment:
        if name.startswith(former.ENVIRONMENT_PREFIX):
            new = ENVIRONMENT_PREFIX + name.removeprefix(former.ENVIRONMENT_PREFIX)
            if new in known:
                found[name] = f"{name} is not read any more, as Weft is called Uttu now: set {new} instead"
            continue
        if not name.startswith(ENVIRONMENT_PREFIX) or name in known or name.startswith(f"{ENVIRONMENT_PREFIX}TEST_"):
            continue
        if hint := OTHER_CRAWLERS.get(name.removeprefix(ENVIRONMENT_PREFIX), ""):
            found[name] = f"{name} is not a setting; in Uttu, {hint}"
        elif close := difflib.get_close_matches(name, known, n=1, cutoff=0.85):
            found[name] = f"{name} is not a setting; did you mean {close[0]}?"
    return found


_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Settings)}


DATA_FOLDER = Path(".uttu")

"""Settings: typed, read once, from the weakest source to the strongest.

defaults < the spider's own < ``weft.toml`` < environment (``WEFT_DELAY=2``) < flags (``-s delay=2``)
"""

from __future__ import annotations

import math
import os
import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import ConfigError, UsageError
from weft.frontier.base import Order, Rules
from weft.model import Pace
from weft.version import __version__

USER_AGENT = f"Weft/{__version__} (web crawler)"
FILE = "weft.toml"
ENVIRONMENT = "WEFT_"
FRONTIER_VARIABLE = ENVIRONMENT + "FRONTIER"
# What may hold a password, and all processes of a crawl need.
_SECRET = ("frontier", "bus", "proxy", "headers")
# Numbers are 0 or more, but for these.
_ABOVE_0 = frozenset({"timeout", "connect_timeout", "read_timeout", "lease_seconds"})
_LEAST = {"concurrency": 1, "max_body": 1}
_FLAG = "-s"
# Text that means yes or no, beside what msgspec takes for it: true, false, 1 and 0.
_WORDS = {"yes": True, "on": True, "no": False, "off": False}
# Tables of weft.toml that are not about a crawl, and are read by others.
OTHER_TABLES = frozenset({"jobs"})


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set. The defaults are polite to strangers."""

    # Politeness
    user_agent: str = USER_AGENT
    robots: bool = True
    delay: float = 0.5
    per_host: int = 1
    throttle: bool = False

    # Scope
    domains: tuple[str, ...] = ()
    private: bool = False
    max_depth: int = 0
    max_url_length: int = 2000
    max_pages_per_host: int = 0

    # The end of the whole crawl; limits of 0 are none
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
    cookies: bool = True
    http2: bool = True
    verify: bool = True
    ca_file: str = ""
    proxy: str = ""
    headers: dict[str, str] = {}
    cache: bool = False

    # The frontier
    frontier: str = ""
    order: Order = "fifo"
    lease_seconds: float = 60.0

    # Messages
    bus: str = ""
    feed: str = ""
    feed_idle: float = 0.0

    def __post_init__(self) -> None:
        for name, value in self._numbers().items():
            least = _LEAST.get(name, 0)
            wanted = "more than 0" if name in _ABOVE_0 else f"at least {least}"
            # What is no number, nan, compares with nothing, and so is out of range as well.
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
        """What of this the frontier has to know."""
        return Rules(
            order=self.order,
            pace=Pace(self.delay, self.per_host),
            probe=self.robots,
            lease_seconds=self.lease_seconds,
            max_pages=self.max_pages,
            max_per_lane=self.max_pages_per_host,
        )


def load(
    spider: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    *,
    folder: Path = Path(),
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Settings from all sources.

    :raises ConfigError: names the source, the setting and what was expected.
    :raises UsageError: likewise, if it is one of the ``flags`` that is wrong.
    """
    merged: dict[str, Any] = {}
    unflagged: dict[str, Any] = {}
    file = folder / FILE
    for source, values in (
        ("the spider", spider or {}),
        (str(file), {name: value for name, value in read_file(file).items() if name not in OTHER_TABLES}),
        ("the environment", _from_environment(environment)),
        (_FLAG, flags or {}),
    ):
        unflagged = dict(merged)
        for name, value in values.items():
            merged[name] = _convert(source, name, value)
    try:
        return Settings(**merged)
    except ConfigError as error:
        # Settings that don't fit together: was it well before the flags came?
        Settings(**unflagged)
        raise UsageError(str(error)) from error


def load_frontier(*, folder: Path = Path(), environment: Mapping[str, str] = os.environ) -> str:
    """The setting ``frontier`` alone, for commands that are not about a spider.

    :raises ConfigError: ``weft.toml`` can't be read, or has something else than text there.
    """
    return _load_one("frontier", folder, environment)


def load_bus(*, folder: Path = Path(), environment: Mapping[str, str] = os.environ) -> str:
    """The setting ``bus`` alone, likewise."""
    return _load_one("bus", folder, environment)


def _load_one(name: str, folder: Path, environment: Mapping[str, str]) -> str:
    file = folder / FILE
    given = environment.get(ENVIRONMENT + name.upper(), read_file(file).get(name, ""))
    return str(_convert(str(file), name, given))


def secrets_in_environment(settings: Settings) -> dict[str, str]:
    """Settings that nobody is to see in the list of processes, as the environment has them."""
    values = {name: getattr(settings, name) for name in _SECRET}
    return {
        ENVIRONMENT + name.upper(): value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in values.items()
    }


def read_file(file: Path) -> dict[str, Any]:
    """What is in ``weft.toml``; nothing if it is not there.

    :raises ConfigError: it can't be read.
    """
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} can't be read: {error}") from error


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: environment[ENVIRONMENT + name.upper()]
        for name in Settings.__struct_fields__
        if ENVIRONMENT + name.upper() in environment
    }


def _convert(source: str, name: str, value: Any) -> Any:
    wrong = UsageError if source == _FLAG else ConfigError
    if name not in _TYPES:
        close = _closest(name)
        raise wrong(f"{source}: there is no setting {name!r}" + (f"; did you mean {close!r}?" if close else ""))
    try:
        return converted(value, _TYPES[name])
    except msgspec.MsgspecError as error:
        raise wrong(f"{source}: {name}={value!r}: {_expected(_TYPES[name]) or error}") from error


def _expected(kind: Any) -> str:
    """What there is to choose from, where msgspec does not say it."""
    if kind is bool:
        return "say true or false"
    if typing.get_origin(kind) is typing.Literal:
        return f"say one of {', '.join(typing.get_args(kind))}"
    return ""


def converted(value: Any, expected: Any) -> Any:
    """A setting as its type wants it; text may stand for anything: a list with commas, a table as JSON.

    :raises msgspec.MsgspecError: it can't be had from this.
    """
    if isinstance(value, str) and expected is bool:
        value = _WORDS.get(value.strip().lower(), value)
    if isinstance(value, str) and expected == tuple[str, ...]:
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, str) and typing.get_origin(expected) is dict:
        return msgspec.json.decode(value, type=expected)
    return msgspec.convert(value, expected, strict=False)


def _closest(name: str) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(name, _TYPES, n=1)), None)


_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Settings)}

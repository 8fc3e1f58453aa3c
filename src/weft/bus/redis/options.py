"""What the address of a bus may say beside those of :mod:`weft.drivers.redis.address`."""

from __future__ import annotations

from typing import Final

import msgspec

from weft.bus.topics import check_group
from weft.drivers.redis.address import asked
from weft.drivers.urls import masked
from weft.errors import ConfigError

OPTIONS: Final = ("bus", "timeout", "takeover")


class Options(msgspec.Struct, frozen=True):
    bus: str = "weft"
    """Several may share a server."""
    timeout: float = 30.0
    """For so many seconds a server that is away is waited for."""
    takeover: float = 15.0
    """What a subscriber holds that was silent for so many seconds goes to others."""

    @property
    def prefix(self) -> str:
        return f"weft:bus:{{{self.bus}}}:"


def options_of(url: str) -> Options:
    """:raises ConfigError: one of them is not of its kind."""
    given: dict[str, str | float] = {}
    for name, text in asked(url):
        if name not in OPTIONS:
            continue
        try:
            if name == "bus":
                check_group(text)
                given[name] = text
            else:
                given[name] = _seconds(text)
        except ValueError as error:
            raise ConfigError(f"{masked(url)}: the value of option {name!r} is not of its kind: {error}") from error
    return Options(**given)  # type: ignore[arg-type]


def _seconds(text: str) -> float:
    number = float(text)
    if not 1 <= number <= 86_400:
        raise ValueError("write seconds, from 1 to 86400")
    return number

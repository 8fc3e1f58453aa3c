"""When a schedule is due: every so often, by a crontab line, by the sun. Pure; all times are in UTC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from weft.errors import ConfigError
from weft.jobs.schedules import cron, sun

SHORTEST_SECONDS = 0.1


class Every(msgspec.Struct, frozen=True, tag="every", tag_field="kind"):
    """Every so many seconds, counted from when the schedule was made."""

    seconds: float

    def __post_init__(self) -> None:
        if not SHORTEST_SECONDS <= self.seconds <= 366 * 86_400:
            raise ConfigError(f"every={self.seconds:g}: give seconds, {SHORTEST_SECONDS:g} to a year")

    def __str__(self) -> str:
        for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
            if self.seconds % length == 0 and self.seconds >= length:
                return f"every {self.seconds / length:g} {unit}".replace("every 1 days", "every day")
        return f"every {self.seconds:g} s"


class Cron(msgspec.Struct, frozen=True, tag="crontab", tag_field="kind"):
    """By a crontab line, on the clocks of a time zone."""

    line: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        cron.read(self.line)
        zone(self.timezone)

    def __str__(self) -> str:
        return f"{self.line} {self.timezone}"


class Solar(msgspec.Struct, frozen=True, tag="solar", tag_field="kind"):
    """When the sun is where ``event`` says, seen from a place: degrees north and east."""

    event: str
    latitude: float
    longitude: float

    def __post_init__(self) -> None:
        if self.event not in sun.EVENTS:
            raise ConfigError(f"there is no solar event {self.event!r}; there are {', '.join(sun.EVENTS)}")
        if not (-90 < self.latitude < 90 and -180 <= self.longitude <= 180):
            raise ConfigError("latitude is between -90 and 90 degrees, north of 0; longitude is -180 to 180, east of 0")

    def __str__(self) -> str:
        return f"{self.event} at {self.latitude:g}, {self.longitude:g}"


When = Every | Cron | Solar


def due_after(when: When, last: datetime) -> datetime:
    """The first time after ``last``, strictly.

    :raises ConfigError: there is none.
    """
    match when:
        case Every():
            return last + timedelta(seconds=when.seconds)
        case Cron():
            return cron.due_after(when.line, zone(when.timezone), last)
        case Solar():
            return sun.due_after(when.event, when.latitude, when.longitude, last)


def dues(when: When, first: datetime, end: datetime) -> Iterator[datetime]:
    """All times from ``first``, which is one of them, up to ``end``."""
    while first <= end:
        yield first
        first = due_after(when, first)


def due_at_last(when: When, first: datetime, now: datetime) -> datetime:
    """The latest time that is not after ``now``, where ``first`` is one of them and may be long ago."""
    if isinstance(when, Every):
        return first + (now - first) // timedelta(seconds=when.seconds) * timedelta(seconds=when.seconds)
    for days in (1 / 24, 1, 31, 366, 366 * 8):
        start = now - timedelta(days=days)
        if start > first:
            found = list(dues(when, due_after(when, start), now))
            if found:
                return found[-1]
    return list(dues(when, first, now))[-1]


def zone(name: str) -> ZoneInfo:
    """:raises ConfigError: there is no such time zone."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigError(f"there is no time zone {name!r}; write it as Europe/Berlin or UTC") from error

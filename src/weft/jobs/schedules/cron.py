"""Crontab lines: reading them, and when they are due. Pure, and right where clocks are changed.

    minute  hour  day of month  month  day of week        @hourly @daily @midnight @weekly @monthly @yearly @annually

A field is ``*``, a number, a name (``jan``, ``mon``), a range ``9-17`` or ``fri-mon``, each with a step ``/n`` if it is
``*`` or a range; or several of these with commas. Sunday is 0 and 7. A day must match both of its fields, as in Celery.

Where clocks are changed, people expect two things that exclude each other, so there are two kinds of lines:

- Lines for certain hours (``30 2 * * *``) go by the clock on the wall. A time that is left out in spring is made up for
  at the end of the gap, so that no day goes without; a time that comes twice in autumn counts the first time.
- Lines for every hour (``*/10 * * * *``) go by real time: no gap, no pause, nothing twice at the same moment.

Celery's own crontab was rejected: it takes ``1-2-3`` for ``1-2``, and stops or fires twice on such days.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

import msgspec

from weft.errors import ConfigError

_MINUTE: Final = timedelta(minutes=1)
# 29 February comes at last after eight years, where a century leaves one out; on a certain weekday after forty.
_DAYS_AHEAD: Final = 366 * 41

_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_PART: Final = re.compile(r"(?:(?P<all>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")
_NICKNAMES: Final = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip


class _Kind(msgspec.Struct, frozen=True):
    """A column of a crontab."""

    word: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        for place, name in enumerate(self.names):
            if text.lower() in (name, name[:3]):
                return place + self.lowest
        found = int(text) if text.isdecimal() else -1
        if found == 7 and self.names is _WEEKDAYS:
            return 0
        if not self.lowest <= found <= self.highest:
            raise ValueError(f"{text!r} is no {self.word}: these are {self.lowest} to {self.highest}")
        return found


_KINDS: Final = (
    _Kind("minute", 0, 59),
    _Kind("hour", 0, 23),
    _Kind("day of the month", 1, 31),
    _Kind("month", 1, 12, _MONTHS),
    _Kind("day of the week", 0, 6, _WEEKDAYS),
)


class Fields(msgspec.Struct, frozen=True):
    """A line, taken apart. The days of the week begin with Sunday, 0."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    @property
    def every_hour(self) -> bool:
        return len(self.hours) == 24

    def on(self, day: date) -> bool:
        return day.month in self.months and day.day in self.days and day.isoweekday() % 7 in self.weekdays


@lru_cache(maxsize=1024)
def read(line: str) -> Fields:
    """:raises ConfigError: it is no crontab line; the message says which part is wrong."""
    words = _NICKNAMES.get(line.strip().lower(), line).split()
    if len(words) != len(_KINDS):
        expected = "minute, hour, day of the month, month, day of the week"
        raise ConfigError(f"malformed crontab {line!r}: it has {len(words)} fields and not five: {expected}")
    try:
        minutes, hours, days, months, weekdays = map(_field, _KINDS, words)
    except ValueError as error:
        raise ConfigError(f"malformed crontab {line!r}: {error}") from error
    return Fields(tuple(sorted(minutes)), tuple(sorted(hours)), days, months, weekdays)


def _field(kind: _Kind, text: str) -> frozenset[int]:
    return frozenset(number for part in text.split(",") for number in _part(kind, part))


def _part(kind: _Kind, text: str) -> list[int]:
    found = _PART.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no {kind.word}")
    step = int(found["step"] or 1)
    if found["step"] and (step == 0 or (not found["all"] and not found["last"])):
        raise ValueError(f"the step in {text!r} must be 1 or more, and follow a range or *")
    everything = list(range(kind.lowest, kind.highest + 1))
    if found["all"]:
        return everything[::step]
    first = kind.number(found["first"])
    if not found["last"]:
        return [first]
    if kind.names is _WEEKDAYS and found["last"] == "7":
        return [number % 7 for number in range(first, 8)][::step]
    return _between(everything, first, kind.number(found["last"]))[::step]


def _between(everything: list[int], first: int, last: int) -> list[int]:
    """Also around the end: from Friday to Monday."""
    lowest = everything[0]
    if first <= last:
        return everything[first - lowest : last - lowest + 1]
    return everything[first - lowest :] + everything[: last - lowest + 1]


def due_after(line: str, zone: tzinfo, last: datetime) -> datetime:
    """The first time after ``last``; both in UTC.

    :raises ConfigError: the line is malformed, or matches no day.
    """
    fields = read(line)
    found = next(_by_real_time(fields, zone, last) if fields.every_hour else _by_the_wall(fields, zone, last), None)
    if found is None:
        raise ConfigError(f"crontab {line!r} is never due: there is no such day")
    return found


def _days(fields: Fields, first: date) -> Iterator[date]:
    for number in range(_DAYS_AHEAD):
        day = first + timedelta(days=number)
        if fields.on(day):
            yield day


def _by_real_time(fields: Fields, zone: tzinfo, last: datetime) -> Iterator[datetime]:
    start = last.replace(second=0, microsecond=0) + _MINUTE
    for day in _days(fields, start.astimezone(zone).date() - timedelta(days=1)):
        # A day is 23 to 25 hours; more are looked at, as some days began an hour later, or twice.
        moment = max(start, _instant(datetime(day.year, day.month, day.day), zone) - timedelta(hours=2))
        end = moment + timedelta(hours=28)
        while moment < end:
            local = moment.astimezone(zone)
            if local.minute in fields.minutes and fields.on(local.date()):
                yield moment
            moment += _MINUTE


def _by_the_wall(fields: Fields, zone: tzinfo, last: datetime) -> Iterator[datetime]:
    for day in _days(fields, last.astimezone(zone).date() - timedelta(days=1)):
        for hour in fields.hours:
            if _instant(datetime(day.year, day.month, day.day, hour, 59), zone) <= last:
                continue
            for minute in fields.minutes:
                moment = _instant(datetime(day.year, day.month, day.day, hour, minute), zone)
                if moment > last:
                    yield moment


def _instant(wall: datetime, zone: tzinfo) -> datetime:
    """When the clock shows this for the first time; if it never does, when it has jumped over it."""
    found = wall.replace(tzinfo=zone).astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) == wall:
        return found
    after = wall.replace(tzinfo=zone, fold=1).utcoffset()
    low, high = wall.replace(tzinfo=zone, fold=1).astimezone(UTC), found
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        low, high = (low, middle) if middle.astimezone(zone).utcoffset() == after else (middle, high)
    return high.replace(microsecond=0)

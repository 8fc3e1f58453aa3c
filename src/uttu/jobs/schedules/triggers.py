"""Triggers: an interval, a crontab line or a solar event. Pure functions; results are in UTC.

Crontab lines:

    minute  hour  day of month  month  day of week        @hourly @daily @midnight @weekly @monthly @yearly @annually

A field is ``*``, a number, a name (``jan``, ``mon``) or a range (``9-17``, ``fri-mon``), or several of these with
commas. ``*`` and ranges may have a step ``/n``. Sunday is 0 and 7. A day must match both of its fields, as in Celery.

When clocks change, two expectations conflict, so there are two kinds of lines:

- Lines for certain hours (``30 2 * * *``) follow the wall clock. A time that is skipped in spring runs at the end of
  the gap, so that no day is left out; a time that occurs twice in autumn runs the first time.
- Lines for every hour (``*/10 * * * *``) follow real time: no gap, no pause, no repeat.

Celery's own crontab was rejected: it reads ``1-2-3`` as ``1-2``, and stops or runs twice on such days.

Solar times follow Jean Meeus, *Astronomical Algorithms*, in the short form for the sun; they are accurate to about a
minute up to the polar circles. Celery uses the package ephem for this, which has to be compiled on some machines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from math import acos, asin, cos, degrees, radians, sin, tan
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from uttu.errors import ConfigError

# The height of the sun's centre in degrees. At sunrise its upper edge is visible, and the air refracts the light.
_HEIGHTS: Final = {
    "dawn_astronomical": -18.0,
    "dawn_nautical": -12.0,
    "dawn_civil": -6.0,
    "sunrise": -0.833,
    "solar_noon": None,
    "sunset": -0.833,
    "dusk_civil": -6.0,
    "dusk_nautical": -12.0,
    "dusk_astronomical": -18.0,
}
SOLAR_EVENTS: Final = tuple(_HEIGHTS)

_EPOCH_2000: Final = datetime(2000, 1, 1, 12, tzinfo=UTC)
_SOLAR_DAYS_AHEAD: Final = 400
_ROUNDS: Final = 4


def next_solar_time(event: str, latitude: float, longitude: float, last: datetime) -> datetime:
    """Return the first such event after ``last``, in UTC, skipping days without it near the poles.

    :raises ConfigError: it does not happen there within ``_SOLAR_DAYS_AHEAD`` days.
    """
    noon = last.astimezone(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    for number in range(-2, _SOLAR_DAYS_AHEAD):
        moment = _solar_time_on(event, latitude, longitude, noon + timedelta(days=number))
        if moment is not None and moment > last:
            return moment
    raise ConfigError(f"There is no {event} at latitude {latitude:g}, longitude {longitude:g}")


def _solar_time_on(event: str, latitude: float, longitude: float, noon: datetime) -> datetime | None:
    """Return the event around the local noon of a day, or None. Iterates, because the sun moves meanwhile."""
    height = _HEIGHTS[event]
    moment = noon
    for _ in range(_ROUNDS):
        declination, ahead = _sun_position(moment)
        minutes = -4 * longitude - ahead
        if height is not None:
            angle = _hour_angle(height, latitude, declination)
            if angle is None:
                return None
            minutes += 4 * angle if event.startswith(("sunset", "dusk")) else -4 * angle
        moment = noon + timedelta(minutes=minutes)
    return moment.replace(microsecond=0)


def _hour_angle(height: float, latitude: float, declination: float) -> float | None:
    """Return the earth's rotation in degrees between noon and the sun at this height; None if it never is."""
    north = radians(latitude)
    ratio = (sin(radians(height)) - sin(north) * sin(declination)) / (cos(north) * cos(declination))
    return degrees(acos(ratio)) if -1 <= ratio <= 1 else None


def _sun_position(moment: datetime) -> tuple[float, float]:
    """Return the sun's declination in radians, and the minutes by which sundials are ahead of clocks."""
    centuries = (moment - _EPOCH_2000) / timedelta(days=36525)
    mean_longitude = radians((280.46646 + centuries * (36000.76983 + 0.0003032 * centuries)) % 360)
    anomaly = radians(357.52911 + centuries * (35999.05029 - 0.0001537 * centuries))
    eccentricity = 0.016708634 - centuries * (0.000042037 + 0.0000001267 * centuries)
    centre = radians(
        sin(anomaly) * (1.914602 - centuries * (0.004817 + 0.000014 * centuries))
        + sin(2 * anomaly) * (0.019993 - 0.000101 * centuries)
        + sin(3 * anomaly) * 0.000289
    )
    node = radians(125.04 - 1934.136 * centuries)
    seen = mean_longitude + centre - radians(0.00569 + 0.00478 * sin(node))
    tilt = radians(23.4392911 - centuries * 0.0130042 + 0.00256 * cos(node))
    half = tan(tilt / 2) ** 2
    ahead = 4 * degrees(
        half * sin(2 * mean_longitude)
        - 2 * eccentricity * sin(anomaly)
        + 4 * eccentricity * half * sin(anomaly) * cos(2 * mean_longitude)
        - half**2 / 2 * sin(4 * mean_longitude)
        - 1.25 * eccentricity**2 * sin(2 * anomaly)
    )
    return asin(sin(tilt) * sin(seen)), ahead


_MINUTE: Final = timedelta(minutes=1)
# 29 February comes at least every eight years (a century may skip one); on a given weekday, every forty.
_CRON_DAYS_AHEAD: Final = 366 * 41

_MONTHS: Final = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_PART: Final = re.compile(r"(?:(?P<all>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")
_NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class _CronField(msgspec.Struct, frozen=True):
    """A column of a crontab line."""

    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        """Return the number of a name or a numeral.

        :raises ValueError: it is out of range.
        """
        for index, name in enumerate(self.names):
            if text.lower() in (name, name[:3]):
                return index + self.lowest
        number = int(text) if text.isdecimal() else -1
        if number == 7 and self.names is _WEEKDAYS:
            return 0
        if not self.lowest <= number <= self.highest:
            raise ValueError(f"{text!r} is not a valid {self.name}; write {self.lowest} to {self.highest}")
        return number


_CRON_FIELDS: Final = (
    _CronField("minute", 0, 59),
    _CronField("hour", 0, 23),
    _CronField("day of the month", 1, 31),
    _CronField("month", 1, 12, _MONTHS),
    _CronField("day of the week", 0, 6, _WEEKDAYS),
)


class CronTimes(msgspec.Struct, frozen=True):
    """The parsed columns of a crontab line. Weekdays begin with Sunday, 0."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    @property
    def every_hour(self) -> bool:
        return len(self.hours) == 24

    def matches(self, day: date) -> bool:
        return day.month in self.months and day.day in self.days and day.isoweekday() % 7 in self.weekdays


@lru_cache(maxsize=1024)
def parse_crontab(line: str) -> CronTimes:
    """Parse a crontab line.

    :raises ConfigError: the line is malformed; the message names the wrong part.
    """
    words = _NICKNAMES.get(line.strip().lower(), line).split()
    if len(words) != len(_CRON_FIELDS):
        expected = "minute, hour, day of the month, month, day of the week"
        raise ConfigError(f"Malformed crontab {line!r}: it has {len(words)} fields instead of five: {expected}")
    try:
        minutes, hours, days, months, weekdays = map(_parse_field, _CRON_FIELDS, words)
    except ValueError as error:
        raise ConfigError(f"Malformed crontab {line!r}: {error}") from error
    return CronTimes(tuple(sorted(minutes)), tuple(sorted(hours)), days, months, weekdays)


def _parse_field(kind: _CronField, text: str) -> frozenset[int]:
    return frozenset(number for part in text.split(",") for number in _parse_part(kind, part))


def _parse_part(kind: _CronField, text: str) -> list[int]:
    match = _PART.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a valid {kind.name}")
    step = int(match["step"] or 1)
    if match["step"] and (step == 0 or (not match["all"] and not match["last"])):
        raise ValueError(f"the step in {text!r} must be 1 or more, and follow a range or *")
    everything = list(range(kind.lowest, kind.highest + 1))
    if match["all"]:
        return everything[::step]
    first = kind.number(match["first"])
    if not match["last"]:
        return [first]
    if kind.names is _WEEKDAYS and match["last"] == "7":
        return [number % 7 for number in range(first, 8)][::step]
    return _between(everything, first, kind.number(match["last"]))[::step]


def _between(everything: list[int], first: int, last: int) -> list[int]:
    """Return the numbers from ``first`` to ``last``, wrapping around the end: from Friday to Monday."""
    lowest = everything[0]
    if first <= last:
        return everything[first - lowest : last - lowest + 1]
    return everything[first - lowest :] + everything[: last - lowest + 1]


def next_cron_time(line: str, zone: tzinfo, last: datetime) -> datetime:
    """Return the first time after ``last``; both in UTC.

    :raises ConfigError: the line is malformed, or matches no day.
    """
    fields = parse_crontab(line)
    found = next(
        _times_by_real_time(fields, zone, last) if fields.every_hour else _times_by_wall_clock(fields, zone, last), None
    )
    if found is None:
        raise ConfigError(f"The crontab {line!r} is never due: there is no such day")
    return found


def _days(fields: CronTimes, first: date) -> Iterator[date]:
    for number in range(_CRON_DAYS_AHEAD):
        day = first + timedelta(days=number)
        if fields.matches(day):
            yield day


def _times_by_real_time(fields: CronTimes, zone: tzinfo, last: datetime) -> Iterator[datetime]:
    start = last.replace(second=0, microsecond=0) + _MINUTE
    for day in _days(fields, start.astimezone(zone).date() - timedelta(days=1)):
        # A day has 23 to 25 hours. Search a wider range, because some days began an hour later, or twice.
        moment = max(start, _instant(datetime(day.year, day.month, day.day), zone) - timedelta(hours=2))
        end = moment + timedelta(hours=28)
        while moment < end:
            local = moment.astimezone(zone)
            if local.minute in fields.minutes and fields.matches(local.date()):
                yield moment
            moment += _MINUTE


def _times_by_wall_clock(fields: CronTimes, zone: tzinfo, last: datetime) -> Iterator[datetime]:
    for day in _days(fields, last.astimezone(zone).date() - timedelta(days=1)):
        for hour in fields.hours:
            if _instant(datetime(day.year, day.month, day.day, hour, 59), zone) <= last:
                continue
            for minute in fields.minutes:
                moment = _instant(datetime(day.year, day.month, day.day, hour, minute), zone)
                if moment > last:
                    yield moment


def _instant(wall: datetime, zone: tzinfo) -> datetime:
    """Return when the wall clock first shows this time; if it is skipped, when the gap ends."""
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall:
        return instant
    after = wall.replace(tzinfo=zone, fold=1).utcoffset()
    low, high = wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        low, high = (low, middle) if middle.astimezone(zone).utcoffset() == after else (middle, high)
    return high.replace(microsecond=0)


MIN_SECONDS = 0.1


class Every(msgspec.Struct, frozen=True, tag="every", tag_field="kind"):
    """At a fixed interval, counted from when the schedule was made."""

    seconds: float

    def __post_init__(self) -> None:
        if not MIN_SECONDS <= self.seconds <= 366 * 86_400:
            raise ConfigError(f"every={self.seconds:g} is out of range. Give seconds, {MIN_SECONDS:g} to a year")

    def __str__(self) -> str:
        for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
            if self.seconds % length == 0 and self.seconds >= length:
                return f"every {self.seconds / length:g} {unit}".replace("every 1 days", "every day")
        return f"every {self.seconds:g} s"


class Cron(msgspec.Struct, frozen=True, tag="crontab", tag_field="kind"):
    """By a crontab line, in a time zone."""

    line: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        parse_crontab(self.line)
        load_zone(self.timezone)

    def __str__(self) -> str:
        return f"{self.line} {self.timezone}"


class Solar(msgspec.Struct, frozen=True, tag="solar", tag_field="kind"):
    """By the position of the sun at a place; latitude and longitude are degrees north and east."""

    event: str
    latitude: float
    longitude: float

    def __post_init__(self) -> None:
        if self.event not in SOLAR_EVENTS:
            raise ConfigError(f"There is no solar event {self.event!r}. The events are {', '.join(SOLAR_EVENTS)}")
        if not (-90 < self.latitude < 90 and -180 <= self.longitude <= 180):
            raise ConfigError("latitude must be between -90 and 90 degrees north, longitude -180 to 180 degrees east")

    def __str__(self) -> str:
        return f"{self.event} at {self.latitude:g}, {self.longitude:g}"


Trigger = Every | Cron | Solar


def next_time(when: Trigger, last: datetime) -> datetime:
    """Return the first time strictly after ``last``.

    :raises ConfigError: there is no such time.
    """
    match when:
        case Every():
            return last + timedelta(seconds=when.seconds)
        case Cron():
            return next_cron_time(when.line, load_zone(when.timezone), last)
        case Solar():
            return next_solar_time(when.event, when.latitude, when.longitude, last)


def times_between(when: Trigger, first: datetime, end: datetime) -> Iterator[datetime]:
    """Yield all times from ``first``, which is one of them, up to ``end``."""
    while first <= end:
        yield first
        first = next_time(when, first)


def latest_time(when: Trigger, first: datetime, now: datetime) -> datetime:
    """Return the latest time that is not after ``now``. ``first`` is one of the times and may be long ago."""
    if isinstance(when, Every):
        return first + (now - first) // timedelta(seconds=when.seconds) * timedelta(seconds=when.seconds)
    for days in (1 / 24, 1, 31, 366, 366 * 8):
        start = now - timedelta(days=days)
        if start > first:
            times = list(times_between(when, next_time(when, start), now))
            if times:
                return times[-1]
    return list(times_between(when, first, now))[-1]


def load_zone(name: str) -> ZoneInfo:
    """Load a time zone.

    :raises ConfigError: the name is unknown.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigError(f"There is no time zone {name!r}. Write it as Europe/Berlin or UTC") from error

"""Schedules as people write them: tables of ``weft.toml``, Celery's ``beat_schedule``, arguments in code."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import celery.schedules
import msgspec

from weft.errors import ConfigError
from weft.jobs.schedules.entry import GRACE_SECONDS, Entry, Source
from weft.jobs.schedules.when import Cron, Every, Solar, When, due_after

# What apply_async takes, and people want to write beside the rest.
_OPTIONS = ("queue", "exchange", "routing_key", "priority", "expires", "time_limit", "soft_time_limit")
_WHEN = ("every", "crontab", "solar", "schedule")
_WITH = ("latitude", "longitude", "timezone", "relative")
_KEYS = (*_WHEN, *_WITH, *_OPTIONS, "task", "args", "kwargs", "options", "overlap", "grace")


def parse(name: str, table: Mapping[str, Any], source: Source, timezone: str = "UTC") -> Entry:
    """An entry from a table: ``task``, one of ``every``, ``crontab``, ``solar`` and ``schedule``, and what else it has.

    ``timezone`` is that of crontab lines that name none.

    :raises ConfigError: says which schedule, and what is wrong with it.
    """
    for key in table:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            more = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(_KEYS)}"
            raise ConfigError(f"schedule {name!r}: there is no {key!r}{more}")
    grace = table.get("grace", GRACE_SECONDS)
    made = {
        "name": name,
        "task": table.get("task", ""),
        "args": table.get("args") or (),
        "kwargs": table.get("kwargs") or {},
        "options": {**(table.get("options") or {}), **{key: table[key] for key in _OPTIONS if key in table}},
        "overlap": table.get("overlap", "allow"),
        "grace": None if grace is None or grace == math.inf else grace,
        "source": source,
    }
    try:
        when = _when(table, timezone)
        due_after(when, datetime.now(UTC))
        entry = msgspec.convert({**made, "when": msgspec.to_builtins(when)}, Entry)
        msgspec.json.encode(entry)
    except ConfigError as error:
        raise ConfigError(_named(name, error)) from error
    except msgspec.ValidationError as error:
        # What an entry finds wrong itself is packed into one of these.
        raise ConfigError(_named(name, error.__cause__ or error)) from error
    except TypeError as error:
        raise ConfigError(f"schedule {name!r}: its arguments can't be kept: {error}") from error
    return entry


def _named(name: str, error: BaseException) -> str:
    text = str(error)
    return text if text.startswith("schedule ") else f"schedule {name!r}: {text}"


def _when(table: Mapping[str, Any], timezone: str) -> When:
    given = [key for key in _WHEN if table.get(key) is not None]
    if len(given) != 1:
        raise ConfigError("say when: one of every = SECONDS, crontab = LINE, solar = EVENT")
    key, value = given[0], table[given[0]]
    zone = str(table.get("timezone") or timezone)
    if "timezone" in table and key != "crontab":
        raise ConfigError("timezone is for crontab")
    match key:
        case "every" if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
            raise ConfigError(f"every={value!r}: give seconds, as a number")
        case "crontab" if isinstance(value, str):
            return Cron(value, zone)
        case "solar" if isinstance(value, str):
            if not {"latitude", "longitude"} <= table.keys():
                raise ConfigError("solar needs the place: latitude and longitude, in degrees north and east")
            return Solar(value, float(table["latitude"]), float(table["longitude"]))
    return when_of(value, zone)


def when_of(value: Any, timezone: str = "UTC") -> When:
    """What Celery takes for a schedule: seconds, a timedelta, a crontab, solar; and ours.

    :raises ConfigError: it is none of these.
    """
    match value:
        case Every() | Cron() | Solar():
            return value
        case bool():
            pass
        case int() | float():
            return Every(float(value))
        case timedelta():
            return Every(value.total_seconds())
        case str():
            return Cron(value, timezone)
        case celery.schedules.crontab():
            fields = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
            return Cron(" ".join(_column(getattr(value, f"_orig_{field}")) for field in fields), timezone)
        case celery.schedules.solar():
            return Solar(value.event, float(value.lat), float(value.lon))
        case celery.schedules.schedule() if type(value) is celery.schedules.schedule:
            return Every(value.run_every.total_seconds())
    raise ConfigError(f"{value!r} is no schedule: give seconds, a timedelta, a crontab or a solar event")


def _column(value: Any) -> str:
    if isinstance(value, str | int):
        return str(value).replace(" ", "")
    return ",".join(str(each) for each in value)

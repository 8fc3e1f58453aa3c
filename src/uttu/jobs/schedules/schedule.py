"""A schedule as a value: what it sends and when, its state, its due times, and how it is written.

Schedule        what to send and when; changed by people only
ScheduleState   the next due time and the results so far; changed by the leading beat, and by pausing
ScheduledRun    one schedule at one due time. Its id, which is also the id of the task, follows from these two. So it is
                the same task whichever beat sends it and however often, and workers run it once.

A late schedule is handled in three ways. Up to ``CATCH_UP_TIME`` late, as when another beat took over: a run is sent
for every due time. Later, as after a restart: one run is sent for the latest due time, and earlier ones are dropped.
Later than the grace of the schedule, a misfire: nothing is sent, and that is counted.

Schedules are written as tables of ``uttu.toml``, as Celery's ``beat_schedule``, or as arguments in code.
"""

from __future__ import annotations

import difflib
import math
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import celery.schedules
import msgspec

from uttu.errors import ConfigError
from uttu.jobs.schedules.triggers import Cron, Every, Solar, Trigger, latest_time, next_time, times_between

Overlap = Literal["skip", "queue", "allow"]
ScheduleSource = Literal["code", "uttu.toml", "command"]

GRACE_SECONDS = 3600.0
# Minimum grace: after a beat dies, its successor must not find everything too late.
MIN_GRACE_SECONDS = 30.0
# How long a run blocks later ones if its schedule has no grace.
_LONG_SECONDS = 7 * 86_400.0
# Time within which a broker delivers an unacknowledged message again.
_REDELIVERED_SECONDS = 3600.0

_RUN_NAMESPACE = uuid.UUID("6c2b7a43-9f2e-4a52-9a1e-0d6f5f1a7c11")


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule: which task is sent when, and what happens if it is late or the previous run is active."""

    name: str
    task: str
    when: Trigger
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    options: dict[str, Any] = {}
    """Options for ``apply_async``: queue, priority, expires …"""
    overlap: Overlap = "allow"
    """While the previous run is active: skip this one, queue it, or allow both."""
    grace: float | None = GRACE_SECONDS
    """Maximum delay in seconds at which a run is still sent; None for any."""
    source: ScheduleSource = "code"

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable():
            raise ConfigError("The name must not be empty, and must be printable")
        if not self.task:
            raise ConfigError("The task is missing. Write task = NAME")
        if self.grace is not None and not self.grace >= MIN_GRACE_SECONDS:
            raise ConfigError(
                f"grace={self.grace:g} is too short, because another beat may need a few seconds to take over. Give "
                f"{MIN_GRACE_SECONDS:g} or more, or inf"
            )

    @property
    def patience(self) -> float:
        """Seconds for which a run that no worker started blocks later ones."""
        return _LONG_SECONDS if self.grace is None else self.grace

    @property
    def memory(self) -> float:
        """Seconds for which the mark of an ended run is kept: longer than a copy of its message may come."""
        return self.patience + _REDELIVERED_SECONDS


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a schedule. Never set ``next`` to an earlier time: runs until then were sent."""

    next: datetime
    last: datetime | None = None
    """The due time of the last run that was sent."""
    paused: bool = False
    sent: int = 0
    skipped: int = 0
    """Runs that were left out because the previous one was active."""
    missed: int = 0
    """Runs that were left out because they were too late; several at once count as one."""
    note: str = ""
    """The last error."""
    open: str = ""
    """The id of the last run that was sent; its mark says whether it has ended."""
    opened: datetime | None = None


class ScheduledRun(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule at one due time, to be sent to the broker."""

    id: str
    entry: str
    due: datetime


class StoredSchedule(msgspec.Struct, frozen=True):
    """A schedule and its state, as stored."""

    entry: Schedule
    state: ScheduleState


def create_run(app: str, entry: str, due: datetime) -> ScheduledRun:
    """Return the run of a schedule at a due time. The id is a UUID of app, schedule and time."""
    return ScheduledRun(id=str(uuid.uuid5(_RUN_NAMESPACE, f"{app}\n{entry}\n{due.isoformat()}")), entry=entry, due=due)


def create_state(entry: Schedule, now: datetime) -> ScheduleState:
    """Return the state of a new schedule.

    :raises ConfigError: it is never due.
    """
    return ScheduleState(next=next_time(entry.when, now))


def replace_state(stored: StoredSchedule, entry: Schedule, now: datetime) -> ScheduleState:
    """Return the state of a schedule whose definition was changed. If its trigger is the same, the state stays."""
    if stored.entry.when == entry.when:
        return stored.state
    return msgspec.structs.replace(stored.state, next=create_state(entry, now).next)


# Longer than another beat needs to take over.
CATCH_UP_TIME = timedelta(seconds=15)


class DueTimes(msgspec.Struct, frozen=True):
    """The due times to send now, the next one, and whether any was missed."""

    due: tuple[datetime, ...]
    next: datetime
    missed: bool = False


def find_due_times(entry: Schedule, due: datetime, now: datetime) -> DueTimes | None:
    """Return what is due now; None if ``due``, the next time in the state, is in the future.

    :raises ConfigError: it is never due again.
    """
    if due > now:
        return None
    if now - due <= CATCH_UP_TIME:
        times = tuple(times_between(entry.when, due, now))
        return DueTimes(times, next_time(entry.when, times[-1]))
    latest = latest_time(entry.when, due, now)
    missed = is_misfire(entry, latest, now)
    return DueTimes(() if missed else (latest,), next_time(entry.when, latest), missed)


def is_misfire(entry: Schedule, due: datetime, now: datetime) -> bool:
    """Whether a due time is further back than the grace of the schedule."""
    return entry.grace is not None and now - due > timedelta(seconds=entry.grace)


# Options of apply_async that may be written directly in the table.
_OPTIONS = ("queue", "exchange", "routing_key", "priority", "expires", "time_limit", "soft_time_limit")
_WHEN = ("every", "crontab", "solar", "schedule")
_TRIGGER_OPTIONS = ("latitude", "longitude", "timezone", "relative")
_KEYS = (*_WHEN, *_TRIGGER_OPTIONS, *_OPTIONS, "task", "args", "kwargs", "options", "overlap", "grace")


def parse_schedule(name: str, table: Mapping[str, Any], source: ScheduleSource, timezone: str = "UTC") -> Schedule:
    """Parse a schedule from a table with ``task``, one of ``every``, ``crontab``, ``solar`` and ``schedule``, and
    options.

    :param timezone: the time zone of crontab lines without one.
    :raises ConfigError: names the schedule and the error.
    """
    for key in table:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"The keys are {', '.join(_KEYS)}"
            raise ConfigError(f"Schedule {name!r}: Unknown key {key!r}. {hint}")
    grace = table.get("grace", GRACE_SECONDS)
    fields = {
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
        when = _parse_trigger_table(table, timezone)
        next_time(when, datetime.now(UTC))
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"Schedule {name!r}: {error}") from error
    try:
        entry = msgspec.convert({**fields, "when": msgspec.to_builtins(when)}, Schedule)
        msgspec.json.encode(entry)
    except ConfigError as error:
        raise ConfigError(f"Schedule {name!r}: {error}") from error
    except msgspec.ValidationError as error:
        # msgspec wraps an error of Schedule.__post_init__ in a ValidationError.
        raise ConfigError(f"Schedule {name!r}: {error.__cause__ or error}") from error
    except TypeError as error:
        raise ConfigError(f"Schedule {name!r}: The arguments must be JSON: {error}") from error
    return entry


def _parse_trigger_table(table: Mapping[str, Any], timezone: str) -> Trigger:
    keys = [key for key in _WHEN if table.get(key) is not None]
    if len(keys) != 1:
        raise ConfigError("Give one of every = SECONDS, crontab = LINE, solar = EVENT")
    key, value = keys[0], table[keys[0]]
    zone = str(table.get("timezone") or timezone)
    if "timezone" in table and key != "crontab":
        raise ConfigError("timezone needs crontab")
    match key:
        case "every" if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
            raise ConfigError(f"every={value!r} is not a number of seconds")
        case "crontab" if isinstance(value, str):
            return Cron(value, zone)
        case "solar" if isinstance(value, str):
            if not {"latitude", "longitude"} <= table.keys():
                raise ConfigError("solar needs latitude and longitude, in degrees north and east")
            return Solar(value, float(table["latitude"]), float(table["longitude"]))
    return parse_trigger(value, zone)


def parse_trigger(value: Any, timezone: str = "UTC") -> Trigger:
    """Parse what Celery accepts as a schedule: seconds, a timedelta, a crontab, solar; or one of our triggers.

    :raises ConfigError: it is something else.
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
            return Cron(" ".join(_format_column(getattr(value, f"_orig_{field}")) for field in fields), timezone)
        case celery.schedules.solar():
            return Solar(value.event, float(value.lat), float(value.lon))
        case celery.schedules.schedule() if type(value) is celery.schedules.schedule:
            return Every(value.run_every.total_seconds())
    raise ConfigError(f"{value!r} is not a schedule. Give seconds, a timedelta, a crontab or a solar event")


def _format_column(value: Any) -> str:
    if isinstance(value, str | int):
        return str(value).replace(" ", "")
    return ",".join(str(each) for each in value)

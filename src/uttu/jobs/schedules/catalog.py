"""The schedules of an app: the store, the schedules in code and ``uttu.toml``, and changes to them while beats run.

A schedule is *fixed* if it is defined in code or ``uttu.toml``. The leading beat installs fixed schedules in the store;
until then they exist only here.
"""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
from celery.beat import BeatLazyFunc

from uttu.clients.addresses import mask_password
from uttu.errors import BusUnavailable, ConfigError, StoreError
from uttu.jobs.confinement import check_crawl
from uttu.jobs.schedules.base import RunState, ScheduleBackend
from uttu.jobs.schedules.schedule import (
    Schedule,
    ScheduleSource,
    ScheduleState,
    StoredSchedule,
    create_state,
    parse_schedule,
    replace_state,
)
from uttu.jobs.schedules.triggers import Cron, Trigger, load_zone, next_time, times_between
from uttu.operations.jobs import check_broker, check_task, map_driver_errors

CRAWL: Final = "uttu.crawl"
_REDIS: Final = ("redis", "rediss", "redis+socket", "redis+unix", "unix")
_FILE: Final = "sqlite:.uttu/jobs/schedules.db"


def open_schedule_store(url: str, name: str, folder: Path = Path()) -> ScheduleBackend:
    """Open the store of the app ``name``; paths are relative to ``folder``.

    :raises ConfigError: the URL has an unknown scheme.
    """
    scheme, _, rest = url.partition(":")
    match scheme.lower():
        case "sqlite" if rest.removeprefix("//"):
            from uttu.jobs.schedules.sqlite import SqliteScheduleStore

            return SqliteScheduleStore(folder / Path(os.path.expanduser(rest.removeprefix("//"))))
        case kind if kind in _REDIS:
            from uttu.jobs.schedules.redis import RedisScheduleStore

            return RedisScheduleStore(url, name)
    raise ConfigError(f"Cannot store schedules at {mask_password(url)!r}. Write redis://HOST:PORT/DB or sqlite:FILE")


def open_app_store(app: Any) -> ScheduleBackend:
    """Open the store of an app: the configured one, else the broker if it is Redis, else a file.

    :raises ConfigError: as :func:`open_schedule_store`.
    """
    settings = getattr(app, "uttu", None)
    url = settings.schedules if settings is not None else ""
    if not url:
        broker = str(app.conf.broker_url).partition(";")[0]
        url = broker if broker.partition("://")[0] in _REDIS else _FILE
        if start_embedded := getattr(app, "start_embedded", None):
            start_embedded()
    return open_schedule_store(
        url, settings.name if settings is not None else app.main or "uttu", getattr(app, "folder", Path())
    )


def read_fixed_schedules(app: Any) -> tuple[list[Schedule], list[str]]:
    """Return the schedules in code and in ``uttu.toml``, and the errors of invalid ones."""
    timezone = app_timezone(app)
    settings = getattr(app, "uttu", None)
    # Modules with periodic tasks may not be imported yet.
    app.loader.import_default_modules()
    app.finalize(auto=True)
    schedules = {entry.name: entry for entry in getattr(app, "entries", ())}
    errors: list[str] = []
    sources: list[tuple[Mapping[str, Any], ScheduleSource]] = [
        (app.conf.beat_schedule or {}, "code"),
        (settings.schedule if settings is not None else {}, "uttu.toml"),
    ]
    for tables, source in sources:
        for name, table in tables.items():
            try:
                schedules[name] = (
                    table if isinstance(table, Schedule) else parse_schedule(name, _to_plain(table), source, timezone)
                )
            except ConfigError as error:
                errors.append(str(error))
    return list(schedules.values()), errors


def find_unknown_tasks(app: Any, entries: Iterable[Schedule]) -> list[str]:
    """Return warnings about schedules whose task this app does not have. Workers may have it."""
    warnings = []
    for entry in entries:
        if entry.task not in app.tasks:
            close = difflib.get_close_matches(entry.task, list(app.tasks), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            warnings.append(
                f"Schedule {entry.name!r}: This app has no task {entry.task!r}. It fails unless workers have it.{hint}"
            )
    return warnings


def lazy_arguments(app: Any, name: str) -> tuple[Any, Any] | None:
    """Return the arguments of a schedule in code with ``BeatLazyFunc`` values evaluated; None if it has none."""
    table = (app.conf.beat_schedule or {}).get(name)
    if not isinstance(table, Mapping):
        return None
    args, kwargs = table.get("args") or (), table.get("kwargs") or {}
    if not any(isinstance(each, BeatLazyFunc) for each in (*args, *kwargs.values())):
        return None
    return (
        tuple(each() if isinstance(each, BeatLazyFunc) else each for each in args),
        {key: each() if isinstance(each, BeatLazyFunc) else each for key, each in kwargs.items()},
    )


def _to_plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """Replace ``BeatLazyFunc`` values, which cannot be stored, with None."""
    args, kwargs = table.get("args") or (), table.get("kwargs") or {}
    return {
        **table,
        "args": tuple(None if isinstance(each, BeatLazyFunc) else each for each in args),
        "kwargs": {key: None if isinstance(each, BeatLazyFunc) else each for key, each in kwargs.items()},
    }


_CHANGE_ATTEMPTS = 10


class ScheduleCatalog:
    """All schedules of an app. ``installed`` are the names of those in the store."""

    def __init__(self, app: Any, store: ScheduleBackend) -> None:
        self.app = app
        self.store = store
        schedules = {each.entry.name: each for each in store.entries()}
        self.installed = frozenset(schedules)
        fixed, self.wrong = read_fixed_schedules(app)
        for entry in fixed:
            if entry.name not in schedules:
                schedules[entry.name] = StoredSchedule(entry, create_state(entry, utc_now()))
        self.all = dict(sorted(schedules.items()))

    def find(self, name: str) -> StoredSchedule:
        """Return a schedule.

        :raises ConfigError: no schedule has this name.
        """
        if name in self.all:
            return self.all[name]
        close = difflib.get_close_matches(name, self.all, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "List all with uttu schedule ls"
        raise ConfigError(f"There is no schedule {name!r}. {hint}")

    def change(self, name: str, change: Callable[[StoredSchedule], ScheduleState]) -> ScheduleState:
        """Change the state of a schedule. Retries if a beat changes it at the same time.

        :raises ConfigError: no schedule has this name.
        :raises StoreError: it still conflicts after ``_CHANGE_ATTEMPTS`` tries.
        """
        stored = self.find(name)
        if name not in self.installed and self.store.put(stored.entry, change(stored)):
            return change(stored)
        for _ in range(_CHANGE_ATTEMPTS):
            schedules = {each.entry.name: each for each in self.store.entries()}
            if name not in schedules:
                raise ConfigError(f"The schedule {name!r} was just removed")
            stored = schedules[name]
            after = change(stored)
            if self.store.change(name, stored.state, after):
                return after
        raise StoreError(f"Cannot change the schedule {name!r}: other processes change it at the same time. Try again")

    def add(
        self,
        name: str,
        table: Mapping[str, Any],
        *,
        replace: bool = False,
        remote: bool = False,
        is_crawl: bool = False,
    ) -> StoredSchedule:
        """Add a schedule, or replace one that was added.

        :param table: Its fields, as in ``uttu.toml``.
        :param remote: Only workers know the task: don't check its name here.
        :param is_crawl: It is the task ``uttu.crawl``: check that a worker would accept the crawl.
        :raises ConfigError: a field is wrong, a worker would not accept the crawl, or the name is taken.
        """
        entry = parse_schedule(name, table, "command", app_timezone(self.app))
        if not remote:
            check_task(self.app, entry.task)
        if is_crawl:
            output = entry.kwargs.get("output", ())
            outputs = [output] if isinstance(output, str) else output
            check_crawl(self.app, str(entry.args[0]), outputs, entry.kwargs.get("settings", {}))
        former = self.all.get(name)
        if former is not None and former.entry.source != "command":
            raise ConfigError(
                f"schedule {name!r} comes from {former.entry.source}: change it there, or take another name"
            )
        if former is None:
            state = create_state(entry, utc_now())
            done = self.store.put(entry, state)
        else:
            state = replace_state(former, entry, utc_now())
            done = replace and self.store.put(entry, state, replace=True)
        if not done:
            raise ConfigError(f"there is a schedule {name!r} already: replace it with --replace, or take another name")
        return StoredSchedule(entry, state)

    def pause(self, name: str) -> None:
        """Pause a schedule. A current run continues.

        :raises ConfigError: no schedule has this name.
        """
        self.change(name, lambda kept: msgspec.structs.replace(kept.state, paused=True))

    def resume(self, name: str) -> StoredSchedule:
        """Resume a schedule from its next time on. Runs that were due meanwhile are not made up for.

        :raises ConfigError: no schedule has this name.
        """

        def resumed(kept: StoredSchedule) -> ScheduleState:
            # A time in the past would be made up for. One in the far future comes from a wrong clock.
            upcoming = create_state(kept.entry, utc_now()).next
            return msgspec.structs.replace(kept.state, paused=False, note="", next=upcoming)

        state = self.change(name, resumed)
        return StoredSchedule(self.find(name).entry, state)

    def send_now(self, name: str) -> str:
        """Send the task of a schedule now, in addition to its times. Returns the task's id.

        :raises ConfigError: no schedule has this name.
        :raises BusError: the broker can't be reached.
        """
        from uttu.jobs.schedules.beat import BrokerAway, send

        entry = self.find(name).entry
        self.app.loader.import_default_modules()
        check_broker(self.app)
        try:
            with map_driver_errors(self.app):
                return send(self.app, entry)
        except BrokerAway as error:
            raise BusUnavailable(str(error)) from error

    def remove(self, name: str) -> None:
        """Remove a schedule that was added. A current run continues.

        :raises ConfigError: no schedule has this name, or it is in code or in ``uttu.toml``.
        """
        source = self.find(name).entry.source
        if source != "command":
            raise ConfigError(
                f"schedule {name!r} comes from {source}, and would come back: take it out there, or let it rest "
                f"with uttu schedule pause {name}"
            )
        self.store.remove(name)

    def preview(self, name: str, count: int, timezone: str = "") -> list[datetime]:
        """The next ``count`` times of a schedule, in its time zone.

        :param timezone: Instead of that of its crontab.
        :raises ConfigError: no schedule has this name, or it has no time zone to change.
        """
        kept, now = self.find(name), utc_now()
        when, first = kept.entry.when, kept.state.next
        if timezone:
            if not isinstance(when, Cron):
                raise ConfigError("--timezone is for crontab lines")
            when = Cron(when.line, timezone)
        return _list_times(when, next_time(when, now) if timezone or first <= now else first, count)


def app_timezone(app: Any) -> str:
    """The time zone of an app, for crontab lines without one."""
    return str(app.conf.timezone or "UTC")


def preview_crontab(line: str, timezone: str, count: int) -> list[datetime]:
    """The next ``count`` times of a crontab line, in its time zone.

    :raises ConfigError: the line or the time zone is wrong.
    """
    when = Cron(line, timezone)
    return _list_times(when, next_time(when, utc_now()), count)


def _list_times(when: Trigger, first: datetime, count: int) -> list[datetime]:
    zone = load_zone(when.timezone if isinstance(when, Cron) else "UTC")
    last = first.replace(year=first.year + 100)
    return [moment.astimezone(zone) for moment in islice(times_between(when, first, last), count)]


def is_crontab(text: str) -> bool:
    """Whether a text is a crontab line and not the name of a schedule."""
    return len(text.split()) > 1 or text.startswith("@")


@contextlib.contextmanager
def open_catalog(app: Any) -> Iterator[ScheduleCatalog]:
    """The schedules of an app.

    :raises ConfigError: the URL of the store has an unknown scheme.
    :raises StoreError: the store is not reachable.
    """
    store = open_app_store(app)
    try:
        yield ScheduleCatalog(app, store)
    finally:
        store.close()


def utc_now() -> datetime:
    return datetime.now(UTC)


class ScheduleStatus(StrEnum):
    """What a schedule does now, as ``uttu schedule list`` shows it."""

    PAUSED = "paused"
    NEW = "new"
    """No beat has seen it yet."""
    RUNNING = "running"
    SENT = "sent"
    """Its last run was sent, and no worker has taken it yet."""
    WAITING = "waiting"


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as people see it. ``text`` says when it runs, ``source`` where it is defined."""

    name: str
    state: ScheduleStatus
    text: str
    task: str
    source: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    next: datetime | None = None
    last: datetime | None = None
    last_task: str | None = None
    sent: int = 0
    skipped: int = 0
    missed: int = 0
    note: str = ""


def list_schedules(catalog: ScheduleCatalog) -> list[ScheduleRow]:
    """Return all schedules, by name."""
    return msgspec.convert(list_rows(catalog), list[ScheduleRow])


class UpcomingRun(msgspec.Struct, frozen=True):
    """A time at which a schedule will run."""

    name: str
    at: datetime


def list_upcoming(catalog: ScheduleCatalog, hours: float, limit: int = 200) -> list[UpcomingRun]:
    """Return the runs of the next hours, the earliest first; of each schedule at most ``limit``."""
    now = utc_now()
    until = now + timedelta(hours=hours)
    runs = []
    for stored in catalog.all.values():
        if not stored.state.paused:
            times = times_between(stored.entry.when, max(stored.state.next, now), until)
            runs += [UpcomingRun(stored.entry.name, moment) for moment in islice(times, limit)]
    return sorted(runs, key=lambda run: run.at)


def list_rows(catalog: ScheduleCatalog) -> list[dict[str, Any]]:
    """Return all schedules as rows for ``--json``."""
    schedules = list(catalog.all.values())
    sent = [each for each in schedules if each.state.open]
    marks = dict(
        zip((each.entry.name for each in sent), catalog.store.marks([each.state.open for each in sent]), strict=True)
    )
    return [_row(each, marks.get(each.entry.name), each.entry.name in catalog.installed) for each in schedules]


def _row(stored: StoredSchedule, mark: RunState | None, installed: bool) -> dict[str, Any]:
    entry = msgspec.to_builtins(stored.entry)
    state = msgspec.to_builtins(stored.state)
    now = _describe_state(stored, mark, installed)
    return {"name": entry.pop("name"), "state": now, "text": str(stored.entry.when), **entry} | {
        "next": state["next"],
        "last": state["last"],
        "last_task": state["open"] or None,
        "sent": state["sent"],
        "skipped": state["skipped"],
        "missed": state["missed"],
        "note": state["note"],
    }


def _describe_state(stored: StoredSchedule, mark: RunState | None, installed: bool) -> ScheduleStatus:
    if stored.state.paused:
        return ScheduleStatus.PAUSED
    if not installed:
        return ScheduleStatus.NEW
    match mark:
        case RunState.RUNNING | RunState.WAITING:
            return ScheduleStatus.RUNNING
        case RunState.NONE:
            return ScheduleStatus.SENT
    return ScheduleStatus.WAITING

"""The schedules of an app: the store, the schedules in code and ``uttu.toml``, and changes to them while beats run.

A schedule is *fixed* if it is defined in code or ``uttu.toml``. The leading beat installs fixed schedules in the store;
until then they exist only here.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from celery.beat import BeatLazyFunc

from uttu.clients.addresses import mask_password
from uttu.errors import ConfigError, StoreError
from uttu.jobs.schedules.base import RunState, ScheduleBackend
from uttu.jobs.schedules.schedule import (
    Schedule,
    ScheduleSource,
    ScheduleState,
    StoredSchedule,
    create_state,
    parse_schedule,
)

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
    timezone = str(app.conf.timezone or "UTC")
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


def utc_now() -> datetime:
    return datetime.now(UTC)


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


def _describe_state(stored: StoredSchedule, mark: RunState | None, installed: bool) -> str:
    if stored.state.paused:
        return "paused"
    if not installed:
        return "new"
    match mark:
        case RunState.RUNNING | RunState.WAITING:
            return "running"
        case RunState.NONE:
            return "sent"
    return "waiting"

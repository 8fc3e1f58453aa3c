"""A beat: several of them share a store, and the leader sends tasks. See ``base`` for why each run is sent safely.

The leader's loop runs at least once in ``_CYCLE_SECONDS``: it renews its lease, sends runs that a former leader left,
and takes schedules that are due. If it dies, another beat leads after :data:`LEASE_SECONDS` and continues from the same
states. While the store or the broker is away, beats wait, and then catch up as described in
:func:`~uttu.jobs.schedules.schedule.find_due_times`.

A new leader installs the schedules of code and ``uttu.toml`` in the store. It replaces their definitions and keeps
their states.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from celery import beat
from celery.result import denied_join_result
from kombu.exceptions import OperationalError

from uttu.clients import is_raised_in, summarize_error
from uttu.errors import ConfigError, StoreError, UttuError
from uttu.jobs.schedules.base import RunState, ScheduleBackend
from uttu.jobs.schedules.catalog import find_unknown_tasks, lazy_arguments, open_app_store, read_fixed_schedules
from uttu.jobs.schedules.run_once import build_header
from uttu.jobs.schedules.schedule import (
    Schedule,
    ScheduledRun,
    ScheduleState,
    StoredSchedule,
    create_run,
    create_state,
    find_due_times,
    is_misfire,
    replace_state,
)

# An idle connection may be lost, so it is opened again once. Further retries are left to the caller.
_RETRY: Final = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.2}


class BrokerAway(UttuError):
    """The broker is unavailable at the moment."""


def send(app: Any, entry: Schedule, run: ScheduledRun | None = None) -> str:
    """Send the task of a schedule; return the task's id. Without ``run`` it is sent by hand, outside of the schedule.

    :raises BrokerAway: the broker cannot be reached. The task may still have been sent.
    :raises Exception: it can never be sent: arguments that cannot be serialised, a missing queue.
    """
    args, kwargs = lazy_arguments(app, entry.name) or (entry.args, entry.kwargs)
    options: dict[str, Any] = {**entry.options, "retry": True, "retry_policy": _RETRY}
    options["headers"] = {**options.get("headers", {}), "celery_beat_task": True}
    if run is not None:
        options["task_id"] = run.id
        options["headers"].update(build_header(entry, run))
    task = app.tasks.get(entry.task)
    try:
        # Celery would subscribe to the result, which is not needed here, and fail if it cannot.
        with denied_join_result(), app.amqp.confirming_pool.acquire(block=True) as producer:
            options["producer"] = producer
            if task is not None:
                return str(task.apply_async(args, kwargs, **options).id)
            return str(app.send_task(entry.task, args, kwargs, **options).id)
    except (OperationalError, OSError) as error:
        raise BrokerAway(f"Cannot reach the broker: {error}") from error
    except Exception as error:
        if not _is_transient(error):
            raise
        raise BrokerAway(f"Cannot reach the broker: {summarize_error(error)}") from error


def _is_transient(error: Exception) -> bool:
    """Whether an error means that the broker is away although Kombu does not say so.

    That is a temporary error of a driver, or an unintended exception inside a driver whose connection was closed.
    """
    from amqp.exceptions import AMQPError
    from redis.exceptions import RedisError

    from uttu.clients.redis.errors import is_temporary

    if isinstance(error, RedisError):
        return is_temporary(error)
    return not isinstance(error, AMQPError) and is_raised_in(error, {"redis", "amqp"})


LEASE_SECONDS: Final = 5.0
_CYCLE_SECONDS: Final = 1.0
_FOLLOWER_SECONDS: Final = 0.5
_ATTEMPTS: Final = 3

_log = logging.getLogger("uttu.jobs.beat")


class Scheduler(beat.Scheduler):
    """The scheduler class for Celery's beat (``beat_scheduler``)."""

    def __init__(self, app: Any, *args: Any, lazy: bool = False, **options: Any) -> None:
        self._store: ScheduleBackend | None = None
        self._owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._leader: Leader | None = None
        self._last_error = ""
        super().__init__(app, *args, lazy=lazy, **options)
        self.max_interval = _CYCLE_SECONDS

    @property
    def store(self) -> ScheduleBackend:
        if self._store is None:
            self._store = open_app_store(self.app)
        return self._store

    def setup_schedule(self) -> None:
        """Only add Celery's own schedules: all others are installed when this beat leads."""
        self.install_default_entries({})

    def update_from_dict(self, dict_: dict[str, Any]) -> None:
        """Add Celery's own schedules, such as the cleanup of results, for backends that need it."""
        for name, table in dict_.items():
            self.app.conf.beat_schedule.setdefault(name, table)

    def tick(self, *_: Any, **__: Any) -> float:
        """Run one cycle; return the seconds to sleep."""
        try:
            seconds = self._run_cycle()
        except _Deposed:
            return 0.0
        except (StoreError, BrokerAway) as error:
            if self._last_error != str(error):
                _log.error("Schedules wait: %s", error)
            self._last_error = str(error)
            return _CYCLE_SECONDS
        if self._last_error:
            _log.info("Schedules continue")
            self._last_error = ""
        return seconds

    def _run_cycle(self) -> float:
        token = self.store.lead(self._owner, LEASE_SECONDS)
        if token is None:
            if self._leader is not None:
                _log.warning("Another beat leads now")
            self._leader = None
            return _FOLLOWER_SECONDS
        if self._leader is None or self._leader.token != token:
            _log.info("This beat leads with token %d. The schedules are in %s", token, self.store.place)
            self._leader = Leader(self.app, self.store, self._owner, token)
            self._leader.install()
        return self._leader.run_cycle()

    def close(self) -> None:
        """Resign, so that another beat leads at once."""
        super().close()
        if self._store is not None:
            try:
                self._store.resign(self._owner)
            except StoreError as error:
                _log.warning("%s", error)
            self._store.close()

    @property
    def info(self) -> str:
        """A line for Celery's start banner. Reads the store, so an unusable one fails here with a clear message."""
        self.store.entries()
        return f"    . schedules -> {self.store.place}"


class _Deposed(Exception):
    """Another beat leads by now."""


class Leader:
    """The work of the leading beat.

    :param token: proves the leadership in every change.
    :param now: the clock; for tests.
    """

    def __init__(
        self, app: Any, store: ScheduleBackend, owner: str, token: int, now: Callable[[], float] = time.time
    ) -> None:
        self.token = token
        self._app = app
        self._store = store
        self._owner = owner
        self._clock = now
        self._renewed = time.monotonic()
        self._fixed: frozenset[str] = frozenset()
        self._name = app.uttu.name if hasattr(app, "uttu") else app.main or "uttu"

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def install(self) -> None:
        """Install the schedules of code and ``uttu.toml`` in the store, and remove those that no longer exist."""
        fixed, errors = read_fixed_schedules(self._app)
        for text in errors:
            _log.error("Left out: %s", text)
        for text in find_unknown_tasks(self._app, fixed):
            _log.warning("%s", text)
        existing = {stored.entry.name: stored for stored in self._store.entries()}
        for entry in fixed:
            stored = existing.get(entry.name)
            if stored is not None and stored.entry.source == "command":
                _log.warning(
                    "Left out schedule %r of %s: uttu schedule add made one with this name",
                    entry.name,
                    entry.source,
                )
            elif stored is None:
                self._store.put(entry, create_state(entry, self._now()))
            elif stored.entry != entry:
                self._store.put(entry, replace_state(stored, entry, self._now()), replace=True)
        self._fixed = frozenset(entry.name for entry in fixed)
        for stored in existing.values():
            if stored.entry.source != "command" and stored.entry.name not in self._fixed and not errors:
                self._store.remove(stored.entry.name)

    def run_cycle(self) -> float:
        """Send what is due; return the seconds until more may be due.

        :raises StoreError: the store is away.
        :raises BrokerAway: the broker is away; runs stay in the store.
        """
        schedules = {each.entry.name: each for each in self._store.entries()}
        if not self._fixed <= schedules.keys():
            _log.warning("The store has lost schedules. Installing those of code and uttu.toml again")
            self.install()
            schedules = {each.entry.name: each for each in self._store.entries()}
        unsent = self._store.runs()
        for run in unsent:
            self._send_run(schedules, run)
        behind = {run.entry for run in self._store.runs()} if unsent else set()
        for name, stored in list(schedules.items()):
            if not stored.state.paused:
                for run in self._take_due(schedules, name, is_behind=name in behind):
                    self._send_run(schedules, run)
        next_times = [stored.state.next for stored in schedules.values() if not stored.state.paused]
        seconds = (min(next_times) - self._now()).total_seconds() if next_times else _CYCLE_SECONDS
        return max(0.0, min(seconds, _CYCLE_SECONDS))

    def _take_due(
        self, schedules: dict[str, StoredSchedule], name: str, *, is_behind: bool
    ) -> tuple[ScheduledRun, ...]:
        """Move a due schedule on and store its runs; return them."""
        entry, state = schedules[name].entry, schedules[name].state
        now = self._now()
        try:
            due_times = find_due_times(entry, state.next, now)
        except ConfigError as error:
            self._change(schedules, name, msgspec.structs.replace(state, paused=True, note=str(error)))
            return ()
        if due_times is None:
            return ()
        due = due_times.due
        changes: dict[str, Any] = {"next": due_times.next}
        if due_times.missed:
            _log.warning("Left out schedule %s: it was due before %s, longer ago than its grace", name, now)
            changes["missed"] = state.missed + 1
        if due and entry.overlap == "skip":
            due = due[-1:]
            if is_behind or self._is_busy(entry, state, now):
                _log.info("Left out schedule %s: its last run has not ended", name)
                changes["skipped"] = state.skipped + 1
                due = ()
        runs = tuple(create_run(self._name, name, each) for each in due)
        return runs if self._change(schedules, name, msgspec.structs.replace(state, **changes), add=runs) else ()

    def _send_run(self, schedules: dict[str, StoredSchedule], run: ScheduledRun) -> None:
        """Send a stored run unless it has to wait."""
        if run.entry not in schedules:
            return
        entry, state = schedules[run.entry].entry, schedules[run.entry].state
        now = self._now()
        if state.paused:
            return
        if is_misfire(entry, run.due, now):
            _log.warning("Left out schedule %s, due %s: it could not be sent in time", entry.name, run.due)
            self._change(schedules, entry.name, msgspec.structs.replace(state, missed=state.missed + 1), drop=(run,))
            return
        if entry.overlap == "queue" and state.open != run.id and self._is_busy(entry, state, now):
            return
        self._renew()
        changes: dict[str, Any] = {"note": ""}
        try:
            send(self._app, entry, run)
        except BrokerAway:
            raise
        except Exception as error:
            # A retry would fail too, and other runs wait.
            _log.exception("Cannot send schedule %s", entry.name)
            changes["note"] = f"{type(error).__name__}: {error}"
        else:
            _log.info("Schedule %s, due %s: sent %s (%s)", entry.name, run.due, entry.task, run.id)
            changes |= {"last": run.due, "sent": state.sent + 1, "open": run.id, "opened": now}
        self._delete_run(schedules, run, changes)

    def _delete_run(self, schedules: dict[str, StoredSchedule], run: ScheduledRun, changes: dict[str, Any]) -> None:
        """Delete a sent run. Retries, so that it succeeds even if the schedule was just paused or changed."""
        for _ in range(_ATTEMPTS):
            after = msgspec.structs.replace(schedules[run.entry].state, **changes)
            if self._change(schedules, run.entry, after, drop=(run,)):
                return
            stored = [each for each in self._store.entries() if each.entry.name == run.entry]
            if not stored:
                return
            schedules[run.entry] = stored[0]

    def _renew(self) -> None:
        """Renew the lease: a cycle that sends many runs may take longer than the lease."""
        if time.monotonic() - self._renewed > _CYCLE_SECONDS:
            if self._store.lead(self._owner, LEASE_SECONDS) != self.token:
                raise _Deposed
            self._renewed = time.monotonic()

    def _is_busy(self, entry: Schedule, state: ScheduleState, now: datetime) -> bool:
        """Whether the last run that was sent is still active."""
        if not state.open or state.opened is None:
            return False
        match self._store.marks([state.open])[0]:
            case RunState.RUNNING | RunState.WAITING:
                return True
            case RunState.NONE:
                return now - state.opened < timedelta(seconds=entry.patience)
        return False

    def _change(
        self,
        schedules: dict[str, StoredSchedule],
        name: str,
        after: ScheduleState,
        add: tuple[ScheduledRun, ...] = (),
        drop: tuple[ScheduledRun, ...] = (),
    ) -> bool:
        """Change a state. False if another beat leads or the schedule has changed: the next cycle reads it again."""
        done = self._store.change(name, schedules[name].state, after, token=self.token, add=add, drop=drop)
        if done:
            schedules[name] = StoredSchedule(schedules[name].entry, after)
        return done

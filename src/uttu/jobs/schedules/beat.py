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
    """The broker cannot be reached for now."""


def send(app: Any, entry: Schedule, fire: ScheduledRun | None = None) -> str:
    """Send the task of a schedule; return the task's id. Without ``fire`` it is sent by hand, outside of the schedule.

    :raises BrokerAway: the broker cannot be reached. The task may still have been sent.
    :raises Exception: it can never be sent: arguments that cannot be serialised, a missing queue.
    """
    args, kwargs = lazy_arguments(app, entry.name) or (entry.args, entry.kwargs)
    options: dict[str, Any] = {**entry.options, "retry": True, "retry_policy": _RETRY}
    options["headers"] = {**options.get("headers", {}), "celery_beat_task": True}
    if fire is not None:
        options["task_id"] = fire.id
        options["headers"].update(build_header(entry, fire))
    task = app.tasks.get(entry.task)
    try:
        # Celery would subscribe to the result, which is not needed here, and fail if it cannot.
        with denied_join_result(), app.amqp.confirming_pool.acquire(block=True) as producer:
            options["producer"] = producer
            if task is not None:
                return str(task.apply_async(args, kwargs, **options).id)
            return str(app.send_task(entry.task, args, kwargs, **options).id)
    except (OperationalError, OSError) as error:
        raise BrokerAway(f"the broker can't be reached: {error}") from error
    except Exception as error:
        if not _is_transient(error):
            raise
        raise BrokerAway(f"the broker can't be reached: {summarize_error(error)}") from error


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
        self._trouble = ""
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
            waits = self._turn()
        except _Deposed:
            return 0.0
        except (StoreError, BrokerAway) as error:
            if self._trouble != str(error):
                _log.error("schedules wait: %s", error)
            self._trouble = str(error)
            return _CYCLE_SECONDS
        if self._trouble:
            _log.info("schedules go on")
            self._trouble = ""
        return waits

    def _turn(self) -> float:
        token = self.store.lead(self._owner, LEASE_SECONDS)
        if token is None:
            if self._leader is not None:
                _log.warning("another beat leads now")
            self._leader = None
            return _FOLLOWER_SECONDS
        if self._leader is None or self._leader.token != token:
            _log.info("this beat leads, with token %d; schedules are in %s", token, self.store.place)
            self._leader = Leader(self.app, self.store, self._owner, token)
            self._leader.install()
        return self._leader.turn()

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
        fixed, wrong = read_fixed_schedules(self._app)
        for text in wrong:
            _log.error("left out: %s", text)
        for text in find_unknown_tasks(self._app, fixed):
            _log.warning("%s", text)
        there = {kept.entry.name: kept for kept in self._store.entries()}
        for entry in fixed:
            kept = there.get(entry.name)
            if kept is not None and kept.entry.source == "command":
                _log.warning(
                    "schedule %r of %s is left out: uttu schedule add made one of that name", entry.name, entry.source
                )
            elif kept is None:
                self._store.put(entry, create_state(entry, self._now()))
            elif kept.entry != entry:
                self._store.put(entry, replace_state(kept, entry, self._now()), replace=True)
        self._fixed = frozenset(entry.name for entry in fixed)
        for kept in there.values():
            if kept.entry.source != "command" and kept.entry.name not in self._fixed and not wrong:
                self._store.remove(kept.entry.name)

    def turn(self) -> float:
        """Send what is due; return the seconds until more may be due.

        :raises StoreError: the store is away.
        :raises BrokerAway: the broker is away; runs stay in the store.
        """
        kept = {each.entry.name: each for each in self._store.entries()}
        if not self._fixed <= kept.keys():
            _log.warning("the store has lost schedules; those of code and uttu.toml are brought there again")
            self.install()
            kept = {each.entry.name: each for each in self._store.entries()}
        waiting = self._store.fires()
        for left in waiting:
            self._try(kept, left)
        held = {left.entry for left in self._store.fires()} if waiting else set()
        for name, each in list(kept.items()):
            if not each.state.paused:
                for taken in self._take(kept, name, behind=name in held):
                    self._try(kept, taken)
        nexts = [each.state.next for each in kept.values() if not each.state.paused]
        until = (min(nexts) - self._now()).total_seconds() if nexts else _CYCLE_SECONDS
        return max(0.0, min(until, _CYCLE_SECONDS))

    def _take(self, kept: dict[str, StoredSchedule], name: str, *, behind: bool) -> tuple[ScheduledRun, ...]:
        """Move a due schedule on and store its runs; return them."""
        entry, state = kept[name].entry, kept[name].state
        now = self._now()
        try:
            planned = find_due_times(entry, state.next, now)
        except ConfigError as error:
            self._change(kept, name, msgspec.structs.replace(state, paused=True, note=str(error)))
            return ()
        if planned is None:
            return ()
        due = planned.due
        changes: dict[str, Any] = {"next": planned.next}
        if planned.missed:
            _log.warning("schedule %s was due before %s, longer ago than its grace: left out", name, now)
            changes["missed"] = state.missed + 1
        if due and entry.overlap == "skip":
            due = due[-1:]
            if behind or self._is_busy(entry, state, now):
                _log.info("schedule %s is left out: the run before is not over", name)
                changes["skipped"] = state.skipped + 1
                due = ()
        fires = tuple(create_run(self._name, name, each) for each in due)
        return fires if self._change(kept, name, msgspec.structs.replace(state, **changes), add=fires) else ()

    def _try(self, kept: dict[str, StoredSchedule], each: ScheduledRun) -> None:
        """Send a stored run unless it has to wait."""
        if each.entry not in kept:
            return
        entry, state = kept[each.entry].entry, kept[each.entry].state
        now = self._now()
        if state.paused:
            return
        if is_misfire(entry, each.due, now):
            _log.warning("schedule %s, due %s, could not be sent in time: left out", entry.name, each.due)
            self._change(kept, entry.name, msgspec.structs.replace(state, missed=state.missed + 1), drop=(each,))
            return
        if entry.overlap == "queue" and state.open != each.id and self._is_busy(entry, state, now):
            return
        self._renew()
        changes: dict[str, Any] = {"note": ""}
        try:
            send(self._app, entry, each)
        except BrokerAway:
            raise
        except Exception as error:
            # A retry would fail too, and other runs wait.
            _log.exception("schedule %s can't be sent", entry.name)
            changes["note"] = f"{type(error).__name__}: {error}"
        else:
            _log.info("schedule %s, due %s: sent %s (%s)", entry.name, each.due, entry.task, each.id)
            changes |= {"last": each.due, "sent": state.sent + 1, "open": each.id, "opened": now}
        self._strike_off(kept, each, changes)

    def _strike_off(self, kept: dict[str, StoredSchedule], each: ScheduledRun, changes: dict[str, Any]) -> None:
        """Delete a sent run. Retries, so that it succeeds even if the schedule was just paused or changed."""
        for _ in range(_ATTEMPTS):
            if self._change(kept, each.entry, msgspec.structs.replace(kept[each.entry].state, **changes), drop=(each,)):
                return
            found = [there for there in self._store.entries() if there.entry.name == each.entry]
            if not found:
                return
            kept[each.entry] = found[0]

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
        kept: dict[str, StoredSchedule],
        name: str,
        after: ScheduleState,
        add: tuple[ScheduledRun, ...] = (),
        drop: tuple[ScheduledRun, ...] = (),
    ) -> bool:
        """Change a state. False if another beat leads or the schedule has changed: the next cycle reads it again."""
        done = self._store.change(name, kept[name].state, after, token=self.token, add=add, drop=drop)
        if done:
            kept[name] = StoredSchedule(kept[name].entry, after)
        return done

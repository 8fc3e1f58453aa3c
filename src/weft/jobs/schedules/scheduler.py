"""A beat: one of several that look at the same store, of which the leader fires. See ``base`` for why that is safe.

A turn of the loop takes a second at most. The leader renews its lease with each, sends what a former leader has left
behind, and takes what is due. If it stops, another leads after :data:`LEASE_SECONDS`; it goes on from the same states.
If the store or the broker is away, beats wait for it, and catch up as ``plan`` says.

What is in code and in ``weft.toml`` is brought into the store by whoever becomes the leader. Definitions are taken
over from there, but when an entry was last due is not forgotten.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from celery import beat
from celery.utils.log import get_logger

from weft.errors import ConfigError, StoreError
from weft.jobs.schedules.base import Keeper, Mark
from weft.jobs.schedules.entry import Entry, Fire, Kept, State, fire, fresh
from weft.jobs.schedules.opening import fixed_entries, store_of
from weft.jobs.schedules.plan import plan, too_late
from weft.jobs.schedules.sending import BrokerAway, send

LEASE_SECONDS: Final = 5.0
_TURN_SECONDS: Final = 1.0
_FOLLOWER_SECONDS: Final = 0.5
_ATTEMPTS: Final = 3

_log = get_logger(__name__)


class Scheduler(beat.Scheduler):
    """Given to Celery's beat as ``beat_scheduler``."""

    def __init__(self, app: Any, *args: Any, lazy: bool = False, **options: Any) -> None:
        self._store: Keeper | None = None
        self._owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._leader: Leader | None = None
        self._trouble = ""
        super().__init__(app, *args, lazy=lazy, **options)
        self.max_interval = _TURN_SECONDS

    @property
    def store(self) -> Keeper:
        if self._store is None:
            self._store = store_of(self.app)
        return self._store

    def setup_schedule(self) -> None:
        """Nothing is set up until this beat leads."""
        self.install_default_entries({})

    def update_from_dict(self, dict_: dict[str, Any]) -> None:
        """What Celery itself schedules: the cleaning of results, for backends that need it."""
        for name, table in dict_.items():
            self.app.conf.beat_schedule.setdefault(name, table)

    def tick(self, *_: Any, **__: Any) -> float:
        """One turn; returns for how many seconds to sleep."""
        try:
            waits = self._turn()
        except _Deposed:
            return 0.0
        except (StoreError, BrokerAway) as error:
            if self._trouble != str(error):
                _log.error("schedules wait: %s", error)
            self._trouble = str(error)
            return _TURN_SECONDS
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
        """Let another beat lead at once."""
        super().close()
        if self._store is not None:
            try:
                self._store.resign(self._owner)
            except StoreError as error:
                _log.warning("%s", error)
            self._store.close()

    @property
    def info(self) -> str:
        """A line of what Celery prints at the start; if the store can't be had, that is said here, and without ado."""
        self.store.entries()
        return f"    . schedules -> {self.store.place}"


class _Deposed(Exception):
    """Another beat leads by now."""


class Leader:
    """What the beat that leads does in a turn. ``token`` is its proof; ``now`` is the time, for tests to turn."""

    def __init__(self, app: Any, store: Keeper, owner: str, token: int, now: Callable[[], float] = time.time) -> None:
        self.token = token
        self._app = app
        self._store = store
        self._owner = owner
        self._clock = now
        self._renewed = time.monotonic()
        self._fixed: frozenset[str] = frozenset()
        self._name = app.weft.name if hasattr(app, "weft") else app.main or "weft"

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def install(self) -> None:
        """Bring what is in code and in ``weft.toml`` into the store; take out what is there no more."""
        fixed, wrong = fixed_entries(self._app)
        for text in wrong:
            _log.error("left out: %s", text)
        there = {kept.entry.name: kept for kept in self._store.entries()}
        for entry in fixed:
            kept = there.get(entry.name)
            if kept is not None and kept.entry.source == "command":
                _log.warning(
                    "schedule %r of %s is left out: weft schedule add made one of that name", entry.name, entry.source
                )
            elif kept is None:
                self._store.put(entry, fresh(entry, self._now()))
            elif kept.entry != entry:
                self._store.put(entry, replaced(kept, entry, self._now()), replace=True)
        self._fixed = frozenset(entry.name for entry in fixed)
        for kept in there.values():
            if kept.entry.source != "command" and kept.entry.name not in self._fixed and not wrong:
                self._store.remove(kept.entry.name)

    def turn(self) -> float:
        """Send what is due. Returns the seconds until there may be more.

        :raises StoreError: the store is away.
        :raises BrokerAway: the broker is; what is due stays so.
        """
        kept = {each.entry.name: each for each in self._store.entries()}
        if not self._fixed <= kept.keys():
            _log.warning("the store has lost schedules; those of code and weft.toml are brought there again")
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
        until = (min(nexts) - self._now()).total_seconds() if nexts else _TURN_SECONDS
        return max(0.0, min(until, _TURN_SECONDS))

    def _take(self, kept: dict[str, Kept], name: str, *, behind: bool) -> tuple[Fire, ...]:
        """Move an entry that is due on, and write down its fires."""
        entry, state = kept[name].entry, kept[name].state
        now = self._now()
        try:
            planned = plan(entry, state.next, now)
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
        fires = tuple(fire(self._name, name, each) for each in due)
        return fires if self._change(kept, name, msgspec.structs.replace(state, **changes), add=fires) else ()

    def _try(self, kept: dict[str, Kept], each: Fire) -> None:
        """Send a fire that is written down, unless it has to wait."""
        if each.entry not in kept:
            return
        entry, state = kept[each.entry].entry, kept[each.entry].state
        now = self._now()
        if state.paused:
            return
        if too_late(entry, each.due, now):
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
            # It would not go better the next time, and others wait.
            _log.exception("schedule %s can't be sent", entry.name)
            changes["note"] = f"{type(error).__name__}: {error}"
        else:
            _log.info("schedule %s, due %s: sent %s (%s)", entry.name, each.due, entry.task, each.id)
            changes |= {"last": each.due, "sent": state.sent + 1, "open": each.id, "opened": now}
        self._strike_off(kept, each, changes)

    def _strike_off(self, kept: dict[str, Kept], each: Fire, changes: dict[str, Any]) -> None:
        """It is sent: that must be known, also if someone has just paused or changed the entry."""
        for _ in range(_ATTEMPTS):
            if self._change(kept, each.entry, msgspec.structs.replace(kept[each.entry].state, **changes), drop=(each,)):
                return
            found = [there for there in self._store.entries() if there.entry.name == each.entry]
            if not found:
                return
            kept[each.entry] = found[0]

    def _renew(self) -> None:
        """A turn with much to send may take longer than the lease."""
        if time.monotonic() - self._renewed > _TURN_SECONDS:
            if self._store.lead(self._owner, LEASE_SECONDS) != self.token:
                raise _Deposed
            self._renewed = time.monotonic()

    def _is_busy(self, entry: Entry, state: State, now: datetime) -> bool:
        """Whether the fire that was sent last is not over."""
        if not state.open or state.opened is None:
            return False
        match self._store.marks([state.open])[0]:
            case Mark.RUNNING | Mark.WAITING:
                return True
            case Mark.NONE:
                return now - state.opened < timedelta(seconds=entry.patience)
        return False

    def _change(
        self, kept: dict[str, Kept], name: str, after: State, add: tuple[Fire, ...] = (), drop: tuple[Fire, ...] = ()
    ) -> bool:
        """False if another beat leads, or someone has just changed the entry: the next turn sees what there is."""
        done = self._store.change(name, kept[name].state, after, token=self.token, add=add, drop=drop)
        if done:
            kept[name] = Kept(kept[name].entry, after)
        return done


def replaced(kept: Kept, entry: Entry, now: datetime) -> State:
    """How an entry stands whose definition was changed: if not in when it is due, as before."""
    if kept.entry.when == entry.when:
        return kept.state
    return msgspec.structs.replace(kept.state, next=fresh(entry, now).next)

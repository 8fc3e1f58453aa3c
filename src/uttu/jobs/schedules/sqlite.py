"""The schedule store in a SQLite file, for the beats, workers and commands of one machine.

    entry      name → the schedule and its state, JSON; the state is compared as a whole before it is changed
    fire       id → a run to be sent, JSON
    leader     one row: owner, token, until
    mark       run id → state (running, waiting, over), owner, until, and how long it is kept
    alone      schedule → the active run, if runs must not overlap, and until when

Each operation is a transaction that begins with the write lock, and reads the clock under it, so times are in the order
of the operations. They are seconds since 1970 by the clock of this machine. A lease that lasts longer than it was given
for, by more than ``_CLOCK_TOLERANCE_SECONDS``, was written before the clock was set back, and counts as expired. Two
beats may then both believe for a moment that they lead, but the token of the older one is refused.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from uttu import former
from uttu.errors import StoreError
from uttu.jobs.schedules.base import BeginResult, RunState
from uttu.jobs.schedules.schedule import Schedule, ScheduledRun, ScheduleState, StoredSchedule

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entry (name TEXT PRIMARY KEY, entry TEXT NOT NULL, state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fire (id TEXT PRIMARY KEY, entry TEXT NOT NULL, fire TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leader (one INTEGER PRIMARY KEY CHECK (one = 1), owner TEXT, token INTEGER, until REAL);
CREATE TABLE IF NOT EXISTS mark (
    fire TEXT PRIMARY KEY, state TEXT NOT NULL, owner TEXT NOT NULL, until REAL NOT NULL, keep REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS mark_keep ON mark (keep);
CREATE TABLE IF NOT EXISTS alone (entry TEXT PRIMARY KEY, fire TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
"""
_BUSY_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.01
_CLOCK_TOLERANCE_SECONDS: Final = 1.0
# How long a mark is kept after its last renewal: long enough for any broker to deliver the task again.
_KEEP_SECONDS: Final = 86_400.0


class SqliteScheduleStore:
    """See :mod:`uttu.jobs.schedules.base`. A forked process opens a new connection."""

    def __init__(self, path: Path, time: Callable[[], float] = time.time) -> None:
        self.place = f"sqlite:{path}"
        self._path = path
        self._time = time
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._lock = threading.RLock()

    def entries(self) -> list[StoredSchedule]:
        with self._transaction() as do:
            rows = do("SELECT entry, state FROM entry ORDER BY name").fetchall()
        return [StoredSchedule(_decode(entry, Schedule), _decode(state, ScheduleState)) for entry, state in rows]

    def put(self, entry: Schedule, state: ScheduleState, *, replace: bool = False) -> bool:
        conflict = "REPLACE" if replace else "IGNORE"
        with self._transaction() as do:
            row = (entry.name, _encode(entry), _encode(state))
            return do(f"INSERT OR {conflict} INTO entry VALUES (?, ?, ?)", row).rowcount == 1

    def remove(self, name: str) -> bool:
        with self._transaction() as do:
            do("DELETE FROM fire WHERE entry = ?", (name,))
            return do("DELETE FROM entry WHERE name = ?", (name,)).rowcount == 1

    def change(
        self,
        name: str,
        before: ScheduleState,
        after: ScheduleState,
        *,
        token: int | None = None,
        add: Iterable[ScheduledRun] = (),
        drop: Iterable[ScheduledRun] = (),
    ) -> bool:
        with self._transaction() as do:
            if token is not None and not do("SELECT 1 FROM leader WHERE token = ?", (token,)).fetchone():
                return False
            row = (_encode(after), name, _encode(before))
            if do("UPDATE entry SET state = ? WHERE name = ? AND state = ?", row).rowcount != 1:
                return False
            for run in add:
                do("INSERT OR REPLACE INTO fire VALUES (?, ?, ?)", (run.id, run.entry, _encode(run)))
            for run in drop:
                do("DELETE FROM fire WHERE id = ?", (run.id,))
            return True

    def runs(self) -> list[ScheduledRun]:
        with self._transaction() as do:
            rows = do("SELECT fire FROM fire").fetchall()
        return sorted((_decode(text, ScheduledRun) for (text,) in rows), key=lambda run: run.due)

    def lead(self, owner: str, seconds: float) -> int | None:
        with self._transaction() as do:
            now = self._time()
            former, token, until = do("SELECT owner, token, until FROM leader").fetchone() or ("", 0, 0.0)
            held = now < until <= now + seconds + _CLOCK_TOLERANCE_SECONDS
            if held and former != owner:
                return None
            token = int(token) + (not held)
            do("INSERT OR REPLACE INTO leader VALUES (1, ?, ?, ?)", (owner, token, now + seconds))
            do("DELETE FROM mark WHERE keep < ?", (now,))
            return token

    def resign(self, owner: str) -> None:
        with self._transaction() as do:
            do("UPDATE leader SET until = 0 WHERE owner = ?", (owner,))

    def begin(self, run_id: str, owner: str, seconds: float, alone: str = "") -> BeginResult:
        with self._transaction() as do:
            now = self._time()
            state, until = do("SELECT state, until FROM mark WHERE fire = ?", (run_id,)).fetchone() or ("", 0.0)
            if state == RunState.OVER:
                return BeginResult.OVER
            longest = now + seconds + _CLOCK_TOLERANCE_SECONDS
            if state == RunState.RUNNING and now < until <= longest:
                return BeginResult.BUSY
            if alone:
                row = (alone, run_id, now, longest)
                if do("SELECT 1 FROM alone WHERE entry = ? AND fire != ? AND until > ? AND until <= ?", row).fetchone():
                    return BeginResult.BUSY
                do("INSERT OR REPLACE INTO alone VALUES (?, ?, ?)", (alone, run_id, now + seconds))
            mark = (run_id, RunState.RUNNING, owner, now + seconds, now + _KEEP_SECONDS)
            do("INSERT OR REPLACE INTO mark VALUES (?, ?, ?, ?, ?)", mark)
            return BeginResult.NOW

    def extend(self, run_id: str, owner: str, seconds: float, alone: str = "") -> bool:
        with self._transaction() as do:
            now = self._time()
            row = (now + seconds, now + _KEEP_SECONDS, run_id, owner)
            if do("UPDATE mark SET until = ?, keep = ? WHERE fire = ? AND owner = ?", row).rowcount != 1:
                return False
            if alone:
                do("INSERT OR REPLACE INTO alone VALUES (?, ?, ?)", (alone, run_id, now + seconds))
            return True

    def end(self, run_id: str, owner: str, keep_seconds: float, alone: str = "", *, again: bool = False) -> None:
        with self._transaction() as do:
            until = self._time() + keep_seconds
            (former,) = do("SELECT owner FROM mark WHERE fire = ?", (run_id,)).fetchone() or ("",)
            if former and former != owner:
                return
            state = RunState.WAITING if again else RunState.OVER
            do("INSERT OR REPLACE INTO mark VALUES (?, ?, '', ?, ?)", (run_id, state, until, until))
            do("DELETE FROM alone WHERE entry = ? AND fire = ?", (alone, run_id))

    def marks(self, run_ids: Sequence[str]) -> list[RunState]:
        states = []
        with self._transaction() as do:
            now = self._time()
            for run_id in run_ids:
                state, until = do("SELECT state, until FROM mark WHERE fire = ?", (run_id,)).fetchone() or ("none", 0.0)
                lapsed = state in (RunState.RUNNING, RunState.WAITING) and until <= now
                states.append(RunState.LAPSED if lapsed else RunState(state))
        return states

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        try:
            with self._lock:
                connection = self._open()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection.execute
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"Cannot read or write the schedules in {self._path}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is None or self._process != os.getpid():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            _set_up(connection)
            self._connection, self._process = connection, os.getpid()
        return self._connection


def _set_up(connection: sqlite3.Connection) -> None:
    """Choose the write-ahead log, and create the tables.

    If several processes open a new file at once, SQLite fails at once instead of waiting for the lock while one of them
    changes to the write-ahead log. So it is tried again for ``_BUSY_SECONDS``.
    """
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; {_SCHEMA}")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                connection.close()
                raise
        time.sleep(_RETRY_SECONDS)


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _decode(text: str, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(former.rename_schedule(text.encode()), type=kind)
    except msgspec.MsgspecError as error:
        raise StoreError(f"A schedule was written by another version of Uttu: {error}") from error

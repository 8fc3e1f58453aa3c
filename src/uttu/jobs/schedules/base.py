"""The contract of schedule stores: the schedules, the leader among several beats, and the runs that have started.

Beats and commands use a :class:`ScheduleStore`, workers use :class:`RunMarks`; one object implements both. A schedule
runs once for each time it is due:

1. The leading beat sees that a schedule is due. One ``change`` moves its next time on and stores the runs that follow.
   The store refuses the change if another beat leads by now (its token is higher), or if the state has changed since it
   was read. So no due time is used twice, and none is skipped.
2. The beat sends each run, and another ``change`` deletes it. If the beat dies in between, the next leader finds the
   run and sends it again: nothing is lost, but a task may reach the broker twice, with the same id.
3. A worker that gets a run calls ``begin`` first. A run that has ended, or is active elsewhere, does not start again.

Marks are leases that are renewed while the task runs, so a killed worker blocks the schedule for seconds only. If the
broker delivers the task of a killed worker again, its mark has lapsed and the task runs again, as its author chose with
late acknowledgement.

Leases use the store's clock: a beat with a wrong clock may be late, but never leads beside another. All methods raise
:class:`~uttu.errors.StoreError` if the store cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Protocol

from uttu.jobs.schedules.schedule import Schedule, ScheduledRun, ScheduleState, StoredSchedule


class BeginResult(StrEnum):
    """The answer to a worker that wants to start a run."""

    NOW = "now"
    """Start it, and extend the mark while it runs."""
    OVER = "over"
    """It has ended: drop it."""
    BUSY = "busy"
    """It is active elsewhere, or another run of its schedule is and they must not overlap: ask again later."""


class RunState(StrEnum):
    """The state of a run that was sent."""

    NONE = "none"
    """No worker has started it, or its mark was deleted."""
    RUNNING = "running"
    WAITING = "waiting"
    """It has run and will be started again: a retry, or the next slice."""
    LAPSED = "lapsed"
    """It was started, and its worker stopped renewing the mark."""
    OVER = "over"


class ScheduleStore(Protocol):
    """Schedules with their states, runs to send, and leadership."""

    @property
    def place(self) -> str:
        """The address of the store, without a password."""

    def entries(self) -> list[StoredSchedule]:
        """Return all schedules, by name."""

    def put(self, entry: Schedule, state: ScheduleState, *, replace: bool = False) -> bool:
        """Add a schedule. If the name exists: replace it and its state with ``replace``, else return False."""

    def remove(self, name: str) -> bool:
        """Remove a schedule and its runs that were not sent; False if the name does not exist."""

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
        """Change the state of a schedule, and add or delete runs, atomically.

        Return False and change nothing if the schedule does not exist, its state is not ``before``, or ``token`` is not
        the leader's.
        """

    def runs(self) -> list[ScheduledRun]:
        """Return the runs that were added and not deleted, the earliest first."""

    def lead(self, owner: str, seconds: float) -> int | None:
        """Lead for ``seconds`` from now; return the token, or None if another beat leads.

        A leader that calls it again keeps its token. A new leader gets a higher token than all before.
        """

    def resign(self, owner: str) -> None:
        """Stop leading; ignored if ``owner`` does not lead."""


class RunMarks(Protocol):
    """The marks that workers set on runs."""

    def begin(self, run_id: str, owner: str, seconds: float, alone: str = "") -> BeginResult:
        """Start a run and hold its mark for ``seconds``.

        :param alone: the name of a schedule whose runs must not overlap; empty if they may.
        """

    def extend(self, run_id: str, owner: str, seconds: float, alone: str = "") -> bool:
        """Hold the mark for ``seconds`` from now; False if another owner has it."""

    def end(self, run_id: str, owner: str, keep_seconds: float, alone: str = "", *, again: bool = False) -> None:
        """Mark a run as ended, or with ``again`` as waiting to be started again. The mark is kept for ``keep_seconds``.

        With an empty ``owner``, the run ends before any worker started it.
        """

    def marks(self, run_ids: Sequence[str]) -> list[RunState]:
        """Return the state of each run."""

    def close(self) -> None:
        """Close connections. The next call opens them again."""


class ScheduleBackend(ScheduleStore, RunMarks, Protocol):
    """A schedule store with run marks."""

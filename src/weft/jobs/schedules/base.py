"""The contract of stores: where schedules are kept, who of several beats leads, and which fires have run.

Beats and commands use a :class:`Store`, workers use :class:`Marks`; one object is both. How a schedule fires, and why
it does so once:

1. The beat that leads sees that an entry is due. With one ``change`` it moves the entry's next time on and writes down
   the fires that follow from it. The store refuses that if another beat leads by now (its token is newer), or if the
   state is not the one that was looked at. So no time is taken twice, and none is passed over.
2. It sends each fire, and with another ``change`` strikes it off. If it dies in between, the next leader finds the fire
   and sends it again: nothing is lost, but a task may reach the broker twice, under the same id.
3. A worker that gets a fire asks ``begin`` first. One that has run, or runs elsewhere, does not run again.

Marks are leases, renewed while the task runs: a worker that was killed holds up the schedule for seconds, not for
ever. A task that the broker hands out again because its worker was killed finds the mark lapsed and runs again, as its
author chose by acknowledging late.

Times that decide on leases are the store's own; a beat whose clock is wrong may be late, but not lead together with
another. All methods raise :class:`~weft.errors.StoreError` if the store can't be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Protocol

from weft.jobs.schedules.entry import Entry, Fire, Kept, State


class Begun(StrEnum):
    """The answer to a worker that wants to run a fire."""

    NOW = "now"
    """Run it, and extend the mark."""
    OVER = "over"
    """It has run: drop it."""
    BUSY = "busy"
    """It runs elsewhere, or another fire of its entry does and they must not overlap: ask again later."""


class Mark(StrEnum):
    """How far a fire is that was sent."""

    NONE = "none"
    """No worker has begun it, or it is not known any more."""
    RUNNING = "running"
    WAITING = "waiting"
    """It has run, and will again: a retry, or the next slice."""
    LAPSED = "lapsed"
    """It ran, and its worker was not heard of again."""
    OVER = "over"


class Store(Protocol):
    """Entries with their states, fires that are to be sent, and leadership."""

    @property
    def place(self) -> str:
        """Where it is, as it may be shown."""

    def entries(self) -> list[Kept]:
        """All of them, by name."""

    def put(self, entry: Entry, state: State, *, replace: bool = False) -> bool:
        """Add an entry. With ``replace`` one of that name is replaced, its state too; else False if there is one."""

    def remove(self, name: str) -> bool:
        """Remove an entry and the fires of it that were not sent; False if there is none."""

    def change(
        self,
        name: str,
        before: State,
        after: State,
        *,
        token: int | None = None,
        add: Iterable[Fire] = (),
        drop: Iterable[Fire] = (),
    ) -> bool:
        """Give an entry another state, and write down or strike off fires: all of it, or nothing and False.

        It is refused if the entry is gone, its state is not ``before``, or ``token`` is not that of the leader.
        """

    def fires(self) -> list[Fire]:
        """What was written down and not struck off, the earliest first."""

    def lead(self, owner: str, seconds: float) -> int | None:
        """Lead for so long, from now: the token; None if another does.

        Whoever leads already goes on with the same token. A new leader's is higher than all before.
        """

    def resign(self, owner: str) -> None:
        """Stop leading, if one does."""


class Marks(Protocol):
    """What workers say about fires."""

    def begin(self, fire: str, owner: str, seconds: float, alone: str = "") -> Begun:
        """Run a fire, and hold it for so long. ``alone`` is the entry of which only one fire may run at a time."""

    def extend(self, fire: str, owner: str, seconds: float, alone: str = "") -> bool:
        """Hold it for so long from now; False if it was lost to another."""

    def end(self, fire: str, owner: str, keep_seconds: float, alone: str = "", *, again: bool = False) -> None:
        """It is over, or with ``again``: it will be begun again. This is known for so long.

        Without an ``owner``, it is over before anyone began it.
        """

    def marks(self, fires: Sequence[str]) -> list[Mark]:
        """How far each of them is."""

    def close(self) -> None:
        """Give up connections. The next call opens them again."""


class Keeper(Store, Marks, Protocol):
    """Both."""

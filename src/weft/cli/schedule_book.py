"""The schedules that a command is about: those in the store, and those that no beat has brought there yet."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.jobs_celery import app_of
from weft.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from weft.jobs.schedules.base import Keeper
    from weft.jobs.schedules.entry import Kept, State

Name = Annotated[str, typer.Argument(help="The schedule's name.", metavar="NAME", show_default=False)]

_ATTEMPTS = 10


class Book:
    """All schedules of an app. ``installed`` are the names of those that the store has."""

    def __init__(self, app: Any, store: Keeper) -> None:
        from weft.jobs.schedules.entry import Kept, fresh
        from weft.jobs.schedules.opening import fixed_entries

        self.app = app
        self.store = store
        kept = {each.entry.name: each for each in store.entries()}
        self.installed = frozenset(kept)
        fixed, self.wrong = fixed_entries(app)
        for entry in fixed:
            if entry.name not in kept:
                kept[entry.name] = Kept(entry, fresh(entry, now()))
        self.all = dict(sorted(kept.items()))

    def find(self, name: str) -> Kept:
        """:raises ConfigError: there is none of that name."""
        import difflib

        if name in self.all:
            return self.all[name]
        close = difflib.get_close_matches(name, self.all, n=1)
        what = f"did you mean {close[0]!r}?" if close else "see weft schedule ls"
        raise ConfigError(f"there is no schedule {name!r}; {what}")

    def change(self, name: str, changed: Callable[[Kept], State]) -> State:
        """Give a schedule another state, also while a beat does.

        :raises ConfigError: there is none of that name.
        """
        from weft.jobs.schedules.entry import Kept

        kept = self.find(name)
        if name not in self.installed and self.store.put(kept.entry, changed(kept)):
            return changed(kept)
        for _ in range(_ATTEMPTS):
            there = {each.entry.name: each for each in self.store.entries()}
            if name not in there:
                raise ConfigError(f"schedule {name!r} was removed just now")
            found = Kept(there[name].entry, there[name].state)
            after = changed(found)
            if self.store.change(name, found.state, after):
                return after
        raise StoreError(f"schedule {name!r} is changed all the time by others: try again")


@contextlib.contextmanager
def opened(ctx: typer.Context) -> Iterator[Book]:
    """The schedules of the app that the command is about.

    :raises ConfigError: the app can't be had.
    :raises StoreError: the store can't be reached.
    """
    from weft.jobs.schedules import store_of

    app = app_of(ctx)
    store = store_of(app)
    try:
        yield Book(app, store)
    finally:
        store.close()


def now() -> datetime:
    return datetime.now(UTC)

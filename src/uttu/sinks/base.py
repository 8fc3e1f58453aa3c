"""The Sink contract.

The outbox holds the items; an output is a view of it. A sink gets the items in order, batch by batch. After each
batch it returns a *state*: the bytes it needs to resume from there (for a file: its length). The engine stores the
state with the position in the outbox. After a crash it opens the sink with the stored state; the sink discards
everything it wrote after that state and gets those items again.

If a sink cannot return to that state (the file was deleted, an item has a new column), it raises :class:`Restart` and
gets all items from the start. A sink that does this in normal operation sets ``needs_all`` to True; while it is in use,
no item is removed from the outbox.

An empty state always means the start: a sink that is opened with one gets every item. A sink that can recognise items
it already has (a table with a key) may return a constant.

Sinks are plain blocking code; the engine runs each in a separate thread. After any error, the engine opens a sink again
before it writes to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from uttu.frontier.base import StoredItem


class Restart(Exception):
    """Raised by a sink that needs all items from the first one. It is opened again with an empty state."""


def needs_all(sink: Sink) -> bool:
    """Whether the sink may ask for all items although its output was not modified from outside."""
    return bool(getattr(sink, "needs_all", False))


def replaces_file(sink: Sink) -> bool:
    """Whether the sink writes one file, with its path as name, that it replaces when it starts from scratch.

    Such a sink sets ``replaces_file`` to True. Uttu then refuses to replace files that another program wrote.
    """
    return bool(getattr(sink, "replaces_file", False))


class Sink(Protocol):
    """One output. ``name`` is the key of its cursor: for a file, the absolute path."""

    name: str

    def open(self, state: bytes) -> None:
        """Prepare to continue after ``state``, the stored state of the last batch; empty means start from scratch.

        Must undo everything that was written after that state. May be called on a sink that is already open.

        :raises Restart: the sink cannot return to that state.
        :raises SinkError: the output cannot be written.
        """

    def write(self, items: Sequence[StoredItem]) -> bytes:
        """Write a batch, never empty, durably; return the state after it.

        :raises Restart: this batch needs a layout that the output does not have.
        :raises SinkError: the output cannot be written.
        """

    def close(self, finished: bool) -> None:
        """End this run. ``finished``: the crawl is over, so complete the output.

        Also called after a failed ``open`` or ``write``, with ``finished`` False, to release resources.

        :raises SinkError: the output cannot be completed.
        """

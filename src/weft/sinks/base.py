"""The Sink's contract.

The outbox is the truth, an output is a view of it. A sink is handed the items in order, batch by
batch, and says after each what it needs to know to go on from there (a file: its length). That
note is kept with the position, so after a crash the sink is opened with the note of the last
batch that counted, throws away what it wrote after it, and gets those items again. What it can't
bring back into that state (the file was deleted, a new column appeared) it asks to be handed
again from the start.

An empty note always means the start: a sink that is opened with one gets every item. A sink whose
items have their own identity (a table with a key) needs no other note than some fixed word.

Sinks are plain blocking code; the engine runs them in a thread of their own. After any error a
sink is not written to again before it was opened again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weft.frontier.base import StoredItem


class Restart(Exception):
    """Raised by a sink that needs all items again, from the first; it is reopened with an empty note."""


class Sink(Protocol):
    """One output. ``name`` is the key under which its cursor is kept: for a file, its absolute path."""

    name: str

    def open(self, state: bytes) -> None:
        """Get ready to go on after ``state``, the note of the last batch that counted; empty: start anew.

        Must undo whatever was written after that note. A sink that is open already is opened again.

        :raises Restart: that state can't be reached any more.
        :raises SinkError: the output can't be written.
        """

    def write(self, items: Sequence[StoredItem]) -> bytes:
        """Write a batch, never empty, so that it survives a crash, and return the note for it.

        :raises Restart: this batch needs a layout the output does not have.
        :raises SinkError: the output can't be written.
        """

    def close(self, finished: bool) -> None:
        """No more items in this run. ``finished``: the crawl is over, complete the output.

        Also called when opening or writing failed, then not ``finished``, to release what is held.

        :raises SinkError: the output can't be completed.
        """

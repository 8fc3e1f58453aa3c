"""From the outbox to the sinks.

For each sink, in this order: the batch is durable in the sink, then its note and position are
stored. A crash between the two leaves a sink that is ahead of its cursor, and a sink undoes what
is ahead when it is opened. The same holds for anything that goes wrong in between without a
crash (a store that can't be written, a cancelled task): a sink counts as ready only while it and
its cursor agree, otherwise the next step opens it again from the cursor.

Exactly one drains a sink at a time, wherever it runs: see :mod:`weft.engine.line`.

Memory holds one batch, limited in bytes as well as in items.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from weft.engine.line import Aside, Line
from weft.engine.tasks import called
from weft.errors import SinkError, UsageError
from weft.frontier.base import Ledger, Outbox
from weft.sinks.base import Sink

INTERVAL_SECONDS: Final = 0.3


def check_distinct(sinks: Sequence[Sink]) -> None:
    """:raises UsageError: two of them are one and the same."""
    names = [sink.name for sink in sinks]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"the output {name} is given twice; leave one out")


class Drain:
    """Keeps outputs of one crawl up to date with its outbox.

    A sink that fails is left alone for the rest of the run, the others go on; its error is in
    :attr:`errors` at once and raised by :meth:`finish`. What the sink missed waits in the outbox.

    A sink that another drains is waited for beside the work, and taken over when the other is gone.
    ``owner`` names this drain; no other living one has this name.
    """

    def __init__(self, outbox: Outbox, sinks: Sequence[Sink], ledger: Ledger, owner: str) -> None:
        check_distinct(sinks)
        self._lines = [Line(outbox, sink, ledger, owner) for sink in sinks]

    @property
    def errors(self) -> list[SinkError]:
        """What went wrong so far; at most one error a sink."""
        return [line.error for line in self._lines if line.error is not None]

    @property
    def elsewhere(self) -> dict[str, str]:
        """The sinks that others drain, and who does."""
        return {line.name: line.elsewhere for line in self._lines if line.elsewhere}

    @property
    def moved(self) -> int:
        """How many items went to the sinks, in all."""
        return sum(line.moved for line in self._lines)

    async def open(self) -> None:
        """Open every sink where it stopped, but for those that others drain (:attr:`elsewhere`).

        Call it before the crawl starts, to fail early.

        :raises SinkError: one can't be written; the others are closed again.
        :raises StoreError: the outbox can't be read or written.
        """
        try:
            for line in self._lines:
                await line.open()
            self._raise_errors()
        except BaseException:
            await self._close(finished=False)
            raise

    async def run(self, stop: asyncio.Event) -> None:
        """Move items as they come, until ``stop`` is set. Follow it with :meth:`finish` or :meth:`close`.

        :raises StoreError: the outbox can't be read or written.
        """
        while not stop.is_set():
            behind = [await line.step() for line in self._lines]
            if not any(behind):
                await called(stop, INTERVAL_SECONDS)

    async def finish(self, finished: bool) -> None:
        """Move what is left and close the sinks. ``finished``: the crawl is over.

        What a living other drains is left to it. The claim of one that may be dead is waited for.

        :raises SinkError: a sink failed, now or earlier. The others are complete.
        :raises StoreError: the outbox can't be read or written.
        """
        try:
            for line in self._lines:
                while await line.step() or not (line.is_claimed or line.is_left):
                    if not line.is_claimed:
                        await asyncio.sleep(INTERVAL_SECONDS)
        except BaseException:
            await self._close(finished=False)
            raise
        await self._close(finished)
        self._raise_errors()

    async def close(self) -> None:
        """Close the sinks where they are; what is left waits in the outbox.

        :raises SinkError: a sink failed, now or earlier.
        """
        await self._close(finished=False)
        self._raise_errors()

    async def _close(self, finished: bool) -> None:
        for line in self._lines:
            await line.close(finished)

    def _raise_errors(self) -> None:
        errors = self.errors
        if len(errors) > 1:
            raise SinkError("\n".join(map(str, errors))) from errors[0]
        if errors:
            raise errors[0]


async def export(outbox: Outbox, sink: Sink) -> int:
    """Write all items from the first to ``sink``, beside the crawl's own outputs; returns how many.

    The cursors are not touched.

    :raises SinkError: it can't be written.
    :raises StoreError: the outbox can't be read.
    """
    line = Line(Aside(outbox), sink)
    try:
        while await line.step():
            pass
    except BaseException:
        await line.close(finished=False)
        raise
    await line.close(finished=True)
    if line.error is not None:
        raise line.error
    return line.count

"""Copy a crawl's items from its outbox to its sinks.

:class:`Exporter` runs inside the crawl's supervisor and writes all of its outputs. :class:`ItemFollower` writes one
output from another process for as long as the crawl runs (``uttu export --follow``). :func:`export` writes all items
once, without touching cursors. Each sink has a :class:`~uttu.engine.sink_writer.SinkWriter`; see there for the order of
writes and for who may write.

Memory holds one batch per sink, limited in bytes and in items.

Items that all sinks have are removed from the outbox, except the latest ``keep``. The store reads the cursors itself in
the same transaction, so nothing is removed that a sink does not have, however this process ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from uttu.engine.aio import wait_for_event
from uttu.engine.heartbeat import is_at_work
from uttu.engine.sink_writer import Claim, DetachedOutbox, SinkWriter
from uttu.errors import SinkError, UsageError
from uttu.frontier.base import Frontier, Ledger, Outbox
from uttu.model.crawl import CrawlState
from uttu.sinks.base import Sink

INTERVAL_SECONDS: Final = 0.3
_TRIM_PAUSE_SECONDS: Final = 0.03
_LAST_STEPS: Final = 1000  # the most trim steps when the crawl is over


def check_distinct(sinks: Sequence[Sink]) -> None:
    """Check that no two sinks have the same name.

    :raises UsageError: two do.
    """
    names = [sink.name for sink in sinks]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"The output {name} is given twice. Remove one")


class Exporter:
    """Keeps the outputs of one crawl up to date with its outbox.

    A sink that fails is not written for the rest of the run; the others continue. Its error appears in :attr:`errors`
    at once and is raised by :meth:`finish`. The items that the sink missed wait in the outbox.

    If another process writes a sink, the exporter checks in every step whether it can take the sink over.

    :param owner: Names this exporter in its claims; unique among living processes.
    :param keep: How many of the latest items stay in the outbox after all sinks have them; 0 keeps all items. Without
        sinks, all items stay as well.
    """

    def __init__(self, outbox: Outbox, sinks: Sequence[Sink], ledger: Ledger, owner: str, *, keep: int = 0) -> None:
        check_distinct(sinks)
        self._outbox = outbox
        self._keep = keep
        self._trim_at = 1.0  # loop time of the next trim step; 0: at once, because the last step left items to remove
        self._lines = [SinkWriter(outbox, sink, ledger, owner) for sink in sinks]

    @property
    def errors(self) -> list[SinkError]:
        """The errors so far, at most one per sink."""
        return [line.error for line in self._lines if line.error is not None]

    @property
    def elsewhere(self) -> dict[str, str]:
        """The sinks that other processes write, with the owner of each."""
        return {line.name: line.elsewhere for line in self._lines if line.elsewhere}

    @property
    def moved(self) -> int:
        """How many items were written to all sinks together."""
        return sum(line.moved for line in self._lines)

    async def open(self) -> None:
        """Open every sink at its cursor, except those that other processes write (:attr:`elsewhere`).

        Call it before the crawl starts, to fail early.

        :raises SinkError: a sink can't be written; all sinks are closed.
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
            await self._trim()
            if not any(behind):
                await self._rest(stop)

    async def finish(self, finished: bool) -> None:
        """Move the remaining items and close the sinks.

        Sinks that a living process writes are left to it. If the owner may be dead, wait until its claim expires.

        :param finished: The crawl is over, so the sinks may complete their output.
        :raises SinkError: a sink failed, now or earlier. The others are complete.
        :raises StoreError: the outbox can't be read or written.
        """
        try:
            for line in self._lines:
                while await line.step() or not (line.is_claimed or line.is_left):
                    await self._trim()
                    if not line.is_claimed:
                        await asyncio.sleep(INTERVAL_SECONDS)
            self._trim_at = 0.0
            for _ in range(_LAST_STEPS):
                await self._trim()
                if not self._is_trimming:
                    break
        except BaseException:
            await self._close(finished=False)
            raise
        await self._close(finished)
        self._raise_errors()

    async def close(self) -> None:
        """Close the sinks at their cursors; the remaining items wait in the outbox.

        :raises SinkError: a sink failed, now or earlier.
        """
        await self._close(finished=False)
        self._raise_errors()

    async def _rest(self, stop: asyncio.Event) -> None:
        """Wait ``INTERVAL_SECONDS`` for the next batch, because each batch costs a sync to disk.

        Meanwhile remove exported items from the outbox, with pauses so that the rest of the process can run.
        """
        now = asyncio.get_running_loop().time
        end = now() + INTERVAL_SECONDS
        while self._is_trimming and not stop.is_set() and now() < end:
            await wait_for_event(stop, _TRIM_PAUSE_SECONDS)
            await self._trim()
        await wait_for_event(stop, max(0.0, end - now()))

    @property
    def _is_trimming(self) -> bool:
        return self._trim_at == 0.0

    async def _trim(self) -> None:
        """Remove some exported items, if the last step left some or was ``INTERVAL_SECONDS`` ago."""
        now = asyncio.get_running_loop().time()
        if now < self._trim_at:
            return
        more = bool(self._keep and self._lines) and await self._outbox.trim(
            [line.name for line in self._lines], self._keep
        )
        self._trim_at = 0.0 if more else now + INTERVAL_SECONDS

    async def _close(self, finished: bool) -> None:
        for line in self._lines:
            await line.close(finished)

    def _raise_errors(self) -> None:
        errors = self.errors
        if len(errors) > 1:
            raise SinkError("\n".join(map(str, errors))) from errors[0]
        if errors:
            raise errors[0]


async def export(outbox: Outbox, sink: Sink, ledger: Ledger, owner: str) -> int:
    """Write all items, from the first one, to a sink that is not an output of the crawl; returns how many.

    The stored cursors are not touched, and no item is removed from the outbox meanwhile.

    :param owner: Names this export in its claim; unique among living processes.
    :raises SinkError: the sink can't be written, or items have been removed from the outbox.
    :raises StoreError: the outbox can't be read.
    """
    line, whole = SinkWriter(DetachedOutbox(outbox), sink), Claim(ledger, f"whole export {owner}", owner)
    await whole.take()
    try:
        return await _export(line)
    finally:
        await whole.give_up()


async def _export(line: SinkWriter) -> int:
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


_LOOK_SECONDS = 0.5


class ItemFollower:
    """Moves a crawl's items to one sink until the crawl ends or :meth:`stop` is called.

    The cursor is stored with the crawl. The next run continues there, however this one ended, and every item is in the
    sink once. While another process writes the same sink, the follower waits to take over.

    :param waiting: Called with the other owner when the follower starts to wait for it.
    """

    def __init__(
        self,
        *,
        frontier: Frontier,
        outbox: Outbox,
        ledger: Ledger,
        sink: Sink,
        owner: str,
        waiting: Callable[[str], None] = lambda owner: None,
    ) -> None:
        self._frontier = frontier
        self._ledger = ledger
        self._sink = sink
        self._drain = Exporter(outbox, [sink], ledger, owner)
        self._waiting = waiting
        self._over = asyncio.Event()
        self._told = False

    def stop(self) -> None:
        """Close the sink at its cursor and end :meth:`run`."""
        self._told = True
        self._over.set()

    async def run(self) -> int:
        """Move items until the crawl ends; returns how many were moved.

        The sink is completed if the crawl finished or reached a limit. A crawl that was stopped can be resumed, so its
        sink is only closed.

        :raises SinkError: the sink can't be written.
        :raises StoreError: the store can't be read or written.
        """
        await self._drain.open()
        watching = asyncio.create_task(self._watch())
        try:
            await self._drain.run(self._over)
            if not self._told:
                state = await watching
                await self._drain.finish(state.ended)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._drain.close()
        return self._drain.moved

    async def _watch(self) -> CrawlState:
        """Wait until the crawl has ended and no worker holds pages; returns its state."""
        said = ""
        try:
            while True:
                other = self._drain.elsewhere.get(self._sink.name, "")
                if other and other != said:
                    self._waiting(other)
                said = other
                if self._drain.errors:
                    raise self._drain.errors[0]
                state = (await self._ledger.facts()).state or CrawlState.RUNNING
                over = state in (CrawlState.STOPPED, CrawlState.LIMITED, CrawlState.FINISHED)
                if over and not await is_at_work(self._frontier, self._ledger):
                    return state
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._over.set()

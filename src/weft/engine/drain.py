"""From the outbox to the sinks.

For each sink, in this order: the batch is durable in the sink, then its note and position are
stored. A crash between the two leaves a sink that is ahead of its cursor, and a sink undoes what
is ahead when it is opened. The same holds for anything that goes wrong in between without a
crash (a store that can't be written, a cancelled task): a sink counts as ready only while it and
its cursor agree, otherwise the next step opens it again from the cursor.

Memory holds one batch, limited in bytes as well as in items.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from weft.errors import ConfigError, SinkError
from weft.frontier.base import Cursor, Outbox, StoredItem
from weft.sinks.base import Restart, Sink

INTERVAL_SECONDS: Final = 0.3
BATCH_ITEMS: Final = 1000
BATCH_BYTES: Final = 16 << 20
_FIRST_BATCH_ITEMS: Final = 100
_MAX_IDLE_RESTARTS: Final = 10

T = TypeVar("T")


class Drain:
    """Keeps the outputs of one crawl up to date with its outbox.

    A sink that fails is left alone for the rest of the run, the others go on; its error is in
    :attr:`errors` at once and raised by :meth:`finish`. What the sink missed waits in the outbox.
    """

    def __init__(self, outbox: Outbox, sinks: Sequence[Sink]) -> None:
        names = [sink.name for sink in sinks]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"the output {name} is given twice; leave one out")
        self._lines = [_Line(outbox, sink) for sink in sinks]
        self._poked = asyncio.Event()

    @property
    def errors(self) -> list[SinkError]:
        """What went wrong so far; at most one error a sink."""
        return [line.error for line in self._lines if line.error is not None]

    def poke(self) -> None:
        """There are new items: don't wait for the next round."""
        self._poked.set()

    async def open(self) -> None:
        """Open every sink where it stopped. Call it before the crawl starts, to fail early.

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
        """Move items as they come, until ``stop`` is set. Follow it with :meth:`finish`.

        :raises StoreError: the outbox can't be read or written.
        """
        while not stop.is_set():
            self._poked.clear()
            behind = [await line.step() for line in self._lines]
            if not any(behind):
                await _either(stop, self._poked, INTERVAL_SECONDS)

    async def finish(self, finished: bool) -> None:
        """Move what is left and close the sinks. ``finished``: the crawl is over.

        :raises SinkError: a sink failed, now or earlier. The others are complete.
        :raises StoreError: the outbox can't be read or written.
        """
        try:
            for line in self._lines:
                while await line.step():
                    pass
        except BaseException:
            await self._close(finished=False)
            raise
        await self._close(finished)
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
    line = _Line(_Aside(outbox), sink)
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


class _Line:
    """One sink and where it stands."""

    def __init__(self, outbox: Outbox, sink: Sink) -> None:
        self.error: SinkError | None = None
        self.count = 0  # items since the sink last started anew
        self._outbox = outbox
        self._sink = sink
        self._position = 0
        self._ready = False
        self._limit = _FIRST_BATCH_ITEMS
        self._furthest = 0
        self._idle_restarts = 0
        self._closed = False
        self._lock = asyncio.Lock()
        # One thread, so that a call whose awaiting task was cancelled is over before the next begins.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="weft-sink")

    async def open(self) -> None:
        """Open the sink from its cursor, unless it is ready."""
        async with self._lock:
            try:
                await self._ensure_ready()
            except SinkError as error:
                self.error = error

    async def step(self) -> bool:
        """Move one batch. True: there may be more at once."""
        async with self._lock:
            if self._closed or self.error is not None:
                return False
            try:
                return await self._move()
            except SinkError as error:
                self.error = error
                return False

    async def close(self, finished: bool) -> None:
        async with self._lock:
            if self._closed:
                return
            self._closed = True
            complete = finished and self.error is None
            try:
                await self._call(lambda: self._sink.close(complete))
            except SinkError as error:
                self.error = self.error or error
            self._thread.shutdown(wait=False)

    async def _move(self) -> bool:
        await self._ensure_ready()
        batch = await self._outbox.items(self._position, self._limit)
        if not batch:
            return False
        self._ready = False
        try:
            state = await self._call(lambda: self._sink.write(batch))
        except Restart as restart:
            self._count_restart(restart)
            await self._outbox.advance(self._sink.name, Cursor())
            return True
        position = batch[-1].position
        await self._outbox.advance(self._sink.name, Cursor(position, state))
        self._position, self._ready = position, True
        self.count += len(batch)
        full = len(batch) >= self._limit
        self._limit = _fitting(batch)
        return full

    async def _ensure_ready(self) -> None:
        if self._ready:
            return
        cursor = await self._outbox.cursor(self._sink.name)
        try:
            await self._call(lambda: self._sink.open(cursor.state))
        except Restart:
            cursor = Cursor()
            await self._outbox.advance(self._sink.name, cursor)
            try:
                await self._call(lambda: self._sink.open(b""))
            except Restart as again:
                raise SinkError(f"the output {self._sink.name} can't be started anew: {again}") from again
        # An empty note means the start, so the sink has nothing now, whatever the position says.
        self._position = cursor.position if cursor.state else 0
        if self._position == 0:
            self.count = 0
        self._ready = True

    def _count_restart(self, restart: Restart) -> None:
        """Restarts are fine as long as they get further each time; going round for ever is not."""
        if self._position > self._furthest:
            self._furthest, self._idle_restarts = self._position, 0
        self._idle_restarts += 1
        if self._idle_restarts > _MAX_IDLE_RESTARTS:
            raise SinkError(f"the output {self._sink.name} has to start anew again and again: {restart}") from restart

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (Restart, SinkError):
            raise
        except Exception as error:
            raise SinkError(f"the output {self._sink.name} failed: {type(error).__name__}: {error}") from error


class _Aside:
    """An outbox whose cursors are forgotten."""

    def __init__(self, outbox: Outbox) -> None:
        self._cursor = Cursor()
        self.items = outbox.items

    async def cursor(self, sink: str) -> Cursor:
        return self._cursor

    async def advance(self, sink: str, cursor: Cursor) -> None:
        self._cursor = cursor


def _fitting(batch: Sequence[StoredItem]) -> int:
    """How many items like these make a batch."""
    average = sum(len(item.json) for item in batch) // len(batch) + 1
    return max(1, min(BATCH_ITEMS, BATCH_BYTES // average))


async def _either(one: asyncio.Event, other: asyncio.Event, seconds: float) -> None:
    """Wait until one of two events is set, or for so long."""
    waits = [asyncio.ensure_future(event.wait()) for event in (one, other)]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()

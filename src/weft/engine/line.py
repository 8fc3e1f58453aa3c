"""One sink and where it stands; see :mod:`weft.engine.drain`.

A sink has one who writes to it at a time: the line claims it before it opens it, and keeps the claim while it works.
A line that lost its claim, because its process was stopped for too long, closes its sink, and opens it from the
cursor when it has the claim again: another may have moved both meanwhile. While another has it, it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from weft.engine.claims import CLAIM_SECONDS, Claim
from weft.errors import SinkError
from weft.frontier.base import Cursor, Ledger, Outbox, StoredItem
from weft.sinks.base import Restart, Sink

BATCH_ITEMS: Final = 1000
BATCH_BYTES: Final = 16 << 20
_FIRST_BATCH_ITEMS: Final = 100
_MAX_IDLE_RESTARTS: Final = 10

T = TypeVar("T")


class Line:
    """Moves items from an outbox to a sink. Without a ledger there is nobody to share the sink with."""

    def __init__(self, outbox: Outbox, sink: Sink, ledger: Ledger | None = None, owner: str = "") -> None:
        self.error: SinkError | None = None
        self.elsewhere = ""
        """Who else has the sink; empty if nobody has."""
        self.moved = 0
        self.count = 0  # items since the sink last started anew
        self._outbox = outbox
        self._sink = sink
        self._owner = owner
        self._claim = Claim(ledger, f"drain {sink.name}", owner) if ledger is not None else None
        self._refused_at = 0.0
        self._cursor = Cursor()
        self._position = 0
        self._open = self._ready = self._closed = False
        self._limit = _FIRST_BATCH_ITEMS
        self._furthest = 0
        self._idle_restarts = 0
        self._lock = asyncio.Lock()
        # One thread, so that a call whose awaiting task was cancelled is over before the next begins.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="weft-sink")

    @property
    def name(self) -> str:
        return self._sink.name

    @property
    def is_left(self) -> bool:
        """Whether there is nothing to do here: it has failed, or another, who is alive, has the sink."""
        if self.error is not None or self._closed:
            return True
        # A claim lasts longer than this only if it is renewed.
        return bool(self.elsewhere) and _now() - self._refused_at > CLAIM_SECONDS

    @property
    def is_claimed(self) -> bool:
        return self._claim is None or self._claim.held

    async def open(self) -> None:
        """Open the sink from its cursor, unless it is ready, or another has it."""
        async with self._lock:
            try:
                if await self._have_claim():
                    await self._ensure_ready()
            except SinkError as error:
                self.error = error

    async def step(self) -> bool:
        """Move one batch. True: there may be more at once."""
        async with self._lock:
            if self._closed or self.error is not None:
                return False
            try:
                return await self._have_claim() and await self._move()
            except SinkError as error:
                self.error = error
                return False

    async def close(self, finished: bool) -> None:
        async with self._lock:
            if self._closed:
                return
            self._closed = True
            complete = finished and self.error is None and self._ready and self.is_claimed
            try:
                await self._call(lambda: self._sink.close(complete))
            except SinkError as error:
                self.error = self.error or error
            self._thread.shutdown(wait=False)
            if self._claim is not None:
                await self._claim.give_up()

    async def _have_claim(self) -> bool:
        if self._claim is None or self._claim.held:
            return True
        if self._open:
            await self._lose()
        if await self._claim.take():
            self.elsewhere = ""
            return True
        if not self.elsewhere:
            self.elsewhere = await self._claim.holder() or "another process"
            self._refused_at = _now()
        return False

    async def _lose(self) -> None:
        """Keep off the sink: it may be another's."""
        self._open = self._ready = False
        if self._claim is not None:
            await self._claim.give_up()
        await self._call(lambda: self._sink.close(False))

    async def _move(self) -> bool:
        await self._ensure_ready()
        if not self._ready:
            return False
        batch = await self._outbox.items(self._position, self._limit)
        if not batch:
            return False
        if self._claim is not None and await self._outbox.cursor(self.name) != self._cursor:
            # Lost and regained unnoticed, while this process was stopped.
            self._ready = False
            return True
        self._ready = False
        try:
            state = await self._call(lambda: self._sink.write(batch))
        except Restart as restart:
            self._count_restart(restart)
            return await self._advance(Cursor())
        position = batch[-1].position
        if not await self._advance(Cursor(position, state)):
            return False
        self._position, self._ready = position, True
        self.count += len(batch)
        self.moved += len(batch)
        full = len(batch) >= self._limit
        self._limit = _fitting(batch)
        return full

    async def _ensure_ready(self) -> None:
        if self._ready:
            return
        self._open = True
        self._cursor = cursor = await self._outbox.cursor(self.name)
        try:
            await self._call(lambda: self._sink.open(cursor.state))
        except Restart:
            if not await self._advance(Cursor()):
                return
            cursor = Cursor()
            try:
                await self._call(lambda: self._sink.open(b""))
            except Restart as again:
                raise SinkError(f"the output {self.name} can't be started anew: {again}") from again
        # An empty note means the start, so the sink has nothing now, whatever the position says.
        self._position = cursor.position if cursor.state else 0
        if self._position == 0:
            self.count = 0
        self._ready = True

    async def _advance(self, cursor: Cursor) -> bool:
        """False: the claim was lost, and with it the sink."""
        if await self._outbox.advance(self.name, cursor, self._owner):
            self._cursor = cursor
            return True
        await self._lose()
        return False

    def _count_restart(self, restart: Restart) -> None:
        """Restarts are fine as long as they get further each time; going round for ever is not."""
        if self._position > self._furthest:
            self._furthest, self._idle_restarts = self._position, 0
        self._idle_restarts += 1
        if self._idle_restarts > _MAX_IDLE_RESTARTS:
            raise SinkError(f"the output {self.name} has to start anew again and again: {restart}") from restart

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (Restart, SinkError):
            raise
        except Exception as error:
            raise SinkError(f"the output {self.name} failed: {type(error).__name__}: {error}") from error


class Aside:
    """An outbox whose cursors are forgotten."""

    def __init__(self, outbox: Outbox) -> None:
        self._cursor = Cursor()
        self.items = outbox.items

    async def cursor(self, sink: str) -> Cursor:
        return self._cursor

    async def advance(self, sink: str, cursor: Cursor, owner: str) -> bool:
        self._cursor = cursor
        return True


def _fitting(batch: Sequence[StoredItem]) -> int:
    """How many items like these make a batch."""
    average = sum(len(item.json) for item in batch) // len(batch) + 1
    return max(1, min(BATCH_ITEMS, BATCH_BYTES // average))


def _now() -> float:
    return asyncio.get_running_loop().time()

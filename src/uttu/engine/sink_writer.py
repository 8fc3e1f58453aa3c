"""Copy a crawl's outbox to one sink, with one writer at a time.

For each batch, in this order: the sink makes the batch durable, then the store saves the sink's state and position (the
cursor). After a crash between the two the sink is ahead of its cursor; it drops what is ahead when it is opened. The
same holds for failures without a crash (a store that can't be written, a cancelled task): the sink counts as ready only
while it and its cursor agree, otherwise the next step opens it again from the cursor.

A writer claims the role ``"drain <sink>"`` in the ledger before it opens the sink, and renews the claim three times per
``CLAIM_SECONDS``. A writer that lost its claim, because its process was stopped for too long, closes the sink and opens
it from the cursor when it has the claim again: another writer may have moved both. Sinks that need all items also claim
``"whole <sink> <owner>"``; nothing is removed from the outbox while it is held.

A sink that has to start with the first item fails if items were already removed from the outbox. It fails before
anything is written, so an existing output stays as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from uttu.errors import ItemsTrimmed, SinkError, StoreError
from uttu.frontier.base import Cursor, Ledger, Outbox, StoredItem
from uttu.sinks.base import Restart, Sink, needs_all

CLAIM_SECONDS = 10.0


class Claim:
    """A role in the ledger that one owner holds from :meth:`take` until :meth:`give_up`, or until it is lost.

    A background task renews the claim every third of ``CLAIM_SECONDS``. It ends when a renewal fails, and with it
    :attr:`held` becomes False.
    """

    def __init__(self, ledger: Ledger, role: str, owner: str) -> None:
        self._ledger = ledger
        self._role = role
        self._owner = owner
        self._keeping: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """Whether the claim is held, as far as this process knows. One that was stopped for long may have lost it."""
        return self._keeping is not None and not self._keeping.done()

    async def take(self) -> bool:
        """Claim the role unless another owner holds it; returns whether it is held now.

        :raises StoreError: the ledger can't be written.
        """
        if not self.held and await self._ledger.claim(self._role, self._owner, CLAIM_SECONDS):
            self._keeping = asyncio.create_task(self._keep())
        return self.held

    async def holder(self) -> str:
        """The owner that holds the role now; empty if it is free."""
        return (await self._ledger.claimed()).get(self._role, "")

    async def give_up(self) -> None:
        """Release the role. If the store can't be reached, the claim expires after ``CLAIM_SECONDS``."""
        if self._keeping is None:
            return
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        self._keeping = None
        with contextlib.suppress(StoreError):
            await self._ledger.release(self._role, self._owner)

    async def _keep(self) -> None:
        """Renew the claim three times before it expires. A store error ends this task; :meth:`take` tries again."""
        with contextlib.suppress(StoreError):
            while True:
                await asyncio.sleep(CLAIM_SECONDS / 3)
                if not await self._ledger.claim(self._role, self._owner, CLAIM_SECONDS):
                    return


BATCH_ITEMS: Final = 4000
BATCH_BYTES: Final = 16 << 20
_FIRST_BATCH_ITEMS: Final = 100
_MAX_IDLE_RESTARTS: Final = 10
_log = logging.getLogger("uttu.output")

T = TypeVar("T")


class SinkWriter:
    """Moves items from an outbox to one sink. Without a ledger it makes no claim: no other process writes this sink."""

    def __init__(self, outbox: Outbox, sink: Sink, ledger: Ledger | None = None, owner: str = "") -> None:
        self.error: SinkError | None = None
        self.elsewhere = ""
        """The other owner that writes the sink; empty if only this process does."""
        self.moved = 0
        self.count = 0  # items written since the sink last restarted from the first item
        self._outbox = outbox
        self._sink = sink
        self._owner = owner
        self._claim = Claim(ledger, f"drain {sink.name}", owner) if ledger is not None else None
        # While this claim is held, nothing is removed from the outbox.
        self._whole = Claim(ledger, f"whole {sink.name} {owner}", owner) if ledger and needs_all(sink) else None
        self._refused_at = 0.0
        self._cursor = Cursor()
        self._position = 0
        self._open = self._ready = self._closed = False
        self._limit = _FIRST_BATCH_ITEMS
        self._furthest = 0
        self._idle_restarts = 0
        self._lock = asyncio.Lock()
        # One thread: if the awaiting task is cancelled, its call still ends before the next one begins.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="uttu-sink")

    @property
    def name(self) -> str:
        return self._sink.name

    @property
    def is_left(self) -> bool:
        """Whether this writer has nothing to do: it failed, was closed, or a living process writes the sink."""
        if self.error is not None or self._closed:
            return True
        # A claim outlives CLAIM_SECONDS only if its owner renews it, so that owner is alive.
        return bool(self.elsewhere) and _now() - self._refused_at > CLAIM_SECONDS

    @property
    def is_claimed(self) -> bool:
        return self._claim is None or self._claim.held

    async def open(self) -> None:
        """Open the sink at its cursor, unless it is ready or another owner holds it. Sets :attr:`error` on failure."""
        async with self._lock:
            try:
                if await self._ensure_claim():
                    await self._ensure_ready()
            except SinkError as error:
                self._fail(error)

    async def step(self) -> bool:
        """Move one batch; returns True if the batch was full, so more items may be waiting."""
        async with self._lock:
            if self._closed or self.error is not None:
                return False
            try:
                return await self._ensure_claim() and await self._move()
            except SinkError as error:
                self._fail(error)
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
            _log.info(
                "Closed output %(output)s%(how)s; items: %(items)d",
                {"output": self.name, "items": self.moved, "how": ", complete" if complete else ""},
            )
            self._thread.shutdown(wait=False)
            await self._give_up_claims()

    def _fail(self, error: SinkError) -> None:
        _log.info("Output %(output)s has failed: %(reason)s", {"output": self.name, "reason": str(error)})
        self.error = error

    async def _ensure_claim(self) -> bool:
        if self._claim is None:
            return True
        if not self._claim.held:
            if self._open:
                await self._lose()
            await self._claim.take()
        if self._claim.held:
            if self._whole is not None:
                await self._whole.take()
            self.elsewhere = ""
            return True
        if not self.elsewhere:
            self.elsewhere = await self._claim.holder() or "another process"
            _log.info("Output %(output)s is written by %(owner)s", {"output": self.name, "owner": self.elsewhere})
            self._refused_at = _now()
        return False

    async def _lose(self) -> None:
        """Close the sink and release the claims: another owner may hold the sink by now."""
        _log.info("Lost output %(output)s to another process", {"output": self.name})
        self._open = self._ready = False
        await self._give_up_claims()
        await self._call(lambda: self._sink.close(False))

    async def _give_up_claims(self) -> None:
        for claim in (self._claim, self._whole):
            if claim is not None:
                await claim.give_up()

    async def _check_all_there(self, why: str = "") -> None:
        """Check that the outbox still has the first item, before a sink starts from there.

        :raises SinkError: the first items were removed.
        """
        gone = await self._outbox.trimmed()
        if gone.count:
            raise self._removed(gone.count, why)

    def _removed(self, count: int, why: str = "") -> SinkError:
        why = f" ({why})" if why else ""
        return SinkError(
            f"the output {self.name} can't be made from the first item on{why}: {count:,} items have been removed from "
            "the crawl's store, as its outputs had them. They are in those outputs; to keep all items in the store, "
            "start a crawl with the setting keep_items=0"
        )

    async def _move(self) -> bool:
        await self._ensure_ready()
        if not self._ready:
            return False
        try:
            batch = await self._outbox.items(self._position, self._limit)
        except ItemsTrimmed as error:
            raise self._removed((await self._outbox.trimmed()).count, "it was left behind") from error
        if not batch:
            return False
        if self._claim is not None and await self._outbox.cursor(self.name) != self._cursor:
            # The claim was lost and taken again while this process was stopped: another owner moved the cursor.
            self._ready = False
            return True
        self._ready = False
        try:
            state = await self._call(lambda: self._sink.write(batch))
        except Restart as restart:
            self._count_restart(restart)
            await self._check_all_there(str(restart))
            return await self._advance(Cursor())
        position = batch[-1].position
        if not await self._advance(Cursor(position, state)):
            return False
        self._position, self._ready = position, True
        self.count += len(batch)
        self.moved += len(batch)
        full = len(batch) >= self._limit
        self._limit = _next_batch_size(batch)
        return full

    async def _ensure_ready(self) -> None:
        if self._ready:
            return
        if not self._open:
            _log.info("Opening output %(output)s", {"output": self.name})
        self._open = True
        self._cursor = cursor = await self._outbox.cursor(self.name)
        if not cursor.state:
            await self._check_all_there()
        try:
            await self._call(lambda: self._sink.open(cursor.state))
        except Restart as restart:
            await self._check_all_there(str(restart))
            if not await self._advance(Cursor()):
                return
            cursor = Cursor()
            try:
                await self._call(lambda: self._sink.open(b""))
            except Restart as again:
                raise SinkError(f"the output {self.name} can't be started anew: {again}") from again
        # Without a saved state the sink was opened empty, so it starts at position 0 whatever the cursor says.
        self._position = cursor.position if cursor.state else 0
        if self._position == 0:
            self.count = 0
        self._ready = True

    async def _advance(self, cursor: Cursor) -> bool:
        """Save the cursor. If the claim was lost, close the sink and return False."""
        if await self._outbox.advance(self.name, cursor, self._owner):
            self._cursor = cursor
            return True
        await self._lose()
        return False

    def _count_restart(self, restart: Restart) -> None:
        """Count restarts without progress. A sink may restart as often as it likes if it gets further each time.

        :raises SinkError: ``_MAX_IDLE_RESTARTS`` restarts in a row got no further.
        """
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


class DetachedOutbox:
    """An outbox whose cursor lives in memory only, so the cursors in the store are not touched."""

    def __init__(self, outbox: Outbox) -> None:
        self._cursor = Cursor()
        self.items = outbox.items
        self.latest = outbox.latest
        self.trim = outbox.trim
        self.trimmed = outbox.trimmed

    async def cursor(self, sink: str) -> Cursor:
        return self._cursor

    async def advance(self, sink: str, cursor: Cursor, owner: str) -> bool:
        self._cursor = cursor
        return True


def _next_batch_size(batch: Sequence[StoredItem]) -> int:
    """How many items of this average size fit into ``BATCH_BYTES``, ``BATCH_ITEMS`` at most."""
    average = sum(len(item.json) for item in batch) // len(batch) + 1
    return max(1, min(BATCH_ITEMS, BATCH_BYTES // average))


def _now() -> float:
    return asyncio.get_running_loop().time()

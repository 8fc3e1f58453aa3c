"""A subscription, as it works on every broker.

A backend gives a :class:`Source` of deliveries; what is done with them is here: batches to the handler, acknowledgement
after it, the failed once more and alone, the hopeless to the dead letters, pausing and closing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from weft.bus.base import Delivery, Handler, Interest, Rejected
from weft.errors import BusError

REASON = "weft-reason"
"""The header that tells why a message is among the dead letters."""

_FIRST_RETRY_SECONDS = 0.1
_LONGEST_RETRY_SECONDS = 10.0


class Source(Protocol):
    """The deliveries of one subscriber. A lost connection is its own affair; what it raises ends the subscription."""

    async def receive(self, limit: int) -> list[Delivery]:
        """The next deliveries, at least one; waits for it. Nothing is lost if it is cancelled while it waits."""

    async def done(self, deliveries: Sequence[Delivery]) -> None:
        """They are handled: never hand them out again."""

    async def again(self, deliveries: Sequence[Delivery], after: float) -> None:
        """Hand each out again to anyone of the group, its attempt one higher, so many seconds from now."""

    async def bury(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """Move them to the dead letters, with the header ``REASON``."""

    def hold(self, paused: bool) -> None:
        """Take nothing more from the broker while paused; give back what is held but not received, if that is easy."""

    async def close(self) -> None:
        """Give back what is held, its attempt not counted where the broker allows that."""


class Pump:
    """Drives one subscriber; see :class:`weft.bus.base.Subscription`."""

    def __init__(self, interest: Interest, handler: Handler, source: Source, ended: Callable[[Pump], None]) -> None:
        self.interest = interest
        self.handled = 0
        self.failed = 0
        self.last_error = ""
        # Where nothing is tried twice, no message may fail for another's sake.
        self._batch = min(interest.batch, interest.prefetch) if interest.attempts > 1 else 1
        self._handler = handler
        self._source = source
        self._ended = ended
        self._paused = False
        self._closing = False
        self._told = asyncio.Event()  # to pause, to resume or to close
        self._receiving = self._interrupted = False
        self._task = asyncio.create_task(self._run(), name=f"subscription to {', '.join(interest.topics)}")
        # Whoever waits for it is told; whoever does not need not be shouted at.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def pause(self) -> None:
        self._paused = True
        self._source.hold(True)
        self._tell()

    def resume(self) -> None:
        self._paused = False
        self._source.hold(False)
        self._tell()

    async def wait(self) -> None:
        await asyncio.shield(self._task)

    async def close(self) -> None:
        self._closing = True
        self._tell()
        if asyncio.current_task() is not self._task:
            with contextlib.suppress(BusError):
                await asyncio.shield(self._task)

    async def _run(self) -> None:
        try:
            while not self._closing:
                self._told.clear()
                if self._paused:
                    await self._told.wait()
                elif deliveries := await self._receive():
                    await self._hand_out(deliveries)
                    await asyncio.sleep(0)  # where neither source nor handler had to wait, others must get their turn
        finally:
            self._ended(self)
            await self._source.close()

    def _tell(self) -> None:
        self._told.set()
        if self._receiving and not self._interrupted:
            self._interrupted = True
            self._task.cancel()

    async def _receive(self) -> list[Delivery]:
        """The next batch; none when it was told something else."""
        self._receiving = True
        try:
            return await self._source.receive(self._batch)
        except asyncio.CancelledError:
            if self._interrupted and self._task.cancelling() == 1:
                return []
            raise
        finally:
            self._receiving = False
            if self._interrupted:
                self._interrupted = False
                self._task.uncancel()

    async def _hand_out(self, deliveries: list[Delivery]) -> None:
        # What failed before comes alone, so that it can't take others along again.
        tried = [delivery for delivery in deliveries if delivery.attempt > 1]
        fresh = [delivery for delivery in deliveries if delivery.attempt == 1] if tried else deliveries
        for batch in (fresh, *([delivery] for delivery in tried)):
            while self._paused and not self._closing:
                self._told.clear()
                await self._told.wait()
            if batch and not self._closing:
                await self._handle(batch)

    async def _handle(self, batch: list[Delivery]) -> None:
        try:
            await self._handler(batch)
        except Rejected as rejected:
            await self._reject(batch, rejected.reasons)
        except Exception as error:
            await self._fail(batch, f"{type(error).__name__}: {error}")
        else:
            self.handled += len(batch)
            await self._source.done(batch)

    async def _reject(self, batch: list[Delivery], reasons: dict[str, str]) -> None:
        if rest := [delivery for delivery in batch if delivery.position not in reasons]:
            self.handled += len(rest)
            await self._source.done(rest)
        for delivery in batch:
            if (reason := reasons.get(delivery.position)) is None:
                continue
            self.failed += 1
            self.last_error = reason
            if self.interest.group:
                await self._source.bury([delivery], reason)
            else:
                await self._source.done([delivery])

    async def _fail(self, batch: list[Delivery], reason: str) -> None:
        self.failed += len(batch)
        self.last_error = reason
        if not self.interest.group:
            await self._source.done(batch)
            return
        # A batch of several says nothing about each of them, so none of them is given up for it.
        attempts = self.interest.attempts
        dead = [delivery for delivery in batch if delivery.attempt >= attempts] if len(batch) == 1 else []
        alive = [delivery for delivery in batch if delivery not in dead]
        if dead:
            await self._source.bury(dead, reason)
        if alive:
            after = min(_FIRST_RETRY_SECONDS * 2 ** (alive[0].attempt - 1), _LONGEST_RETRY_SECONDS)
            await self._source.again(alive, after)

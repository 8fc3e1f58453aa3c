"""The consumer loop of a subscription, the same on every broker.

A backend implements :class:`Consumer`. :class:`ConsumerLoop` passes its deliveries to the handler in batches,
acknowledges them after the handler returned, retries failed messages one by one, moves messages that failed too many
times to the dead letters, and pauses and closes the subscription.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from uttu.bus.base import Delivery, Handler, Rejected, SubscribeOptions
from uttu.errors import BusError

REASON_HEADER = "uttu-reason"
"""The header of a dead letter that contains the reason."""

_log = logging.getLogger("uttu.bus")

_FIRST_RETRY_SECONDS = 0.1
_LONGEST_RETRY_SECONDS = 10.0  # the delay doubles with each attempt up to this


class Consumer(Protocol):
    """The deliveries of one subscriber.

    An implementation reconnects by itself. An exception from any method ends the subscription. Methods that settle
    deliveries ignore those that the subscriber no longer owns.
    """

    async def receive(self, limit: int) -> list[Delivery]:
        """Wait for at least one delivery, and return up to ``limit``. A cancel during the wait loses no delivery."""

    async def done(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge deliveries: they are never delivered again."""

    async def again(self, deliveries: Sequence[Delivery], after: float) -> None:
        """Deliver each to any subscriber of the group in ``after`` seconds, with ``attempt`` one higher."""

    async def bury(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """Move deliveries to the dead letters, with the reason in the header ``REASON_HEADER``."""

    def hold(self, paused: bool) -> None:
        """Stop or resume fetching from the broker. While paused, messages in the local buffer may be returned."""

    async def close(self) -> None:
        """Return all unacknowledged deliveries to the broker, without counting an attempt if the broker allows it."""


class ConsumerLoop:
    """Drives one subscriber; see :class:`uttu.bus.base.Subscription`."""

    def __init__(
        self, options: SubscribeOptions, handler: Handler, source: Consumer, ended: Callable[[ConsumerLoop], None]
    ) -> None:
        self.options = options
        self.handled = 0
        self.failed = 0
        self.last_error = ""
        # With a single attempt there is no retry one by one, so batches of one keep a message from failing with others.
        self._batch = min(options.batch, options.prefetch) if options.attempts > 1 else 1
        self._handler = handler
        self._source = source
        self._ended = ended
        self._paused = False
        self._closing = False
        self._told = asyncio.Event()  # set by pause(), resume() and close()
        self._receiving = self._interrupted = False
        self._task = asyncio.create_task(self._run(), name=f"subscription to {', '.join(options.topics)}")
        # Retrieve the exception here: without a call of wait(), asyncio would log "exception was never retrieved".
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
        where = {"topics": ", ".join(self.options.topics), "group": self.options.group}
        _log.info("Subscribed to %(topics)s, group %(group)r", where)
        try:
            while not self._closing:
                self._told.clear()
                if self._paused:
                    await self._told.wait()
                elif deliveries := await self._receive():
                    await self._hand_out(deliveries)
                    await asyncio.sleep(0)  # other tasks run even if neither consumer nor handler had to wait
        finally:
            self._ended(self)
            await self._source.close()
            _log.info("The subscription to %(topics)s, group %(group)r, has ended", where)

    def _tell(self) -> None:
        self._told.set()
        if self._receiving and not self._interrupted:
            self._interrupted = True
            self._task.cancel()

    async def _receive(self) -> list[Delivery]:
        """Return the next batch, or an empty list if pause(), resume() or close() interrupted the wait."""
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
        # A retried message gets a batch by itself, so that it can't fail others again.
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
            if self.options.group:
                self._log_dead(1, reason)
                await self._source.bury([delivery], reason)
            else:
                await self._source.done([delivery])

    async def _fail(self, batch: list[Delivery], reason: str) -> None:
        self.failed += len(batch)
        self.last_error = reason
        if not self.options.group:
            await self._source.done(batch)
            return
        # A failed batch of several messages does not say which of them failed, so none of them is buried for it.
        attempts = self.options.attempts
        dead = [delivery for delivery in batch if delivery.attempt >= attempts] if len(batch) == 1 else []
        alive = [delivery for delivery in batch if delivery not in dead]
        if dead:
            self._log_dead(len(dead), reason)
            await self._source.bury(dead, reason)
        if alive:
            after = min(_FIRST_RETRY_SECONDS * 2 ** (alive[0].attempt - 1), _LONGEST_RETRY_SECONDS)
            _log.info(
                "Group %(group)s: %(messages)d messages are delivered again in %(after).1f s: %(reason)s",
                {"group": self.options.group, "messages": len(alive), "after": after, "reason": reason},
            )
            await self._source.again(alive, after)

    def _log_dead(self, count: int, reason: str) -> None:
        _log.info(
            "Group %(group)s: %(messages)d messages are dead: %(reason)s",
            {"group": self.options.group, "messages": count, "reason": reason},
        )

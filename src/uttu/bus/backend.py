"""What the bus of every broker shares.

    BaseBus        checks and prepares calls, and tracks subscriptions; a backend adds the calls to its broker
    Consumer       the deliveries of one subscriber; implemented by each backend
    ConsumerLoop   passes the deliveries of a consumer to the handler

:class:`ConsumerLoop` passes deliveries in batches, acknowledges them after the handler returned, retries failed
messages one by one, moves messages that failed too many times to the dead letters, and pauses and closes the
subscription.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from uttu.bus.base import (
    Capability,
    Delivery,
    Handler,
    Message,
    Rejected,
    SubscribeOptions,
    Subscription,
    make_id_generator,
    prepare_message,
    require_capability,
)
from uttu.errors import BusError, BusRefused

_log = logging.getLogger("uttu.bus")

_FIRST_RETRY_SECONDS = 0.1
_LONGEST_RETRY_SECONDS = 10.0  # the delay doubles with each attempt up to this


class BaseBus(ABC):
    """The part of a :class:`uttu.bus.base.Bus` that does not depend on the broker.

    A backend implements the abstract methods here, and ``groups``, ``peek``, ``purge`` and ``listen`` of the contract.
    """

    capabilities: frozenset[Capability]

    def __init__(self) -> None:
        self._subscriptions: set[ConsumerLoop] = set()
        self._is_closed = False
        self._generate_id = make_id_generator()

    async def publish(self, messages: Sequence[Message]) -> None:
        self._check_open()
        await self._send(self._prepare(messages))

    async def subscribe(self, options: SubscribeOptions, handler: Handler) -> Subscription:
        self._check_open()
        if options.start == "earliest":
            require_capability(Capability.REPLAY, self.capabilities)
        consumer = await self._open_consumer(options)
        subscription = ConsumerLoop(options, handler, consumer, self._subscriptions.discard)
        self._subscriptions.add(subscription)
        return subscription

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.gather(*[subscription.close() for subscription in self._subscriptions])
        await self._disconnect()

    def _check_open(self) -> None:
        """:raises BusError: :meth:`close` was called."""
        if self._is_closed:
            raise BusError("The bus is closed")

    def _prepare(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Validate messages, and return them with ids."""
        return [prepare_message(message, self.capabilities, self._generate_id) for message in messages]

    @abstractmethod
    async def _send(self, messages: Sequence[Message]) -> None:
        """Send prepared messages; see :meth:`uttu.bus.base.Bus.publish`."""

    @abstractmethod
    async def _open_consumer(self, options: SubscribeOptions) -> Consumer:
        """Create the group if necessary, and start to receive; see :meth:`uttu.bus.base.Bus.subscribe`."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close the connection, and call listeners with ``CLOSED``. All subscriptions are closed by then."""


def group_not_found(group: str) -> BusRefused:
    return BusRefused(f"There is no group {group}")


def group_mismatch(group: str, existing: str, wanted: str) -> BusRefused:
    """Return the error for a subscription with other topics or another filter than its group has."""
    return BusRefused(
        f"The group {group} takes {existing}, not {wanted}. "
        "Use another group name, or delete the group first: uttu bus purge GROUP --forget"
    )


def group_deleted(group: str) -> BusRefused:
    """Return the error for a subscriber whose group was deleted while it was subscribed."""
    return BusRefused(f"The group {group} was deleted (uttu bus purge --forget). Subscribe again to create it anew")


class Consumer(Protocol):
    """The deliveries of one subscriber.

    An implementation reconnects by itself. An exception from any method ends the subscription. Methods that settle
    deliveries ignore those that the subscriber no longer owns.
    """

    async def receive(self, limit: int) -> list[Delivery]:
        """Wait for at least one delivery, and return up to ``limit``. A cancel during the wait loses no delivery."""

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge deliveries: they are never delivered again."""

    async def retry(self, deliveries: Sequence[Delivery], delay: float) -> None:
        """Deliver each to any subscriber of the group in ``delay`` seconds, with ``attempt`` one higher."""

    async def dead_letter(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """Move deliveries to the dead letters, with the reason in the header ``REASON_HEADER``."""

    def set_paused(self, paused: bool) -> None:
        """Stop or resume fetching from the broker. While paused, messages in the local buffer may be returned."""

    async def close(self) -> None:
        """Return all unacknowledged deliveries to the broker, without counting an attempt if the broker allows it."""


class ConsumerLoop:
    """Drives one subscriber; see :class:`uttu.bus.base.Subscription`."""

    def __init__(
        self, options: SubscribeOptions, handler: Handler, consumer: Consumer, on_end: Callable[[ConsumerLoop], None]
    ) -> None:
        self.options = options
        self.handled = 0
        self.failed = 0
        self.last_error = ""
        # With a single attempt there is no retry one by one, so batches of one keep a message from failing with others.
        self._batch = min(options.batch, options.prefetch) if options.attempts > 1 else 1
        self._handler = handler
        self._consumer = consumer
        self._on_end = on_end
        self._paused = False
        self._closing = False
        self._signal = asyncio.Event()  # set by pause(), resume() and close()
        self._receiving = self._interrupted = False
        self._task = asyncio.create_task(self._run(), name=f"subscription to {', '.join(options.topics)}")
        # Retrieve the exception here: without a call of wait(), asyncio would log "exception was never retrieved".
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def pause(self) -> None:
        self._paused = True
        self._consumer.set_paused(True)
        self._interrupt()

    def resume(self) -> None:
        self._paused = False
        self._consumer.set_paused(False)
        self._interrupt()

    async def wait(self) -> None:
        await asyncio.shield(self._task)

    async def close(self) -> None:
        self._closing = True
        self._interrupt()
        if asyncio.current_task() is not self._task:
            with contextlib.suppress(BusError):
                await asyncio.shield(self._task)

    async def _run(self) -> None:
        where = {"topics": ", ".join(self.options.topics), "group": self.options.group}
        _log.info("Subscribed to %(topics)s, group %(group)r", where)
        try:
            while not self._closing:
                self._signal.clear()
                if self._paused:
                    await self._signal.wait()
                elif deliveries := await self._receive():
                    await self._handle_batches(deliveries)
                    await asyncio.sleep(0)  # other tasks run even if neither consumer nor handler had to wait
        finally:
            self._on_end(self)
            await self._consumer.close()
            _log.info("The subscription to %(topics)s, group %(group)r, has ended", where)

    def _interrupt(self) -> None:
        self._signal.set()
        if self._receiving and not self._interrupted:
            self._interrupted = True
            self._task.cancel()

    async def _receive(self) -> list[Delivery]:
        """Return the next batch, or an empty list if pause(), resume() or close() interrupted the wait."""
        self._receiving = True
        try:
            return await self._consumer.receive(self._batch)
        except asyncio.CancelledError:
            if self._interrupted and self._task.cancelling() == 1:
                return []
            raise
        finally:
            self._receiving = False
            if self._interrupted:
                self._interrupted = False
                self._task.uncancel()

    async def _handle_batches(self, deliveries: list[Delivery]) -> None:
        # A retried message gets a batch by itself, so that it can't fail others again.
        retried = [delivery for delivery in deliveries if delivery.attempt > 1]
        fresh = [delivery for delivery in deliveries if delivery.attempt == 1] if retried else deliveries
        for batch in (fresh, *([delivery] for delivery in retried)):
            while self._paused and not self._closing:
                self._signal.clear()
                await self._signal.wait()
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
            await self._consumer.acknowledge(batch)

    async def _reject(self, batch: list[Delivery], reasons: dict[str, str]) -> None:
        if rest := [delivery for delivery in batch if delivery.position not in reasons]:
            self.handled += len(rest)
            await self._consumer.acknowledge(rest)
        for delivery in batch:
            if (reason := reasons.get(delivery.position)) is None:
                continue
            self.failed += 1
            self.last_error = reason
            if self.options.group:
                self._log_dead(1, reason)
                await self._consumer.dead_letter([delivery], reason)
            else:
                await self._consumer.acknowledge([delivery])

    async def _fail(self, batch: list[Delivery], reason: str) -> None:
        self.failed += len(batch)
        self.last_error = reason
        if not self.options.group:
            await self._consumer.acknowledge(batch)
            return
        # If a batch of several messages fails, any of them may be the cause, so none becomes a dead letter yet.
        attempts = self.options.attempts
        dead = [delivery for delivery in batch if delivery.attempt >= attempts] if len(batch) == 1 else []
        alive = [delivery for delivery in batch if delivery not in dead]
        if dead:
            self._log_dead(len(dead), reason)
            await self._consumer.dead_letter(dead, reason)
        if alive:
            delay = min(_FIRST_RETRY_SECONDS * 2 ** (alive[0].attempt - 1), _LONGEST_RETRY_SECONDS)
            _log.info(
                "Group %(group)s: %(messages)d messages are delivered again in %(delay).1f s: %(reason)s",
                {"group": self.options.group, "messages": len(alive), "delay": delay, "reason": reason},
            )
            await self._consumer.retry(alive, delay)

    def _log_dead(self, count: int, reason: str) -> None:
        _log.info(
            "Group %(group)s: %(messages)d messages are dead: %(reason)s",
            {"group": self.options.group, "messages": count, "reason": reason},
        )

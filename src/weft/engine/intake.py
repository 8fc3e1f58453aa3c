"""Start URLs from a topic: from a message into the frontier, and only then acknowledged.

A payload is a URL, a JSON string with one, a JSON object with the fields of a request, or a JSON list of these two. A
message is taken as a whole or not at all: one that is something else goes to the group's dead letters, with the reason.
One that comes twice does no harm, as the frontier knows what it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from typing import Any, Final

import msgspec

from weft.bus.base import Bus, Capability, Connection, Delivery, Interest, Rejected, Subscription
from weft.clock import Clock
from weft.engine.feeding import request_of
from weft.frontier.base import Frontier
from weft.model import Request

# With the pauses between them two minutes, in which the store may have its troubles.
_ATTEMPTS: Final = 20
_LOOK_SECONDS: Final = 0.2
# So long to acknowledge what was taken last. Without an answer it comes again, and does no harm.
_LAST_SECONDS: Final = 5.0


class Intake:
    """Takes start URLs from one topic. Several processes may do so at once, and share them.

    ``idle``: it ends when the crawl had nothing to do and nothing came for so many seconds; 0: never. While the broker
    is away, or ``seeding`` is set, as start URLs come from elsewhere, it does not count as idle.
    """

    def __init__(
        self, bus: Bus, topic: str, group: str, frontier: Frontier, handlers: Collection[str], clock: Clock, idle: float
    ) -> None:
        self.taken = 0
        self.seeding = False
        self._bus = bus
        self._interest = Interest(
            topics=(topic,),
            group=group,
            attempts=_ATTEMPTS,
            # Where messages are kept, those from before the first start count as well.
            start="earliest" if Capability.REPLAY in bus.capabilities else "latest",
        )
        self._frontier = frontier
        self._handlers = handlers
        self._clock = clock
        self._idle = idle
        self._paused = self._lost = False
        self._busy = 0.0
        self._subscription: Subscription | None = None

    async def run(self) -> None:
        """Until it is idle, or cancelled.

        :raises BusError: the topic can't be subscribed to.
        :raises StoreError: the store can't be read.
        """
        self._bus.listen(self._connection)
        self._subscription = subscription = await self._bus.subscribe(self._interest, self._take)
        if self._paused:
            subscription.pause()
        self._busy = self._clock.monotonic()
        quiet = asyncio.create_task(self._until_quiet())
        ended = asyncio.create_task(subscription.wait())
        try:
            done, _ = await asyncio.wait((quiet, ended), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            quiet.cancel()
            ended.cancel()
            self._subscription = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await subscription.close()

    def pause(self) -> None:
        """Take nothing more for now; messages wait with the broker."""
        if not self._paused:
            self._paused = True
            if self._subscription is not None:
                self._subscription.pause()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if self._subscription is not None:
                self._subscription.resume()

    async def _take(self, deliveries: list[Delivery]) -> None:
        self._busy = self._clock.monotonic()
        requests: list[Request] = []
        refused: dict[str, str] = {}
        for delivery in deliveries:
            try:
                requests += requests_of(delivery.payload, self._handlers)
            except ValueError as error:
                refused[delivery.position] = str(error)
        if requests:
            await self._frontier.put(requests)
        self.taken += len(deliveries) - len(refused)
        if refused:
            raise Rejected(refused)

    async def _until_quiet(self) -> None:
        while not self._idle or self._clock.monotonic() - self._busy < self._idle:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._idle and await self._is_busy():
                self._busy = self._clock.monotonic()

    async def _is_busy(self) -> bool:
        return self._paused or self._lost or self.seeding or not (await self._frontier.counts()).finished

    def _connection(self, state: Connection, what: str) -> None:
        self._lost = state is Connection.LOST
        self._busy = self._clock.monotonic()


def requests_of(payload: bytes, handlers: Collection[str]) -> list[Request]:
    """The requests that a message stands for. ``handlers`` are the names that they may give.

    :raises ValueError: it is none, or one of several is none; says why.
    """
    text = payload.strip()
    if text[:1] not in (b'"', b"["):
        return [request_of(text, handlers)]
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{text[:200].decode(errors='replace')!r} is neither a URL nor JSON: {error}") from error
    return [request_of(_entry(each), handlers) for each in (value if isinstance(value, list) else [value])]


def _entry(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        return msgspec.json.encode(value)
    raise ValueError(f"{value!r:.200} is no request: write URLs, or objects with a url")

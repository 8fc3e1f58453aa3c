"""Start URLs: those of the spider, those that other programs push while a crawl runs, and those read from a topic.

``@spider.start`` is the user's code and runs on the event loop, before and beside the work. If it blocks the loop, a
watchdog interrupts it as it does a handler (:func:`start_requests`): after ``max_block`` seconds, which ends the crawl
with a :class:`StartError`, or soon after a signal asked the process to end.

A pushed entry is a URL, or a JSON object with the fields of a request::

    https://shop.example/7
    {"url": "https://shop.example/7", "handler": "product", "meta": {"from": "newsletter"}}

A message of a topic may also be a JSON string with a URL, or a JSON list of strings and objects.

:class:`PushedSeeds` moves entries from the store's feed (Redis: a list) to the frontier in one transaction. Other
programs write these entries. An entry that is not a valid request for this spider is moved to a list of refused
entries.

:class:`TopicSeeds` puts the requests of a message into the frontier and then acknowledges it. A message is accepted
whole or not at all: if a part is invalid, it goes to the group's dead letters with the reason. A redelivered message is
harmless, because the frontier drops requests it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from time import perf_counter
from typing import Any, Final

import msgspec

from uttu import blackbox
from uttu.bus.base import Bus, Capability, Delivery, Rejected, SubscribeOptions, Subscription
from uttu.clients import ConnectionState
from uttu.clock import Clock
from uttu.engine.handler_steps import START, HandlerBlocked, HandlerRun, StepTracker
from uttu.engine.heartbeat import TERMINATE_SECONDS
from uttu.engine.link_filter import validate_request
from uttu.engine.watchdog import Watchdog
from uttu.errors import StartError
from uttu.fetch.resolver import check_proxy
from uttu.frontier.base import Frontier, SeedQueue
from uttu.model import Request
from uttu.spider import Spider

_BATCH: Final = 500
# The most batches per call of take(): the caller also has to report and to check the crawl's state.
_MOST_BATCHES: Final = 20
_SHOWN: Final = 200


class PushedSeeds:
    """Moves pushed entries from the feed to the frontier. Several workers may do so at once.

    :param proxy: The crawl's own proxy, which requests may always name.
    :param private: Whether requests may name a proxy in a private network.
    """

    def __init__(self, feed: SeedQueue, handlers: Collection[str], *, proxy: str = "", private: bool = False) -> None:
        self._feed = feed
        self._handlers = handlers
        self._proxy = proxy
        self._private = private

    async def take(self) -> int:
        """Put waiting entries into the frontier; returns how many requests were new.

        :raises StoreError: the store can't be read or written.
        """
        new = 0
        for _ in range(_MOST_BATCHES):
            entries = await self._feed.peek(_BATCH)
            if entries:
                new += await self._accept(entries)
            if len(entries) < _BATCH:
                break
        return new

    async def waiting(self) -> int:
        return await self._feed.length()

    async def _accept(self, entries: list[bytes]) -> int:
        requests: list[Request] = []
        accepted: list[bytes] = []
        refused: list[bytes] = []
        for entry in entries:
            try:
                request = parse_request(entry, self._handlers)
                if not self._private:
                    await check_proxy(request, self._proxy)
                requests.append(request)
            except ValueError:
                refused.append(entry)
            else:
                accepted.append(entry)
        return await self._feed.accept(requests, accepted, refused)


class _PushedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request as other programs write it: the fields by their full names, the body as text."""

    url: str
    handler: str = ""
    method: str = "GET"
    headers: dict[str, str] = {}
    body: str = ""
    meta: dict[str, Any] = {}
    cookies: dict[str, str] = {}
    priority: int = 0
    depth: int = 0
    salt: str = ""
    proxy: str = ""


def parse_request(entry: bytes, handlers: Collection[str] | None) -> Request:
    """Parse an entry into a start request.

    :param handlers: The handlers that the entry may name; None for any.
    :raises ValueError: the entry is not a valid request; the message says why.
    """
    try:
        text = entry.decode().strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{_excerpt(entry)} is not UTF-8 text: {error}") from error
    if not text:
        raise ValueError("an empty line is not a request")
    try:
        pushed = msgspec.json.decode(text, type=_PushedRequest) if text.startswith("{") else _PushedRequest(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"{_excerpt(entry)} is not a request: {error}") from error
    if pushed.handler and handlers is not None and pushed.handler not in handlers:
        raise ValueError(f"{_excerpt(entry)} is for a handler that the spider does not have: {pushed.handler!r}")
    fields = msgspec.structs.asdict(pushed)
    fields |= {"method": pushed.method.upper(), "body": pushed.body.encode(), "start": True}
    return validate_request(Request.to(**fields))


def _excerpt(entry: bytes) -> str:
    text = repr(entry[:_SHOWN].decode(errors="replace"))
    return text + "…" if len(entry) > _SHOWN else text


# Deliveries of a message before it goes to the dead letters. With the pauses between them this bridges about two
# minutes in which the store can't be written.
_ATTEMPTS: Final = 20
_LOOK_SECONDS: Final = 0.2
# How long to wait for the last acknowledgements. A message without one is redelivered, which is harmless.
_LAST_SECONDS: Final = 5.0


class TopicSeeds:
    """Reads start URLs from one topic. Several processes may do so at once; they share the messages.

    :param idle: Seconds without work and without messages after which reading ends; 0 for never. The time while the
        broker is away, or while ``seeding`` is set because start URLs come from elsewhere, does not count.
    :param proxy: See :class:`PushedSeeds`; ``private`` as well.
    """

    def __init__(
        self,
        bus: Bus,
        topic: str,
        group: str,
        frontier: Frontier,
        handlers: Collection[str],
        clock: Clock,
        idle: float,
        *,
        proxy: str = "",
        private: bool = False,
    ) -> None:
        self.taken = 0
        self.seeding = False
        self._bus = bus
        self._options = SubscribeOptions(
            topics=(topic,),
            group=group,
            attempts=_ATTEMPTS,
            # If the broker keeps messages, also read those from before the crawl's first start.
            start="earliest" if Capability.REPLAY in bus.capabilities else "latest",
        )
        self._frontier = frontier
        self._handlers = handlers
        self._clock = clock
        self._idle = idle
        self._proxy = proxy
        self._private = private
        self._paused = self._lost = False
        self._busy = 0.0
        self._subscription: Subscription | None = None

    async def run(self) -> None:
        """Read messages until the crawl has been idle for ``idle`` seconds, or the task is cancelled.

        :raises BusError: the topic can't be subscribed to.
        :raises StoreError: the store can't be read.
        """
        self._bus.listen(self._connection)
        self._subscription = subscription = await self._bus.subscribe(self._options, self._take)
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
        """Take no messages until :meth:`resume`; they wait at the broker."""
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
                found = parse_requests(delivery.payload, self._handlers)
                for request in () if self._private else found:
                    await check_proxy(request, self._proxy)
                requests += found
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

    def _connection(self, state: ConnectionState, what: str) -> None:
        self._lost = state is ConnectionState.LOST
        self._busy = self._clock.monotonic()


def parse_requests(payload: bytes, handlers: Collection[str]) -> list[Request]:
    """Parse a message into start requests.

    :param handlers: The handlers that the requests may name.
    :raises ValueError: the message, or one of its entries, is not a valid request; the message says why.
    """
    text = payload.strip()
    if text[:1] not in (b'"', b"["):
        return [parse_request(text, handlers)]
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{text[:200].decode(errors='replace')!r} is neither a URL nor JSON: {error}") from error
    return [parse_request(_encode_entry(each), handlers) for each in (value if isinstance(value, list) else [value])]


def _encode_entry(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        return msgspec.json.encode(value)
    raise ValueError(f"{value!r:.200} is not a request: write URLs, or objects with a url")


# A start function that yields without waiting gives way to the others after this time.
_SLICE_SECONDS: Final = 0.1


async def start_requests(spider: Spider, max_block: float) -> AsyncIterator[Request]:
    """The first requests of a spider.

    :raises StartError: the start function raised, or blocked the event loop for ``max_block`` seconds (0: any time).
    :raises SpiderError: one is not a URL.
    """
    if spider.starter is None:
        async for request in spider.start_requests():
            yield request
        return
    box = blackbox.inherited()
    if box is not None:
        box.set_limits(TERMINATE_SECONDS, box.patience)
    steps = StepTracker()
    stream = spider.start_requests()
    with Watchdog(steps, max_block, box).watching():
        since = perf_counter()
        while True:
            try:
                with HandlerRun(steps, START, 0) as run:
                    request = await run.drive(anext(stream))
                    if perf_counter() - since > _SLICE_SECONDS:
                        await run.yield_to_loop()
                        since = perf_counter()
            except StopAsyncIteration:
                return
            except HandlerBlocked as blocked:
                if blocked.stopping:
                    # The reader is about to be cancelled. Returning would mean that there are no more start URLs.
                    await asyncio.get_running_loop().create_future()
                raise StartError(
                    f"@spider.start of {spider.file or f'spider {spider.name!r}'} {blocked} (max_block={max_block:g}). "
                    "Let slow work run in a thread: await asyncio.to_thread(…)",
                    f"@spider.start {blocked}",
                ) from None
            yield request

"""Publish messages to a bus and read them, and look at its groups.

Messages are sent in batches of ``_BATCH_SIZE``, each confirmed by the broker, up to the first entry that is not a
message. :mod:`uttu.operations.lines` converts messages from and to JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence

import msgspec

from uttu import settings
from uttu.bus.base import (
    REASON_HEADER,
    Bus,
    BusAdmin,
    BusDescription,
    Delivery,
    DetailTable,
    Group,
    HeaderFilter,
    Message,
    SubscribeOptions,
    Subscription,
    TopicState,
)
from uttu.bus.topics import matches
from uttu.clients import ConnectionState
from uttu.errors import BusError, Unsupported, UsageError
from uttu.operations import Report, format_count
from uttu.operations.lines import MessageTemplate, describe_source, open_source, parse_message, read_lines
from uttu.runtime.registry import connect_bus

__all__ = [
    "BusDescription",
    "Delivery",
    "DetailTable",
    "Group",
    "MessageReader",
    "PublishResult",
    "SubscribeOptions",
    "TopicState",
    "build_options",
    "connect_configured_bus",
    "dead_reason",
    "describe_bus",
    "peek_messages",
    "publish_messages",
    "purge_group",
    "read_groups",
    "republish_dead",
    "resolve_bus_url",
    "wait_for_capacity",
    "watch_group",
]


@contextlib.asynccontextmanager
async def connect_configured_bus(url: str) -> AsyncIterator[Bus]:
    """Connect to the bus at ``url``, or to the one in the settings if it is empty.

    :raises ConfigError: the address is invalid.
    :raises BusError: the broker can't be reached, or refuses the connection.
    """
    async with connect_bus(resolve_bus_url(url)) as bus:
        yield bus


def resolve_bus_url(url: str) -> str:
    """What was given, or what is set.

    :raises UsageError: neither is.
    """
    found = url or settings.load_bus()
    if not found:
        raise UsageError("say which bus: --bus URL, or the setting bus in uttu.toml or UTTU_BUS")
    return found


_BATCH_SIZE = 100


class PublishResult(msgspec.Struct):
    """How many messages the broker confirmed. ``bad``: an entry was not a message; those after it were not sent."""

    confirmed: int = 0
    bad: bool = False


async def publish_messages(
    url: str,
    template: MessageTemplate,
    payloads: Sequence[str],
    file: str,
    report: Report,
    *,
    whole: bool,
    max_lag: int | None,
) -> PublishResult:
    """Send all of them, up to the first that is no message, which is reported.

    Payloads from the command line are checked before anything is sent.

    :param whole: Entries are whole messages (:func:`parse_message`), not payloads.
    :param max_lag: Wait while a consumer group is behind by more messages than this; None for no limit.
    :raises UttuError: the bus can't be used, or the file can't be read.
    """
    published = PublishResult()
    given = _parse_entries(
        [payload.encode() for payload in payloads], "argument", 1, template, whole, published, report
    )
    if published.bad:
        return published
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(open_source(file)) if file else None
        async with connect_configured_bus(url) as bus:
            publisher = _Publisher(bus, max_lag, published, report)
            await publisher.send(given)
            if source is not None:
                first = 1
                async for lines in read_lines(source):
                    where = f"{describe_source(file)}, line"
                    await publisher.send(_parse_entries(lines, where, first, template, whole, published, report))
                    if published.bad:
                        break
                    first += len(lines)
    return published


def _parse_entries(
    entries: Sequence[bytes],
    where: str,
    first: int,
    template: MessageTemplate,
    whole: bool,
    published: PublishResult,
    report: Report,
) -> list[Message]:
    messages = []
    for at, entry in enumerate(entries, first):
        if entry.strip() or where == "argument":
            try:
                messages.append(parse_message(entry, template) if whole else template.message(entry))
            except ValueError as error:
                report(f"uttu: {where} {at}: {error}")
                published.bad = True
                break
    return messages


class _Publisher:
    def __init__(self, bus: Bus, max_lag: int | None, published: PublishResult, report: Report) -> None:
        self._bus = bus
        self._max_lag = max_lag
        self._published = published
        self._report = report
        self._said = False

    async def send(self, messages: Sequence[Message]) -> None:
        for at in range(0, len(messages), _BATCH_SIZE):
            batch = messages[at : at + _BATCH_SIZE]
            try:
                if self._max_lag is not None:
                    await wait_for_capacity(
                        self._bus, {message.topic for message in batch}, self._max_lag, self._say_waiting
                    )
                await self._bus.publish(batch)
            except BusError:
                if self._published.confirmed:
                    self._report(f"{format_count(self._published.confirmed, 'message')} confirmed before")
                raise
            self._published.confirmed += len(batch)

    def _say_waiting(self, group: Group) -> None:
        if not self._said:
            self._report(f"waiting: the group {group.name} is behind by {format_count(group.lag, 'message')}")
        self._said = True


_FIRST_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 1.0


async def wait_for_capacity(
    bus: Bus, topics: Collection[str], max_lag: int, waiting: Callable[[Group], None] = lambda group: None
) -> None:
    """Return once no group that takes one of the topics lags by more than ``max_lag`` messages.

    ``waiting`` is called with the group that is furthest behind, at each look. A group whose topics the
    broker does not know counts. What others publish between this look and what is done after it is not seen.

    :raises BusError: the groups can't be looked at.
    """
    pause = _FIRST_LOOK_SECONDS
    while True:
        behind = [group for group in await bus.groups() if group.lag > max_lag and _is_subscribed(group, topics)]
        if not behind:
            return
        waiting(max(behind, key=lambda group: group.lag))
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_LOOK_SECONDS)


def _is_subscribed(group: Group, topics: Collection[str]) -> bool:
    patterns = group.topics
    return patterns is None or any(matches(patterns, topic) for topic in topics)


async def read_groups(url: str, *names: str) -> list[Group]:
    """The state of these groups, or of all groups of a bus.

    :raises BusRefused: a named group does not exist.
    """
    async with connect_configured_bus(url) as bus:
        return await bus.groups(*names)


_WATCH_SECONDS = 1.0


async def watch_group(url: str, name: str) -> AsyncGenerator[list[Group], None]:
    """Yield the state of a group every ``_WATCH_SECONDS``, until the iteration is closed.

    :raises BusRefused: the group does not exist.
    """
    async with connect_configured_bus(url) as bus:
        while True:
            yield await bus.groups(name)
            await asyncio.sleep(_WATCH_SECONDS)


async def peek_messages(url: str, group: str, limit: int, *, dead: bool = False) -> list[Delivery]:
    """The next messages of a group, or its dead letters, without consuming them.

    :raises BusRefused: the group does not exist.
    """
    async with connect_configured_bus(url) as bus:
        return await bus.peek(group, limit, dead=dead)


async def purge_group(url: str, group: str, *, dead: bool = False, forget: bool = False) -> int:
    """Delete the waiting messages of a group, its dead letters, or the group itself. Returns how many.

    :raises BusRefused: the group does not exist.
    """
    async with connect_configured_bus(url) as bus:
        return await bus.purge(group, dead=dead, forget=forget)


async def republish_dead(url: str, group: str, limit: int) -> int:
    """Return up to ``limit`` dead letters of a group to it, the oldest first. Returns how many.

    :raises BusRefused: the group does not exist.
    :raises Unsupported: this bus can't do it.
    """
    async with connect_configured_bus(url) as bus:
        return await _require_admin(bus).republish(group, limit)


async def describe_bus(url: str) -> BusDescription:
    """The version of a broker, its topics, and what only this kind of broker has: exchanges, partitions …

    :raises Unsupported: this bus can't do it.
    """
    async with connect_configured_bus(url) as bus:
        return await _require_admin(bus).describe()


def _require_admin(bus: Bus) -> BusAdmin:
    if not isinstance(bus, BusAdmin):
        raise Unsupported(f"{type(bus).__name__} can't be described, and can't republish dead letters")
    return bus


def dead_reason(message: Delivery) -> str | None:
    """Why a message became a dead letter; None if it is none."""
    return message.headers.get(REASON_HEADER)


def build_options(
    topics: Sequence[str],
    group: str = "",
    where: dict[str, str] | None = None,
    *,
    match_any: bool = False,
    prefetch: int = 500,
    count: int | None = None,
    from_start: bool = False,
) -> SubscribeOptions:
    """The options to read messages with :class:`MessageReader`.

    :param where: Only messages with all of these headers; with ``match_any``, with one of them.
    :param count: How many messages are read. They are taken one by one, so that no other one is acknowledged.
    :param from_start: A new group starts at the earliest message that is kept.
    :raises ValueError: a topic or the group is not a valid name, or a number is less than 1.
    """
    return SubscribeOptions(
        topics=tuple(topics),
        group=group,
        where=HeaderFilter(where, any=match_any) if where else None,
        prefetch=prefetch if count is None else min(prefetch, max(count, 1)),
        batch=100 if count is None else 1,
        start="earliest" if from_start else "latest",
    )


class MessageReader:
    """Passes messages of a bus to a function, and acknowledges them when it returns.

    :param receive: Called with each batch. If it raises ``OSError``, the batch is not acknowledged, the reading ends,
        and :meth:`run` raises the error.
    :param count: End after this many messages; 0 only creates the group, None for no limit.
    :param report: Told when the connection is lost and when it is back.
    :param begin: Called once the subscription is active.
    """

    def __init__(
        self,
        receive: Callable[[list[Delivery]], None],
        report: Report = lambda text: None,
        count: int | None = None,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        self.received = 0
        self._receive = receive
        self._report = report
        self._count = count
        self._begin = begin
        self._over = asyncio.Event()
        self._error: OSError | None = None
        # Its own subscription, for :meth:`_end`. The first batch may arrive before ``subscribe`` returns.
        self._began: asyncio.Future[Subscription] = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """End :meth:`run` after the current batch."""
        self._over.set()

    async def run(self, url: str, options: SubscribeOptions, seconds: float | None = None) -> None:
        """Read until ``count`` messages were received, ``seconds`` have passed, or :meth:`stop` is called.

        :raises BusError: the bus is not usable.
        :raises OSError: what ``receive`` raised.
        """
        async with connect_configured_bus(url) as bus:
            bus.listen(self._report_connection)
            subscription = await bus.subscribe(options, self._handle)
            if self._count == 0:
                # Pause before a message is delivered, since that would count as an attempt.
                subscription.pause()
                self._over.set()
            self._began.set_result(subscription)
            self._begin()
            try:
                await self._wait(subscription, seconds)
            finally:
                await subscription.close()
        if self._error is not None:
            raise self._error

    async def _handle(self, deliveries: list[Delivery]) -> None:
        try:
            self._receive(deliveries)
        except OSError as error:
            self._error = error
            await self._end()
            raise
        self.received += len(deliveries)
        if self.received == self._count:
            await self._end()

    async def _end(self) -> None:
        """Close the subscription, so that no more messages are delivered."""
        self._over.set()
        await (await self._began).close()

    async def _wait(self, subscription: Subscription, seconds: float | None) -> None:
        ends = [asyncio.ensure_future(subscription.wait()), asyncio.ensure_future(self._over.wait())]
        try:
            done, _ = await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for end in done:
                end.result()
        finally:
            for end in ends:
                end.cancel()

    def _report_connection(self, state: ConnectionState, what: str) -> None:
        if state is not ConnectionState.CLOSED:
            with contextlib.suppress(OSError):
                self._report(f"the connection is {state}: {what}")

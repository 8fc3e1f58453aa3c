"""Connect one process of a crawl to its message brokers.

    setting bus     publish events (uttu.engine.events), receive the operator's notifications (uttu.engine.control)
    setting feed    read start URLs from a topic (uttu.engine.seeds); the supervisor only

A crawl does not depend on its events: if the bus can't be reached, the crawl starts without it and the connection is
tried again in the background. The feed must be reachable.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from typing import Final

import msgspec

from uttu.bus.base import Bus, Delivery, Message, SubscribeOptions
from uttu.bus.topics import split_topic, to_word
from uttu.clock import SystemClock
from uttu.engine.aio import wait_for_event
from uttu.engine.events import Events
from uttu.engine.seeds import TopicSeeds
from uttu.errors import BusError, ConfigError
from uttu.frontier.base import Frontier
from uttu.runtime.registry import connect_bus
from uttu.settings import Settings

# How long the start of a crawl waits for its bus.
_CONNECT_SECONDS: Final = 1.0
_FIRST_RETRY_SECONDS: Final = 2.0
_MAX_RETRY_SECONDS: Final = 60.0


class CrawlMessaging:
    """The message brokers of one process of a crawl. Without settings it has none."""

    def __init__(self, crawl: str = "", settings: Settings | None = None) -> None:
        self.events: Events | None = None
        self._crawl = crawl
        self._settings = settings or Settings()
        self._heed: Callable[[], None] = lambda: None
        self._feed: tuple[Bus, str] | None = None

    def hear(self, check_now: Callable[[], None]) -> None:
        """Call ``check_now`` when the operator changes the crawl's state, as soon as the bus is connected."""
        self._heed = check_now

    def topic_seeds(self, frontier: Frontier, handlers: Collection[str]) -> TopicSeeds | None:
        """The reader of start URLs from the feed; None without a feed."""
        if self._feed is None:
            return None
        bus, topic = self._feed
        given = self._settings
        return TopicSeeds(
            bus,
            topic,
            to_word(self._crawl),
            frontier,
            handlers,
            SystemClock(),
            given.feed_idle,
            proxy=given.proxy,
            private=given.private,
        )

    async def attach(self, bus: Bus) -> None:
        """Use a bus that is connected now, for events and for notifications.

        :raises BusError: the control topic can't be subscribed to. Events are published nevertheless.
        """
        if self.events is not None:
            self.events.attach(bus)
        await listen_control(bus, self._crawl, lambda: self._heed())

    def attach_feed(self, bus: Bus, topic: str) -> None:
        self._feed = (bus, topic)


@contextlib.asynccontextmanager
async def connect_messaging(
    settings: Settings, crawl: str, say: Callable[[str], None], *, fed: bool = False
) -> AsyncIterator[CrawlMessaging]:
    """Connect to the message brokers of a process while the block runs.

    :param say: Prints a message, for example that the bus can't be reached.
    :param fed: Also connect to the feed.
    :raises ConfigError: an address is invalid.
    :raises BusError: the feed can't be reached.
    """
    wire = CrawlMessaging(crawl, settings)
    async with contextlib.AsyncExitStack() as stack:
        if fed and settings.feed:
            url, topic = _parse_feed(settings.feed, crawl)
            wire.attach_feed(await stack.enter_async_context(connect_bus(url)), topic)
        if settings.bus:
            connected = asyncio.Event()
            connecting = asyncio.create_task(_connect(wire, settings.bus, connected, say))
            stack.push_async_callback(_cancel, connecting)
            wire.events = await stack.enter_async_context(Events(crawl, SystemClock()))
            await wait_for_event(connected, _CONNECT_SECONDS)
            if connecting.done():
                connecting.result()
        yield wire
    if wire.events is not None and wire.events.dropped:
        say(f"{wire.events.dropped:,} events were dropped: the broker was away, or too slow")


async def _connect(wire: CrawlMessaging, url: str, tried: asyncio.Event, say: Callable[[str], None]) -> None:
    """Connect to the bus, with retries, and stay connected until the task is cancelled.

    :param tried: Set after the first attempt.
    :raises ConfigError: the address is invalid.
    """
    pause = _FIRST_RETRY_SECONDS
    while True:
        try:
            async with connect_bus(url) as bus:
                try:
                    await wire.attach(bus)
                except BusError as error:
                    say(f"{_sentence(error)} The crawl notices a pause or a stop within two seconds instead of at once")
                tried.set()
                await asyncio.get_running_loop().create_future()
        except Exception as error:
            # After the first attempt the address is known to be valid, so no error may fail the crawl.
            if not tried.is_set() and not isinstance(error, BusError):
                raise
            if not tried.is_set():
                say(
                    f"{_sentence(error)} The crawl runs without the bus. Events and "
                    "instant commands start once it is back"
                )
        finally:
            tried.set()
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MAX_RETRY_SECONDS)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _parse_feed(address: str, crawl: str) -> tuple[str, str]:
    """Split the setting ``feed`` into the broker's URL and the topic.

    :raises ConfigError: the topic is invalid.
    """
    try:
        return split_topic(address, f"feed.{to_word(crawl)}")
    except ValueError as error:
        raise ConfigError(f"feed: {error}") from error


def _sentence(error: Exception) -> str:
    text = str(error)
    return text if text.endswith((".", "?")) else f"{text}."


# However many messages come, the ledger is not read more often.
_PAUSE_SECONDS: Final = 0.1


def control_topic(crawl: str) -> str:
    return f"control.{to_word(crawl)}"


async def announce_control(bus: Bus, crawl: str, action: str) -> None:
    """Let all processes of the crawl look into the ledger now, and not within a second.

    The change itself is in the ledger, so a lost message only delays it. The payload is only informational.

    :raises BusError: the message can't be published.
    """
    payload = msgspec.json.encode({"crawl": crawl, "action": action})
    await bus.publish([Message(topic=control_topic(crawl), payload=payload, key=crawl)])


async def listen_control(bus: Bus, crawl: str, check_now: Callable[[], None]) -> None:
    """Call ``check_now`` whenever something was announced, until the bus is closed.

    :raises BusError: the topic can't be subscribed to.
    """

    async def handle(deliveries: list[Delivery]) -> None:
        check_now()
        await asyncio.sleep(_PAUSE_SECONDS)

    await bus.subscribe(SubscribeOptions(topics=(control_topic(crawl),)), handle)

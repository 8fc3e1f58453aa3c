"""What a process of a crawl has to do with message brokers: events out, word from the operator in, start URLs in.

Without the settings ``bus`` and ``feed``, nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from typing import Final

from weft import assembly
from weft.bus.address import split_topic
from weft.bus.base import Bus
from weft.bus.topics import word
from weft.clock import SystemClock
from weft.config import Settings
from weft.engine import control
from weft.engine.events import Events
from weft.engine.intake import Intake
from weft.engine.tasks import called
from weft.errors import BusError, ConfigError
from weft.frontier.base import Frontier

# A crawl begins with its bus if that is there so soon, and otherwise before it.
_PATIENCE_SECONDS: Final = 1.0
_FIRST_RETRY_SECONDS: Final = 2.0
_LONGEST_RETRY_SECONDS: Final = 60.0


class Wire:
    """The buses of one process of a crawl, as far as it has any."""

    def __init__(self, crawl: str = "", settings: Settings | None = None) -> None:
        self.events: Events | None = None
        self._crawl = crawl
        self._idle = settings.feed_idle if settings is not None else 0.0
        self._heed: Callable[[], None] = lambda: None
        self._feed: tuple[Bus, str] | None = None

    def hear(self, heed: Callable[[], None]) -> None:
        """Call ``heed`` when the operator asks something of the crawl; from when the bus is there."""
        self._heed = heed

    def intake(self, frontier: Frontier, handlers: Collection[str]) -> Intake | None:
        """Where start URLs come from; None if no topic is named."""
        if self._feed is None:
            return None
        bus, topic = self._feed
        return Intake(bus, topic, word(self._crawl), frontier, handlers, SystemClock(), self._idle)

    async def attach(self, bus: Bus) -> None:
        """The bus is there now.

        :raises BusError: the operator can't be heard on it; events are told all the same.
        """
        if self.events is not None:
            self.events.attach(bus)
        await control.hear(bus, self._crawl, lambda: self._heed())

    def attach_feed(self, bus: Bus, topic: str) -> None:
        self._feed = (bus, topic)


@contextlib.asynccontextmanager
async def wired(
    settings: Settings, crawl: str, say: Callable[[str], None], *, fed: bool = False
) -> AsyncIterator[Wire]:
    """The wire of a process, until the block is left. ``fed``: with the feed, too.

    A crawl does not depend on its events: a bus that can't be reached is tried again beside it, and that is said. Its
    feed must be there.

    :raises ConfigError: an address is none.
    :raises BusError: the feed can't be reached.
    """
    wire = Wire(crawl, settings)
    async with contextlib.AsyncExitStack() as stack:
        if fed and settings.feed:
            url, topic = _feed_of(settings.feed, crawl)
            wire.attach_feed(await stack.enter_async_context(assembly.opened_bus(url)), topic)
        if settings.bus:
            connected = asyncio.Event()
            connecting = asyncio.create_task(_connect(wire, settings.bus, connected, say))
            stack.push_async_callback(_ended, connecting)
            wire.events = await stack.enter_async_context(Events(crawl, SystemClock()))
            await called(connected, _PATIENCE_SECONDS)
            if connecting.done():
                connecting.result()
        yield wire
    if wire.events is not None and wire.events.dropped:
        say(f"{wire.events.dropped:,} events were dropped: the broker was away, or too slow")


async def _connect(wire: Wire, url: str, tried: asyncio.Event, say: Callable[[str], None]) -> None:
    """Have the bus, now or later, until this is cancelled.

    :raises ConfigError: there is none of that kind.
    """
    pause = _FIRST_RETRY_SECONDS
    while True:
        try:
            async with assembly.opened_bus(url) as bus:
                try:
                    await wire.attach(bus)
                except BusError as error:
                    say(f"{_sentence(error)} So the crawl hears of a pause or a stop within two seconds, not at once")
                tried.set()
                await asyncio.get_running_loop().create_future()
        except Exception as error:
            # What goes wrong later is no fault of the address, and not to be the crawl's.
            if not tried.is_set() and not isinstance(error, BusError):
                raise
            if not tried.is_set():
                say(
                    f"{_sentence(error)} The crawl goes on without; once the bus is there, it tells its events and "
                    "hears at once"
                )
        finally:
            tried.set()
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_RETRY_SECONDS)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _feed_of(address: str, crawl: str) -> tuple[str, str]:
    """:raises ConfigError: it names something that is no topic."""
    try:
        return split_topic(address, f"feed.{word(crawl)}")
    except ValueError as error:
        raise ConfigError(f"the feed: {error}") from error


def _sentence(error: Exception) -> str:
    text = str(error)
    return text if text.endswith((".", "?")) else f"{text}."

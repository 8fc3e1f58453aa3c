"""The one connection of a bus, which comes back by itself.

aio-pika's robust connection is not used, but the driver below it: robust, it restores queues and consumers, but sends
nothing again, nor tells what happened. Here a lost connection is made again, to the next node, and those who
need one wait for it; what they had on the old one they set up anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import aiormq
from aiormq.abc import AbstractChannel, AbstractConnection

from weft.bus.base import Connection, Listener
from weft.bus.rabbitmq.address import Address
from weft.bus.rabbitmq.errors import Lost, connecting, driver
from weft.errors import BusError, BusRefused, BusUnavailable

T = TypeVar("T")

_CONNECT_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.2
"""Before something is tried again that failed while the connection stands."""
STALLED_SECONDS: Final = 5.0
"""After so long without an answer a channel is given up."""


class Link:
    """Made by :meth:`open`."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._tls = address.tls()
        self._number = 0  # of the node that is tried next, or connected
        self._connection: AbstractConnection | None = None
        self._changed = asyncio.Event()
        self._end: BusError | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._listeners: list[Listener] = []

    @classmethod
    async def open(cls, address: Address) -> Link:
        """:raises BusUnavailable: no node can be reached. :raises BusRefused: one says no."""
        link = cls(address)
        link._connection = await link._connect()
        link._keeper = asyncio.create_task(link._keep(), name=f"connection to {link.place}")
        return link

    @property
    def node(self) -> tuple[str, int]:
        """The one that is connected, or was last."""
        return self.address.nodes[self._number]

    @property
    def place(self) -> str:
        return _place(self.node)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def connection(self) -> AbstractConnection:
        """The connection; waits for it while it is away.

        :raises BusError: it is closed, or given up.
        """
        while True:
            if self._end is not None:
                raise self._end
            if self._connection is not None and not self._connection.is_closed:
                return self._connection
            self._changed.clear()
            await self._changed.wait()

    async def errand(self, do: Callable[[AbstractChannel], Awaitable[T]], *, confirms: bool = False) -> T:
        """What ``do`` returns, which gets a channel of its own, and again another if that is lost.

        :raises BusUnavailable: the time is up.
        :raises BusRefused: the broker says no.
        """
        what = "it does not answer"
        try:
            async with asyncio.timeout(self.address.options.timeout):
                while True:
                    connection = await self.connection()
                    try:
                        with driver():
                            channel = await connection.channel(publisher_confirms=confirms)
                            try:
                                return await do(channel)
                            finally:
                                await channel.close()
                    except Lost as lost:
                        what = str(lost)
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise self.too_late(what) from None

    def too_late(self, what: str) -> BusUnavailable:
        return BusUnavailable(
            f"RabbitMQ at {_places(self.address)} did not do it within {self.address.options.timeout:g} s: {what}"
        )

    async def close(self) -> None:
        given_up, self._end = self._end is not None, BusError("the bus is closed")
        self._changed.set()
        if self._keeper:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._connection:
            with contextlib.suppress(Lost), driver():
                await self._connection.close()
        if not given_up:
            self._tell(Connection.CLOSED, "closed")

    async def _keep(self) -> None:
        while self._connection is not None:
            closing = self._connection.closing
            await asyncio.wait([closing])
            self._connection = None
            self._tell(Connection.LOST, f"{self.place}: {_why(closing)}")
            self._number = (self._number + 1) % len(self.address.nodes)
            try:
                self._connection = await self._again()
            except BusError as error:
                self._end = error
                self._tell(Connection.CLOSED, str(error))
            else:
                self._tell(Connection.UP, self.place)
            self._changed.set()

    async def _again(self) -> AbstractConnection:
        options = self.address.options
        rounds = 0
        while True:
            try:
                return await self._connect()
            except BusError as error:
                # Also what is refused: a node that has just started does not know its users and vhosts yet.
                rounds += 1
                if rounds == options.attempts:
                    raise BusUnavailable(f"given up after {rounds} tries: {error}") from error
            await asyncio.sleep(options.delay)

    async def _connect(self) -> AbstractConnection:
        address, failures = self.address, []
        for _ in address.nodes:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    with connecting(address.user, address.vhost):
                        return await aiormq.connect(address.node_url(self.node), context=self._tls)
            except BusRefused as refused:
                raise BusRefused(f"{self.place}: {refused}") from refused
            except TimeoutError:
                failures.append(f"{self.place}: no answer within {_CONNECT_SECONDS:g} s")
            except Lost as lost:
                failures.append(f"{self.place}: {lost}")
            self._number = (self._number + 1) % len(address.nodes)
        raise BusUnavailable(f"no RabbitMQ can be reached; tried {'; '.join(failures)}")

    def _tell(self, state: Connection, why: str) -> None:
        for listener in self._listeners:
            listener(state, why)


async def close(channel: AbstractChannel) -> None:
    """Whatever state it is in."""
    with contextlib.suppress(Lost, BusRefused), driver():
        await channel.close()


def _place(node: tuple[str, int]) -> str:
    return f"{node[0]}:{node[1]}"


def _places(address: Address) -> str:
    return ", ".join(_place(node) for node in address.nodes)


def _why(closing: asyncio.Future[object]) -> str:
    error = None if closing.cancelled() else closing.exception()
    return " ".join(map(str, error.args)) if error and error.args else "the connection was closed"

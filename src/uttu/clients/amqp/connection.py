"""One AMQP connection that reconnects by itself.

Uses aiormq and not aio-pika's robust connection: that one restores queues and consumers after a reconnect, but neither
repeats unconfirmed publishes nor reports what happened. Here a lost connection is opened again, to the next node of the
cluster. Callers wait for it (:meth:`AmqpConnection.connection`) and set up their own channels anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import aiormq
from aiormq.abc import AbstractChannel, AbstractConnection

from uttu.clients import ConnectionListener, ConnectionState
from uttu.clients.amqp.address import AmqpAddress
from uttu.clients.amqp.errors import ConnectionLost, map_connect_errors, map_errors
from uttu.clients.errors import summarize_error
from uttu.errors import BusError, BusRefused, BusUnavailable

T = TypeVar("T")

_CONNECT_SECONDS: Final = 10.0
_log = logging.getLogger("uttu.bus")
RETRY_SECONDS: Final = 0.2
"""Seconds to wait before an operation is repeated on a new channel."""
ANSWER_SECONDS: Final = 5.0
"""Seconds to wait for the broker's answer on a channel; after that the channel is closed and replaced."""


class AmqpConnection:
    """A connection to one node at a time; create it with :meth:`open`.

    A task waits for the connection to close and then opens a new one, starting at the next node. If that fails for good
    (``attempts`` of the address), every method raises the last error.
    """

    def __init__(self, address: AmqpAddress) -> None:
        self.address = address
        self._tls = address.tls()
        self._number = 0  # index of the node that is connected, or tried next
        self._connection: AbstractConnection | None = None
        self._changed = asyncio.Event()
        self._end: BusError | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._listeners: list[ConnectionListener] = []

    @classmethod
    async def open(cls, address: AmqpAddress) -> AmqpConnection:
        """Connect to the first node that answers.

        :raises BusUnavailable: no node can be reached.
        :raises BusRefused: a node refuses the login or the vhost.
        """
        link = cls(address)
        link._connection = await link._connect()
        link._keeper = asyncio.create_task(link._keep(), name=f"connection to {link.place}")
        return link

    @property
    def node(self) -> tuple[str, int]:
        """Host and port of the connected node, or of the next one to try."""
        return self.address.nodes[self._number]

    @property
    def place(self) -> str:
        return _format_node(self.node)

    def listen(self, listener: ConnectionListener) -> None:
        self._listeners.append(listener)

    async def connection(self) -> AbstractConnection:
        """Return the open connection; wait for it during a reconnect.

        :raises BusError: :meth:`close` was called, or the last attempt to reconnect has failed.
        """
        while True:
            if self._end is not None:
                raise self._end
            if self._connection is not None and not self._connection.is_closed:
                return self._connection
            self._changed.clear()
            await self._changed.wait()

    async def with_channel(self, do: Callable[[AbstractChannel], Awaitable[T]], *, confirms: bool = False) -> T:
        """Call ``do`` with a new channel, and return its result. Repeat with another channel if the channel is lost.

        ``do`` may run several times, so it must be idempotent.

        :param confirms: enable publisher confirms on the channel.
        :raises BusUnavailable: the address's ``timeout`` has passed.
        :raises BusRefused: the broker refuses the operation.
        """
        what = "it does not answer"
        try:
            async with asyncio.timeout(self.address.options.timeout):
                while True:
                    connection = await self.connection()
                    try:
                        with map_errors():
                            channel = await connection.channel(publisher_confirms=confirms)
                            try:
                                return await do(channel)
                            finally:
                                await channel.close()
                    except ConnectionLost as lost:
                        what = str(lost)
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            raise self.too_late(what) from None

    def too_late(self, what: str) -> BusUnavailable:
        return BusUnavailable(
            f"RabbitMQ at {_format_nodes(self.address)} did not do it within {self.address.options.timeout:g} s: {what}"
        )

    async def close(self) -> None:
        given_up, self._end = self._end is not None, BusError("the bus is closed")
        self._changed.set()
        if self._keeper:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._connection:
            with contextlib.suppress(ConnectionLost), map_errors():
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._connection.close()
        if not given_up:
            self._tell(ConnectionState.CLOSED, "closed")

    async def _keep(self) -> None:
        while self._connection is not None:
            closing = self._connection.closing
            await asyncio.wait([closing])
            self._connection = None
            self._tell(ConnectionState.LOST, f"{self.place}: {_describe_closing(closing)}")
            self._number = (self._number + 1) % len(self.address.nodes)
            try:
                self._connection = await self._again()
            except Exception as error:
                # Catch unexpected errors, too: unless _end is set, callers of connection() would wait without limit.
                self._end = error if isinstance(error, BusError) else BusError(summarize_error(error))
                self._tell(ConnectionState.CLOSED, str(self._end))
            else:
                self._tell(ConnectionState.UP, self.place)
            self._changed.set()

    async def _again(self) -> AbstractConnection:
        options = self.address.options
        rounds = 0
        while True:
            try:
                return await self._connect()
            except BusError as error:
                # Retry after BusRefused as well: a node that has just started has not loaded its users and vhosts yet.
                rounds += 1
                if rounds == options.attempts:
                    raise BusUnavailable(f"given up after {rounds} tries: {error}") from error
            await asyncio.sleep(options.delay)

    async def _connect(self) -> AbstractConnection:
        address, failures = self.address, []
        for _ in address.nodes:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    with map_connect_errors(address.user, address.vhost):
                        return await aiormq.connect(address.node_url(self.node), context=self._tls)
            except BusRefused as refused:
                raise BusRefused(f"{self.place}: {refused}") from refused
            except TimeoutError:
                failures.append(f"{self.place}: no answer within {_CONNECT_SECONDS:g} s")
            except ConnectionLost as lost:
                failures.append(f"{self.place}: {lost}")
            self._number = (self._number + 1) % len(address.nodes)
        raise BusUnavailable(f"no RabbitMQ can be reached; tried {'; '.join(failures)}")

    def _tell(self, state: ConnectionState, why: str) -> None:
        _log.info("RabbitMQ: %s: %s", state.value, why)
        for listener in self._listeners:
            listener(state, why)


async def close_channel(channel: AbstractChannel) -> None:
    """Close a channel, and ignore all errors; it may be broken or closed already."""
    with contextlib.suppress(ConnectionLost, BusRefused), map_errors():
        async with asyncio.timeout(ANSWER_SECONDS):
            await channel.close()


def _format_node(node: tuple[str, int]) -> str:
    return f"{node[0]}:{node[1]}"


def _format_nodes(address: AmqpAddress) -> str:
    return ", ".join(_format_node(node) for node in address.nodes)


def _describe_closing(closing: asyncio.Future[object]) -> str:
    error = None if closing.cancelled() else closing.exception()
    return " ".join(map(str, error.args)) if error and error.args else "the connection was closed"

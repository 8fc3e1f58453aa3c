"""One AMQP connection that reconnects by itself, and the mapping of aiormq's errors.

Uses aiormq and not aio-pika's robust connection: that one restores queues and consumers after a reconnect, but neither
repeats unconfirmed publishes nor reports what happened. Here a lost connection is opened again, to the next node of the
cluster. Callers wait for it (:meth:`AmqpConnection.connection`) and set up their own channels anew.

A lost connection or channel becomes :class:`ConnectionLost`: the caller repeats the operation on a new one. A refusal
by the broker becomes :class:`uttu.errors.BusRefused`, or one of its subclasses here if the caller can act on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

import aiormq
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    InvalidFrameError,
    ProbableAuthenticationError,
)

from uttu.clients import ConnectionListener, ConnectionListeners, ConnectionState, is_raised_in, summarize_error
from uttu.clients.amqp.address import AmqpAddress
from uttu.errors import BusError, BusRefused, BusUnavailable

# Errors reach callers as exceptions and listeners as states. Without a handler, logging would also print aiormq's
# records, with their tracebacks, to stderr.
logging.getLogger("aiormq").addHandler(logging.NullHandler())

_DRIVER: Final = frozenset({"aiormq", "pamqp", "yarl"})

# The broker truncates its message to 255 bytes, so the second part may be missing.
_find_mismatch: Final = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' for (?P<kind>\w+) '(?P<name>[^']+)'"
    r"(?: in vhost '[^']*': received (?P<wanted>.*?) but current is (?P<existing>.*))?"
).search


class ConnectionLost(Exception):
    """The connection or the channel was lost."""


class EntityNotFound(BusRefused):
    """The queue or exchange does not exist."""


class DeclarationMismatch(BusRefused):
    """The queue or exchange exists with another value of ``argument`` (empty if the broker does not name it)."""

    def __init__(self, text: str, argument: str = "") -> None:
        super().__init__(text)
        self.argument = argument


@contextlib.contextmanager
def map_errors() -> Iterator[None]:
    """Map every error of the driver that is raised in the block.

    :raises ConnectionLost: repeat the operation on a new channel.
    :raises BusRefused: the broker refuses; a retry would fail in the same way.
    """
    try:
        yield
    except ChannelNotFoundEntity as error:
        # Other 404s pass: a classic queue, for example, is unavailable while its node is down.
        if "no queue" in str(error) or "no exchange" in str(error):
            raise EntityNotFound(_describe(error)) from error
        raise ConnectionLost(_describe(error)) from error
    except ChannelPreconditionFailed as error:
        raise _parse_mismatch(_describe(error)) from error
    except (ChannelAccessRefused, ChannelLockedResource) as error:
        raise BusRefused(f"RabbitMQ denies access: {_describe(error)}") from error
    except (AMQPError, ChannelInvalidStateError, OSError) as error:
        raise ConnectionLost(_describe(error)) from error
    except BusError:
        raise
    except Exception as error:
        # When a connection ends in the middle of a call, the driver raises arbitrary errors. Errors that were raised
        # in Uttu's code propagate unchanged.
        if not isinstance(error, RuntimeError) and not is_raised_in(error, _DRIVER):
            raise
        raise ConnectionLost(f"The connection broke ({summarize_error(error)})") from error
    except asyncio.CancelledError as error:
        # The driver cancels its futures when the connection is lost. In that case nobody has cancelled this task.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ConnectionLost("The connection was closed") from error


@contextlib.contextmanager
def map_connect_errors(user: str, vhost: str) -> Iterator[None]:
    """Like :func:`map_errors`, for the block that connects and logs in.

    :raises BusRefused: the login is wrong, or the vhost can't be used.
    """
    try:
        with map_errors():
            yield
    except ConnectionLost as lost:
        cause = lost.__cause__
        text = str(lost)
        if isinstance(cause, (ProbableAuthenticationError, AuthenticationError)):
            raise BusRefused(f"RabbitMQ refuses the login of {user}: {text}") from cause
        # The driver reports only that Connection.OpenOk did not come, and not the broker's answer instead of it.
        if isinstance(cause, InvalidFrameError) and "Connection.OpenOk" in text:
            raise BusRefused(
                f"The vhost {vhost} does not exist or is not ready, or {user} has no access to it"
            ) from cause
        raise


def _parse_mismatch(text: str) -> DeclarationMismatch:
    match = _find_mismatch(text)
    if not match:
        return DeclarationMismatch(text)
    argument = match["argument"]
    difference = f"another {argument}"
    if match["existing"] is not None:
        difference = f"{argument}={_parse_value(match['existing'])}, not {_parse_value(match['wanted'])}"
    return DeclarationMismatch(
        f"The {match['kind']} {match['name']} exists with {difference}. Use another name, or delete it first", argument
    )


def _parse_value(text: str) -> str:
    # The text is "the value 'x' of type 'longstr'", "'x'" or "none".
    quoted = re.search(r"'(.*?)'(?: of type '\w+')?$", text)
    return quoted[1] if quoted else text


def _describe(error: BaseException) -> str:
    return " ".join(str(part) for part in error.args) or repr(error)


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
        self._node_index = 0  # of the node that is connected, or tried next
        self._connection: AbstractConnection | None = None
        self._changed = asyncio.Event()
        self._final_error: BusError | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._listeners = ConnectionListeners()

    @classmethod
    async def open(cls, address: AmqpAddress) -> AmqpConnection:
        """Connect to the first node that answers.

        :raises BusUnavailable: no node can be reached.
        :raises BusRefused: a node refuses the login or the vhost.
        """
        connection = cls(address)
        connection._connection = await connection._connect()
        connection._reconnecting = asyncio.create_task(
            connection._reconnect_when_lost(), name=f"connection to {connection.node_name}"
        )
        return connection

    @property
    def node(self) -> tuple[str, int]:
        """Host and port of the connected node, or of the next one to try."""
        return self.address.nodes[self._node_index]

    @property
    def node_name(self) -> str:
        return _format_node(self.node)

    def listen(self, listener: ConnectionListener) -> None:
        self._listeners.add(listener)

    async def connection(self) -> AbstractConnection:
        """Return the open connection; wait for it during a reconnect.

        :raises BusError: :meth:`close` was called, or the last attempt to reconnect has failed.
        """
        while True:
            if self._final_error is not None:
                raise self._final_error
            if self._connection is not None and not self._connection.is_closed:
                return self._connection
            self._changed.clear()
            await self._changed.wait()

    async def with_channel(self, operation: Callable[[AbstractChannel], Awaitable[T]], *, confirms: bool = False) -> T:
        """Call ``operation`` with a new channel, and return its result. Repeat with another channel if it is lost.

        The operation may run several times, so it must be idempotent.

        :param confirms: enable publisher confirms on the channel.
        :raises BusUnavailable: the address's ``timeout`` has passed.
        :raises BusRefused: the broker refuses the operation.
        """
        reason = "no answer"
        try:
            async with asyncio.timeout(self.address.options.timeout):
                while True:
                    connection = await self.connection()
                    try:
                        with map_errors():
                            channel = await connection.channel(publisher_confirms=confirms)
                            try:
                                return await operation(channel)
                            finally:
                                await channel.close()
                    except ConnectionLost as lost:
                        reason = str(lost)
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            raise self.time_out(reason) from None

    def time_out(self, reason: str) -> BusUnavailable:
        """Return the error for an operation that took longer than the address's ``timeout``."""
        return BusUnavailable(
            f"RabbitMQ at {_format_nodes(self.address)} did not complete the operation within "
            f"{self.address.options.timeout:g} s: {reason}"
        )

    async def close(self) -> None:
        has_failed, self._final_error = self._final_error is not None, BusError("The bus is closed")
        self._changed.set()
        if self._reconnecting:
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
        if self._connection:
            with contextlib.suppress(ConnectionLost), map_errors():
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._connection.close()
        if not has_failed:
            self._report(ConnectionState.CLOSED, "closed")

    async def _reconnect_when_lost(self) -> None:
        while self._connection is not None:
            closing = self._connection.closing
            await asyncio.wait([closing])
            self._connection = None
            self._report(ConnectionState.LOST, f"{self.node_name}: {_describe_closing(closing)}")
            self._node_index = (self._node_index + 1) % len(self.address.nodes)
            try:
                self._connection = await self._reconnect()
            except Exception as error:
                # Catch unexpected errors, too: without _final_error, callers of connection() would wait without limit.
                self._final_error = error if isinstance(error, BusError) else BusError(summarize_error(error))
                self._report(ConnectionState.CLOSED, str(self._final_error))
            else:
                self._report(ConnectionState.UP, self.node_name)
            self._changed.set()

    async def _reconnect(self) -> AbstractConnection:
        options = self.address.options
        rounds = 0
        while True:
            try:
                return await self._connect()
            except BusError as error:
                # Retry after BusRefused as well: a node that has just started has not loaded its users and vhosts yet.
                rounds += 1
                if rounds == options.attempts:
                    raise BusUnavailable(f"Gave up after {rounds} attempts to reconnect: {error}") from error
            await asyncio.sleep(options.delay)

    async def _connect(self) -> AbstractConnection:
        address, failures = self.address, []
        for _ in address.nodes:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    with map_connect_errors(address.user, address.vhost):
                        return await aiormq.connect(address.node_url(self.node), context=self._tls)
            except BusRefused as refused:
                raise BusRefused(f"{self.node_name}: {refused}") from refused
            except TimeoutError:
                failures.append(f"{self.node_name}: no answer within {_CONNECT_SECONDS:g} s")
            except ConnectionLost as lost:
                failures.append(f"{self.node_name}: {lost}")
            self._node_index = (self._node_index + 1) % len(address.nodes)
        raise BusUnavailable(f"Cannot connect to RabbitMQ: {'; '.join(failures)}")

    def _report(self, state: ConnectionState, reason: str) -> None:
        _log.info("RabbitMQ: %s: %s", state.value, reason)
        self._listeners.notify(state, reason)


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
    return " ".join(map(str, error.args)) if error and error.args else "The connection was closed"

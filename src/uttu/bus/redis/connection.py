"""The connection to the Redis server that is the broker, and the options of the bus in its address.

:class:`BrokerConnection` runs the operations of ``lua/``, retries while the server is unavailable, and calls listeners
when the server becomes unavailable and when it is back. :class:`RedisBusOptions` are the options in addition to those
of :mod:`uttu.clients.redis.address`: ``bus``, ``timeout``, ``takeover``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
import redis.asyncio as aioredis
import redis.exceptions as refused

from uttu import former
from uttu.bus.topics import check_group
from uttu.clients import ConnectionListener, ConnectionState
from uttu.clients.addresses import mask_password
from uttu.clients.redis import connection
from uttu.clients.redis.address import RedisClient, make_clients, parse_options
from uttu.clients.redis.connection import DedicatedConnection, check_server, execute_at
from uttu.clients.redis.errors import REDIS_ERRORS, Retrier, call_driver, describe_error, explain_error, is_temporary
from uttu.clients.redis.rename import has_former_keys
from uttu.clients.redis.scripts import LuaLibrary, LuaOperations
from uttu.errors import BusError, BusRefused, BusUnavailable, ConfigError

BUS_OPTION_NAMES: Final = ("bus", "timeout", "takeover")


class RedisBusOptions(msgspec.Struct, frozen=True):
    """The options of the bus in an address."""

    bus: str = "uttu"
    """The name of the bus; several buses may share a server."""
    timeout: float = 30.0
    """Seconds to wait for a server that is unavailable."""
    takeover: float = 15.0
    """Seconds without a heartbeat after which a subscriber's messages go to others of its group."""

    @property
    def prefix(self) -> str:
        """The prefix of all keys and channels."""
        return f"uttu:bus:{{{self.bus}}}:"


def parse_bus_options(url: str) -> RedisBusOptions:
    """Parse the options of the bus in a URL.

    :raises ConfigError: an option has an invalid value.
    """
    given: dict[str, str | float] = {}
    for name, text in parse_options(url):
        if name not in BUS_OPTION_NAMES:
            continue
        try:
            if name == "bus":
                check_group(text)
                given[name] = text
            else:
                given[name] = _parse_seconds(text)
        except ValueError as error:
            raise ConfigError(
                f"{mask_password(url)}: the value of option {name!r} is not of its kind: {error}"
            ) from error
    return RedisBusOptions(**given)  # type: ignore[arg-type]


def _parse_seconds(text: str) -> float:
    number = float(text)
    if not 1 <= number <= 86_400:
        raise ValueError("write seconds, from 1 to 86400")
    return number


T = TypeVar("T")

_LIBRARY: Final = LuaLibrary.read("uttu.bus.redis", relief=True)
_LARGEST: Final = 512 * 1024 * 1024  # bytes; the default of the server's proto-max-bulk-len
_log = logging.getLogger("uttu.bus")


class BrokerConnection:
    """The connection of a bus to a server or a cluster. Create it with :meth:`connect`.

    :raises BusUnavailable: from every method, if the server is unavailable for longer than the time limit of the call.
    :raises BusRefused: from every method, if the server refuses a command and a retry would not help.
    """

    def __init__(
        self, client: RedisClient, place: str, options: RedisBusOptions, beside: Sequence[aioredis.Redis] = ()
    ) -> None:
        self.options = options
        self.place = place
        self.is_durable = False
        self.is_closing = False
        self.largest = _LARGEST
        self.retry = Retrier(self._waits, self._refusal, self._away, self._back)
        self._client = client
        self._beside = beside
        self._key = options.prefix + "groups"
        self._operations = LuaOperations(client, _LIBRARY)
        self._listeners: list[ConnectionListener] = []
        self._is_lost = False

    @classmethod
    async def connect(cls, url: str) -> BrokerConnection:
        """Connect, and check that the server is suitable. A failure is not retried.

        :raises BusUnavailable: the server can't be reached.
        :raises BusRefused: the server refuses the login, or is unsuitable.
        :raises ConfigError: the URL is malformed.
        """
        options = parse_bus_options(url)
        client, beside = make_clients(url, BUS_OPTION_NAMES)
        server = cls(client, mask_password(url), options, beside)
        try:
            await server._check()
        except BaseException:
            await server.close()
            raise
        return server

    async def operate(self, operation: str, *arguments: Any, seconds: float | None = None, relief: bool = True) -> Any:
        """Run an operation of ``lua/``, and retry while the server is unavailable.

        :param seconds: how long to retry; None for no limit.
        :param relief: run it also if the server is over maxmemory; for all operations except ``publish`` and ``join``.
        """
        words = [self.options.prefix, operation, *arguments]
        return await self.retry(lambda: self._run(words, relief), seconds)

    async def ping(self) -> None:
        await self.retry(lambda: execute_at(self._client, self._key, "PING"))

    async def unblock(self, number: int) -> None:
        """Try to end the blocking command of the connection with this client id. Errors are ignored."""
        with contextlib.suppress(*REDIS_ERRORS):
            await call_driver(execute_at(self._client, self._key, "CLIENT UNBLOCK", number))

    def line(self) -> DedicatedConnection:
        """Return a dedicated connection, for blocking commands and pub/sub; it is not open yet."""
        return DedicatedConnection(self._client, self._key)

    def listen(self, listener: ConnectionListener) -> None:
        self._listeners.append(listener)

    def tell(self, state: ConnectionState, what: str) -> None:
        """Call all listeners."""
        for listener in self._listeners:
            listener(state, what)

    async def close(self) -> None:
        await connection.close_clients(self._client, self._beside)

    async def _run(self, words: list[Any], relief: bool) -> Any:
        try:
            return await self._operations.run(self._key, words, relief=relief)
        except refused.OutOfMemoryError as error:
            if relief:
                raise
            # Don't retry: memory becomes free only when messages are handled, and that may never happen.
            raise BusRefused(
                f"{self.place}: its memory is full (maxmemory); have messages handled or purged first"
            ) from error

    def _waits(self, error: Exception) -> bool:
        return is_temporary(error) and not self.is_closing

    def _refusal(self, error: Exception) -> BusError:
        return (BusUnavailable if is_temporary(error) else BusRefused)(explain_error(self.place, error))

    def _away(self, error: Exception) -> None:
        if not self._is_lost:
            self._is_lost = True
            _log.warning("%s: %s. Waiting for it", self.place, describe_error(error))
            self.tell(ConnectionState.LOST, describe_error(error))

    def _back(self, away: float) -> None:
        if self._is_lost:
            self._is_lost = False
            _log.warning("%s is back after %.0f s", self.place, away)
            self.tell(ConnectionState.UP, f"back after {away:.0f} s")

    async def _check(self) -> None:
        """Check version, role, permissions and durability, so that a problem shows at the start and not later."""
        try:
            problem, is_durable = await call_driver(check_server(self._client))
            if problem:
                raise BusRefused(f"{self.place}: {problem}")
            self.is_durable = is_durable
            await call_driver(self._operations.run(self._key, [self.options.prefix, "nothing"], relief=True))
            old = f"weft:bus:{{{former.former_name(self.options.bus)}}}:groups"
            if await has_former_keys(self._client, old, self._key):
                raise BusRefused(
                    f"{self.place} has a bus of Weft, as Uttu was called before. Rename its keys with: "
                    f"{former.COMMAND} {self.place}"
                )
        except REDIS_ERRORS as error:
            raise self._refusal(error) from error
        if not self.is_durable:
            _log.warning(
                "%s keeps what it knows in memory only (appendonly no): if it is restarted, messages are lost",
                self.place,
            )
        with contextlib.suppress(*REDIS_ERRORS):  # the user may lack permission for CONFIG
            answer = await call_driver(execute_at(self._client, self._key, "CONFIG GET", "proto-max-bulk-len"))
            self.largest = int(next(iter(answer.values()))) if answer else _LARGEST


async def cancel_and_wait(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def report_failure(work: Awaitable[None], fail: Callable[[Exception], None]) -> None:
    """Await ``work``, and call ``fail`` if it raises a ``BusError``."""
    try:
        await work
    except BusError as error:
        fail(error)

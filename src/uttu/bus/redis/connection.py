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
from uttu.clients import ConnectionListeners, ConnectionState
from uttu.clients.addresses import mask_password
from uttu.clients.redis import connection
from uttu.clients.redis.address import RedisClient, make_clients, parse_options
from uttu.clients.redis.connection import DedicatedConnection, check_server, execute_at, fetch_info
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
    options: dict[str, str | float] = {}
    for name, text in parse_options(url):
        if name not in BUS_OPTION_NAMES:
            continue
        try:
            if name == "bus":
                check_group(text)
                options[name] = text
            else:
                options[name] = _parse_seconds(text)
        except ValueError as error:
            raise ConfigError(f"{mask_password(url)}: the option {name!r} has an invalid value: {error}") from error
    return RedisBusOptions(**options)  # type: ignore[arg-type]


def _parse_seconds(text: str) -> float:
    number = float(text)
    if not 1 <= number <= 86_400:
        raise ValueError("write seconds, from 1 to 86400")
    return number


T = TypeVar("T")

_LIBRARY: Final = LuaLibrary.read("uttu.bus.redis", relief=True)
_DEFAULT_MAX_BYTES: Final = 512 * 1024 * 1024  # bytes; the default of the server's proto-max-bulk-len
_log = logging.getLogger("uttu.bus")


class BrokerConnection:
    """The connection of a bus to a server or a cluster. Create it with :meth:`connect`.

    :raises BusUnavailable: from every method, if the server is unavailable for longer than the time limit of the call.
    :raises BusRefused: from every method, if the server refuses a command and a retry would not help.
    """

    def __init__(
        self, client: RedisClient, place: str, options: RedisBusOptions, sentinels: Sequence[aioredis.Redis] = ()
    ) -> None:
        self.options = options
        self.place = place
        self.is_durable = False
        self.is_closing = False
        self.max_bytes = _DEFAULT_MAX_BYTES
        self.listeners = ConnectionListeners()
        self.retry = Retrier(self._should_retry, self._map_error, self._report_lost, self._report_restored)
        self._client = client
        self._sentinels = sentinels
        self._key = options.prefix + "groups"
        self._operations = LuaOperations(client, _LIBRARY)
        self._is_lost = False

    @classmethod
    async def connect(cls, url: str) -> BrokerConnection:
        """Connect, and check that the server is suitable. A failure is not retried.

        :raises BusUnavailable: the server can't be reached.
        :raises BusRefused: the server refuses the login, or is unsuitable.
        :raises ConfigError: the URL is malformed.
        """
        options = parse_bus_options(url)
        client, sentinels = make_clients(url, BUS_OPTION_NAMES)
        server = cls(client, mask_password(url), options, sentinels)
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
        call = [self.options.prefix, operation, *arguments]
        return await self.retry(lambda: self._run(call, relief), seconds)

    async def ping(self) -> None:
        await self.retry(lambda: execute_at(self._client, self._key, "PING"))

    async def version(self) -> tuple[str, tuple[str, ...]]:
        """Return the software with its version, and the nodes with their roles."""
        infos = await self.retry(lambda: fetch_info(self._client), self.options.timeout)
        first = infos[0]
        name = "Valkey" if "valkey_version" in first else "Redis"
        version = first.get("valkey_version") or first.get("redis_version", "")
        nodes = [f"port {info.get('tcp_port')}, {info.get('role')}, {info.get('used_memory_human')}" for info in infos]
        return f"{name} {version}", tuple(nodes)

    async def unblock(self, client_id: int) -> None:
        """Try to end the blocking command of the connection with this id. Errors are ignored."""
        with contextlib.suppress(*REDIS_ERRORS):
            await call_driver(execute_at(self._client, self._key, "CLIENT UNBLOCK", client_id))

    def create_dedicated(self) -> DedicatedConnection:
        """Return a dedicated connection, for blocking commands and pub/sub; it is not open yet."""
        return DedicatedConnection(self._client, self._key)

    async def close(self) -> None:
        await connection.close_clients(self._client, self._sentinels)

    async def _run(self, call: list[Any], relief: bool) -> Any:
        try:
            return await self._operations.run(self._key, call, relief=relief)
        except refused.OutOfMemoryError as error:
            if relief:
                raise
            # Don't retry: memory becomes free only when messages are handled, and that may never happen.
            raise BusRefused(
                f"{self.place}: Redis is out of memory (maxmemory). Handle or purge messages, or raise maxmemory"
            ) from error

    def _should_retry(self, error: Exception) -> bool:
        return is_temporary(error) and not self.is_closing

    def _map_error(self, error: Exception) -> BusError:
        return (BusUnavailable if is_temporary(error) else BusRefused)(explain_error(self.place, error))

    def _report_lost(self, error: Exception) -> None:
        if not self._is_lost:
            self._is_lost = True
            _log.warning("%s: %s. Retrying until it is back", self.place, describe_error(error))
            self.listeners.notify(ConnectionState.LOST, describe_error(error))

    def _report_restored(self, seconds: float) -> None:
        if self._is_lost:
            self._is_lost = False
            _log.warning("%s is back after %.0f s", self.place, seconds)
            self.listeners.notify(ConnectionState.UP, f"back after {seconds:.0f} s")

    async def _check(self) -> None:
        """Check version, role, permissions and durability, so that a problem shows at the start and not later."""
        try:
            problem, is_durable = await call_driver(check_server(self._client))
            if problem:
                raise BusRefused(f"{self.place}: {problem}")
            self.is_durable = is_durable
            await call_driver(self._operations.run(self._key, [self.options.prefix, "ping"], relief=True))
            old = f"weft:bus:{{{former.former_name(self.options.bus)}}}:groups"
            if await has_former_keys(self._client, old, self._key):
                raise BusRefused(
                    f"{self.place} has a bus of Weft, the former name of Uttu. Rename its keys with: "
                    f"{former.COMMAND} {self.place}"
                )
        except REDIS_ERRORS as error:
            raise self._map_error(error) from error
        if not self.is_durable:
            _log.warning(
                "%s keeps its data in memory only (appendonly no): messages are lost if it restarts",
                self.place,
            )
        with contextlib.suppress(*REDIS_ERRORS):  # the user may lack permission for CONFIG
            answer = await call_driver(execute_at(self._client, self._key, "CONFIG GET", "proto-max-bulk-len"))
            self.max_bytes = int(next(iter(answer.values()))) if answer else _DEFAULT_MAX_BYTES


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

"""The way to the server that is the broker: operations, waiting for one that is away, and telling of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import redis.asyncio as aioredis
import redis.exceptions as refused

from weft.bus.base import Connection, Listener
from weft.bus.redis.options import OPTIONS, Options, options_of
from weft.drivers.redis.address import Client, clients
from weft.drivers.redis.library import Library, Operations
from weft.drivers.redis.line import Line
from weft.drivers.redis.nodes import at, examined
from weft.drivers.redis.patience import Patience, driven
from weft.drivers.redis.refusals import REFUSALS, explained, passes, reason
from weft.drivers.urls import masked
from weft.errors import BusError, BusRefused, BusUnavailable

T = TypeVar("T")

_LIBRARY: Final = Library.read("weft.bus.redis", relief=True)
_LARGEST: Final = 512 * 1024 * 1024  # unless the server says otherwise
_log = logging.getLogger("weft.bus")


class Server:
    """A server, or a cluster of them. Open it with :meth:`connect`.

    :raises BusUnavailable: by all methods: it was away for too long.
    :raises BusRefused: by all methods: it says no, and waiting won't help.
    """

    def __init__(self, client: Client, place: str, options: Options, beside: Sequence[aioredis.Redis] = ()) -> None:
        self.options = options
        self.place = place
        self.is_durable = False
        self.is_closing = False
        self.largest = _LARGEST
        self.patiently = Patience(self._waits, self._refusal, self._away, self._back)
        self._client = client
        self._beside = beside
        self._key = options.prefix + "groups"
        self._operations = Operations(client, _LIBRARY)
        self._listeners: list[Listener] = []
        self._is_lost = False

    @classmethod
    async def connect(cls, url: str) -> Server:
        """:raises BusUnavailable: it can't be reached: no second try.
        :raises BusRefused: it can't be used.
        :raises ConfigError: the URL is none.
        """
        options = options_of(url)
        client, beside = clients(url, OPTIONS)
        server = cls(client, masked(url), options, beside)
        try:
            await server._check()
        except BaseException:
            await server.close()
            raise
        return server

    async def operate(self, operation: str, *arguments: Any, seconds: float | None = None, relief: bool = True) -> Any:
        """An operation of the library; with ``relief`` also when the server is out of memory."""
        words = [self.options.prefix, operation, *arguments]
        return await self.patiently(lambda: self._run(words, relief), seconds)

    async def ping(self) -> None:
        await self.patiently(lambda: at(self._client, self._key, "PING"))

    async def unblock(self, number: int) -> None:
        """End the wait of another connection, if that is possible."""
        with contextlib.suppress(*REFUSALS):
            await driven(at(self._client, self._key, "CLIENT UNBLOCK", number))

    def line(self) -> Line:
        """A connection of one's own."""
        return Line(self._client, self._key)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def tell(self, state: Connection, what: str) -> None:
        for listener in self._listeners:
            listener(state, what)

    async def close(self) -> None:
        for client in (self._client, *self._beside):
            await client.aclose()

    async def _run(self, words: list[Any], relief: bool) -> Any:
        try:
            return await self._operations.run(self._key, words, relief=relief)
        except refused.OutOfMemoryError as error:
            if relief:
                raise
            # It is so until messages are handled, which may be never: nothing to wait for.
            raise BusRefused(
                f"{self.place}: its memory is full (maxmemory); have messages handled or purged first"
            ) from error

    def _waits(self, error: Exception) -> bool:
        return passes(error) and not self.is_closing

    def _refusal(self, error: Exception) -> BusError:
        return (BusUnavailable if passes(error) else BusRefused)(explained(self.place, error))

    def _away(self, error: Exception) -> None:
        if not self._is_lost:
            self._is_lost = True
            _log.warning("%s: %s. Waiting for it", self.place, reason(error))
            self.tell(Connection.LOST, reason(error))

    def _back(self, away: float) -> None:
        if self._is_lost:
            self._is_lost = False
            _log.warning("%s is back after %.0f s", self.place, away)
            self.tell(Connection.UP, f"back after {away:.0f} s")

    async def _check(self) -> None:
        """Refuse at the start what would fail later."""
        try:
            problem, is_durable = await driven(examined(self._client))
            if problem:
                raise BusRefused(f"{self.place}: {problem}")
            self.is_durable = is_durable
            await driven(self._operations.run(self._key, [self.options.prefix, "nothing"], relief=True))
        except REFUSALS as error:
            raise self._refusal(error) from error
        if not self.is_durable:
            _log.warning(
                "%s keeps what it knows in memory only (appendonly no): if it is restarted, messages are lost",
                self.place,
            )
        with contextlib.suppress(*REFUSALS):  # not everyone may ask
            answer = await driven(at(self._client, self._key, "CONFIG GET", "proto-max-bulk-len"))
            self.largest = int(next(iter(answer.values()))) if answer else _LARGEST


async def stopped(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks, and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def failing_to(work: Awaitable[None], fail: Callable[[Exception], None]) -> None:
    """Do something for as long as it goes, and tell what it ended with."""
    try:
        await work
    except BusError as error:
        fail(error)

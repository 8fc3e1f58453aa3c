"""The way to the server that keeps crawls: the operations it is taught, and waiting for one that is away.

A server that can't be reached, is loading its data, out of memory, or a replica for the moment, is waited for and
said to be; every operation may be tried again without harm. What waiting can't mend is an error at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis.asyncio as aioredis
import redis.exceptions as refused

from weft.drivers.redis.address import Client, clients
from weft.drivers.redis.library import Library, Operations
from weft.drivers.redis.nodes import at, examined
from weft.drivers.redis.patience import Patience, driven
from weft.drivers.redis.refusals import REFUSALS, explained, passes, reason
from weft.drivers.urls import masked
from weft.errors import StoreError

_SAY_EVERY_SECONDS: Final = 30.0
_LIBRARY: Final = Library.read("weft.frontier.redis")
_log = logging.getLogger("weft.store")

# Asks about a crawl that never is: enough to see that operations can be run.
_PROBE: Final = "weft:{weft}:0:"


class Gone(Exception):
    """The crawl of an operation is not on the server."""


class Server:
    """A server, or a cluster of them. Open it with :meth:`connect`.

    :raises StoreError: by all methods: the server refuses, and waiting won't help.
    """

    def __init__(self, client: Client, place: str, beside: Sequence[aioredis.Redis] = ()) -> None:
        self.place = place
        self._client = client
        self._beside = beside
        self._operations = Operations(client, _LIBRARY)
        self._patiently = Patience(passes, self._refusal, self._say_away, self._say_back)
        self._said: float | None = None

    @classmethod
    async def connect(cls, url: str) -> Server:
        """:raises StoreError: it can't be reached or used: no second try.
        :raises ConfigError: the URL is none of the forms in :mod:`weft.drivers.redis.address`.
        """
        client, beside = clients(url)
        server = cls(client, masked(url), beside)
        try:
            await server._check()
        except BaseException:
            await server.close()
            raise
        return server

    async def close(self) -> None:
        for client in (self._client, *self._beside):
            await client.aclose()

    async def command(self, *words: Any) -> Any:
        """A command of Redis."""
        return await self._patiently(lambda: self._client.execute_command(*words))

    async def operate(self, key: str, arguments: Callable[[], list[Any]]) -> bytes:
        """An operation of the library on the keys beside ``key``; ``arguments`` is asked at each try.

        :raises Gone: the crawl is not there.
        """
        return await self._patiently(lambda: self._operate(key, arguments()))

    async def _operate(self, key: str, arguments: list[Any]) -> bytes:
        try:
            answer: bytes = await self._operations.run(key, arguments)
        except refused.ResponseError as error:
            if "WEFTGONE" in str(error):
                raise Gone from error
            raise
        return answer

    def _refusal(self, error: Exception) -> StoreError:
        return StoreError(explained(self.place, error))

    def _say_away(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if self._said is None or now - self._said > _SAY_EVERY_SECONDS:
            self._said = now
            _log.warning("%s: %s. Waiting for it; nothing is lost", self.place, reason(error))

    def _say_back(self, away: float) -> None:
        self._said = None
        _log.warning("%s is back after %.0f s", self.place, away)

    async def _check(self) -> None:
        """Refuse at the start what would fail later."""
        try:
            problem, is_durable = await driven(examined(self._client))
            if problem:
                raise StoreError(f"{self.place}: {problem}")
            if not is_durable:
                _log.warning(
                    "%s keeps what it knows in memory only (appendonly no): if it is restarted, the crawl is lost",
                    self.place,
                )
            await driven(at(self._client, _PROBE, "EVAL", "return 0", 1, _PROBE))
            await driven(self._operate(_PROBE + "tally", [_PROBE, "now", "", b"\x80", b"\xc2"]))
        except Gone:
            pass
        except REFUSALS as error:
            raise self._refusal(error) from error

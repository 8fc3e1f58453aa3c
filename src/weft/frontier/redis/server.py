"""The way to a Redis or Valkey server: the operations it is taught, and waiting for one that is away.

Operations are a library of Lua functions (``lua/``), loaded under a name that changes with its text, so workers of
different versions do not disturb one another. A server older than functions (Redis 6.2), or a user who may not use
them, gets the same text as a script. A server that has lost either gets it again.

A server that can't be reached, is loading its data, out of memory, or a replica for the moment, is waited for and
said to be; every operation may be tried again without harm. What waiting can't mend is an error at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from importlib import resources
from typing import Any, Final, TypeVar

import redis.asyncio as aioredis
import redis.asyncio.cluster as aiocluster
import redis.exceptions as refused
import xxhash

from weft.errors import StoreError
from weft.frontier.depot import masked
from weft.frontier.redis.address import Client, clients
from weft.frontier.redis.refusals import REFUSALS, explained, passes, problems, reason

T = TypeVar("T")

_WAIT_SECONDS: Final = (0.05, 2.0)
_SAY_EVERY_SECONDS: Final = 30.0
_LOADS: Final = 5
_log = logging.getLogger("weft.store")

_LIBRARY: Final = "\n".join(
    file.read_text()
    for file in sorted(resources.files("weft.frontier.redis").joinpath("lua").iterdir(), key=lambda file: file.name)
    if file.name.endswith(".lua")
)
_NAME: Final = "weft_" + xxhash.xxh3_64_hexdigest(_LIBRARY.encode())
_FUNCTION: Final = (
    f"#!lua name={_NAME}\n{_LIBRARY}\n"
    f"redis.register_function('{_NAME}', function(keys, arguments) return operate(arguments) end)"
)
_SCRIPT: Final = f"{_LIBRARY}\nreturn operate(ARGV)"
_DIGEST: Final = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()

# Asks about a crawl that never is: enough to see that operations can be run.
_PROBE: Final = "weft:{weft}:0:"


class Gone(Exception):
    """The crawl of an operation is not on the server."""


# Operations touch keys that they do not name. While a slot moves from one node of a cluster to another, its keys are
# here and there, and an operation would fail halfway. With a second key that is nowhere, the cluster refuses it as a
# whole until the slot has arrived.
_NEVER: Final = ":never"


class Server:
    """A server, or a cluster of them. Open it with :meth:`connect`.

    :raises StoreError: by all methods: the server refuses, and waiting won't help.
    """

    def __init__(self, client: Client, place: str, beside: Sequence[aioredis.Redis] = ()) -> None:
        self.place = place
        self._client = client
        self._beside = beside
        self._functions = True
        self._waiting = 0
        self._away_since: float | None = None
        self._said = 0.0

    @classmethod
    async def connect(cls, url: str) -> Server:
        """:raises StoreError: it can't be reached or used: no second try.
        :raises ConfigError: the URL is none of the forms in ``address``.
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
            answer: bytes = await (self._call if self._functions else self._evaluate)(key, arguments)
        except refused.ResponseError as error:
            if "WEFTGONE" in str(error):
                raise Gone from error
            raise
        return answer

    async def _call(self, key: str, arguments: list[Any]) -> Any:
        """As a function. From now on as a script, if there are none or they are not permitted."""
        try:
            for _ in range(_LOADS):
                try:
                    return await self._at(key, "FCALL", _NAME, 2, key, key + _NEVER, *arguments)
                except refused.ResponseError as error:
                    if "Function not found" not in str(error):
                        raise
                await self._at(key, "FUNCTION LOAD", "REPLACE", _FUNCTION)
        except refused.ResponseError as error:
            if not isinstance(error, refused.NoPermissionError) and "unknown command" not in str(error).lower():
                raise
        self._functions = False
        return await self._evaluate(key, arguments)

    async def _evaluate(self, key: str, arguments: list[Any]) -> Any:
        try:
            return await self._at(key, "EVALSHA", _DIGEST, 2, key, key + _NEVER, *arguments)
        except refused.NoScriptError:
            return await self._at(key, "EVAL", _SCRIPT, 2, key, key + _NEVER, *arguments)

    async def _at(self, key: str, *words: Any) -> Any:
        """A command at the node of a key."""
        if isinstance(self._client, aiocluster.RedisCluster):
            await self._client.initialize()
            return await self._client.execute_command(*words, target_nodes=self._client.get_node_from_key(key))
        return await self._client.execute_command(*words)  # type: ignore[no-untyped-call]

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        wait, waited, cut = _WAIT_SECONDS[0], False, False
        try:
            while True:
                try:
                    result = await _driven(work())
                    break
                except REFUSALS as error:
                    if not passes(error):
                        raise explained(self.place, error) from error
                    if isinstance(error, refused.ConnectionError) and not cut:
                        cut = True  # perhaps only this connection was: nothing to speak of
                        continue
                    self._waiting += not waited
                    waited = True
                    self._say_away(error)
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))
                wait = min(wait * 2, _WAIT_SECONDS[1])
        finally:
            self._waiting -= waited
        self._say_back()
        return result

    def _say_away(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if self._away_since is None or now - self._said > _SAY_EVERY_SECONDS:
            self._away_since, self._said = self._away_since or now, now
            _log.warning("%s: %s. Waiting for it; nothing is lost", self.place, reason(error))

    def _say_back(self) -> None:
        # While one call waits another may succeed: a server without memory to write can still be read.
        if self._away_since is not None and not self._waiting:
            away = asyncio.get_running_loop().time() - self._away_since
            self._away_since = None
            _log.warning("%s is back after %.0f s", self.place, away)

    async def _check(self) -> None:
        """Refuse at the start what would fail later."""
        try:
            nodes = await _driven(self._about())
            for about in nodes:
                for problem in problems(about, cluster=isinstance(self._client, aiocluster.RedisCluster)):
                    raise StoreError(f"{self.place}: {problem}")
            if not all(int(about.get("aof_enabled", 0)) for about in nodes):
                _log.warning(
                    "%s keeps what it knows in memory only (appendonly no): if it is restarted, the crawl is lost",
                    self.place,
                )
            await _driven(self._at(_PROBE, "EVAL", "return 0", 1, _PROBE))
            await _driven(self._operate(_PROBE + "tally", [_PROBE, "now", "", b"\x80", b"\xc2"]))
        except Gone:
            pass
        except REFUSALS as error:
            raise explained(self.place, error) from error

    async def _about(self) -> list[dict[str, Any]]:
        """What the server says of itself, or each node of a cluster."""
        if isinstance(self._client, aiocluster.RedisCluster):
            await self._client.initialize()
            return [await self._client.info(target_nodes=node) for node in self._client.get_primaries()]
        return [await self._client.info()]


async def _driven(work: Awaitable[T]) -> T:
    """What the driver comes to, but for two things that it lets through.

    It uses ``asyncio.wait_for``, which before Python 3.12 drops a cancel that comes together with what is waited for;
    whoever cancelled would wait for ever. And a connection that is lost before anything was said on it is, with
    uvloop, no error of connections.
    """
    task = asyncio.current_task()
    cancels = task.cancelling() if task is not None else 0
    try:
        return await work
    except RuntimeError as error:
        if "handler is closed" not in str(error):
            raise
        raise refused.ConnectionError("the connection was lost at once") from error
    finally:
        if task is not None and task.cancelling() > cancels:
            raise asyncio.CancelledError

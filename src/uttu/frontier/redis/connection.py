"""The connection to the Redis server: operations, retries, and the size of what is sent.

It runs the operations of ``lua/``. While the server is unreachable, loading its data, out of memory, or a replica,
calls wait and log that; every operation is idempotent, so a repeated call is safe. Other errors are raised at once.

A server accepts at most ``proto-max-bulk-len`` bytes in one argument (512 MB by default) and closes the connection if
it gets more. It also serves no other client while it processes a large one. So requests and replies are split by size.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
import redis.asyncio as aioredis
import redis.exceptions as refused

from uttu import former
from uttu.clients.addresses import mask_password
from uttu.clients.redis import connection
from uttu.clients.redis.address import RedisClient, make_clients
from uttu.clients.redis.connection import check_server, execute_at
from uttu.clients.redis.errors import REDIS_ERRORS, Retrier, call_driver, describe_error, explain_error, is_temporary
from uttu.clients.redis.rename import has_former_keys
from uttu.clients.redis.scripts import LuaLibrary, LuaOperations
from uttu.errors import StoreError

T = TypeVar("T")

OPERATION_BYTES: Final = 32_000_000
"""Maximum size of one operation. A larger single entry is sent alone."""
LARGEST_BYTES: Final = 256_000_000
"""Larger entries are not sent at all."""

_pack = msgspec.msgpack.Encoder().encode


def pack(value: Any) -> msgspec.Raw:
    """Encode a value that is sent as part of another; its size is then known."""
    return msgspec.Raw(_pack(value))


def size_of(raw: msgspec.Raw) -> int:
    return len(memoryview(raw))


def format_megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def split_by_size(entries: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield lists in order, of at most ``most`` bytes each, or of one larger entry."""
    piece: list[T] = []
    total = 0
    for entry in entries:
        weight = size(entry)
        if piece and total + weight > most:
            yield piece
            piece, total = [], 0
        piece.append(entry)
        total += weight
    if piece:
        yield piece


async def batch_by_size(
    entries: AsyncIterator[T], size: Callable[[T], int], count: int, most: int
) -> AsyncIterator[list[T]]:
    """Yield lists of at most ``count`` entries. A list also ends once it reaches ``most`` bytes."""
    piece: list[T] = []
    total = 0
    async for entry in entries:
        piece.append(entry)
        total += size(entry)
        if len(piece) >= count or total >= most:
            yield piece
            piece, total = [], 0
    if piece:
        yield piece


_SAY_EVERY_SECONDS: Final = 30.0
_LIBRARY: Final = LuaLibrary.read("uttu.frontier.redis", relief=True)
_log = logging.getLogger("uttu.frontier")

# The prefix of a crawl that never exists: an operation on it shows whether the library can be run.
_PROBE: Final = "uttu:{uttu}:0:"


class CrawlGone(Exception):
    """The crawl of an operation does not exist on the server."""


class StoreConnection:
    """A server, or a cluster of them. Open it with :meth:`connect`.

    :raises StoreError: by all methods: the server refuses, and waiting does not help.
    """

    def __init__(self, client: RedisClient, place: str, beside: Sequence[aioredis.Redis] = ()) -> None:
        self.place = place
        self._client = client
        self._beside = beside
        self._operations = LuaOperations(client, _LIBRARY)
        self._retry = Retrier(is_temporary, self._refusal, self._say_away, self._say_back)
        self._said: float | None = None

    @classmethod
    async def connect(cls, url: str) -> StoreConnection:
        """Connect and check the server.

        :raises StoreError: the server cannot be reached or used; this is not retried.
        :raises ConfigError: the URL has none of the forms in :mod:`uttu.clients.redis.address`.
        """
        client, beside = make_clients(url)
        server = cls(client, mask_password(url), beside)
        try:
            await server._check()
        except BaseException:
            await server.close()
            raise
        return server

    async def close(self) -> None:
        await connection.close_clients(self._client, self._beside)

    async def command(self, *words: Any) -> Any:
        """Run a Redis command, waiting while the server is away."""
        return await self._retry(lambda: self._client.execute_command(*words))

    async def commands(self, key: str, one: Sequence[Any], other: Sequence[Any]) -> tuple[Any, Any]:
        """Run two commands on the node of ``key``, in order, in one round trip."""
        return await self._retry(lambda: connection.execute_two(self._client, key, one, other))

    async def operate(self, key: str, arguments: Callable[[], list[Any]], *, relief: bool = False) -> bytes:
        """Run an operation of the Lua library on the node of ``key``.

        :param arguments: called at each try.
        :param relief: run it even when the server is out of memory.
        :raises CrawlGone: the crawl does not exist.
        """
        return await self._retry(lambda: self._operate(key, arguments(), relief))

    async def _operate(self, key: str, arguments: list[Any], relief: bool = False) -> bytes:
        try:
            answer: bytes = await self._operations.run(key, arguments, relief=relief)
        except refused.ResponseError as error:
            if "UTTUGONE" in str(error):
                raise CrawlGone from error
            raise
        return answer

    async def _check_former(self) -> None:
        """Refuse a server whose crawls have the names that Weft gave them."""
        try:
            if await has_former_keys(self._client, former.CRAWLS_KEY, "uttu:crawls"):
                raise StoreError(
                    f"{self.place} has crawls of Weft, as Uttu was called before. Rename their keys with: "
                    f"{former.COMMAND} {self.place}"
                )
        except REDIS_ERRORS as error:
            raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> StoreError:
        return StoreError(explain_error(self.place, error))

    def _say_away(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if self._said is None or now - self._said > _SAY_EVERY_SECONDS:
            self._said = now
            _log.warning("%s: %s. Waiting for it; nothing is lost", self.place, describe_error(error))

    def _say_back(self, away: float) -> None:
        self._said = None
        _log.warning("%s is back after %.0f s", self.place, away)

    async def _check(self) -> None:
        """Reject at the start a server on which a crawl would fail later."""
        try:
            problem, is_durable = await call_driver(check_server(self._client))
            if problem:
                raise StoreError(f"{self.place}: {problem}")
            if not is_durable:
                _log.warning(
                    "%s keeps its data in memory only (appendonly no): the crawl is lost if it restarts",
                    self.place,
                )
            await call_driver(execute_at(self._client, _PROBE, "EVAL", "return 0", 1, _PROBE))
            await call_driver(self._operate(_PROBE + "tally", [_PROBE, "now", "", b"\x80", b"\xc2"]))
        except CrawlGone:
            await self._check_former()
        except REDIS_ERRORS as error:
            raise self._refusal(error) from error

"""Send commands to a Redis server, or to the node of a cluster that holds a key.

A :class:`DedicatedConnection` is for blocking commands and pub/sub; all other commands share the client's pool.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

import redis.asyncio as aioredis
import redis.asyncio.cluster as aiocluster
import redis.exceptions as refused

from uttu.clients.redis.address import RedisClient
from uttu.clients.redis.errors import REDIS_ERRORS, call_driver, call_until, find_problems


async def execute_at(client: RedisClient, key: str, *words: Any) -> Any:
    """Send a command to the node that holds ``key``, and return the answer."""
    if isinstance(client, aiocluster.RedisCluster):
        await client.initialize()
        return await client.execute_command(*words, target_nodes=client.get_node_from_key(key))
    return await client.execute_command(*words)  # type: ignore[no-untyped-call]


async def execute_two(client: RedisClient, key: str, one: Sequence[Any], other: Sequence[Any]) -> tuple[Any, Any]:
    """Send two commands together to the node that holds ``key``, and return both answers.

    The server executes them in this order, but not atomically.
    """
    if isinstance(client, aiocluster.RedisCluster):
        # Two calls instead of a pipeline: the driver's cluster pipeline retries by itself.
        return await execute_at(client, key, *one), await execute_at(client, key, *other)
    async with client.pipeline(transaction=False) as pipe:
        pipe.execute_command(*one)
        pipe.execute_command(*other)
        answers = await pipe.execute(raise_on_error=False)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers[0], answers[1]


async def check_server(client: RedisClient) -> tuple[str, bool]:
    """Check a server, or all primaries of a cluster.

    Returns the first problem that makes it unusable (empty if there is no problem), and whether every node writes an
    append-only file.
    """
    nodes = await fetch_info(client)
    cluster = isinstance(client, aiocluster.RedisCluster)
    problems = [problem for info in nodes for problem in find_problems(info, cluster=cluster)]
    return next(iter(problems), ""), all(str(info.get("aof_enabled", 0)) == "1" for info in nodes)


async def fetch_info(client: RedisClient) -> list[dict[str, Any]]:
    """Return the answer to INFO of the server, or of each primary of a cluster."""
    if isinstance(client, aiocluster.RedisCluster):
        await client.initialize()
        return [await client.info(target_nodes=node) for node in client.get_primaries()]
    return [await client.info()]


async def close_clients(client: RedisClient, sentinels: Sequence[aioredis.Redis] = ()) -> None:
    """Close a client and the clients of its sentinels (:func:`make_clients`). Errors of the driver are ignored."""
    for each in (client, *sentinels):
        with contextlib.suppress(*REDIS_ERRORS):
            await call_driver(each.aclose())


_ANSWER_SECONDS: Final = 10.0
_NO_LIMIT: Final = 86_400.0  # seconds; disables the driver's read timeout, which returns None instead of an error


class DedicatedConnection:
    """A dedicated connection to the node that holds ``key``, with the address and login of ``client``.

    Any error, and any cancel during a call, closes it: an answer may be half read. Call :meth:`open` to use it again.

    :raises Exception: every method raises one of ``REDIS_ERRORS`` if the server or the connection fails.
    """

    def __init__(self, client: RedisClient, key: str) -> None:
        self._client = client
        self._key = key
        self._connection: Any = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    async def open(self) -> None:
        """Connect and log in to the node that holds the key now."""
        connection = await call_driver(self._create())
        try:
            await call_driver(connection.connect())
        except BaseException:
            await _disconnect(connection)
            raise
        self._connection = connection

    async def send(self, *words: Any) -> None:
        """Send a command without reading its answer."""
        try:
            await call_driver(self._require_open().send_command(*words))
        except BaseException:
            await self.close()
            raise

    async def read(self, wait: float = 0.0) -> Any:
        """Read the next answer or pub/sub message.

        :param wait: seconds that the server may legitimately stay silent; ``_ANSWER_SECONDS`` are added to it.
        """
        end = asyncio.get_running_loop().time() + wait + _ANSWER_SECONDS
        try:
            return await call_until(self._require_open().read_response(timeout=_NO_LIMIT), end)
        except BaseException:
            await self.close()
            raise

    async def _create(self) -> Any:
        if isinstance(self._client, aiocluster.RedisCluster):
            await self._client.initialize()
            node: Any = self._client.get_node_from_key(self._key)
            return node.connection_class(**node.connection_kwargs)
        return self._client.connection_pool.make_connection()  # type: ignore[no-untyped-call]

    def _require_open(self) -> Any:
        """Return the driver's connection.

        :raises redis.exceptions.ConnectionError: another task has closed it in the meantime.
        """
        if self._connection is None:
            raise refused.ConnectionError("The connection was closed")
        return self._connection

    async def execute(self, *words: Any, wait: float = 0.0) -> Any:
        """Send a command and read its answer."""
        await self.send(*words)
        return await self.read(wait)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await _disconnect(connection)


async def _disconnect(connection: Any) -> None:
    with contextlib.suppress(*REDIS_ERRORS):
        await call_driver(connection.disconnect(nowait=True))

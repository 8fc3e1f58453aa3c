"""A connection of one's own, for one who waits long on it, or is spoken to unasked."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import redis.asyncio.cluster as aiocluster

from weft.drivers.redis.address import Client
from weft.drivers.redis.patience import answered, driven
from weft.drivers.redis.refusals import REFUSALS

_ANSWER_SECONDS: Final = 10.0
_NO_LIMIT: Final = 86_400.0  # of the driver's own, which would end in no error


class Line:
    """A connection to the node of ``key``, made with what ``client`` knows. What goes wrong closes it.

    :raises Exception: by all methods: one of ``REFUSALS``.
    """

    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self._key = key
        self._connection: Any = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    async def open(self) -> None:
        """Connect, and log in; to the node that has the key now."""
        if isinstance(self._client, aiocluster.RedisCluster):
            await driven(self._client.initialize())
            node: Any = self._client.get_node_from_key(self._key)
            connection = node.connection_class(**node.connection_kwargs)
        else:
            connection = self._client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            await driven(connection.connect())
        except BaseException:
            await _dropped(connection)
            raise
        self._connection = connection

    async def say(self, *words: Any) -> None:
        """Send a command."""
        try:
            await driven(self._connection.send_command(*words))
        except BaseException:
            await self.close()
            raise

    async def hear(self, wait: float = 0.0) -> Any:
        """The next answer; ``wait`` is for how many seconds the server may rightly be silent."""
        end = asyncio.get_running_loop().time() + wait + _ANSWER_SECONDS
        try:
            return await answered(self._connection.read_response(timeout=_NO_LIMIT), end)
        except BaseException:
            await self.close()
            raise

    async def ask(self, *words: Any, wait: float = 0.0) -> Any:
        await self.say(*words)
        return await self.hear(wait)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await _dropped(connection)


async def _dropped(connection: Any) -> None:
    with contextlib.suppress(*REFUSALS):
        await connection.disconnect(nowait=True)

"""Walking through large keys a little at a time, so that the server is never busy with one for long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from weft.frontier.redis.server import Server

_AT_ONCE = 1000


async def scanned(server: Server, command: str, key: str) -> AsyncIterator[list[Any]]:
    """What HSCAN and ZSCAN find: names with their values. SSCAN: members. A piece may be empty, an entry come twice."""
    cursor = 0
    while True:
        answer, found = await server.command(command, key, cursor, "COUNT", _AT_ONCE)
        yield list(found.items()) if isinstance(found, Mapping) else found
        cursor = int(answer)
        if cursor == 0:
            return


async def listed(server: Server, key: str) -> AsyncIterator[list[bytes]]:
    """The entries of a list, in pieces."""
    first = 0
    while found := await server.command("LRANGE", key, first, first + _AT_ONCE - 1):
        yield found
        first += _AT_ONCE


async def streamed(server: Server, key: str) -> AsyncIterator[list[Any]]:
    """The entries of a stream, in pieces: ids with their fields."""
    start = "-"
    while found := await server.command("XRANGE", key, start, "+", "COUNT", _AT_ONCE):
        yield found
        start = "(" + found[-1][0].decode()

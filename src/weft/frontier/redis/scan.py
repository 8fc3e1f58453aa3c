"""Walking through large keys a little at a time, so that the server is never busy with one for long.

A little is so many entries, or so many bytes: after each piece the next is asked for by the size of this one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from weft.frontier.redis.server import Server

_AT_ONCE = 1000
_BYTES = 16_000_000
# Of things that may be large, before anything is known of them.
_FIRST = 16
_GROWTH = 4


async def scanned(server: Server, command: str, key: str) -> AsyncIterator[list[Any]]:
    """What HSCAN and ZSCAN find: names with their values. SSCAN: members. A piece may be empty, an entry come twice."""
    cursor, count = 0, _FIRST
    while True:
        answer, found = await server.command(command, key, cursor, "COUNT", count)
        entries = list(found.items()) if isinstance(found, Mapping) else found
        yield entries
        cursor, count = int(answer), _next_count(count, entries)
        if cursor == 0:
            return


async def listed(server: Server, key: str) -> AsyncIterator[list[bytes]]:
    """The entries of a list, in pieces."""
    first, count = 0, _AT_ONCE
    while found := await server.command("LRANGE", key, first, first + count - 1):
        yield found
        first, count = first + len(found), _next_count(count, found)


async def ranked(server: Server, key: str) -> AsyncIterator[list[tuple[bytes, float]]]:
    """The members of a sorted set with their scores, in order, in pieces. Nobody may change it meanwhile."""
    first, count = 0, _AT_ONCE
    while found := await server.command("ZRANGE", key, first, first + count - 1, "WITHSCORES"):
        # In pairs if the driver knew the form of the answer.
        pairs = found if isinstance(found[0], tuple | list) else list(zip(found[::2], found[1::2], strict=True))
        yield [(member, float(score)) for member, score in pairs]
        first, count = first + len(pairs), _next_count(count, pairs)


async def streamed(server: Server, key: str) -> AsyncIterator[list[Any]]:
    """The entries of a stream, in pieces: ids with their fields."""
    start, count = "-", _FIRST
    while found := await server.command("XRANGE", key, start, "+", "COUNT", count):
        yield found
        start, count = "(" + found[-1][0].decode(), _next_count(count, found)


def _next_count(count: int, found: list[Any]) -> int:
    size = _size(found)
    fitting = len(found) * _BYTES // size if size else _AT_ONCE
    return max(1, min(fitting, count * _GROWTH, _AT_ONCE))


def _size(found: Any) -> int:
    if isinstance(found, bytes | str):
        return len(found)
    if isinstance(found, Mapping):
        return _size(list(found.items()))
    return sum(map(_size, found)) if isinstance(found, list | tuple) else 0

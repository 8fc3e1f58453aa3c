"""Reads a header value that the HTTP library can't hand out: one that is not ASCII.

Servers do send ``Location: /café`` in raw bytes, and a redirect without its target is lost. The
library keeps such a value and can send it, but raises when asked for it. So it is made to send it:
to a socket that this process opens on the loopback for that one moment, where the bytes are read
off the wire. That costs a millisecond and no second request to the host; asking the host
again, or a second HTTP client beside the first, would both cost more.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from pyreqwest.exceptions import PyreqwestError

if TYPE_CHECKING:
    from pyreqwest.client import Client
    from pyreqwest.http import HeaderMap


async def read_value(client: Client, headers: HeaderMap, name: str) -> str | None:
    """The first value of header ``name`` (lower case): as UTF-8 if it is that, else as Latin-1.

    None if it can't be had this way either. ``client`` must not use a proxy.
    """
    token = secrets.token_hex(8)
    heads: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            heads.put_nowait(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the request below fails then, and says so
        finally:
            writer.close()

    alone = headers.copy()
    for other in set(alone.keys()) - {name}:
        del alone[other]
    try:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/{token}"
            await client.get(url).headers(alone).build().send()
    except (OSError, PyreqwestError):
        return None
    while not heads.empty():
        request_line, *lines = heads.get_nowait().split(b"\r\n")
        # Any process on this machine can connect to the socket; only the request sent above knows the token.
        if token.encode() in request_line:
            for line in lines:
                key, _, value = line.partition(b":")
                if key.lower() == name.encode():
                    return _text(value.strip())
    return None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")

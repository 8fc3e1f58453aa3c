"""A server that answers by path with exactly the bytes a test gives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.fetch.servers import Server, response, serving

Answer = Callable[[str], bytes]
"""The response to the request for this path and query."""

NOT_FOUND = response(b"", status="404 Not Found")


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[Server]:
    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(head.split()[1].decode()))

    async with serving(handle) as server:
        yield server


def asked(server: Server) -> list[str]:
    """The paths that were asked for, in order."""
    return [head.split()[1].decode() for head in server.heads]


def page(*links: str, head: str = "", headers: tuple[str, ...] = ()) -> bytes:
    """A page of HTML with these links."""
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    body = f"<html><head>{head}</head><body>{anchors}</body></html>".encode()
    return response(body, "Content-Type: text/html", *headers)

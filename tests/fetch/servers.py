"""Tiny raw servers: they answer with exactly the bytes a test gives them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

Handler = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A running server: where it is, and the head of every request it got."""

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self.port = 0
        self.heads: list[bytes] = []
        self.opened = 0
        self.asked = asyncio.Event()
        self.hung_up = asyncio.Event()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}/"

    @property
    def lines(self) -> list[str]:
        """The header lines of the last request, the request line first."""
        return self.heads[-1].decode("latin-1").split("\r\n")[:-2]

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the last request by lower-case name."""
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in self.lines[1:])}


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Calls ``handler`` for each request of each connection, until it closes the writer."""
    server = Server("https" if tls else "http")
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        writers.append(writer)
        server.opened += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            try:
                while not writer.is_closing():
                    head = await reader.readuntil(b"\r\n\r\n")
                    server.heads.append(head)
                    server.asked.set()
                    await handler(head, reader, writer)
                    await writer.drain()
            finally:
                server.hung_up.set()
                writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def reply(data: bytes, *, then: str = "keep") -> Handler:
    """Answers every request with ``data``; ``then`` keeps the connection, closes, resets or stalls it."""

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if then == "close":
            writer.close()
        elif then == "reset":
            writer.transport.abort()
        elif then == "stall":
            await reader.read()
            writer.close()

    return handler


def response(body: bytes = b"", *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    """A plain HTTP/1.1 response with a Content-Length."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body) if length is None else length}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(*chunks: bytes, end: bool = True, headers: tuple[str, ...] = ()) -> bytes:
    head = "\r\n".join(["HTTP/1.1 200 OK", *headers, "Transfer-Encoding: chunked"]).encode() + b"\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + (b"0\r\n\r\n" if end else b"")


async def endless(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A body that never ends."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()
        await asyncio.sleep(
            0
        )  # with TLS, drain() may return at once, and the loop would see nothing of the client's end


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


async def splice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """Carries bytes both ways until one side closes."""
    far_reader, far_writer = await asyncio.open_connection(host, port)
    tasks = [asyncio.create_task(pump(reader, far_writer)), asyncio.create_task(pump(far_reader, writer))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        far_writer.close()
        writer.close()


Far = tuple[str, asyncio.StreamWriter, asyncio.Task[None]]
_far: WeakKeyDictionary[asyncio.StreamWriter, Far] = WeakKeyDictionary()


async def forward(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A proxy that carries every byte: tunnels, and plain requests to the host that they name."""
    method, target, rest = head.split(b" ", 2)
    place = (target if method == b"CONNECT" else target.split(b"/")[2]).decode()
    host, _, port = place.rpartition("@")[2].partition(":")
    if method == b"CONNECT":
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await splice(reader, writer, host, int(port))
        return
    if writer not in _far or _far[writer][0] != place:
        if writer in _far:
            _far[writer][2].cancel()
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        _far[writer] = place, far_writer, asyncio.create_task(carry_back(far_reader, far_writer, writer))
    found = re.search(rb"(?i)content-length: ([0-9]+)", head)
    body = await reader.readexactly(int(found[1])) if found is not None else b""
    _far[writer][1].write(method + b" /" + target.split(b"/", 3)[3] + b" " + rest + body)


async def carry_back(
    reader: asyncio.StreamReader, far_writer: asyncio.StreamWriter, writer: asyncio.StreamWriter
) -> None:
    """Until the host closes, which closes the client's connection, or the other way round."""
    tasks = [asyncio.create_task(pump(reader, writer)), asyncio.create_task(_closing(writer))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            writer.close()
    finally:
        for task in tasks:
            task.cancel()
        far_writer.close()


async def _closing(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        await writer.wait_closed()

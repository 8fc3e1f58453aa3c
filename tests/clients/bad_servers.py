"""Servers that misbehave: one that answers everything with the same bytes, and a proxy that spoils what passes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

SILENT: Final = b""
"""As an answer: accept, read, and answer nothing."""
HANG_UP: Final = b"hang up"
"""As an answer: close the connection when a command comes."""
RESET: Final = b"reset"
"""As an answer: cut the connection without the usual goodbye."""


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[int]:
    """A server for the length of the block; gives its port.

    It accepts by itself: ``asyncio.start_server`` loses a connection that comes while it is closed (Python 3.11), and
    drivers try again and again.
    """
    loop, stopping = asyncio.get_running_loop(), False
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def run(connection: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
        except BaseException:
            connection.close()
            raise
        writers.append(writer)
        with contextlib.suppress(OSError):
            await serve(reader, writer)
        writer.close()

    async def accept() -> None:
        while True:
            connection, _ = await loop.sock_accept(listening)
            if stopping:
                connection.close()
                return
            task = asyncio.create_task(run(connection))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        listening.setblocking(False)
        accepting = asyncio.create_task(accept())
        try:
            yield listening.getsockname()[1]
        finally:
            stopping = True
            with socket.create_connection(
                listening.getsockname()
            ):  # wakes accept(); to cancel it may lose a connection
                await accepting
            for _ in range(3):  # a task that has not begun would not close its connection
                await asyncio.sleep(0)
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await closed(*writers)


async def closed(*writers: asyncio.StreamWriter) -> None:
    """Cut connections, and wait until they are gone."""
    for writer in writers:
        writer.transport.abort()
    await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


def answering(answer: bytes) -> Serve:
    """Answers whatever comes with the same bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            if answer == HANG_UP:
                return
            if answer == RESET:
                writer.transport.abort()
                return
            if answer != SILENT:
                writer.write(answer)
                await writer.drain()

    return serve


class SpoilingProxy:
    """Stands before a server and spoils every ``every``-th answer, in one of the ways of ``ways``.

    ``ways`` may hold bytes, which replace the answer, or one of these words: ``cut`` (half an answer, then the end),
    ``half`` (half a command reaches the server, then the end), ``reset``.
    """

    def __init__(self, port: int, ways: list[bytes | str], *, seed: int = 1, every: int = 4) -> None:
        self.ways = ways
        self.spoiled = 0
        self._port = port
        self._random = random.Random(seed)
        self._every = every
        self._healthy = False
        self._next = False

    def heal(self) -> None:
        """Spoil nothing more."""
        self._healthy = True

    def spoil(self) -> None:
        """Spoil answers again."""
        self._healthy = False

    def spoil_next(self) -> None:
        """Spoil the next answer only."""
        self._next = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while asked := await reader.read(1 << 20):
                way = self._choose()
                if way == "half":
                    to.write(asked[: len(asked) // 2])
                    await to.drain()
                    return
                to.write(asked)
                answer = await there.read(1 << 20)
                if way == "reset":
                    writer.transport.abort()
                    return
                if way == "cut":
                    writer.write(answer[: len(answer) // 2])
                    await writer.drain()
                    return
                writer.write(way if isinstance(way, bytes) else answer)
                await writer.drain()
        finally:
            await closed(to)

    def _choose(self) -> bytes | str | None:
        if self._next:
            self._next = False
        elif self._healthy or self._random.randrange(self._every):
            return None
        self.spoiled += 1
        return self._random.choice(self.ways)

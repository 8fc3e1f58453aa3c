"""HTTP/1.1 as a plain asyncio protocol.

It is fast for the common case (a GET with a small answer takes no task, no future and one write), and it allows what a
server library would not: behaving like a broken server. Requests of one connection are answered in order, one at a
time; further input waits in a buffer.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final, Protocol, cast

from uttu.testing.site.exchange import WireExchange, frame
from uttu.testing.site.log import Log, Record
from uttu.testing.site.message import TEXT, Answer, Incoming, Script
from uttu.testing.site.model import Layout

_HEAD_LIMIT: Final = 256 * 1024
_LINGER_SECONDS: Final = 2.0  # before a refused connection is closed
_BODY_LIMIT: Final = 8 * 1024 * 1024
_AT_ONCE: Final = 64 * 1024  # bytes; larger answers are sent by a task


class Answering(Protocol):
    """Finds the answer to every request of a site."""

    layout: Layout

    def reply(self, incoming: Incoming) -> Answer | Script: ...


class Hub:
    """The state that all connections of a running site share."""

    def __init__(self, app: Answering, log: Log) -> None:
        self.app = app
        self.log = log
        self.latency = app.layout.site.latency
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._numbered = 0

    def number(self) -> int:
        self._numbered += 1
        return self._numbered

    async def close(self) -> None:
        """Drop every connection, and wait until their tasks have ended."""
        while self.connections or self.tasks:
            for connection in tuple(self.connections):
                connection.transport.abort()
            await asyncio.sleep(0)


class Connection(asyncio.Protocol):
    """One client on one host."""

    def __init__(self, hub: Hub, host: int, address: str) -> None:
        self._hub = hub
        self._host = host
        self._address = address
        self._number = hub.number()
        self._buffer = b""
        self._arrived = 0.0
        self._busy = False
        self._close = False
        self._record: Record | None = None
        self._incoming: Incoming | None = None  # a request whose head is read, and whose body is not
        self._deaf = False
        self._missing = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._hub.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._hub.connections.discard(self)
        if self._timer:
            self._timer.cancel()
        if self._task:
            self._task.cancel()
        if self._record:
            self._hub.log.lose(self._record)
            self._record = None

    def pause_writing(self) -> None:
        self._writable = self._hub.loop.create_future()

    def resume_writing(self) -> None:
        if self._writable and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    async def drain(self) -> None:
        """Wait until the transport takes more data. Always yields to the event loop.

        A transport that has just failed accepts any amount of data. Only the next iteration of the loop reports the
        failure.
        """
        if self._writable:
            await self._writable
        else:
            await asyncio.sleep(0)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._arrived = monotonic()
        self._buffer = self._buffer + data if self._buffer else data
        if not self._busy:
            self._read()
        elif len(self._buffer) > _BODY_LIMIT:
            self.transport.abort()

    def _read(self) -> None:
        """Take requests from the buffer until it has no complete one, or the current one needs time."""
        while self._buffer and not (self._busy or self.transport.is_closing()):
            if self._incoming is None and not self._read_head():
                return
            incoming = self._incoming
            if incoming is None or len(self._buffer) < self._missing:
                return
            if self._missing:
                incoming.body = self._buffer[: self._missing]
                self._buffer = self._buffer[self._missing :]
                self._missing = 0
            self._incoming = None
            self._answer(incoming)

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _HEAD_LIMIT:
                self._refuse(431)
            return False
        head = self._buffer[:end]
        self._buffer = self._buffer[end + 4 :]
        parts = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            self._refuse(400)
            return False
        method, target, version = parts
        self._record = self._hub.log.begin(self._arrived, self._address, method, target, self._number)
        if not target.startswith("/"):
            # The absolute form, as sent to proxies: http://host/path.
            target = "/" + target.partition("://")[2].partition("/")[2]
        incoming = self._incoming = Incoming(self._host, method, target, head)
        lower = head.lower()
        if version == "HTTP/1.0" or b"\r\nconnection: close" in lower:
            self._close = b"\r\nconnection: keep-alive" not in lower
        if b"\r\ncontent-length:" in lower or b"\r\ntransfer-encoding:" in lower:
            return self._expect_body(incoming)
        return True

    def _expect_body(self, incoming: Incoming) -> bool:
        length = incoming.header("content-length")
        if not length.isdecimal():
            self._refuse(411)
        elif int(length) > _BODY_LIMIT:
            self._refuse(413)
        else:
            self._missing = int(length)
            if incoming.header("expect").lower() == "100-continue":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return True
        return False

    def _refuse(self, status: int) -> None:
        """Answer an invalid request. Close when the client does, or after ``_LINGER_SECONDS``.

        To close while the client is still sending would reset the connection, and the answer would be lost.
        """
        answer = Answer(b"This is not a request this server takes.\n", TEXT, status)
        self._buffer = b""
        self._incoming = None
        self._deaf = True
        self.sent(status)
        self.ended()
        self.transport.write(frame(answer, len(answer.body), True) + answer.body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._timer = self._hub.loop.call_later(_LINGER_SECONDS, self.transport.close)
        else:
            self.transport.close()

    def _answer(self, incoming: Incoming) -> None:
        reply = self._hub.app.reply(incoming)
        if self._hub.latency:
            self._busy = True
            self._timer = self._hub.loop.call_later(self._hub.latency, self._late, incoming, reply)
        else:
            self._deliver(incoming, reply)

    def _late(self, incoming: Incoming, reply: Answer | Script) -> None:
        self._timer = None
        self._busy = False
        self._deliver(incoming, reply)
        self._read()

    def _deliver(self, incoming: Incoming, reply: Answer | Script) -> None:
        if isinstance(reply, Answer) and len(reply.body) <= _AT_ONCE and self._writable is None:
            self._send(reply, incoming.method == "HEAD")
        else:
            self._busy = True
            self._task = self._hub.loop.create_task(self._play(incoming, reply))
            self._hub.tasks.add(self._task)
            self._task.add_done_callback(self._hub.tasks.discard)

    def _send(self, answer: Answer, head_only: bool) -> None:
        head = frame(answer, len(answer.body), self._close)
        self.sent(answer.status)
        self.ended()
        self.transport.write(head if head_only else head + answer.body)
        if self._close:
            self.transport.close()

    async def _play(self, incoming: Incoming, reply: Answer | Script) -> None:
        """Run a script, or send a large answer at the client's pace."""
        exchange = WireExchange(self, incoming.method == "HEAD", self._close)
        await self.drain()
        if isinstance(reply, Answer):
            await exchange.send(reply)
        else:
            await reply(exchange)
        self._task = None
        self._busy = False
        if exchange.closes or not exchange.complete:
            self.transport.close()
        else:
            self._read()

    def sent(self, status: int) -> None:
        """Called when a status line is sent."""
        if self._record:
            self._record.status = status

    def ended(self) -> None:
        """Called just before the last bytes of the answer are sent."""
        if self._record:
            self._hub.log.end(self._record)
            self._record = None

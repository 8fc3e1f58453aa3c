"""A response in no protocol's words, and servers that send it in those of HTTP/1.1 or HTTP/2."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from tests.fetch.servers import Handler

Fields = tuple[tuple[bytes, bytes], ...]


@dataclass
class Reply:
    """``framing``: length, chunked or close; HTTP/2 has only the first two. ``stalls``: the end of it never comes."""

    body: bytes = b""
    fields: Fields = ()
    status: int = 200
    framing: str = "length"
    stalls: bool = False


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


Answering = Callable[[Asked], Reply]


@dataclass
class Log:
    asked: list[Asked] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)  # a request did
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # an exchange was broken off

    def note(self, asked: Asked) -> None:
        self.asked.append(asked)
        self.came.set()


def http1(answer: Answering, log: Log) -> Handler:
    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        asked = Asked(first.split(" ")[0], first.split(" ")[1], headers)
        asked.body = await reader.readexactly(int(headers.get("content-length", 0)))
        log.note(asked)
        reply = answer(asked)
        out = [b"HTTP/1.1 %d Reason\r\n" % reply.status]
        out += [b"%b: %b\r\n" % pair for pair in reply.fields]
        lone = reply.status in (204, 304) or asked.method == "HEAD"
        announced = {name.lower() for name, _ in reply.fields}
        if reply.framing == "length" and not lone and b"content-length" not in announced:
            out.append(b"Content-Length: %d\r\n" % (len(reply.body) + reply.stalls))
        if reply.framing == "chunked":
            out.append(b"Transfer-Encoding: chunked\r\n")
            half = len(reply.body) // 2
            parts = [part for part in (reply.body[:half], reply.body[half:]) if part]
            body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
            body += b"" if reply.stalls else b"0\r\n\r\n"
        else:
            body = b"" if lone else reply.body
        try:
            writer.write(b"".join(out) + b"\r\n" + body)
            await writer.drain()
            if reply.stalls:
                await reader.read()
        finally:
            if reply.stalls:
                log.ended.set()
        if reply.framing == "close" or reply.stalls:
            writer.close()

    return handle


class Http2(asyncio.Protocol):
    """Sends what it is given, valid or not."""

    def __init__(self, answer: Answering, log: Log, opened: set[asyncio.Transport]) -> None:
        self._answer = answer
        self._log = log
        self._opened = opened
        config = h2.config.H2Configuration(
            client_side=False,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self._h2 = h2.connection.H2Connection(config)
        self._transport: asyncio.Transport
        self._requests: dict[int, Asked] = {}
        self._sending: dict[int, tuple[bytes, bool]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._opened.add(self._transport)
        self._h2.initiate_connection()
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._log.ended.set()
        self._opened.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                found = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers or ()}
                method, path = found.pop(":method"), found.pop(":path")
                self._requests[event.stream_id or 0] = Asked(method, path, found)
            elif isinstance(event, h2.events.DataReceived):
                self._requests[event.stream_id or 0].body += event.data or b""
                self._h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            elif isinstance(event, h2.events.StreamEnded):
                self._begin(event.stream_id or 0)
            elif isinstance(event, h2.events.StreamReset):
                self._sending.pop(event.stream_id or 0, None)
                self._log.ended.set()
        for number in tuple(self._sending):
            self._send(number)
        self._flush()

    def _begin(self, number: int) -> None:
        asked = self._requests.pop(number)
        self._log.note(asked)
        reply = self._answer(asked)
        lone = reply.status in (204, 304) or asked.method == "HEAD"
        head = [(b":status", b"%d" % reply.status), *((name.lower(), value) for name, value in reply.fields)]
        if reply.framing == "length" and not lone and b"content-length" not in dict(head):
            head.append((b"content-length", b"%d" % (len(reply.body) + reply.stalls)))
        self._h2.send_headers(number, head, end_stream=lone)
        if not lone:
            self._sending[number] = (reply.body, reply.stalls)

    def _send(self, number: int) -> None:
        body, stalls = self._sending[number]
        while body and (room := min(self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size)) > 0:
            self._h2.send_data(number, body[:room])
            body = body[room:]
        self._sending[number] = (body, stalls)
        if not body:
            del self._sending[number]
            if not stalls:
                self._h2.end_stream(number)

    def _flush(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._h2.data_to_send())

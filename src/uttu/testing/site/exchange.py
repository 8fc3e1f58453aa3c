"""Writes answers to the wire: the framing of HTTP/1.1, and the exchange that scripts use."""

from __future__ import annotations

import asyncio
import socket
import struct
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from uttu.testing.site.message import Answer

if TYPE_CHECKING:
    from uttu.testing.site.protocol import Connection

_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_PIECE: Final = 64 * 1024  # bytes of one write


def frame(answer: Answer, length: int | None, close: bool) -> bytes:
    """The head of ``answer``, for a body of ``length`` bytes. None: the body is chunked."""
    lines = [f"HTTP/1.1 {answer.status} {_PHRASES.get(answer.status, 'Unknown')}"]
    if answer.content_type:
        lines.append(f"Content-Type: {answer.content_type}")
    lines.extend(f"{name}: {value}" for name, value in answer.headers)
    if answer.status != 204 and answer.status != 304:
        lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}")
    if close:
        lines.append("Connection: close")
    lines.append("\r\n")
    return "\r\n".join(lines).encode("latin-1")


class WireExchange:
    """An :class:`uttu.testing.site.message.Exchange` on a connection."""

    def __init__(self, connection: Connection, head_only: bool, closes: bool) -> None:
        self.closes = closes
        self._connection = connection
        self._transport = connection.transport
        self._head_only = head_only
        self._left: int | None = -1  # bytes of the body still to come; None: chunked; -1: not started

    @property
    def complete(self) -> bool:
        """Whether everything that was announced has been written."""
        return self._left == 0

    async def send(self, answer: Answer) -> None:
        self.start(answer, len(answer.body))
        for at in range(0, len(answer.body), _PIECE):
            await self.write(answer.body[at : at + _PIECE])

    def start(self, answer: Answer, length: int | None) -> None:
        bodiless = self._head_only or answer.status in (204, 304)
        self._left = 0 if bodiless else length
        self._connection.sent(answer.status)
        self._note_end()
        self._transport.write(frame(answer, length, self.closes))

    async def write(self, data: bytes) -> None:
        if self._left is None:
            await self.raw(b"%x\r\n%b\r\n" % (len(data), data))
        elif self._left:
            self._left -= len(data)
            self._note_end()
            await self.raw(data)

    def finish(self) -> None:
        if self._left is None:
            self._left = 0
            self._note_end()
            self._transport.write(b"0\r\n\r\n")

    async def raw(self, data: bytes) -> None:
        self._transport.write(data)
        await self._connection.drain()

    def close(self) -> None:
        self.closes = True

    async def reset(self) -> None:
        wire = self._transport.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()
        await asyncio.Event().wait()  # the lost connection cancels the script

    def _note_end(self) -> None:
        # Before the write, not after it: the write may wait, and the client may see the end before it returns.
        if self._left == 0:
            self._connection.ended()

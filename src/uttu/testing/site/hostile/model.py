"""A hostile kind: one way to harm a crawler, served by its own host.

A kind answers at one of two levels. ``reply`` gets a parsed request and returns an answer that the protocol frames.
``talk`` gets the bare connection (:class:`Wire`), for kinds that break HTTP or TLS itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from uttu.testing.site.message import HTML, TEXT, Answer, Incoming, Reply

Replier = Callable[[Incoming], Reply]
"""Answers a complete request. The protocol frames the answer."""

Talk = Callable[["Wire"], Awaitable[None]]
"""Handles a connection from its first byte on."""

Certificate = Literal["", "good", "expired", "future", "self-signed", "other-host", "unknown-authority", "none"]
"""How the host uses TLS. Empty: plain http. ``none``: its URL is https, but it never starts TLS."""

PLAIN: Final = Answer(b"<!doctype html><title>Plain</title><p>An ordinary page.</p>\n", HTML)
_NO_ROBOTS: Final = Answer(b"No such file.\n", TEXT, 404)
_HEAD_LIMIT: Final = 256 * 1024


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One hostile kind.

    - ``name`` is ``group/what``; ``about`` describes what the host does. Exactly one of ``reply`` and ``talk`` is set.
    - ``path`` is the page to fetch. ``handler`` names what a spider does with it, see
      :mod:`tests.harness.nemesis.hostile`.
    - ``settings`` are settings that the crawl of this kind needs.
    - ``ends`` is a regular expression for the end of the page: ``done`` or ``dead: kind: reason``.
    - ``endless``: the kind has more pages than a crawl can fetch. Such a crawl must go on until it is stopped.
    """

    name: str
    about: str
    reply: Replier | None = None
    talk: Talk | None = None
    certificate: Certificate = ""
    alpn: tuple[str, ...] = ("http/1.1",)
    path: str = "/"
    handler: str = "look"
    settings: Mapping[str, Any] = {}
    ends: str = "done|dead"
    endless: bool = False

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]

    def answer(self, incoming: Incoming) -> Reply:
        """The answer to a request. If the kind does not define a robots.txt, that is a 404."""
        assert self.reply is not None
        reply = self.reply(incoming)
        if reply is None:
            return _NO_ROBOTS if incoming.path == "/robots.txt" else PLAIN
        return reply

    def over_tls(self) -> Kind:
        """The same kind over TLS, with a certificate that the crawl trusts."""
        name = f"tls/{self.name.replace('/', '-')}"
        return msgspec.structs.replace(self, name=name, about=f"{self.about}, over TLS", certificate="good")


class Served:
    """Answers one path with a body that is made once. Other paths are ordinary pages.

    ``prepare`` makes the body before the first request, since some take longer than a client's timeout.
    """

    def __init__(
        self,
        make: Callable[[], bytes | str],
        content_type: str,
        headers: tuple[tuple[str, str], ...],
        status: int,
        path: str,
    ) -> None:
        self._make = make
        self._content_type = content_type
        self._headers = headers
        self._status = status
        self._path = path
        self._answer: Answer | None = None

    def __call__(self, incoming: Incoming) -> Reply:
        return self.prepare() if incoming.path == self._path else None

    def prepare(self) -> Answer:
        if self._answer is None:
            made = self._make()
            body = made.encode() if isinstance(made, str) else made
            self._answer = Answer(body, self._content_type, self._status, self._headers)
        return self._answer


def page(
    make: Callable[[], bytes | str],
    content_type: str = HTML,
    *headers: tuple[str, str],
    status: int = 200,
    path: str = "/",
) -> Served:
    """Answer ``path`` with the result of ``make``. Other paths are ordinary pages."""
    return Served(make, content_type, headers, status, path)


class Wire:
    """A connection that a kind's ``talk`` controls."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> bytes:
        """Read the head of the next request. Requests of crawls have no body."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        # drain() does not yield while the buffer is low, so an endless sender would block the loop.
        await asyncio.sleep(0)

    async def repeat(self, data: bytes, *, pause: float = 0.0, times: int = 1 << 62) -> None:
        """Send the same bytes repeatedly, ``pause`` seconds apart, until the client closes the connection."""
        for _ in range(times):
            await self.send(data)
            if pause:
                await asyncio.sleep(pause)

    async def hang(self) -> None:
        """Send nothing until the client closes the connection."""
        while await self.reader.read(65536):
            pass

    def reset(self) -> None:
        """Drop the connection with a TCP RST."""
        wire = self.writer.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await self.writer.wait_closed()


def matching(kinds: tuple[Kind, ...], pattern: str) -> tuple[Kind, ...]:
    """The kinds whose name matches the regular expression ``pattern``."""
    wanted = re.compile(pattern)
    return tuple(kind for kind in kinds if wanted.search(kind.name))

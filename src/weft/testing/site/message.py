"""What comes in and what goes out, between the protocol and the rooms of the site.

A room answers a request with an ``Answer``, which the protocol frames and sends, or with a
``Script``: a coroutine that does the sending itself, for everything that takes time or breaks
the rules of HTTP. None means there is no such page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Protocol
from urllib.parse import parse_qsl, unquote

import msgspec

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
XML = "application/xml; charset=utf-8"


class Incoming:
    """A request as it came over the wire. Everything but the path is parsed when asked for."""

    def __init__(self, host: int, method: str, target: str, head: bytes, body: bytes = b"") -> None:
        self.host = host
        self.method = method
        self.target = target
        self.body = body
        self._head = head
        self.path, _, self.query_string = target.partition("?")

    @cached_property
    def query(self) -> dict[str, str]:
        """The last value of each parameter."""
        return dict(parse_qsl(self.query_string, keep_blank_values=True))

    @cached_property
    def headers(self) -> list[tuple[str, str]]:
        """Names as they were written, repeated ones kept."""
        lines = self._head.decode("latin-1").split("\r\n")[1:]
        return [
            (name.strip(), value.strip()) for name, colon, value in (line.partition(":") for line in lines) if colon
        ]

    def header(self, name: str) -> str:
        """The first header of that name, in any case; empty if there is none."""
        name = name.lower()
        return next((value for key, value in self.headers if key.lower() == name), "")

    @cached_property
    def cookies(self) -> dict[str, str]:
        pairs = (part.partition("=") for part in self.header("cookie").split(";"))
        return {name.strip(): unquote(value.strip()) for name, equals, value in pairs if equals}

    def number(self, name: str, default: float) -> float:
        """A parameter as a number; ``default`` if it is missing or none."""
        try:
            return float(self.query[name])
        except (KeyError, ValueError):
            return default


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A whole answer. An empty ``content_type`` sends none."""

    body: bytes = b""
    content_type: str = HTML
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Exchange(Protocol):
    """One request being answered by a script.

    ``write`` waits while the client is slower than the server, so a script can send without end.
    A body written for a HEAD request goes nowhere. When the client hangs up, the script is
    cancelled.
    """

    async def send(self, answer: Answer) -> None:
        """A whole answer, well framed."""

    def start(self, answer: Answer, length: int | None) -> None:
        """Head only; a body of ``length`` bytes follows, or a chunked one for None. ``answer.body`` is ignored."""

    async def write(self, data: bytes) -> None:
        """A piece of the body that ``start`` announced."""

    def finish(self) -> None:
        """The end of a chunked body."""

    async def raw(self, data: bytes) -> None:
        """Bytes that bypass all framing."""

    def close(self) -> None:
        """Hang up once everything written has left."""

    async def reset(self) -> None:
        """Drop the connection with a TCP RST; what the client has not read yet may be gone for it."""


Script = Callable[[Exchange], Awaitable[None]]
Reply = Answer | Script | None


def html(title: str, body: str, status: int = 200) -> Answer:
    """A small page."""
    head = f'<head><meta charset="utf-8"><title>{title}</title></head>'
    page = f'<!doctype html>\n<html lang="en">{head}\n<body>\n<h1>{title}</h1>\n{body}\n</body></html>\n'
    return Answer(page.encode(), status=status)


def json(value: object, status: int = 200) -> Answer:
    return Answer(msgspec.json.encode(value), JSON, status)


def redirect(location: str, status: int = 302, *headers: tuple[str, str]) -> Answer:
    return Answer(b"Moved.\n", TEXT, status, (("Location", location), *headers))


def natural(text: str) -> int | None:
    """The number a path segment spells, if it does so in the one proper way (not ``007``)."""
    if text.isdecimal() and text.isascii() and len(text) < 16 and (text[0] != "0" or text == "0"):
        return int(text)
    return None


NOT_FOUND = html("Not found", "<p>There is no such page.</p>", 404)

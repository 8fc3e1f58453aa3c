"""Requests and answers, as the parts of the site see them.

A part of the site answers a request with an ``Answer``, which the protocol frames and sends, or with a ``Script``: a
coroutine that sends by itself, for answers that take time or break the rules of HTTP. None means that there is no such
page.
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
    """A request as it was received. Everything but the path is parsed on first use."""

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
        """All headers, with names as they were sent and duplicates kept."""
        lines = self._head.decode("latin-1").split("\r\n")[1:]
        return [
            (name.strip(), value.strip()) for name, colon, value in (line.partition(":") for line in lines) if colon
        ]

    def header(self, name: str) -> str:
        """The first header of that name, ignoring case. Empty if it is missing."""
        name = name.lower()
        return next((value for key, value in self.headers if key.lower() == name), "")

    @cached_property
    def cookies(self) -> dict[str, str]:
        pairs = (part.partition("=") for part in self.header("cookie").split(";"))
        return {name.strip(): unquote(value.strip()) for name, equals, value in pairs if equals}

    def number(self, name: str, default: float) -> float:
        """A parameter as a number. ``default`` if it is missing or not a number."""
        try:
            return float(self.query[name])
        except (KeyError, ValueError):
            return default


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A complete answer. If ``content_type`` is empty, the header is not sent."""

    body: bytes = b""
    content_type: str = HTML
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Exchange(Protocol):
    """A request that a script answers.

    ``write`` waits while the client is slower than the server, so a script can send endlessly. The body of an answer to
    HEAD is dropped. The script is cancelled when the client closes the connection.
    """

    async def send(self, answer: Answer) -> None:
        """Send a complete, correctly framed answer."""

    def start(self, answer: Answer, length: int | None) -> None:
        """Send the head only. A body of ``length`` bytes follows; None: a chunked one. Ignores ``answer.body``."""

    async def write(self, data: bytes) -> None:
        """Send a piece of the body that ``start`` announced."""

    def finish(self) -> None:
        """End a chunked body."""

    async def raw(self, data: bytes) -> None:
        """Send bytes without any framing."""

    def close(self) -> None:
        """Close the connection after everything written has been sent."""

    async def reset(self) -> None:
        """Drop the connection with a TCP RST. The client may lose data that it has not read yet."""


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
    """The number that a path segment spells in its canonical form (not ``007``), or None."""
    if text.isdecimal() and text.isascii() and len(text) < 16 and (text[0] != "0" or text == "0"):
        return int(text)
    return None


NOT_FOUND = html("Not found", "<p>There is no such page.</p>", 404)

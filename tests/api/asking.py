"""Ask an ASGI app without a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from starlette.types import ASGIApp


class Answer(msgspec.Struct):
    """The answer of an app."""

    status: int = 0
    headers: dict[str, str] = {}
    body: bytes = b""

    @property
    def text(self) -> str:
        return self.body.decode()


async def ask(
    app: ASGIApp,
    path: str,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    body: bytes | None = None,
    root_path: str = "",
) -> Answer:
    """Send a request, a POST if there is a ``form`` or ``body``, and return the whole answer."""
    parts = urlsplit(path)
    sent = body if body is not None else urlencode(form).encode() if form is not None else b""
    given = {"host": "127.0.0.1", **(headers or {})}
    if form is not None:
        given.setdefault("content-type", "application/x-www-form-urlencoded")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET" if form is None and body is None else "POST",
        "scheme": "http",
        "path": root_path + parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": root_path,
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    answer = Answer()
    messages = [{"type": "http.request", "body": sent, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
    return answer

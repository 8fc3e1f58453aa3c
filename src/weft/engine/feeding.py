"""Start URLs that other programs push: from a crawl's feed into its frontier.

An entry is a URL, or a JSON object with the fields of a request::

    https://shop.example/7
    {"url": "https://shop.example/7", "handler": "product", "meta": {"from": "newsletter"}}

Whoever pushes knows nothing of Weft, so anything may come. What is no request for this spider is put aside,
for someone to look at.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from weft.engine.gate import checked
from weft.frontier.base import Feed
from weft.model import Request

_BATCH: Final = 500
# So many batches in a row at most, so that whoever feeds attends to other things as well.
_MOST_BATCHES: Final = 20
_SHOWN: Final = 200


class Feeding:
    """Takes what comes in by the feed. Several workers may do so at once."""

    def __init__(self, feed: Feed, handlers: Collection[str]) -> None:
        self._feed = feed
        self._handlers = handlers

    async def take(self) -> int:
        """Put what waits in the feed into the frontier; returns how many were new.

        :raises StoreError: the store can't be read or written.
        """
        new = 0
        for _ in range(_MOST_BATCHES):
            entries = await self._feed.peek(_BATCH)
            if entries:
                new += await self._accept(entries)
            if len(entries) < _BATCH:
                break
        return new

    async def waiting(self) -> int:
        return await self._feed.length()

    async def _accept(self, entries: list[bytes]) -> int:
        requests: list[Request] = []
        accepted: list[bytes] = []
        refused: list[bytes] = []
        for entry in entries:
            try:
                requests.append(request_of(entry, self._handlers))
            except ValueError:
                refused.append(entry)
            else:
                accepted.append(entry)
        return await self._feed.accept(requests, accepted, refused)


class _Pushed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request as other programs write it: its fields by their names, the body as text."""

    url: str
    handler: str = ""
    method: str = "GET"
    headers: dict[str, str] = {}
    body: str = ""
    meta: dict[str, Any] = {}
    cookies: dict[str, str] = {}
    priority: int = 0
    depth: int = 0
    salt: str = ""
    proxy: str = ""


def request_of(entry: bytes, handlers: Collection[str] | None) -> Request:
    """The request that an entry stands for. ``handlers`` are the names that it may give, None for any.

    :raises ValueError: it is none; says why.
    """
    try:
        text = entry.decode().strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{_shown(entry)} is not UTF-8 text: {error}") from error
    if not text:
        raise ValueError("an empty line is no request")
    try:
        pushed = msgspec.json.decode(text, type=_Pushed) if text.startswith("{") else _Pushed(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"{_shown(entry)} is no request: {error}") from error
    if pushed.handler and handlers is not None and pushed.handler not in handlers:
        raise ValueError(f"{_shown(entry)} is for a handler that the spider does not have: {pushed.handler!r}")
    fields = msgspec.structs.asdict(pushed)
    fields |= {"method": pushed.method.upper(), "body": pushed.body.encode(), "start": True}
    return checked(Request.to(**fields))


def _shown(entry: bytes) -> str:
    text = repr(entry[:_SHOWN].decode(errors="replace"))
    return text + "…" if len(entry) > _SHOWN else text

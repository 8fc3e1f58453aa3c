"""A fetch to do, and its compact record.

The record is JSON with one-letter keys, and only of what differs from the defaults: a plain link
costs its URL and a dozen bytes. It holds data, never code: the handler is named, not pickled, so
a record made by yesterday's spider is read by today's, and any language can write one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from weft.model.url import canonical, fingerprint, host_of

_KEYS = {
    "url": "u", "handler": "h", "method": "m", "headers": "H", "body": "b", "meta": "x", "cookies": "c",
    "priority": "p", "depth": "d", "via": "v", "salt": "s", "proxy": "P", "start": "S",
}  # fmt: skip


# Outside the garbage collector's care (gc=False): its fields are JSON, which has no cycles, and there are
# hundreds of thousands of them a second.
class Request(msgspec.Struct, frozen=True, omit_defaults=True, rename=_KEYS.get, kw_only=True, gc=False):
    """A fetch to do. ``url`` is canonical; build one with :meth:`to` from what a person wrote.

    ``handler`` names the function that gets the page; empty means the spider's first one.
    ``via`` lists the URLs that redirected here. ``salt`` sets requests apart that would otherwise
    count as the same. ``start``: the user asked for it, no page led to it; set by whoever puts it.
    """

    url: str
    handler: str = ""
    method: str = "GET"
    headers: dict[str, str] = {}
    body: bytes = b""
    meta: dict[str, Any] = {}
    cookies: dict[str, str] = {}
    priority: int = 0
    depth: int = 0
    via: tuple[str, ...] = ()
    salt: str = ""
    proxy: str = ""
    start: bool = False

    @classmethod
    def to(cls, url: str, **fields: Any) -> Request:
        """A request to ``url`` as a person or a page wrote it.

        :raises ValueError: it is not an absolute http(s) URL.
        """
        return cls(url=canonical(url), **fields)

    @property
    def fingerprint(self) -> int:
        return fingerprint(self.url, self.method, self.body, self.salt)

    @property
    def lane(self) -> str:
        """The politeness bucket it belongs to: its host."""
        return host_of(self.url)

    def record(self) -> bytes:
        return _encode(self)

    @staticmethod
    def from_record(record: bytes | str) -> Request:
        return _decode(record)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Request).decode

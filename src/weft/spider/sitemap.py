"""Sitemaps in every form they are found in: XML, an index of others, plain text, RSS, Atom; gzipped or not.

Sitemaps are written by programs that nobody watches. What can be read of a broken one is taken,
and of what can't be read at all nothing is: no input raises. They are also written by strangers,
so nothing in them is expanded, fetched or unpacked beyond a limit, and no tree is built: a file at
the limit, or one of millions of empty elements, takes no more memory than its entries do.

libxml2 drops every named reference, even ``&amp;``, after the first error in a file, and the bare
``&`` of a careless URL is such an error. So all of them are rewritten as numbers before it sees
them; entities the file defines itself thereby stay text, and no expansion can be had from it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec
from lxml import etree

from weft.model.url import Joiner, canonical

MAX_BYTES: Final = 50 * 1024 * 1024
"""Unpacked; the standard's own limit. The rest is ignored."""
MAX_ENTRIES: Final = 200_000
"""The standard allows 50,000, and is not always read."""
MAX_ELEMENTS: Final = 2_000_000
"""Of any kind; a second or two of work."""
MAX_MEMBERS: Final = 1000
"""Gzip files may be strung together; past so many it is an attack."""

_CHUNK: Final = 64 * 1024
_GZIP: Final = b"\x1f\x8b"
_GZIP_CHUNK: Final = 4 * 1024
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_ENTRIES: Final = frozenset({"url", "sitemap", "item", "entry"})
_references: Final = re.compile(
    rb"<!\[CDATA\[.*?(?:\]\]>|\Z)|&(?:amp;|lt;|gt;|quot;|apos;|#[0-9]{1,7};|#x[0-9A-Fa-f]{1,6};)?", re.DOTALL
).sub
_NUMBERED: Final = {
    b"&": b"&#38;",
    b"&amp;": b"&#38;",
    b"&lt;": b"&#60;",
    b"&gt;": b"&#62;",
    b"&quot;": b"&#34;",
    b"&apos;": b"&#39;",
}
_http: Final = re.compile(r"https?://\S+", re.IGNORECASE).fullmatch

# "internal" leaves files alone; False would, with a target, also leave references in attributes unread.
_SAFELY: Final[dict[str, Any]] = {
    "recover": True,
    "resolve_entities": "internal",
    "no_network": True,
    "load_dtd": False,
    "huge_tree": False,
}

Resolve = Callable[[str], str | None]


class SitemapEntry(msgspec.Struct, frozen=True):
    """A page: its canonical URL, and what its site says about it, dates as they are written."""

    url: str
    lastmod: str | None = None
    priority: float | None = None
    changefreq: str | None = None


class Sitemap(msgspec.Struct, frozen=True):
    """Pages, and further sitemaps to read; in their order, repetitions included."""

    pages: tuple[SitemapEntry, ...] = ()
    sitemaps: tuple[str, ...] = ()


def parse_sitemap(body: bytes, url: str) -> Sitemap:
    """Whatever can be read of ``body``, which came from ``url``."""
    body = _unpacked(body)
    encoding = None
    if body.startswith(_UTF16):
        body, encoding = body.decode("utf-16", "replace").encode(errors="replace"), "utf-8"
    body = body.removeprefix(b"\xef\xbb\xbf").lstrip()
    resolve = _resolver(url)
    return _from_xml(body, encoding, resolve) if body.startswith(b"<") else _from_text(body, resolve)


def _resolver(url: str) -> Resolve:
    try:
        return Joiner(canonical(url))
    except ValueError:
        return _absolute


def _absolute(link: str) -> str | None:
    try:
        return canonical(link)
    except ValueError:
        return None


def _unpacked(body: bytes) -> bytes:
    # Twice, for files that were compressed and then served as if they were not.
    for _ in range(2):
        if body.startswith(_GZIP):
            body = _gunzip(body)
    return body[:MAX_BYTES]


def _gunzip(body: bytes) -> bytes:
    """As much as is whole, up to the limit."""
    unpacked = bytearray()
    at = 0
    for _ in range(MAX_MEMBERS):
        unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        while not unpacker.eof:
            chunk = body[at : at + _GZIP_CHUNK]
            room = MAX_BYTES - len(unpacked)
            if not chunk or not room:
                return bytes(unpacked)
            try:
                unpacked += unpacker.decompress(chunk, room)
            except zlib.error:
                return bytes(unpacked)
            at += len(chunk) - len(unpacker.unused_data)
    return bytes(unpacked)


def _from_text(body: bytes, resolve: Resolve) -> Sitemap:
    pages: list[SitemapEntry] = []
    for line in body.decode("utf-8", "replace").splitlines():
        link = line.strip()
        if _http(link) and (url := resolve(link)):
            pages.append(SitemapEntry(url))
            if len(pages) >= MAX_ENTRIES:
                break
    return Sitemap(pages=tuple(pages))


def _from_xml(body: bytes, encoding: str | None, resolve: Resolve) -> Sitemap:
    reader = _Reader(resolve)
    parser = etree.XMLParser(**_SAFELY, target=cast(Any, reader), encoding=encoding)
    if b"&" in body:
        body = _references(lambda match: _NUMBERED.get(match[0], match[0]), body)
    try:
        for start in range(0, len(body), _CHUNK):
            parser.feed(body[start : start + _CHUNK])
            if reader.full:
                break
        parser.close()
    except (etree.LxmlError, ValueError, LookupError):
        pass  # beyond recovery from here on
    reader.finish()
    return Sitemap(pages=tuple(reader.pages), sitemaps=tuple(reader.sitemaps))


class _Reader:
    """Collects entries from the events of a parser.

    An entry is a ``url``, ``sitemap``, ``item`` or ``entry`` in whatever namespace; its fields are
    its direct children, so the ``loc`` of an image inside it is not taken for its own.
    """

    def __init__(self, resolve: Resolve) -> None:
        self.pages: list[SitemapEntry] = []
        self.sitemaps: list[str] = []
        self._resolve = resolve
        self._elements = 0
        self._kind = ""
        self._depth = 0
        self._fields: dict[str, str] = {}
        self._text: list[str] = []

    @property
    def full(self) -> bool:
        return len(self.pages) + len(self.sitemaps) >= MAX_ENTRIES or self._elements >= MAX_ELEMENTS

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._elements += 1
        name = tag.rpartition("}")[2]
        if self._kind and not (self._depth == 0 and name == self._kind):
            self._depth += 1
            self._text.clear()
            if self._depth == 1 and name == "link" and attributes.get("rel", "alternate") == "alternate":
                self._fields.setdefault("href", attributes.get("href", ""))
        elif name in _ENTRIES:
            self.finish()  # the one before was never closed
            self._kind = name

    def data(self, text: str) -> None:
        if self._depth == 1:
            self._text.append(text)

    def end(self, tag: str) -> None:
        if self._depth == 0:
            self.finish()
            return
        if self._depth == 1:
            self._fields.setdefault(tag.rpartition("}")[2], "".join(self._text).strip())
        self._depth -= 1

    def close(self) -> None:
        """The parser has come to the end; what it has not closed by then it never will."""

    def finish(self) -> None:
        """Take the entry that was read, if one was."""
        kind, fields = self._kind, self._fields
        self._kind, self._fields, self._depth = "", {}, 0
        url = self._resolve(link) if kind and (link := _link(kind, fields)) else None
        if url is None:
            return
        if kind == "sitemap":
            self.sitemaps.append(url)
            return
        changed = fields.get("lastmod") or fields.get("updated") or fields.get("pubDate") or fields.get("date")
        changefreq = fields.get("changefreq", "").lower()
        self.pages.append(SitemapEntry(url, changed or None, _priority(fields.get("priority")), changefreq or None))


def _link(kind: str, fields: Mapping[str, str]) -> str:
    if kind in ("url", "sitemap"):
        return fields.get("loc", "")
    return fields.get("link") or fields.get("href", "")


def _priority(text: str | None) -> float | None:
    try:
        priority = float(text or "")
    except ValueError:
        return None
    return priority if 0 <= priority <= 1 else None

"""Sitemaps in all common forms: XML, sitemap index, plain text, RSS, Atom; gzipped or not.

The reader takes what it can from a broken sitemap, and nothing from a file that is not a sitemap. No input raises.

Sitemaps come from strangers, so they are read in slices, with bounds. :func:`read_sitemap` yields the entries of each
slice of ``SLICE`` bytes. A slice takes about 20 ms at most, and the event loop can run in between. No tree is built and
no file is unpacked as a whole, so memory is proportional to the entries. The constants below are the bounds: bytes,
entries, characters of URLs, and work (elements and pieces of text, about 1 µs each). Input beyond a bound is ignored.
Entities are not expanded, and nothing is fetched.

After the first error in a file, libxml2 drops every named reference, even ``&amp;``, and a bare ``&`` in a URL is such
an error. So all references are rewritten as numbers before libxml2 sees them. As a result, entities that a file defines
remain text.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec
from lxml import etree

from uttu.model.url import Joiner, canonical

MAX_BYTES: Final = 50 * 1024 * 1024
"""Bytes of an unpacked file; the limit of the standard."""
MAX_ENTRIES: Final = 200_000
"""Entries of a file. The standard allows 50,000, but some sites write more."""
MAX_EVENTS: Final = 2_000_000
"""Elements, and pieces of text between tags and references; 1 to 2 s of work."""
MAX_TEXT: Final = 64 * 1024 * 1024
"""Characters of all URLs of a file. Relative URLs on a long base can be much longer than the file."""
MAX_FIELD: Final = 16 * 1024
"""Characters of a URL or another field of an entry. A longer field is ignored."""
MAX_MEMBERS: Final = 1000
"""Gzip members in one file."""
SLICE: Final = 64 * 1024
"""Unpacked bytes that are read in one step."""

_GZIP: Final = b"\x1f\x8b"
_GZIP_CHUNK: Final = 4 * 1024  # packed bytes per call of zlib
_BOM: Final = b"\xef\xbb\xbf"
_UTF16: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_ENTRIES: Final = frozenset({"url", "sitemap", "item", "entry"})
_FIELDS: Final = frozenset(
    {"loc", "link", "guid", "id", "lastmod", "updated", "pubDate", "date", "priority", "changefreq"}
)
_NUMBERED_REFERENCES: Final = (
    (b"&amp;", b"&#38;"),
    (b"&lt;", b"&#60;"),
    (b"&gt;", b"&#62;"),
    (b"&quot;", b"&#34;"),
    (b"&apos;", b"&#39;"),
)
_bare_ampersands: Final = re.compile(rb"&(?!#[0-9]{1,7};|#x[0-9A-Fa-f]{1,6};)").sub
_LONGEST_REFERENCE: Final = len(b"&#x10FFFF;")
_CDATA: Final = b"<![CDATA["
_BASE: Final = "{http://www.w3.org/XML/1998/namespace}base"
_LINKS: Final = frozenset({"loc", "link"})
_match_http_url: Final = re.compile(r"https?://\S+", re.IGNORECASE).fullmatch

# "internal" does not load files. With False, a parser with a target would also leave references in attributes alone.
_PARSER_OPTIONS: Final[dict[str, Any]] = {
    "recover": True,
    "resolve_entities": "internal",
    "no_network": True,
    "load_dtd": False,
    "huge_tree": False,
}

Resolve = Callable[[str], str | None]


class SitemapEntry(msgspec.Struct, frozen=True):
    """A page: its canonical URL, and the data of its site about it. Dates are kept as they are written."""

    url: str
    lastmod: str | None = None
    priority: float | None = None
    changefreq: str | None = None


class Sitemap(msgspec.Struct, frozen=True):
    """Pages and further sitemaps of a file, in order. Duplicates are kept."""

    pages: tuple[SitemapEntry, ...] = ()
    sitemaps: tuple[str, ...] = ()


def parse_sitemap(body: bytes, url: str) -> Sitemap:
    """All entries that can be read from ``body``. ``url`` is its address, the base of relative links."""
    pages: list[SitemapEntry] = []
    sitemaps: list[str] = []
    for part in read_sitemap(body, url):
        pages += part.pages
        sitemaps += part.sitemaps
    return Sitemap(pages=tuple(pages), sitemaps=tuple(sitemaps))


def read_sitemap(body: bytes, url: str) -> Iterator[Sitemap]:
    """The entries of each slice of ``body``, so that the caller can do other work in between."""
    collector = _EntryCollector(_make_resolver(url))
    slices = _unpack(body)
    first = _first_slice(slices)
    encoding = _UTF16.get(first[:2])
    if encoding:
        slices = _decode_utf16(first, slices, encoding)
        first = _first_slice(slices)
    first = first.removeprefix(_BOM).lstrip()
    if first.startswith(b"<"):
        reading = _read_xml(first, slices, collector, "utf-8" if encoding else None)
    else:
        reading = _read_text(first, slices, collector)
    for _ in reading:
        yield collector.take()
        if collector.is_full:
            return
    yield collector.take()


def _first_slice(slices: Iterator[bytes]) -> bytes:
    """The first slice that is not only whitespace."""
    for each in slices:
        if each and not each.isspace():
            return each
    return b""


def _decode_utf16(first: bytes, slices: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first).encode(errors="replace")
    for each in slices:
        yield decoder.decode(each).encode(errors="replace")


def _make_resolver(url: str) -> Resolve:
    try:
        return Joiner(canonical(url))
    except ValueError:
        return _absolute


def _absolute(link: str) -> str | None:
    try:
        return canonical(link)
    except ValueError:
        return None


def _unpack(body: bytes) -> Iterator[bytes]:
    """The slices of a file, unpacked if it is gzipped, up to ``MAX_BYTES``."""
    slices: Iterator[bytes] = (body[start : start + SLICE] for start in range(0, len(body), SLICE))
    if body.startswith(_GZIP):
        slices = _gunzip(slices)
        first = next(slices, b"")
        slices = _chain(first, slices)
        if first.startswith(_GZIP):  # compressed twice: the file, and again for the transfer
            slices = _gunzip(slices)
    remaining = MAX_BYTES
    for each in slices:
        yield each[:remaining]
        remaining -= len(each)
        if remaining <= 0:
            return


def _chain(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _gunzip(slices: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack up to the first error. All slices but the last have ``SLICE`` bytes."""
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    unpacked = bytearray()
    members = 1
    for packed in slices:
        for start in range(0, len(packed), _GZIP_CHUNK):
            rest = packed[start : start + _GZIP_CHUNK]
            ready = b""
            while rest or len(ready) == SLICE:
                if unpacker.eof:
                    members += 1
                    if members > MAX_MEMBERS:
                        yield bytes(unpacked)
                        return
                    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
                try:
                    ready = unpacker.decompress(rest, SLICE)
                except zlib.error:
                    yield bytes(unpacked)
                    return
                unpacked += ready
                rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
                while len(unpacked) >= SLICE:
                    yield bytes(unpacked[:SLICE])
                    del unpacked[:SLICE]
    yield bytes(unpacked)


def _read_text(first: bytes, slices: Iterable[bytes], collector: _EntryCollector) -> Generator[None]:
    rest = b""
    for each in _chain(first, slices):
        *lines, rest = (rest + each).splitlines(keepends=True) or [b""]
        collector.events += len(lines)
        for line in lines:
            collector.add_line(line)
        if len(rest) > MAX_FIELD:
            rest = b" "  # the line is too long, and the space keeps its remainder from being a URL
        yield
    collector.add_line(rest)


def _read_xml(
    first: bytes, slices: Iterable[bytes], collector: _EntryCollector, encoding: str | None
) -> Generator[None]:
    reader = _Reader(collector)
    parser = etree.XMLParser(**_PARSER_OPTIONS, target=cast(Any, reader), encoding=encoding)
    try:
        for each in _number_references(_chain(first, slices)):
            # A numbered reference may be five times as long as the original, so cut the slice again.
            for start in range(0, len(each), SLICE):
                parser.feed(each[start : start + SLICE])
                yield
        parser.close()
    except (etree.LxmlError, ValueError, LookupError):
        pass  # the parser cannot recover; keep the entries found so far
    reader.finish()


def _number_references(slices: Iterable[bytes]) -> Iterator[bytes]:
    """Replace all references by numbered ones, except in CDATA. The unfinished end of a slice moves to the next one."""
    rest = b""
    in_cdata = False
    for each in slices:
        data = rest + each
        parts: list[bytes] = []
        position = 0
        while True:
            end = data.find(b"]]>" if in_cdata else _CDATA, position)
            if end < 0:
                break
            parts.append(data[position:end] if in_cdata else _number_references_in(data[position:end]))
            position, in_cdata = end, not in_cdata
        keep = _find_unfinished(data, position, in_cdata=in_cdata)
        last = data[position:keep]
        parts.append(last if in_cdata else _number_references_in(last))
        rest = data[keep:]
        yield b"".join(parts)
    yield rest if in_cdata else _number_references_in(rest)


def _find_unfinished(data: bytes, position: int, *, in_cdata: bool) -> int:
    """The position of an unfinished reference or CDATA mark that may continue in the next slice, else the end."""
    if in_cdata:
        return max(position, len(data) - len(b"]]"))
    for mark, longest in ((b"&", _LONGEST_REFERENCE), (b"<", len(_CDATA))):
        begin = data.rfind(mark, max(position, len(data) - longest + 1))
        if begin >= 0:
            return begin
    return len(data)


def _number_references_in(data: bytes) -> bytes:
    if b"&" not in data:
        return data
    for named, numbered in _NUMBERED_REFERENCES:
        data = data.replace(named, numbered)
    return _bare_ampersands(b"&#38;", data)


class _EntryCollector:
    """The entries found since the last ``take``, and the totals that count towards the bounds."""

    def __init__(self, resolve: Resolve) -> None:
        self.events = 0
        self.resolve = resolve
        self._entries = 0
        self._text = 0
        self._pages: list[SitemapEntry] = []
        self._sitemaps: list[str] = []

    @property
    def is_full(self) -> bool:
        return self._entries >= MAX_ENTRIES or self.events >= MAX_EVENTS or self._text >= MAX_TEXT

    def take(self) -> Sitemap:
        sitemap = Sitemap(pages=tuple(self._pages), sitemaps=tuple(self._sitemaps))
        self._pages.clear()
        self._sitemaps.clear()
        return sitemap

    def add_line(self, line: bytes) -> None:
        link = line.decode("utf-8", "replace").strip() if len(line) <= MAX_FIELD else ""
        if _match_http_url(link):
            self.add("url", {"loc": link})

    def add(self, kind: str, fields: Mapping[str, str]) -> None:
        """Add an entry if its link leads to a web page."""
        url = self.resolve(link) if (link := _choose_link(kind, fields)) and not self.is_full else None
        if url is None:
            return
        self._entries += 1
        self._text += len(url)
        if kind == "sitemap":
            self._sitemaps.append(url)
            return
        changed = fields.get("lastmod") or fields.get("updated") or fields.get("pubDate") or fields.get("date")
        changefreq = fields.get("changefreq", "").lower()
        self._pages.append(
            SitemapEntry(url, changed or None, _parse_priority(fields.get("priority")), changefreq or None)
        )


class _Reader:
    """Collects entries from the events of an XML parser.

    An entry is a ``url``, ``sitemap``, ``item`` or ``entry`` element in any namespace. Its fields are its direct
    children, so the ``loc`` of an image inside a ``url`` is not used. An ``xml:base`` applies to the links within its
    element.
    """

    def __init__(self, collector: _EntryCollector) -> None:
        self._collector = collector
        self._level = 0  # number of open elements, counted from the outermost one with an xml:base
        self._bases: list[tuple[int, Resolve]] = []  # with the level of their elements
        self._kind = ""  # name of the open entry
        self._depth = 0  # open elements within the entry
        self._fields: dict[str, str] = {}
        self._text: list[str] = []
        self._length = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._collector.events += 1
        if attributes and _BASE in attributes:
            self._open_base(attributes[_BASE])
        if self._bases:
            self._level += 1
        name = tag.rpartition("}")[2]
        if self._kind and not (self._depth == 0 and name == self._kind):
            self._depth += 1
            self._text.clear()
            self._length = 0
            if self._depth == 1 and name == "link" and attributes.get("rel", "alternate") == "alternate":
                self._fields.setdefault("href", self._absolute(attributes.get("href", "")[:MAX_FIELD]))
            if self._depth == 1 and name == "guid" and attributes.get("isPermaLink", "").strip().lower() == "false":
                self._fields.setdefault("guid", "")  # an identifier, not a URL
        elif name in _ENTRIES:
            self.finish()  # the previous entry was not closed
            self._kind = name

    def data(self, text: str) -> None:
        self._collector.events += 1
        if self._depth == 1:
            self._length += len(text)
            if self._length <= MAX_FIELD:
                self._text.append(text)

    def end(self, tag: str) -> None:
        if self._depth == 0:
            self.finish()
        else:
            if self._depth == 1:
                name = tag.rpartition("}")[2]
                if name in _FIELDS and self._length <= MAX_FIELD:
                    text = "".join(self._text).strip()
                    self._fields.setdefault(name, self._absolute(text) if self._bases and name in _LINKS else text)
            self._depth -= 1
        if self._bases:
            if self._bases[-1][0] == self._level:
                self._bases.pop()
            self._level -= 1

    def _open_base(self, base: str) -> None:
        resolve = self._bases[-1][1] if self._bases else self._collector.resolve
        if len(base) <= MAX_FIELD and (url := resolve(base)):
            self._bases.append((self._level + 1, _make_resolver(url)))

    def _absolute(self, link: str) -> str:
        """A link, resolved by the innermost ``xml:base``. Unchanged if there is no base or it does not resolve."""
        return (self._bases[-1][1](link) or link) if self._bases and link else link

    def close(self) -> None:
        """Called by the parser at the end. Unclosed elements are handled by :meth:`finish`."""

    def finish(self) -> None:
        """Add the open entry, if there is one."""
        kind, fields = self._kind, self._fields
        self._kind, self._fields, self._depth = "", {}, 0
        if kind:
            self._collector.add(kind, fields)


def _choose_link(kind: str, fields: Mapping[str, str]) -> str:
    if kind in ("url", "sitemap"):
        return fields.get("loc", "")
    name = fields.get("id" if kind == "entry" else "guid", "")
    return fields.get("link") or fields.get("href") or (name if _match_http_url(name) else "")


def _parse_priority(text: str | None) -> float | None:
    try:
        priority = float(text or "")
    except ValueError:
        return None
    return priority if 0 <= priority <= 1 else None

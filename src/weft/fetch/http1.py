"""A response of HTTP/1, read from bytes as they come.

No input or output here: whoever has the connection feeds what arrived, however it was cut, and is told when the
response is whole. Where it ends is what its head says (RFC 9112, section 6.3): with the head itself, after so many
bytes, after the last chunk, or when the host closes the connection.

What browsers forgive is forgiven: empty lines before it, lines that end without a carriage return, folded lines, spaces
before the colon, lines that are no headers. What would leave the end in doubt is not: two lengths, or a chunk of no
known size. Nor is what only keeps us busy: notes, trailers and chunks of a byte without end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from weft.model import Headers

HEAD_LIMIT: Final = 256 * 1024  # what browsers take
_LINE_LIMIT: Final = 4096  # between chunks
# Bytes that are not the body, beside so many for each of its own: more are chunks of a byte or two, or trailers.
_FRAMING_LIMIT: Final = 256 * 1024
_MOST_NOTES: Final = 20
_MOST_DIGITS: Final = 18

BODILESS: Final = frozenset({204, 304})
_START: Final = b"HTTP/1."
_status_line: Final = re.compile(r"HTTP/1\.([01]) +([1-9][0-9]{2})(?: .*)?", re.DOTALL).fullmatch
_unfold: Final = re.compile(r"\n[ \t]+").sub
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_SHORT: Final = 128
_control: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]").search
_chunk_size: Final = re.compile(rb"[ \t]*0*([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL).fullmatch


class Garbled(Exception):
    """What came is no response; says why."""


class TooMuch(Exception):
    """The body is larger than the limit; says how that is known."""


class Reading:
    """One response to a GET; ``status``, ``version`` and ``headers`` are there once its head is.

    ``keeps``: the connection can serve another exchange after this one. ``cut``: the body goes on, but it ``may_cut``,
    so the response counts as complete with ``limit`` bytes of it.

    :raises Garbled: it is none.
    :raises TooMuch: its body has more than ``limit`` bytes, and may not be cut.
    """

    __slots__ = (
        "_after_chunk", "_after_last", "_body", "_buffer", "_framing", "_left", "_limit", "_may_cut", "_notes",
        "_repeats", "_step", "cut", "headers", "keeps", "status", "version",
    )  # fmt: skip

    def __init__(self, limit: int, *, may_cut: bool = False) -> None:
        self.status = 0
        self.version = ""
        self.headers: Headers
        self.keeps = False
        self.cut = False
        self._limit = limit
        self._may_cut = may_cut
        self._notes = 0
        self._repeats = False  # whether something is told several times in the head
        self._body: bytes | bytearray = b""
        self._buffer = bytearray()  # what is not enough to go on with
        self._left = 0  # of the body, or of the chunk
        self._framing = 0  # bytes between and after chunks
        self._after_chunk = self._after_last = False
        # What is to come. The function alone: with the object it belongs to, it would keep that alive.
        self._step: Callable[[Reading, bytes], bool] = Reading._head

    @property
    def body(self) -> bytes:
        return bytes(self._body)

    def feed(self, data: bytes) -> bool:
        """True: it is complete."""
        return self._step(self, data)

    def end(self) -> bool:
        """The host has closed the connection in good order. True: that completes it."""
        self.keeps = False
        return self._step is Reading._until_closed

    def _head(self, data: bytes | bytearray) -> bool:
        searched = 0
        if self._buffer:
            searched = max(0, len(self._buffer) - 2)
            self._buffer += data
            data = self._buffer
        while self.status < 200:
            if data[:1] in (b"\r", b"\n"):  # of a response before, most likely
                data, searched = data.lstrip(b"\r\n"), 0
            end, begin = _end_of_head(data, searched)
            if (len(data) if end < 0 else end) > HEAD_LIMIT:
                raise Garbled(f"its head is longer than {HEAD_LIMIT} bytes")
            if end < 0:
                if not _START.startswith(data[: len(_START)]):
                    raise Garbled("it is not HTTP")
                self._buffer = bytearray(data) if data is not self._buffer else self._buffer
                return False
            self._parse(bytes(data[:end]))
            # A status below 200 is only a note; the response follows.
            data, searched = bytes(data[begin:]), 0
            self._notes += 1
            if self._notes > _MOST_NOTES:
                raise Garbled("it has nothing but notes")
        self._buffer = bytearray()
        self._frame()
        return self._step(self, bytes(data))

    def _parse(self, raw: bytes) -> None:
        first, pairs = _parsed(raw)
        found = _status_line(first)
        if found is None:
            raise Garbled(f"it begins with {first[:60]!r}")
        self.version, self.status = "HTTP/1." + found[1], int(found[2])
        if self.status == 101:
            raise Garbled("it changes to another protocol")
        lookup = dict(pairs)
        self._repeats = len(lookup) < len(pairs)
        self.headers = Headers(pairs, None if self._repeats else lookup)

    def _frame(self) -> None:
        """Find out how the body ends."""
        get = self.headers.get
        length, coding, connection = get("content-length"), get("transfer-encoding"), get("connection", "")
        if self._repeats:
            connection = ",".join(self.headers.get_all("connection"))
        connection = connection.lower()
        self.keeps = "close" not in connection if self.version == "HTTP/1.1" else "keep-alive" in connection
        if self.status in BODILESS:
            # Who announces a body that there can't be may send it all the same; of a 304 it is that of the page.
            self.keeps = self.keeps and coding is None and (self.status == 304 or length in (None, "0"))
            self._step = Reading._sized
        elif coding is not None:
            # A length beside it does not count; but who sends both may mean either. HTTP/1.0 knows no codings.
            self.keeps = self.keeps and length is None and self.version == "HTTP/1.1"
            codings = ",".join(self.headers.get_all("transfer-encoding")).rpartition(",")
            self._step = Reading._chunked if codings[2].strip().lower() == "chunked" else Reading._until_closed
        elif length is not None:
            if self._repeats or "," in length:
                length = self._agreed_length()
            self._left, self._step = self._length(length), Reading._sized
        else:
            self._step = Reading._until_closed

    def _agreed_length(self) -> str:
        told = {each.strip() for text in self.headers.get_all("content-length") for each in text.split(",")}
        if len(told) > 1:
            raise Garbled("it has several lengths")
        return told.pop()

    def _length(self, text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
            raise Garbled(f"its length is {text[:60]!r}")
        if (length := int(text)) > self._limit and not self._may_cut:
            raise TooMuch(f"{length} are announced")
        return length

    def _sized(self, data: bytes) -> bool:
        if len(data) > self._left:
            # More than there should be: where the next response would begin can't be known.
            data, self.keeps = data[: self._left], False
        self._left -= len(data)
        self._take(data)
        return self._left == 0 or self.cut

    def _until_closed(self, data: bytes) -> bool:
        self._take(data)
        return self.cut

    def _chunked(self, data: bytes) -> bool:
        buffer = self._buffer
        buffer += data
        at = 0
        while at < len(buffer):
            if self._left:
                piece = bytes(buffer[at : at + self._left])
                self._take(piece)
                if self.cut:
                    return True
                at += len(piece)
                self._left -= len(piece)
                self._after_chunk = not self._left
                continue
            end = buffer.find(b"\n", at)
            if end < 0:
                if len(buffer) - at > _LINE_LIMIT:
                    raise Garbled("the size of a chunk is missing")
                break
            line, at, self._framing = bytes(buffer[at:end]).removesuffix(b"\r"), end + 1, self._framing + end + 1 - at
            if self._framing > _FRAMING_LIMIT + 2 * len(self._body):
                raise Garbled("its chunks are too small, or its trailers too long")
            if self._after_chunk:
                self._after_chunk = False
                if line:
                    raise Garbled("a chunk is longer than its size")
            elif self._after_last:
                if not line:
                    self.keeps = self.keeps and at == len(buffer)
                    return True
            elif (found := _chunk_size(line)) is None:
                raise Garbled(f"the size of a chunk is {line[:60]!r}")
            else:
                self._left = int(found[1], 16)
                self._after_last = not self._left
        del buffer[:at]
        return False

    def _take(self, piece: bytes) -> None:
        if len(self._body) + len(piece) > self._limit:
            if not self._may_cut:
                raise TooMuch("there are more")
            piece = piece[: self._limit - len(self._body)]
            self.cut, self.keeps = True, False
        if not self._body:
            self._body = piece  # mostly it is all
        elif isinstance(self._body, bytearray):
            self._body += piece
        else:
            self._body = bytearray(self._body) + piece


def _parsed(raw: bytes) -> tuple[str, list[tuple[str, str]]]:
    """The first line of a head, and its fields; ``raw`` ends before the last of its line feeds."""
    try:
        head = raw.decode()
    except UnicodeDecodeError:
        head = "\n".join(map(_decoded, raw.split(b"\n")))
    first, *lines = head[:-1].split("\r\n")
    # Nearly always there are printable characters and whole line ends, and nothing but fields.
    if raw.translate(None, _PRINTABLE) == b"\r\n" * len(lines) + b"\r":
        pairs = _fields(lines)
        if len(pairs) == len(lines):
            return first, pairs
    head = head.replace("\r\n", "\n").removesuffix("\r")
    if "\n " in head or "\n\t" in head:
        head = _unfold(" ", head)
    first, *lines = head.split("\n")
    return first, _fields(line for line in lines if not _control(line))


def _fields(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Names, in lower case, and values; of lines that are none, nothing."""
    return [pair for line in lines if (pair := _known_field(line) if len(line) < _SHORT else _field(line)) is not None]


def _field(line: str) -> tuple[str, str] | None:
    name, colon, value = line.partition(":")
    name = name.rstrip(" \t")
    return (name.lower(), value.strip(" \t")) if colon and name and " " not in name else None


# Most lines of a head were in that of another page before.
_known_field: Final = lru_cache(maxsize=1024)(_field)


def _decoded(line: bytes) -> str:
    """Of a head that is not UTF-8 as a whole; a place to go to keeps its bytes, as in browsers."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        if line[:9].lower() == b"location:":
            return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in line)
        return line.decode("latin-1")


def _end_of_head(data: bytes | bytearray, start: int) -> tuple[int, int]:
    """Where the empty line that ends a head begins, and where it ends; -1 if it is not there."""
    usual = data.find(b"\n\r\n", start)
    bare = data.find(b"\n\n", start, usual + 1 if usual >= 0 else len(data))
    if bare >= 0:
        return bare, bare + 2
    return usual, usual + 3

"""Parse an HTTP/1 response from bytes as they arrive.

The parser does no I/O. The connection feeds it data in pieces of any size, and :meth:`ResponseParser.feed` returns True
when the response is complete. The head determines where the body ends (RFC 9112, section 6.3): there is no body, it
has a Content-Length, it ends with the last chunk, or it ends when the host closes the connection.

The parser accepts what browsers accept: empty lines before the status line, lines without a carriage return, folded
lines, spaces before the colon, lines that are not headers. It ignores a Content-Length that is not a number, so such a
body ends when the host closes the connection.

It refuses input that leaves the end of the body in doubt: two different lengths, or a chunk without a valid size. It
also refuses endless input without content: more than ``_MAX_HEADS`` heads with the interim ones, and more than
``_FRAMING_LIMIT`` bytes of chunk sizes and trailers beyond two for each byte of the body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from uttu.model import Headers

HEAD_LIMIT: Final = 256 * 1024  # bytes; browsers have the same limit
_LINE_LIMIT: Final = 4096  # bytes of a line between chunks
# Bytes of chunk sizes and trailers, in addition to two for each byte of the body. Only tiny chunks or long trailers
# exceed it.
_FRAMING_LIMIT: Final = 256 * 1024
_MAX_HEADS: Final = 20  # heads, the final one included
_MAX_DIGITS: Final = 18  # of a Content-Length
_MANY_LINES: Final = 5000  # a head with more lines is decoded as one piece

BODILESS: Final = frozenset({204, 304})
READING_STOPPED: Final = "reading stopped there"
_START: Final = b"HTTP/1."
_match_status_line: Final = re.compile(r"HTTP/1\.([0-9]) +([1-9][0-9]{2})(?: .*)?", re.DOTALL).fullmatch
_join_folded_lines: Final = re.compile(r"\n[ \t]+").sub
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_CACHED_LENGTH: Final = 128  # characters; shorter lines are cached
_find_control_character: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]").search
# The end of one chunk and the size of the next, in their usual form without extensions.
_match_chunk_boundary: Final = re.compile(rb"\r?\n0*([0-9A-Fa-f]{1,15})\r?\n").match
_match_chunk_size: Final = re.compile(rb"[ \t]*0*([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL).fullmatch


class InvalidResponse(Exception):
    """The data is not a valid response. The message says why."""


class BodyLimitExceeded(Exception):
    """The body is larger than the limit. The message says how this is known."""


class ResponseParser:
    """Parses one response. ``status``, ``version`` and ``headers`` are set once the head is complete.

    ``keep_alive``: the connection can serve another exchange. ``cut``: the body goes on after ``limit`` bytes, but
    ``may_cut`` is set, so the response counts as complete.

    :param limit: maximum size of the body in bytes.
    :param bodiless: the response answers a HEAD request, so it has no body, whatever its head says.
    :raises InvalidResponse: (``feed``) the data is not a valid response.
    :raises BodyLimitExceeded: (``feed``) the body has more than ``limit`` bytes, and ``may_cut`` is not set.
    """

    __slots__ = (
        "_after_chunk",
        "_after_last",
        "_bodiless",
        "_body",
        "_buffer",
        "_framing_bytes",
        "_heads",
        "_may_cut",
        "_remaining",
        "_repeats",
        "_step",
        "cut",
        "headers",
        "keep_alive",
        "limit",
        "status",
        "version",
    )

    def __init__(self, limit: int, *, may_cut: bool = False, bodiless: bool = False) -> None:
        self.status = 0
        self.version = ""
        self.headers: Headers
        self.keep_alive = False
        self.cut = False
        self.limit = limit
        self._may_cut = may_cut
        self._bodiless = bodiless
        self._heads = 0
        self._repeats = False  # whether a header occurs more than once
        self._body: bytes | bytearray = b""
        self._buffer = bytearray()  # data that is incomplete, such as half a line
        self._remaining = 0  # bytes that remain of the body or of the current chunk
        self._framing_bytes = 0  # bytes between and after chunks
        self._after_chunk = self._after_last = False
        # The parser of what comes next. A plain function, not a bound method: that would make a reference cycle.
        self._step: Callable[[ResponseParser, bytes], bool] = ResponseParser._read_head

    @property
    def body(self) -> bytes:
        return bytes(self._body)

    @property
    def size(self) -> int:
        """Bytes of the body so far."""
        return len(self._body)

    def feed(self, data: bytes) -> bool:
        """Parse ``data``. Returns True if the response is complete."""
        return self._step(self, data)

    def end(self) -> bool:
        """The host has closed the connection properly. Returns True if that completes the response."""
        self.keep_alive = False
        return self._step is ResponseParser._read_until_closed

    def _read_head(self, data: bytes | bytearray) -> bool:
        searched = 0
        if self._buffer:
            searched = max(0, len(self._buffer) - 2)
            self._buffer += data
            data = self._buffer
        while self.status < 200:
            if data[:1] in (b"\r", b"\n"):  # probably left over from the previous response
                data, searched = data.lstrip(b"\r\n"), 0
            end, body_start = _find_end_of_head(data, searched)
            if (len(data) if end < 0 else end) > HEAD_LIMIT:
                raise InvalidResponse(f"head longer than {HEAD_LIMIT} bytes")
            if end < 0:
                if not _START.startswith(data[: len(_START)]):
                    raise InvalidResponse("not HTTP")
                self._buffer = bytearray(data) if data is not self._buffer else self._buffer
                return False
            self._set_head(bytes(data[:end]))
            # A status below 200 is an interim response; the final one follows.
            data, searched = bytes(data[body_start:]), 0
            self._heads += 1
            if self._heads > _MAX_HEADS:
                raise InvalidResponse(f"more than {_MAX_HEADS - 1} interim responses (1xx)")
        self._buffer = bytearray()
        self._choose_framing()
        return self._step(self, bytes(data))

    def _set_head(self, raw: bytes) -> None:
        first, pairs = _parse_head(raw)
        match = _match_status_line(first)
        if match is None:
            raise InvalidResponse(f"invalid status line {first[:60]!r}")
        # A later minor version counts as the latest known one (RFC 9110, section 2.5).
        self.version, self.status = "HTTP/1.0" if match[1] == "0" else "HTTP/1.1", int(match[2])
        if self.status == 101:
            raise InvalidResponse("unexpected 101 Switching Protocols")
        lookup = dict(pairs)
        self._repeats = len(lookup) < len(pairs)
        self.headers = Headers(pairs, None if self._repeats else lookup)

    def _choose_framing(self) -> None:
        """Decide how the body ends, and whether the connection can be used afterwards."""
        get = self.headers.by_name.get
        length, coding, connection = get("content-length"), get("transfer-encoding"), get("connection", "")
        if self._repeats:
            connection = ",".join(self.headers.get_all("connection"))
        connection = connection.lower()
        self.keep_alive = "close" not in connection if self.version == "HTTP/1.1" else "keep-alive" in connection
        if coding is not None:
            coding = ",".join(self.headers.get_all("transfer-encoding")).rpartition(",")[2].strip().lower()
            if coding in ("identity", ""):  # no coding at all: HTTP/1.1 defined this name once
                coding, self.keep_alive = None, False
        if self._bodiless:
            self._step = ResponseParser._read_sized
        elif self.status in BODILESS:
            # A host that announces a body here may send it, although the status forbids one. For a 304, the length
            # is that of the page and nothing follows.
            self.keep_alive = self.keep_alive and coding is None and (self.status == 304 or length in (None, "0"))
            self._step = ResponseParser._read_sized
        elif coding is not None:
            # Transfer-Encoding overrides Content-Length, but a host that sends both may mean either. HTTP/1.0 does not
            # define Transfer-Encoding. In both cases do not reuse the connection.
            self.keep_alive = self.keep_alive and length is None and self.version == "HTTP/1.1"
            self._step = ResponseParser._read_chunked if coding == "chunked" else ResponseParser._read_until_closed
        else:
            several = self._repeats or (length is not None and "," in length)
            size = parse_content_length(self.headers) if several else _parse_number(length)
            if size is None:
                self._step = ResponseParser._read_until_closed
                return
            if size > self.limit and not self._may_cut:
                raise BodyLimitExceeded(f"Content-Length: {size}")
            self._remaining, self._step = size, ResponseParser._read_sized

    def _read_sized(self, data: bytes) -> bool:
        if len(data) > self._remaining:
            # There is more data than announced, so the start of the next response is unknown.
            data, self.keep_alive = data[: self._remaining], False
        self._remaining -= len(data)
        self._append_body(data)
        return self._remaining == 0 or self.cut

    def _read_until_closed(self, data: bytes) -> bool:
        self._append_body(data)
        return self.cut

    def _read_chunked(self, data: bytes) -> bool:
        if self._buffer:
            data = bytes(self._buffer) + data
            self._buffer.clear()
        pieces: list[bytes] = []  # joined at the end, since there may be thousands of one byte
        size = len(self._body)
        offset, end = 0, len(data)
        while offset < end and size <= self.limit:
            if self._remaining:
                piece = data[offset : offset + self._remaining]
                pieces.append(piece)
                size += len(piece)
                offset += len(piece)
                self._remaining -= len(piece)
                self._after_chunk = not self._remaining
                continue
            begin = offset
            if self._after_chunk and (size_match := _match_chunk_boundary(data, offset)) is not None:
                self._after_chunk, offset = False, size_match.end()
            else:
                offset = data.find(b"\n", offset) + 1
                if not offset:
                    if end - begin > _LINE_LIMIT:
                        raise InvalidResponse("chunk without a size")
                    self._buffer += data[begin:]
                    break
                line = data[begin : offset - 1].removesuffix(b"\r")
                if self._after_chunk:
                    if line:
                        raise InvalidResponse("chunk longer than its size")
                    self._after_chunk, size_match = False, None
                elif self._after_last:
                    if not line:
                        self._append_body(b"".join(pieces))
                        self.keep_alive = self.keep_alive and offset == end
                        return True
                    size_match = None
                elif (size_match := _match_chunk_size(line)) is None:
                    raise InvalidResponse(f"invalid chunk size {line[:60]!r}")
            self._framing_bytes += offset - begin
            if self._framing_bytes > _FRAMING_LIMIT + 2 * size:
                raise InvalidResponse("chunks too small or trailers too long")
            if size_match is not None:
                self._remaining = int(size_match[1], 16)
                self._after_last = not self._remaining
        self._append_body(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return self.cut

    def _append_body(self, piece: bytes) -> None:
        if len(self._body) + len(piece) > self.limit:
            if not self._may_cut:
                raise BodyLimitExceeded(READING_STOPPED)
            piece = piece[: self.limit - len(self._body)]
            self.cut, self.keep_alive = True, False
        if not self._body:
            self._body = piece  # usually the complete body
        elif isinstance(self._body, bytearray):
            self._body += piece
        else:
            self._body = bytearray(self._body) + piece


def parse_content_length(headers: Headers) -> int | None:
    """The Content-Length; None if it is missing or not a number. Chromium ignores an invalid one, too.

    :raises InvalidResponse: there are several different lengths.
    """
    lengths = {each.strip() for text in headers.get_all("content-length") for each in text.split(",")}
    if len(lengths) > 1:
        raise InvalidResponse("conflicting Content-Length headers")
    return _parse_number(lengths.pop()) if lengths else None


def _parse_number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdecimal()):
        return None
    text = text.lstrip("0") or "0"
    return int(text) if len(text) <= _MAX_DIGITS else None


def _parse_head(raw: bytes) -> tuple[str, list[tuple[str, str]]]:
    """The first line of a head, and its fields. ``raw`` ends before the line feed of its last line."""
    try:
        head = raw.decode()
    except UnicodeDecodeError:
        lines_of_bytes = raw.split(b"\n")
        # Each line may have another charset. With more than _MANY_LINES that costs too much: decode all as Latin-1.
        few = len(lines_of_bytes) < _MANY_LINES
        head = "\n".join(map(_decode_line, lines_of_bytes)) if few else raw.decode("latin-1")
    first, *lines = head[:-1].split("\r\n")
    # Fast path, for nearly all heads: printable characters, complete line ends, nothing but fields.
    if raw.translate(None, _PRINTABLE) == b"\r\n" * len(lines) + b"\r":
        pairs = _parse_lines(lines)
        if len(pairs) == len(lines):
            return first, pairs
    head = head.replace("\r\n", "\n").removesuffix("\r")
    if "\n " in head or "\n\t" in head:
        head = _join_folded_lines(" ", head)
    first, *lines = head.split("\n")
    return first, _parse_lines(line for line in lines if not _find_control_character(line))


def _parse_lines(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of name (in lower case) and value. Lines that are not fields are skipped."""
    return [
        pair
        for line in lines
        if (pair := _parse_cached_line(line) if len(line) < _CACHED_LENGTH else _parse_line(line)) is not None
    ]


def _parse_line(line: str) -> tuple[str, str] | None:
    name, colon, value = line.partition(":")
    name = name.rstrip(" \t")
    return (name.lower(), value.strip(" \t")) if colon and name and " " not in name else None


# Most header lines occur on many pages.
_parse_cached_line: Final = lru_cache(maxsize=1024)(_parse_line)


def _decode_line(line: bytes) -> str:
    """Decode a line of a head that as a whole is not UTF-8."""
    name, colon, value = line.partition(b":")
    return (name + colon).decode("latin-1") + decode_value(name, value)


def decode_value(name: bytes, value: bytes) -> str:
    """Decode as UTF-8, or else as Latin-1. ``Location`` and ``Set-Cookie`` keep their bytes, as in browsers."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        if name.strip().lower() == b"location":
            return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in value)
        if name.strip().lower() == b"set-cookie":
            return value.decode("utf-8", "surrogateescape")
        return value.decode("latin-1")


def parse_field(name: bytes, value: bytes) -> tuple[str, str] | None:
    """Parse a field of HTTP/2 by the same rules. None if it is a pseudo-header or not valid."""
    key, text = name.decode("latin-1").lower(), decode_value(name, value)
    if not key or key[0] == ":" or " " in key or _find_control_character(key) or _find_control_character(text):
        return None
    return key, text.strip(" \t")


def _find_end_of_head(data: bytes | bytearray, start: int) -> tuple[int, int]:
    """Start and end of the empty line that ends a head. The start is -1 if the head is not complete."""
    crlf = data.find(b"\n\r\n", start)
    lf = data.find(b"\n\n", start, crlf + 1 if crlf >= 0 else len(data))
    if lf >= 0:
        return lf, lf + 2
    return crlf, crlf + 3

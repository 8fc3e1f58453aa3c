"""The content codings that are undone here: those of plain connections, and what the HTTP library leaves alone.

The library undoes gzip, br and zstd itself, on its own thread, which spares ours 20 µs a page. Its
deflate is turned off, because it refuses the bare stream that some servers send under that name;
and it does not know ``x-gzip``, ``GZIP`` or ``gzip, gzip``. All decoders stop near the byte they are told to,
so a bomb takes little more memory than the limit.

Each coding is brought to the manner of :mod:`zlib`, with the packages for br and zstd loaded when they are met: plain
connections don't ask for them, but some hosts send them all the same.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Final, Protocol

_GZIP: Final = 31
_ZLIB: Final = 15
_RAW: Final = -15
_WINDOW: Final = 23  # of zstd: RFC 9659 allows 8 MB
# What follows a member is copied; so bodies are fed in pieces, and members are counted.
_PIECE: Final = 65536
_MOST_MEMBERS: Final = 10_000
_MOST_CODINGS: Final = 5  # one within another: each is as much work again


class Overflow(Exception):
    """More came out than the limit allows; ``piece`` is what was still within it."""

    def __init__(self, piece: bytes) -> None:
        super().__init__()
        self.piece = piece


class Undecodable(Exception):
    """The body is not in the coding it is said to be in, is damaged, or the coding is not known; says which."""


class Stream(Protocol):
    """Undoes one member of a body, as ``zlib.decompressobj`` does."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Inflater:
    """One coding of one body. Feed it the pieces in order, then call :meth:`end`.

    A body may have several members, each a stream of its own. What follows the last one is ignored, as browsers do.

    :raises Overflow: the decoded size went past the limit.
    :raises Undecodable: see there.
    """

    __slots__ = ("_begin", "_done", "_magic", "_members", "_room", "_stream")

    def __init__(self, coding: str, limit: int) -> None:
        self._begin, self._magic = _CODINGS[coding]
        self._room = limit
        self._stream: Stream | None = None
        self._done = False
        self._members = 0

    def feed(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        while data and not self._done:
            stream = self._stream
            if stream is None and self._members and not (self._magic and data.startswith(self._magic)):
                self._done = True
                break
            try:
                if stream is None:
                    stream = self._stream = self._begin(data)
                piece = stream.decompress(data, self._room + 1)
            except Exception as error:  # each decoder has its own
                raise Undecodable(str(error)) from error
            self._room -= len(piece)
            if self._room < 0:
                raise Overflow(b"".join([*pieces, piece[: self._room]]))
            pieces.append(piece)
            data = b""
            if stream.eof:
                data = stream.unused_data
                self._members += 1
                if self._members > _MOST_MEMBERS:
                    raise Undecodable("it has too many members")
                self._stream = None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def end(self) -> None:
        if self._stream is not None:
            raise Undecodable("the data ends early")


class _Brotli:
    def __init__(self, data: bytes) -> None:
        import brotli

        self._stream = brotli.Decompressor()
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        return bool(self._stream.is_finished())

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return bytes(self._stream.process(data, output_buffer_limit=max_length))


def _gzip(data: bytes) -> Stream:
    return zlib.decompressobj(_GZIP)


def _deflate(data: bytes) -> Stream:
    """It means zlib's format, but some servers send the bare stream; a zlib header proves itself."""
    header = int.from_bytes(data[:2], "big")
    return zlib.decompressobj(_ZLIB if (header >> 8) & 0x0F == 8 and header % 31 == 0 else _RAW)


def _zstd(data: bytes) -> Stream:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW})


def _unknown(data: bytes) -> Stream:
    raise Undecodable("this coding is not supported")


# What makes a stream for a member from its first bytes, and the byte that begins a further one, if there may be any.
_CODINGS: Final[dict[str, tuple[Callable[[bytes], Stream], bytes]]] = {
    "gzip": (_gzip, b"\x1f"),
    "x-gzip": (_gzip, b"\x1f"),
    "deflate": (_deflate, b""),
    "br": (_Brotli, b""),
    "zstd": (_zstd, b"\x28"),
    "compress": (_unknown, b""),
    "x-compress": (_unknown, b""),
}


def inflaters(content_encoding: str, limit: int) -> list[Inflater]:
    """What undoes ``content_encoding``, in the order to apply; empty if the body is to be taken as it is.

    Servers also write charsets and nonsense there; like browsers, these are ignored.

    :raises Undecodable: there are too many.
    """
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    known = [coding for coding in reversed(codings) if coding in _CODINGS]
    if len(known) > _MOST_CODINGS:
        raise Undecodable(f"it has {len(known)} codings")
    return [Inflater(coding, limit) for coding in known]


def inflated(body: bytes, content_encoding: str, limit: int) -> bytes | None:
    """A whole body, decompressed; None if it is to be taken as it is. Raises what the functions above do."""
    stages = inflaters(content_encoding, limit)
    for stage in stages:
        body = b"".join([stage.feed(body[at : at + _PIECE]) for at in range(0, len(body), _PIECE)])
        stage.end()
    return body if stages else None


def beginning(body: bytes, content_encoding: str, limit: int, is_whole: bool) -> tuple[bytes, bool] | None:
    """The first ``limit`` bytes of a body, or of the beginning of one, when decompressed; and whether they are all.

    None if it is to be taken as it is.
    """
    stages = inflaters(content_encoding, limit)
    for stage in stages:
        found = bytearray()
        try:
            for at in range(0, len(body), _PIECE):
                found += stage.feed(body[at : at + _PIECE])
            if is_whole:
                stage.end()
        except Overflow as overflow:
            found += overflow.piece
            is_whole = False
        body = bytes(found)
    return (body, is_whole) if stages else None

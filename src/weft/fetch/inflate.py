"""The content codings that are undone here: those of plain connections, and what the HTTP library leaves alone.

The library undoes gzip, br and zstd itself, on its own thread, which spares ours 20 µs a page. Its
deflate is turned off, because it refuses the bare stream that some servers send under that name;
and it does not know ``x-gzip``, ``GZIP`` or ``gzip, gzip``. zlib stops at the byte it is told to,
so a bomb takes no more memory than the limit.
"""

from __future__ import annotations

import zlib
from typing import Final

_NAMES: Final = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
_UNREADABLE: Final = frozenset({"br", "zstd", "compress", "x-compress"})
_GZIP: Final = 31
_ZLIB: Final = 15
_RAW: Final = -15
# What follows a member is copied; so bodies are fed in pieces, and members are counted.
_PIECE: Final = 65536
_MOST_MEMBERS: Final = 10_000


class Overflow(Exception):
    """More came out than the limit allows."""


class Unsupported(Exception):
    """The body is in a coding that can't be undone here."""


class Inflater:
    """One coding of one body. Feed it the pieces in order, then call :meth:`end`.

    :raises Overflow: the decoded size went past the limit.
    :raises zlib.error: the body is not in this coding, or is damaged.
    """

    __slots__ = ("_coding", "_done", "_members", "_room", "_stream")

    def __init__(self, coding: str, limit: int) -> None:
        self._coding = coding
        self._room = limit
        self._stream: zlib._Decompress | None = None
        self._done = False
        self._members = 0

    def feed(self, data: bytes) -> bytes:
        pieces = []
        while data and not self._done:
            stream = self._stream
            if stream is None:
                stream = self._stream = zlib.decompressobj(self._window(data))
            piece = stream.decompress(data, self._room + 1)
            self._room -= len(piece)
            if self._room < 0:
                raise Overflow
            pieces.append(piece)
            data = b""
            if stream.eof:
                data = stream.unused_data
                self._members += 1
                if self._members > _MOST_MEMBERS:
                    raise zlib.error("it has too many members")
                # A gzip body may have several members. What follows the last one is ignored, as browsers do.
                self._done = self._coding != "gzip" or data[:1] not in (b"", b"\x1f")
                self._stream = None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def end(self) -> None:
        if self._stream is not None:
            raise zlib.error("the data ends early")

    def _window(self, data: bytes) -> int:
        if self._coding == "gzip":
            return _GZIP
        # "deflate" means zlib's format, but some servers send the bare stream; a zlib header proves itself.
        header = int.from_bytes(data[:2], "big")
        return _ZLIB if (header >> 8) & 0x0F == 8 and header % 31 == 0 else _RAW


def inflaters(content_encoding: str, limit: int) -> list[Inflater]:
    """What undoes ``content_encoding``, in the order to apply; empty if the body is to be taken as it is.

    Servers also write charsets and nonsense there; like browsers, these are ignored.

    :raises Unsupported: one of the codings is not among them.
    """
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    if not _UNREADABLE.isdisjoint(codings):
        raise Unsupported("this coding is not supported")
    return [Inflater(_NAMES[coding], limit) for coding in reversed(codings) if coding in _NAMES]


def inflated(body: bytes, content_encoding: str, limit: int) -> bytes | None:
    """A whole body, decompressed; None if it is to be taken as it is. Raises what the functions above do."""
    stages = inflaters(content_encoding, limit)
    for stage in stages:
        body = b"".join([stage.feed(body[at : at + _PIECE]) for at in range(0, len(body), _PIECE)])
        stage.end()
    return body if stages else None

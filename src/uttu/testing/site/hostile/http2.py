"""HTTP/2 frames that no library sends, so they are written by hand (RFC 9113, header blocks by RFC 7541).

A frame is a length (24 bits), a type (8), flags (8) and a stream number (31), followed by its payload.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import Final

from uttu.testing.site.hostile.model import Kind, Wire

_DATA, _HEADERS, _PRIORITY, _RESET, _SETTINGS, _PUSH, _PING, _GOAWAY, _WINDOW, _CONTINUATION = range(10)
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_OK: Final = b"\x88"  # :status 200, from the static table
_HTML: Final = b"\x5f\x09text/html"  # content-type as a literal
_BODY: Final = b"<!doctype html><title>Two</title>"
_PREFACE: Final = 24  # bytes

Frames = Callable[["Http2"], Awaitable[None]]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


class Http2:
    """The server's side of a connection, after the preface and the first request, which is on ``stream``."""

    def __init__(self, wire: Wire, stream: int) -> None:
        self.wire = wire
        self.stream = stream

    async def send(self, kind: int, flags: int = 0, payload: bytes = b"", stream: int | None = None) -> None:
        await self.wire.send(frame(kind, flags, self.stream if stream is None else stream, payload))

    async def headers(self, block: bytes = _OK + _HTML, flags: int = _END_HEADERS) -> None:
        await self.send(_HEADERS, flags, block)

    async def repeat(self, data: bytes) -> None:
        await self.wire.repeat(data)


async def _first_request(wire: Wire) -> int:
    """Read frames until the first HEADERS frame. Returns its stream."""
    await wire.reader.readexactly(_PREFACE)
    await wire.send(frame(_SETTINGS, 0, 0))
    while True:
        head = await wire.reader.readexactly(9)
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
        await wire.reader.readexactly(length)
        if kind == _SETTINGS and not flags & _ACK:
            await wire.send(frame(_SETTINGS, _ACK, 0))
        if kind == _HEADERS:
            return stream


def _http2(name: str, about: str, answer: Frames, ends: str = "dead") -> Kind:
    async def talk(wire: Wire) -> None:
        await answer(Http2(wire, await _first_request(wire)))
        await wire.hang()

    return Kind(name=f"http2/{name}", about=about, talk=talk, certificate="good", alpn=("h2",), ends=ends)


async def _ordinary(http2: Http2) -> None:
    await http2.headers()
    await http2.send(_DATA, _END_STREAM, _BODY)


async def _never(http2: Http2) -> None:
    return


async def _continuations(http2: Http2) -> None:
    await http2.headers(flags=0)
    await http2.repeat(frame(_CONTINUATION, 0, http2.stream, b"\x00\x01a\x01b") * 1000)


async def _continuations_empty(http2: Http2) -> None:
    await http2.headers(flags=0)
    await http2.repeat(frame(_CONTINUATION, 0, http2.stream) * 1000)


async def _empty_data(http2: Http2) -> None:
    await http2.headers()
    await http2.repeat(frame(_DATA, 0, http2.stream) * 1000)


async def _padded_data(http2: Http2) -> None:
    await http2.headers()
    await http2.repeat(frame(_DATA, 8, http2.stream, b"\xff" + bytes(255)) * 10)


async def _endless_data(http2: Http2) -> None:
    """Send as much as the client's window allows, then more."""
    await http2.headers()
    await http2.repeat(frame(_DATA, 0, http2.stream, b"x" * 16384))


async def _pings(http2: Http2) -> None:
    await http2.repeat(frame(_PING, 0, 0, b"12345678") * 1000)


async def _settings(http2: Http2) -> None:
    await http2.repeat(frame(_SETTINGS, 0, 0, struct.pack(">HI", 3, 100)) * 1000)


async def _settings_table(http2: Http2) -> None:
    """Alternate the size of the header table between 0 and 2^30."""
    sizes = b"".join(frame(_SETTINGS, 0, 0, struct.pack(">HI", 1, size)) for size in (0, 1 << 30))
    await http2.repeat(sizes * 500)


async def _settings_large(http2: Http2) -> None:
    await http2.repeat(frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, 1) * 2000))


async def _windows(http2: Http2) -> None:
    await http2.repeat(frame(_WINDOW, 0, 0, struct.pack(">I", 1)) * 1000)


async def _window_overflow(http2: Http2) -> None:
    await http2.repeat(frame(_WINDOW, 0, 0, struct.pack(">I", 0x7FFFFFFF)) * 10)


async def _window_zero(http2: Http2) -> None:
    await http2.send(_SETTINGS, 0, struct.pack(">HI", 4, 0), stream=0)


async def _priorities(http2: Http2) -> None:
    await http2.repeat(b"".join(frame(_PRIORITY, 0, n * 2 + 1, bytes(5)) for n in range(1000)))


async def _resets(http2: Http2) -> None:
    await http2.send(_RESET, 0, struct.pack(">I", 7))


async def _reset_storm(http2: Http2) -> None:
    await http2.headers()
    await http2.repeat(b"".join(frame(_RESET, 0, n * 2 + 1, struct.pack(">I", 8)) for n in range(1000)))


async def _goaway(http2: Http2) -> None:
    await http2.send(_GOAWAY, 0, struct.pack(">II", 0, 0), stream=0)


async def _goaway_flood(http2: Http2) -> None:
    await http2.repeat(frame(_GOAWAY, 0, 0, struct.pack(">II", 1 << 30, 0) + b"x" * 1000) * 10)


async def _pushes(http2: Http2) -> None:
    await http2.repeat(
        b"".join(frame(_PUSH, _END_HEADERS, http2.stream, struct.pack(">I", n * 2) + _OK) for n in range(1, 1000))
    )


async def _header_bomb(http2: Http2) -> None:
    """One large entry in the dynamic table, then references to it: one byte each, 4 KB when decoded."""
    entry = b"\x40\x01a\x7f\x81\x1e" + b"x" * 4000
    block = _OK + entry + b"\xbe" * 12_000
    await http2.send(_HEADERS, 0, block[:16_000])
    for at in range(16_000, len(block), 16_000):
        await http2.send(_CONTINUATION, 0, block[at : at + 16_000])
    for _ in range(100):
        await http2.send(_CONTINUATION, 0, b"\xbe" * 16_000)
    await http2.send(_CONTINUATION, _END_HEADERS)
    await http2.send(_DATA, _END_STREAM, _BODY)


async def _header_integer(http2: Http2) -> None:
    await http2.headers(b"\x7f" + b"\xff" * 10_000 + b"\x00")


async def _header_index(http2: Http2) -> None:
    await http2.headers(b"\xff\xff\xff\xff\x0f")


async def _header_names(http2: Http2) -> None:
    """Upper-case and control characters, which HTTP/2 forbids in names."""
    await http2.headers(_OK + b"\x00\x03A\r\n\x03b\r\n")
    await http2.send(_DATA, _END_STREAM, _BODY)


async def _interim(http2: Http2) -> None:
    await http2.repeat(frame(_HEADERS, _END_HEADERS, http2.stream, b"\x08\x03100") * 1000)


async def _no_status(http2: Http2) -> None:
    await http2.headers(_HTML)
    await http2.send(_DATA, _END_STREAM, _BODY)


async def _wrong_stream(http2: Http2) -> None:
    await http2.send(_HEADERS, _END_HEADERS, _OK, stream=http2.stream + 1000)


async def _length_lie(http2: Http2) -> None:
    await http2.headers(_OK + b"\x0f\x0d\x041000")
    await http2.send(_DATA, _END_STREAM, _BODY)


async def _large_frame(http2: Http2) -> None:
    await http2.headers()
    await http2.repeat(frame(_DATA, 0, http2.stream, bytes((1 << 24) - 1)))


async def _unknown_frames(http2: Http2) -> None:
    await http2.repeat(frame(0xEE, 0xFF, http2.stream, b"x" * 100) * 100)


async def _garbage(http2: Http2) -> None:
    await http2.repeat(b"\xff" * 1000)


async def _http1(http2: Http2) -> None:
    await http2.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")


async def _trailers(http2: Http2) -> None:
    await http2.headers()
    await http2.send(_DATA, 0, _BODY)
    await http2.repeat(frame(_HEADERS, _END_HEADERS, http2.stream, b"\x00\x01a\x01b") * 1000)


KINDS: Final = (
    _http2("ordinary", "an ordinary page, for comparison", _ordinary, "done"),
    _http2("never", "never answers", _never, "dead: timeout"),
    _http2("continuations", "CONTINUATION frames without end", _continuations),
    _http2("continuations-empty", "empty CONTINUATION frames without end", _continuations_empty),
    _http2("data-empty", "empty DATA frames without end", _empty_data),
    _http2("data-padded", "DATA frames of padding without end", _padded_data),
    _http2("data-endless", "a body that ignores the window", _endless_data),
    _http2("data-large", "DATA frames of 16 MB", _large_frame),
    _http2("pings", "PING without end", _pings),
    _http2("settings", "SETTINGS without end", _settings),
    _http2("settings-table", "SETTINGS that change the header table", _settings_table),
    _http2("settings-large", "SETTINGS of 2,000 entries without end", _settings_large),
    _http2("windows", "WINDOW_UPDATE without end", _windows),
    _http2("window-overflow", "WINDOW_UPDATE past 2^31", _window_overflow),
    _http2("window-zero", "a window of zero, and no answer", _window_zero),
    _http2("priorities", "PRIORITY without end", _priorities),
    _http2("reset", "RST_STREAM for every request", _resets),
    _http2("reset-storm", "RST_STREAM of streams that do not exist", _reset_storm),
    _http2("goaway", "GOAWAY for every connection", _goaway),
    _http2("goaway-flood", "GOAWAY without end", _goaway_flood),
    _http2("pushes", "PUSH_PROMISE without end", _pushes),
    _http2("header-bomb", "references to a large header, 6 GB decoded", _header_bomb, "done|dead"),
    _http2("header-integer", "an integer of 10 KB in a header block", _header_integer),
    _http2("header-index", "an index past the header table", _header_index),
    _http2("header-names", "header names with control characters", _header_names, "done|dead"),
    _http2("interim", "status 100 without end", _interim),
    _http2("no-status", "an answer without a status", _no_status),
    _http2("wrong-stream", "an answer on another stream", _wrong_stream),
    _http2("length-lie", "a body shorter than its length", _length_lie),
    _http2("unknown-frames", "frames of unknown types without end", _unknown_frames),
    _http2("garbage", "garbage instead of frames", _garbage),
    _http2("http1", "HTTP/1 after HTTP/2 was agreed on", _http1),
    _http2("trailers", "trailers without end", _trailers),
)

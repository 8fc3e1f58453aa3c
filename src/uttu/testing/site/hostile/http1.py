"""HTTP/1 that is slow, endless, contradictory, or not HTTP at all."""

from __future__ import annotations

import asyncio
from typing import Final

from uttu.testing.site.hostile.model import Kind, Talk, Wire

_BODY: Final = b"<!doctype html><title>Broken</title><p>A page.</p>"
_START: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
_CLOSE: Final = b"Connection: close\r\n\r\n"
_CHUNKED: Final = _START + b"Transfer-Encoding: chunked\r\n\r\n"
_WHOLE: Final = _START + b"Content-Length: %d\r\n\r\n" % len(_BODY) + _BODY
_BLOCK: Final = b"x" * 65536
_SLOW: Final = "dead: timeout"
_NETWORK: Final = "dead: network|dead: bad_response"


def _reply(*pieces: bytes, close: bool = True) -> Talk:
    """Read a request, send these bytes, then close (or wait until the client does)."""

    async def talk(wire: Wire) -> None:
        await wire.head()
        for piece in pieces:
            await wire.send(piece)
        if not close:
            await wire.hang()

    return talk


def _flood(first: bytes, then: bytes, pause: float = 0.0) -> Talk:
    """Read a request, send ``first``, then send ``then`` endlessly, ``pause`` seconds apart."""

    async def talk(wire: Wire) -> None:
        await wire.head()
        await wire.send(first)
        await wire.repeat(then, pause=pause)

    return talk


async def _never(wire: Wire) -> None:
    await wire.hang()


async def _close_at_once(wire: Wire) -> None:
    return


async def _reset_at_once(wire: Wire) -> None:
    wire.reset()


async def _reset_in_head(wire: Wire) -> None:
    await wire.head()
    await wire.send(_START)
    await asyncio.sleep(0.05)  # let the client read the bytes: a reset discards unread ones
    wire.reset()


async def _reset_in_body(wire: Wire) -> None:
    await wire.head()
    await wire.send(_START + b"Content-Length: 1000\r\n\r\n" + _BODY)
    await asyncio.sleep(0.05)
    wire.reset()


async def _before_request(wire: Wire) -> None:
    await wire.send(_WHOLE)
    await wire.hang()


async def _half_closed(wire: Wire) -> None:
    await wire.head()
    await wire.send(_START + b"Content-Length: 1000\r\n\r\n" + _BODY)
    if wire.writer.can_write_eof():
        wire.writer.write_eof()
        await wire.hang()


async def _does_not_read(wire: Wire) -> None:
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(3600)


async def _keep_alive_lie(wire: Wire) -> None:
    """Promise to keep the connection open, then close it before the next request."""
    await wire.head()
    await wire.send(_WHOLE)


async def _poisoned(wire: Wire) -> None:
    """A correct answer, and a second one that must not become the answer to the next request."""
    await wire.head()
    await wire.send(_WHOLE + _WHOLE.replace(b"Broken", b"Wrong!"))
    await wire.hang()


async def _continue_forever(wire: Wire) -> None:
    await wire.head()
    await wire.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


async def _trailers_forever(wire: Wire) -> None:
    await wire.head()
    await wire.send(_CHUNKED + b"1\r\nx\r\n0\r\n")
    await wire.repeat(b"X-Trailer: " + b"x" * 1000 + b"\r\n")


def _lines(count: int, size: int) -> bytes:
    return b"".join(b"X-%d: %b\r\n" % (number, b"x" * size) for number in range(count))


def _length(value: bytes) -> Talk:
    return _reply(_START + b"Content-Length: " + value + b"\r\n" + _CLOSE + _BODY)


def _head(line: bytes) -> Talk:
    return _reply(line + b"\r\nContent-Type: text/html\r\n" + _CLOSE + _BODY)


def _field(line: bytes) -> Talk:
    return _reply(_START + line + b"\r\n" + b"Content-Length: %d\r\n\r\n" % len(_BODY) + _BODY)


def _chunk(pieces: bytes) -> Talk:
    return _reply(_CHUNKED + pieces)


def _http1(name: str, about: str, talk: Talk, ends: str = "done|dead") -> Kind:
    return Kind(name=f"http1/{name}", about=about, talk=talk, ends=ends)


KINDS: Final = (
    _http1("never", "never answers", _never, _SLOW),
    _http1("does-not-read", "never reads the request", _does_not_read, _SLOW),
    _http1("closes", "hangs up at once", _close_at_once, "dead: network"),
    _http1("resets", "resets at once", _reset_at_once, "dead: network"),
    _http1("reset-head", "resets in the head", _reset_in_head, "dead: network"),
    _http1("reset-body", "resets in the body", _reset_in_body, "dead: network"),
    _http1("before-request", "answers before it was asked", _before_request),
    _http1("half-closed", "half-closes in the body", _half_closed, _NETWORK),
    _http1("keep-alive-lie", "hangs up after Connection: keep-alive", _keep_alive_lie, "done"),
    _http1("poisoned", "sends a second answer that nobody asked for", _poisoned, "done"),
    _http1("drip-head", "a head, byte by byte", _flood(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.2), _SLOW),
    _http1("drip-lines", "a head, line by line", _flood(b"HTTP/1.1 200 OK\r\n", b"X: x\r\n", 0.2), _SLOW),
    _http1("drip-status", "a status line, byte by byte", _flood(b"HTTP/1.1 200 ", b"O", 0.2), _SLOW),
    _http1("drip-body", "a body, byte by byte", _flood(_START + b"Content-Length: 100000\r\n\r\n", b"x", 0.2), _SLOW),
    _http1("drip-chunks", "chunks of a byte, slowly", _flood(_CHUNKED, b"1\r\nx\r\n", 0.2), _SLOW),
    _http1("drip-size", "a chunk size, digit by digit", _flood(_CHUNKED, b"0", 0.2), "dead: (timeout|bad_response)"),
    _http1("endless-head", "a head without end", _flood(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"x" * 1000 + b"\r\n")),
    _http1("endless-line", "a header line without end", _flood(b"HTTP/1.1 200 OK\r\nX-A: ", _BLOCK)),
    _http1("endless-status", "a status line without end", _flood(b"HTTP/1.1 200 ", _BLOCK)),
    _http1("endless-body", "a body without end", _flood(_START + b"\r\n", _BLOCK), "dead: too_large"),
    _http1(
        "endless-chunks", "chunks without end", _flood(_CHUNKED, b"10000\r\n" + _BLOCK + b"\r\n"), "dead: too_large"
    ),
    _http1("endless-bytes", "chunks of a byte, without end", _flood(_CHUNKED, b"1\r\nx\r\n" * 10_000)),
    _http1("endless-size", "a chunk size without end", _flood(_CHUNKED, b"0" * 65536), "dead"),
    _http1("endless-extensions", "a chunk extension without end", _flood(_CHUNKED + b"5;", _BLOCK), "dead"),
    _http1(
        "extensions",
        "chunks of a byte, each with 4 KB of extensions",
        _flood(_CHUNKED, (b"1;" + b"e=f;" * 1000 + b"\r\nx\r\n") * 10),
        "dead",
    ),
    _http1("endless-trailers", "trailers without end", _trailers_forever),
    _http1("endless-100", "100 Continue without end", _continue_forever, "dead"),
    _http1(
        "interim-1000",
        "a thousand 103 Early Hints",
        _reply(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 1000, _WHOLE),
    ),
    _http1(
        "switching",
        "101 Switching Protocols",
        _reply(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", b"\0" * 100),
    ),
    _http1("length-large", "Content-Length of 2^63", _length(b"9223372036854775808")),
    _http1("length-digits", "Content-Length of 10,000 digits", _length(b"9" * 10_000)),
    _http1("length-negative", "Content-Length: -1", _length(b"-1")),
    _http1("length-garbage", "Content-Length: banana", _length(b"banana")),
    _http1("length-plus", "Content-Length: +50", _length(b"+50")),
    _http1("length-hex", "Content-Length: 0x32", _length(b"0x32")),
    _http1("length-empty", "an empty Content-Length", _length(b"")),
    _http1("length-list", "Content-Length: 50, 50", _length(b"50, 50")),
    _http1("length-differs", "two Content-Length that differ", _length(b"50\r\nContent-Length: 10")),
    _http1("length-short", "a body longer than its length", _length(b"10"), "done"),
    _http1("length-long", "a body shorter than its length", _length(b"1000"), _NETWORK),
    _http1(
        "length-chunked",
        "Content-Length and chunked",
        _reply(_START + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
    ),
    _http1(
        "chunked-twice",
        "chunked, chunked",
        _reply(_START + b"Transfer-Encoding: chunked, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
    ),
    _http1("transfer-unknown", "a Transfer-Encoding that does not exist", _field(b"Transfer-Encoding: made-up")),
    _http1("chunk-negative", "a chunk of -1 bytes", _chunk(b"-1\r\nx\r\n0\r\n\r\n"), "dead"),
    _http1("chunk-large", "a chunk of 2^64 bytes", _chunk(b"10000000000000000\r\nx"), "dead"),
    _http1("chunk-garbage", "a chunk size of garbage", _chunk(b"zz\r\nx\r\n0\r\n\r\n"), "dead"),
    _http1("chunk-unended", "chunks without their end", _chunk(b"5\r\nhello\r\n"), _NETWORK),
    _http1("chunk-longer", "a chunk longer than its size", _chunk(b"1\r\nhello\r\n0\r\n\r\n"), "dead"),
    _http1("chunk-newlines", "chunks with bare newlines", _chunk(b"5\nhello\n0\n\n")),
    _http1("lines-10k", "10,000 header lines", _field(_lines(10_000, 10))),
    _http1("line-1mb", "a header line of 1 MB", _field(b"X-Long: " + b"x" * (1 << 20))),
    _http1("heads-1mb", "1,000 header lines of 1 KB", _field(_lines(1000, 1000))),
    _http1("no-colon", "header lines without a colon", _field(b"no colon here")),
    _http1("no-name", "a header line without a name", _field(b": value")),
    _http1("folded", "folded header lines", _field(b"X-Folded: a\r\n b\r\n\tc")),
    _http1("nul", "NUL in a header", _field(b"X-Nul: a\0b")),
    _http1("bare-cr", "a bare CR in a header", _field(b"X-Cr: a\rSet-Cookie: x=y")),
    _http1("bare-newlines", "lines that end with a newline only", _reply(_WHOLE.replace(b"\r\n", b"\n"))),
    _http1("high-bytes", "every byte above 127 in a header", _field(b"X-High: " + bytes(range(128, 256))), "done"),
    _http1("controls", "control characters in a header", _field(b"X-Control: \x01\x02\x07\x08\x1b[2J")),
    _http1("spaces", "a blank before the colon", _field(b"X-Space : x")),
    _http1("garbage", "random bytes instead of HTTP", _reply(bytes(range(256)) * 16), "dead"),
    _http1("ssh", "another protocol", _reply(b"SSH-2.0-OpenSSH_9.6\r\n", close=False), "dead"),
    _http1("http09", "a page without a head", _reply(_BODY), "dead"),
    _http1("version-9", "HTTP/9.9", _head(b"HTTP/9.9 200 OK")),
    _http1("version-10", "HTTP/1.0", _head(b"HTTP/1.0 200 OK"), "done"),
    _http1("version-icy", "ICY 200 OK", _head(b"ICY 200 OK")),
    _http1("status-0", "status 0", _head(b"HTTP/1.1 0 Zero"), "dead"),
    _http1("status-99", "status 99", _head(b"HTTP/1.1 99 Low"), "dead"),
    _http1("status-999", "status 999", _head(b"HTTP/1.1 999 High"), "dead"),
    _http1("status-20000", "status 20000", _head(b"HTTP/1.1 20000 Long"), "dead"),
    _http1("status-word", "a word for a status", _head(b"HTTP/1.1 OK OK"), "dead"),
    _http1("status-none", "no status", _head(b"HTTP/1.1"), "dead"),
    _http1("reason-long", "a reason of 60 KB", _head(b"HTTP/1.1 200 " + b"x" * 60_000)),
    _http1("204-body", "204 with a body", _head(b"HTTP/1.1 204 No Content")),
    _http1("304-unasked", "304 that nobody asked for", _head(b"HTTP/1.1 304 Not Modified"), "dead"),
    _http1(
        "401",
        "401 with 10,000 challenges",
        _reply(
            b"HTTP/1.1 401 Unauthorized\r\n" + b"WWW-Authenticate: Basic\r\n" * 10_000 + b"Content-Length: 0\r\n\r\n"
        ),
        "dead",
    ),
    _http1("location-200", "a Location with status 200", _field(b"Location: /elsewhere"), "done"),
    _http1("alt-svc", "Alt-Svc to another host", _field(b'Alt-Svc: h3=":443"; ma=9999999999'), "done"),
    _http1("preload", "10,000 Link headers", _field(b"Link: </x>; rel=preload\r\n" * 10_000 + b"X: x")),
    _http1("empty-lines", "1 MB of empty lines before the head", _reply(b"\r\n" * 500_000, _WHOLE)),
)

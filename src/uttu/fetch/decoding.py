"""Content codings: decompress a response body in slices, so that the event loop keeps running.

The host decides what decompression costs: 16 KB can become 16 MB, and a deflate stream of empty blocks takes 100 ns a
byte without any output. So :func:`decode_in_steps` is a generator. It yields after ``SLICE_SECONDS`` of work, and
:class:`BodyDecoder` lets the event loop run in between. One step reads at most ``_INPUT`` bytes and produces at most
``_OUTPUT`` bytes, about 5 ms. An ordinary page takes one call (:func:`decode_at_once`). A lock lets only one slice run
per loop iteration, no matter how many bodies are being decoded.

Four bounds: the decoded size (``limit``, per coding), ``_MOST_MEMBERS`` members per body, ``_MOST_CODINGS`` codings
per body, and ``_MOST_SECONDS`` of CPU time in total.

Every coding is adapted to the interface of :mod:`zlib`. The packages for br and zstd are imported when first needed.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Callable, Generator
from time import perf_counter, thread_time
from typing import Final, Protocol

from uttu.errors import BadResponse
from uttu.fetch.exchange import LargeBodies, RawResponse, make_too_large

# ``wbits`` of zlib: gzip, zlib format, bare deflate stream.
_GZIP: Final = 31
_ZLIB: Final = 15
_RAW: Final = -15
_WINDOW: Final = 23  # log2 of the zstd window: RFC 9659 allows 8 MB
# Bounds of one step: compressed bytes in, decompressed bytes out.
_INPUT: Final = 65536
_OUTPUT: Final = 1024 * 1024
SLICE_SECONDS: Final = 0.004  # wall-clock time of a slice
_MOST_SECONDS: Final = 2.0  # CPU time per body
_MOST_MEMBERS: Final = 10_000
_MOST_CODINGS: Final = 5  # codings are nested, and each one costs a full pass


class DecodedTooLarge(Exception):
    """The decoded body is larger than the limit."""


class Undecodable(Exception):
    """The body is damaged, not in the coding that its headers name, or too much work. The message says which."""


class StreamDecoder(Protocol):
    """Decompresses one member of a body.

    ``decompress`` returns at most ``max_length`` bytes. ``rest`` is the unused part of its last input: before ``eof``
    input to pass in again, after ``eof`` the bytes that follow the member. ``holds_output``: call it again with no
    input to get more output.
    """

    @property
    def eof(self) -> bool: ...
    @property
    def rest(self) -> bytes: ...
    @property
    def holds_output(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Zlib:
    __slots__ = ("_gave_most", "_stream")

    def __init__(self, wbits: int) -> None:
        self._stream = zlib.decompressobj(wbits)
        self._gave_most = False

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        piece = self._stream.decompress(data, max_length)
        self._gave_most = len(piece) == max_length
        return piece

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def rest(self) -> bytes:
        return self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail

    @property
    def holds_output(self) -> bool:
        # zlib can consume all input and still hold the rest of its last match.
        return self._gave_most and not self._stream.unconsumed_tail


class _Brotli:
    __slots__ = ("_gave", "_stream")

    rest = b""  # a br body has one member; bytes after it are ignored

    def __init__(self) -> None:
        import brotli

        self._stream = brotli.Decompressor()
        self._gave = False

    @property
    def eof(self) -> bool:
        return bool(self._stream.is_finished())

    @property
    def holds_output(self) -> bool:
        # It may hold output even if it accepts more input, so call it until it returns nothing.
        return self._gave or not self._stream.can_accept_more_data()

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        piece = bytes(self._stream.process(data, output_buffer_limit=max_length))
        self._gave = bool(piece)
        return piece


class _Zstd:
    __slots__ = ("_stream", "decompress")

    def __init__(self) -> None:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        self._stream = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW})
        self.decompress: Callable[[bytes, int], bytes] = self._stream.decompress

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def rest(self) -> bytes:
        return self._stream.unused_data if self._stream.eof else b""

    @property
    def holds_output(self) -> bool:
        return not self._stream.needs_input and not self._stream.eof


def _gzip(beginning: bytes) -> StreamDecoder:
    return _Zlib(_GZIP)


def _deflate(beginning: bytes) -> StreamDecoder:
    """``deflate`` means the zlib format, but some servers send a bare stream. A zlib header has a checksum."""
    header = int.from_bytes(beginning[:2], "big")
    return _Zlib(_ZLIB if (header >> 8) & 0x0F == 8 and header % 31 == 0 else _RAW)


def _br(beginning: bytes) -> StreamDecoder:
    return _Brotli()


def _zstd(beginning: bytes) -> StreamDecoder:
    return _Zstd()


def _unknown(beginning: bytes) -> StreamDecoder:
    raise Undecodable("this coding is not supported")


# For each coding: makes a decoder from a member's first bytes; the first byte of a further member (empty: one member).
_CODINGS: Final[dict[str, tuple[Callable[[bytes], StreamDecoder], bytes]]] = {
    "gzip": (_gzip, b"\x1f"),
    "x-gzip": (_gzip, b"\x1f"),
    "deflate": (_deflate, b""),
    "br": (_br, b""),
    "zstd": (_zstd, b"\x28"),
    "compress": (_unknown, b""),
    "x-compress": (_unknown, b""),
}

DecodingSteps = Generator[None, None, tuple[bytes, bool]]


def parse_codings(content_encoding: str) -> list[str]:
    """The codings of a body, outermost first. Empty: use the body as it is.

    Servers also write charsets and nonsense into this header. Unknown values are ignored, as browsers do.

    :raises Undecodable: there are more than ``_MOST_CODINGS``.
    """
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    known = [coding for coding in reversed(codings) if coding in _CODINGS]
    if len(known) > _MOST_CODINGS:
        raise Undecodable(f"it has {len(known)} codings")
    return known


def decode_at_once(body: bytes, content_encoding: str, limit: int) -> bytes | None:
    """Decompress the usual body: gzip, small, of one member. None for others: see :func:`decode_in_steps`."""
    if content_encoding != "gzip" or len(body) > _INPUT:
        return None
    stream = zlib.decompressobj(_GZIP)
    try:
        decoded = stream.decompress(body, _OUTPUT)
    except zlib.error:
        return None
    return decoded if stream.eof and not stream.unused_data and len(decoded) <= limit else None


def decode_in_steps(
    body: bytes, codings: list[str], limit: int, *, may_cut: bool = False, is_whole: bool = True
) -> DecodingSteps:
    """Decompress ``body``. Yields after each slice; returns the result and whether it is complete.

    :param may_cut: cut a larger result at ``limit`` instead of raising.
    :param is_whole: False if ``body`` was cut before, so that its data may end anywhere.
    :raises DecodedTooLarge: the result is larger than ``limit``.
    :raises Undecodable: the body is damaged or takes too much work.
    """
    work = _Work()
    for coding in codings:
        body, is_whole = yield from _decode_coding(body, coding, limit, work, may_cut, is_whole)
    return body, is_whole


class _Work:
    """The time spent on one body: wall-clock time in the current slice, CPU time in total."""

    __slots__ = ("_slice", "_spent", "_spent_before")

    def __init__(self) -> None:
        self._slice = perf_counter()
        self._spent = 0.0  # CPU seconds of earlier slices
        self._spent_before = thread_time()

    def is_due(self) -> bool:
        """Whether to yield now. Call :meth:`resume` afterwards.

        :raises Undecodable: the body has taken more than ``_MOST_SECONDS``.
        """
        if perf_counter() - self._slice < SLICE_SECONDS:
            return False
        self._spent += thread_time() - self._spent_before
        if self._spent > _MOST_SECONDS:
            raise Undecodable(f"it takes more than {_MOST_SECONDS:g} s to decompress")
        return True

    def resume(self) -> None:
        self._slice, self._spent_before = perf_counter(), thread_time()


def _decode_coding(body: bytes, coding: str, limit: int, work: _Work, may_cut: bool, is_whole: bool) -> DecodingSteps:
    """Undo one coding. A body may have several members; bytes after the last one are ignored, as browsers do."""
    begin, magic = _CODINGS[coding]
    pieces: list[bytes] = []
    room = limit
    at = members = 0
    end = len(body)
    careful = -1  # offset from which input is passed byte by byte; -1: nowhere
    while at < end and (not members or (magic and body.startswith(magic, at))):
        if members == _MOST_MEMBERS:
            raise Undecodable("it has too many members")
        members += 1
        stream = begin(body[at : at + 2])
        while not stream.eof:
            if stream.holds_output:
                data = b""
            elif at < end:
                data = body[at : at + _INPUT if careful < 0 else max(careful, at + 1)][:_INPUT]
            elif is_whole:
                raise Undecodable("the data ends early")
            else:
                return b"".join(pieces), False
            try:
                piece = stream.decompress(data, min(room + 1, _OUTPUT))
            except Exception as error:  # every decoder has its own exception class
                if coding != "br" or careful >= 0:
                    raise Undecodable(str(error)) from error
                # The br decoder refuses the input that contains the end of its stream if more bytes follow. Start over,
                # and pass that part byte by byte.
                stream, careful = begin(b""), at
                pieces, room, at = [], limit, 0
                continue
            at += len(data) - len(stream.rest)
            room -= len(piece)
            if room < 0:
                if not may_cut:
                    raise DecodedTooLarge
                pieces.append(piece[:room])
                return b"".join(pieces), False
            if piece:
                pieces.append(piece)
            if work.is_due():
                yield
                work.resume()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), is_whole


# Headers that no longer describe a decoded body.
_GONE: Final = ("content-encoding", "content-length")


class BodyDecoder:
    """Decodes the bodies of one fetcher. Long ones take turns: one slice per iteration of the event loop in total."""

    def __init__(self, max_body: int, large_bodies: LargeBodies) -> None:
        self._max_body = max_body
        self._large_bodies = large_bodies
        self._turn = asyncio.Lock()

    async def decode(self, url: str, response: RawResponse, *, first: int | None) -> None:
        """Decode the body of a response in place, and drop the headers in ``_GONE``.

        :param first: see :meth:`uttu.fetch.base.Fetcher.fetch`.
        :raises TooLarge: the decoded body has more than ``max_body`` bytes.
        :raises BadResponse: the body does not decode.
        """
        body, headers = response.body, response.headers
        if not body or headers.get("content-encoding") is None:
            return
        encoding = ", ".join(headers.get_all("content-encoding"))
        if first is None and (decoded := decode_at_once(body, encoding, self._max_body)) is not None:
            response.body, response.headers = decoded, headers.without(*_GONE)
            return
        try:
            codings = parse_codings(encoding)
            if not codings:
                return
            if first is None:
                steps = decode_in_steps(body, codings, self._max_body)
            else:
                steps = decode_in_steps(body, codings, first, may_cut=True, is_whole=not response.cut)
            response.body, is_whole = await self._run(steps, response)
        except DecodedTooLarge as error:
            raise make_too_large(url, self._max_body, "there are more when decompressed") from error
        except Undecodable as error:
            raise BadResponse(f"{url}: the body does not decode as {encoding}: {error}") from error
        response.headers, response.cut = headers.without(*_GONE), not is_whole

    async def _run(self, steps: DecodingSteps, response: RawResponse) -> tuple[bytes, bool]:
        try:
            next(steps)
            if response.reservation is None:  # it takes more than a slice, so it is large
                response.reservation = self._large_bodies.reserve(self._max_body)
                await asyncio.wait((response.reservation,))
            while True:
                async with self._turn:
                    await asyncio.sleep(0)
                    next(steps)
        except StopIteration as finished:
            result: tuple[bytes, bool] = finished.value
            return result

"""Content codings: decompress a response body in slices, so that the event loop keeps running.

The host decides what decompression costs: 16 KB can become 16 MB, and a deflate stream of empty blocks takes 100 ns a
byte without any output. So :func:`decode_in_steps` is a generator. It yields after ``SLICE_SECONDS`` of work, and
:class:`BodyDecoder` lets the event loop run in between. One step reads at most ``_STEP_INPUT`` bytes and produces at
most ``_STEP_OUTPUT`` bytes, about 5 ms. An ordinary page takes one call (:func:`decode_at_once`). A lock lets only one
slice run per loop iteration, no matter how many bodies are being decoded.

Four bounds: the decoded size (``limit``, per coding), ``_MAX_MEMBERS`` members per body, ``_MAX_CODINGS`` codings
per body, and ``_MAX_SECONDS`` of CPU time in total.

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
_STEP_INPUT: Final = 65536
_STEP_OUTPUT: Final = 1024 * 1024
SLICE_SECONDS: Final = 0.004  # wall-clock time of a slice
_MAX_SECONDS: Final = 2.0  # CPU time per body
_MAX_MEMBERS: Final = 10_000
_MAX_CODINGS: Final = 5  # codings are nested, and each one costs a full pass


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
    __slots__ = ("_filled_buffer", "_stream")

    def __init__(self, wbits: int) -> None:
        self._stream = zlib.decompressobj(wbits)
        self._filled_buffer = False

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        piece = self._stream.decompress(data, max_length)
        self._filled_buffer = len(piece) == max_length
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
        return self._filled_buffer and not self._stream.unconsumed_tail


class _Brotli:
    __slots__ = ("_produced_output", "_stream")

    rest = b""  # a br body has one member; bytes after it are ignored

    def __init__(self) -> None:
        import brotli

        self._stream = brotli.Decompressor()
        self._produced_output = False

    @property
    def eof(self) -> bool:
        return bool(self._stream.is_finished())

    @property
    def holds_output(self) -> bool:
        # It may hold output even if it accepts more input, so call it until it returns nothing.
        return self._produced_output or not self._stream.can_accept_more_data()

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        piece = bytes(self._stream.process(data, output_buffer_limit=max_length))
        self._produced_output = bool(piece)
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


def _open_gzip(start: bytes) -> StreamDecoder:
    return _Zlib(_GZIP)


def _open_deflate(start: bytes) -> StreamDecoder:
    """``deflate`` means the zlib format, but some servers send a bare stream. A zlib header has a checksum."""
    header = int.from_bytes(start[:2], "big")
    return _Zlib(_ZLIB if (header >> 8) & 0x0F == 8 and header % 31 == 0 else _RAW)


def _open_br(start: bytes) -> StreamDecoder:
    return _Brotli()


def _open_zstd(start: bytes) -> StreamDecoder:
    return _Zstd()


def _refuse_coding(start: bytes) -> StreamDecoder:
    raise Undecodable("this coding is not supported")


# For each coding: makes a decoder from a member's first bytes; the first byte of a further member (empty: one member).
_CODINGS: Final[dict[str, tuple[Callable[[bytes], StreamDecoder], bytes]]] = {
    "gzip": (_open_gzip, b"\x1f"),
    "x-gzip": (_open_gzip, b"\x1f"),
    "deflate": (_open_deflate, b""),
    "br": (_open_br, b""),
    "zstd": (_open_zstd, b"\x28"),
    "compress": (_refuse_coding, b""),
    "x-compress": (_refuse_coding, b""),
}

DecodingSteps = Generator[None, None, tuple[bytes, bool]]


def parse_codings(content_encoding: str) -> list[str]:
    """The codings of a body, outermost first. Empty: use the body as it is.

    Servers also write charsets and nonsense into this header. Unknown values are ignored, as browsers do.

    :raises Undecodable: there are more than ``_MAX_CODINGS``.
    """
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    known = [coding for coding in reversed(codings) if coding in _CODINGS]
    if len(known) > _MAX_CODINGS:
        raise Undecodable(f"{len(known)} codings, at most {_MAX_CODINGS} are allowed")
    return known


def decode_at_once(body: bytes, content_encoding: str, limit: int) -> bytes | None:
    """Decompress a small gzip body of one member in one call. None for others: see :func:`decode_in_steps`."""
    if content_encoding != "gzip" or len(body) > _STEP_INPUT:
        return None
    stream = zlib.decompressobj(_GZIP)
    try:
        decoded = stream.decompress(body, _STEP_OUTPUT)
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
    budget = _TimeBudget()
    for coding in codings:
        body, is_whole = yield from _decode_coding(body, coding, limit, budget, may_cut, is_whole)
    return body, is_whole


class _TimeBudget:
    """The time spent on one body: wall-clock time in the current slice, CPU time in total."""

    __slots__ = ("_cpu_seconds", "_slice_cpu", "_slice_start")

    def __init__(self) -> None:
        self._slice_start = perf_counter()
        self._cpu_seconds = 0.0  # CPU seconds of earlier slices
        self._slice_cpu = thread_time()

    def is_slice_over(self) -> bool:
        """Whether to yield now. Call :meth:`resume` afterwards.

        :raises Undecodable: the body has taken more than ``_MAX_SECONDS``.
        """
        if perf_counter() - self._slice_start < SLICE_SECONDS:
            return False
        self._cpu_seconds += thread_time() - self._slice_cpu
        if self._cpu_seconds > _MAX_SECONDS:
            raise Undecodable(f"decompression takes more than {_MAX_SECONDS:g} s")
        return True

    def resume(self) -> None:
        self._slice_start, self._slice_cpu = perf_counter(), thread_time()


def _decode_coding(
    body: bytes, coding: str, limit: int, budget: _TimeBudget, may_cut: bool, is_whole: bool
) -> DecodingSteps:
    """Undo one coding. A body may have several members; bytes after the last one are ignored, as browsers do."""
    open_decoder, magic = _CODINGS[coding]
    pieces: list[bytes] = []
    remaining = limit
    offset = members = 0
    end = len(body)
    single_step_from = -1  # offset from which input is passed byte by byte; -1: nowhere
    while offset < end and (not members or (magic and body.startswith(magic, offset))):
        if members == _MAX_MEMBERS:
            raise Undecodable(f"more than {_MAX_MEMBERS} members")
        members += 1
        stream = open_decoder(body[offset : offset + 2])
        while not stream.eof:
            if stream.holds_output:
                data = b""
            elif offset < end:
                data = body[
                    offset : offset + _STEP_INPUT if single_step_from < 0 else max(single_step_from, offset + 1)
                ][:_STEP_INPUT]
            elif is_whole:
                raise Undecodable("the data is truncated")
            else:
                return b"".join(pieces), False
            try:
                piece = stream.decompress(data, min(remaining + 1, _STEP_OUTPUT))
            except Exception as error:  # every decoder has its own exception class
                if coding != "br" or single_step_from >= 0:
                    raise Undecodable(str(error)) from error
                # The br decoder refuses the input that contains the end of its stream if more bytes follow. Start over,
                # and pass that part byte by byte.
                stream, single_step_from = open_decoder(b""), offset
                pieces, remaining, offset = [], limit, 0
                continue
            offset += len(data) - len(stream.rest)
            remaining -= len(piece)
            if remaining < 0:
                if not may_cut:
                    raise DecodedTooLarge
                pieces.append(piece[:remaining])
                return b"".join(pieces), False
            if piece:
                pieces.append(piece)
            if budget.is_slice_over():
                yield
                budget.resume()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), is_whole


# Headers that no longer describe a decoded body.
_REMOVED_HEADERS: Final = ("content-encoding", "content-length")


class BodyDecoder:
    """Decodes the bodies of one fetcher. Long ones take turns: one slice per iteration of the event loop in total."""

    def __init__(self, max_body: int, large_bodies: LargeBodies) -> None:
        self._max_body = max_body
        self._large_bodies = large_bodies
        self._turn = asyncio.Lock()

    async def decode(self, url: str, response: RawResponse, *, first: int | None) -> None:
        """Decode the body of a response in place, and drop the headers in ``_REMOVED_HEADERS``.

        :param first: see :meth:`uttu.fetch.base.Fetcher.fetch`.
        :raises TooLarge: the decoded body has more than ``max_body`` bytes.
        :raises BadResponse: the body does not decode.
        """
        body, headers = response.body, response.headers
        if not body or headers.get("content-encoding") is None:
            return
        encoding = ", ".join(headers.get_all("content-encoding"))
        if first is None and (decoded := decode_at_once(body, encoding, self._max_body)) is not None:
            response.body, response.headers = decoded, headers.without(*_REMOVED_HEADERS)
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
            raise make_too_large(url, self._max_body, "after decompression") from error
        except Undecodable as error:
            raise BadResponse(f"{url}: the body does not decode as {encoding}: {error}") from error
        response.headers, response.cut = headers.without(*_REMOVED_HEADERS), not is_whole

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

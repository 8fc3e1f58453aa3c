from __future__ import annotations

import contextlib
import gzip
import time
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from uttu.fetch import decoding as module
from uttu.fetch.decoding import DecodedTooLarge, DecodingSteps, Undecodable, decode_in_steps, parse_codings

MB = 1024 * 1024


def raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def run(steps: DecodingSteps) -> tuple[bytes, bool]:
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: tuple[bytes, bool] = finished.value
            return result


def inflated(body: bytes, content_encoding: str, limit: int) -> bytes:
    decoded, is_whole = run(decode_in_steps(body, parse_codings(content_encoding), limit))
    assert is_whole
    return decoded


def inflate(coding: str, data: bytes, sizes: tuple[int, int], limit: int) -> bytes:
    """Decompresses in steps of ``sizes``: bytes in and bytes out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_STEP_INPUT", sizes[0])
        patch.setattr(module, "_STEP_OUTPUT", sizes[1])
        return inflated(data, coding, limit)


SIZES = st.tuples(st.integers(1, 50), st.integers(1, 50))
WHOLE = (65536, MB)


def dynamic_blocks(size: int) -> bytes:
    """A deflate stream without output: empty blocks of 90 bits, each with codes that have to be built."""
    block, at = 0, 0

    def put(value: int, bits: int) -> None:
        nonlocal block, at
        block |= value << at
        at += bits

    put(0b100, 3)  # not the last, of dynamic codes
    put(0, 5)
    put(0, 5)
    put(14, 4)
    for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1):
        put(1 if symbol in (18, 1) else 0, 3)
    for zeros in (138, 118):
        put(1, 1)
        put(zeros - 11, 7)
    put(0, 3)  # two lengths of one, and the end of the block
    eight = sum(block << (at * n) for n in range(8)).to_bytes(at, "little")
    return eight * (size // at)


@given(st.lists(st.binary(max_size=200), max_size=4), SIZES)
def test_gzip_in_any_members_and_pieces(members: list[bytes], sizes: tuple[int, int]) -> None:
    packed = b"".join(gzip.compress(member) for member in members)
    whole = b"".join(members)
    assert inflate("gzip", packed, sizes, len(whole)) == whole
    if whole:
        with pytest.raises(DecodedTooLarge):
            inflate("gzip", packed, sizes, len(whole) - 1)


@given(st.binary(max_size=500), SIZES)
def test_deflate_with_and_without_its_header(data: bytes, sizes: tuple[int, int]) -> None:
    assert inflate("deflate", zlib.compress(data), sizes, len(data)) == data
    assert inflate("deflate", raw(data), sizes, len(data)) == data


@given(st.binary(max_size=500), SIZES)
def test_br_in_any_pieces(data: bytes, sizes: tuple[int, int]) -> None:
    assert inflate("br", brotli.compress(data), sizes, len(data)) == data


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), SIZES)
def test_zstd_in_any_frames_and_pieces(frames: list[bytes], sizes: tuple[int, int]) -> None:
    packed, whole = b"".join(map(zstandard.compress, frames)), b"".join(frames)
    assert inflate("zstd", packed, sizes, len(whole)) == whole


@pytest.mark.parametrize(("coding", "compress"), [("br", brotli.compress), ("zstd", zstandard.compress)])
def test_a_bomb_stops_at_the_limit(coding: str, compress: Callable[[bytes], bytes]) -> None:
    packed = compress(b"0" * 10_000_000)
    assert len(inflated(packed, coding, 10_000_000)) == 10_000_000
    with pytest.raises(DecodedTooLarge):
        inflated(packed, coding, 1_000_000)


def test_zstd_window_too_large() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compress(bytes(range(256)) * 64 * 1024)
    with pytest.raises(Undecodable, match=r"(?i)memory|window"):
        inflated(packed, "zstd", 100_000_000)


@given(st.binary(min_size=1, max_size=200), st.integers(1, 20))
def test_truncation_is_detected(data: bytes, missing: int) -> None:
    packed = gzip.compress(data)
    with pytest.raises(Undecodable):
        inflate("gzip", packed[:-missing], WHOLE, 1000)


@given(st.binary(min_size=1, max_size=200))
def test_anything_else_is_refused_or_bounded(data: bytes) -> None:
    for coding in ("gzip", "deflate", "br", "zstd"):
        with contextlib.suppress(Undecodable, DecodedTooLarge):
            assert len(inflate(coding, data, WHOLE, 1000)) <= 1000


@pytest.mark.parametrize(
    ("header", "count"),
    [
        ("gzip", 1),
        ("X-GZIP", 1),
        ("deflate", 1),
        ("gzip,deflate", 2),
        ("BR", 1),
        ("identity", 0),
        ("utf-8", 0),
        ("", 0),
    ],
)
def test_parse_codings(header: str, count: int) -> None:
    assert len(parse_codings(header)) == count


@pytest.mark.parametrize("header", ["compress", "compress, gzip"])
def test_unsupported_codings(header: str) -> None:
    with pytest.raises(Undecodable, match="not supported"):
        inflated(gzip.compress(b"x"), header, 10)


def test_too_many_codings() -> None:
    with pytest.raises(Undecodable, match="12 codings, at most 5 are allowed"):
        parse_codings("gzip," * 12)


@pytest.mark.parametrize("garbage", [b"\0", b"\0\0\0", b"plain text", b"\xff" * 200_000])
@pytest.mark.parametrize("sizes", [WHOLE, (1, 1), (7, 3)])
@pytest.mark.parametrize(
    ("coding", "compress"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw),
        ("br", brotli.compress),
        ("zstd", zstandard.compress),
    ],
)
def test_data_after_the_end_is_ignored(
    coding: str, compress: Callable[[bytes], bytes], sizes: tuple[int, int], garbage: bytes
) -> None:
    assert inflate(coding, compress(b"warp") + garbage, sizes, 100) == b"warp"


def test_too_many_members() -> None:
    packed = gzip.compress(b"warp", mtime=0)
    assert inflated(packed * 9_000, "gzip", 10**6) == b"warp" * 9_000
    with pytest.raises(Undecodable, match="more than 10000 members"):
        inflated(gzip.compress(b"", mtime=0) * 500_000, "gzip", 10**6)


def test_a_large_body() -> None:
    body = bytes(range(256)) * 4096
    assert inflated(gzip.compress(body), "gzip", len(body)) == body
    with pytest.raises(DecodedTooLarge):
        inflated(gzip.compress(body), "gzip", len(body) - 1)


@pytest.mark.parametrize("quality", [1, 5, 11])
def test_br_that_is_flushed_every_megabyte(quality: int) -> None:
    """The decoder says that it takes more input while it still has output to give."""
    packer = brotli.Compressor(quality=quality)
    pieces = [packer.process(bytes(MB)) + packer.flush() for _ in range(15)]
    assert inflated(b"".join([*pieces, packer.finish()]), "br", 16 * MB) == bytes(15 * MB)
    packer = brotli.Compressor(quality=quality)
    body = b"".join([*(packer.process(bytes(MB)) for _ in range(15)), packer.finish()])
    assert inflated(body, "br", 16 * MB) == bytes(15 * MB)


def test_first_bytes_of_a_body() -> None:
    body = bytes(range(256)) * 4096
    for packed, coding in ((gzip.compress(body), "gzip"), (brotli.compress(body), "br"), (body, "")):
        codings = parse_codings(coding)
        assert run(decode_in_steps(packed, codings, 1000, may_cut=True)) == (body[:1000], False) or not codings
        assert run(decode_in_steps(packed, codings, len(body), may_cut=True)) == (body, True)
        cut, is_whole = run(decode_in_steps(packed[:-20], codings, len(body), may_cut=True, is_whole=False))
        assert body.startswith(cut)
        assert not is_whole


# Made when they are needed: together they are large.
BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "members within gzip": ("gzip, gzip", lambda: gzip.compress(gzip.compress(b"", mtime=0) * 700_000, 1)),
    "members": ("gzip", lambda: gzip.compress(b"", mtime=0) * 700_000),
    "empty blocks": ("deflate", lambda: dynamic_blocks(16 * MB)),
    "empty blocks within gzip": ("deflate, gzip", lambda: gzip.compress(dynamic_blocks(16 * MB), 1)),
    "zeros within zeros": ("gzip, gzip, gzip", lambda: gzip.compress(gzip.compress(gzip.compress(bytes(16 * MB))))),
    "frames": ("zstd", lambda: zstandard.compress(b"") * 700_000),
    "zeros": ("br", lambda: brotli.compress(bytes(16 * MB), quality=1)),
    "garbage after br": ("br", lambda: brotli.compress(b"warp") + b"x" * 16 * MB),
    "zeros of zstd": ("zstd", lambda: zstandard.compress(bytes(16 * MB))),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_no_step_takes_long(kind: str) -> None:
    """Whatever a host sends, the event loop runs again after a few milliseconds, and there is an end."""
    encoding, make = BOMBS[kind]
    steps = decode_in_steps(make(), parse_codings(encoding), 16 * MB)
    longest = total = 0.0
    for _ in range(2_000):
        begun = time.thread_time()
        try:
            next(steps)
        except (StopIteration, Undecodable, DecodedTooLarge):
            break
        finally:
            took = time.thread_time() - begun
            longest, total = max(longest, took), total + took
    else:
        pytest.fail("it has no end")
    assert longest < 0.1  # 10 ms on an idle machine
    assert total < 4

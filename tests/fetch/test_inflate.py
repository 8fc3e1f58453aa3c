from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from weft.fetch.inflate import Inflater, Overflow, Undecodable, inflated, inflaters


def raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def inflate(coding: str, data: bytes, sizes: list[int], limit: int) -> bytes:
    """Feeds ``data`` in pieces of ``sizes``, the last one being the rest."""
    inflater = Inflater(coding, limit)
    out = []
    for size in sizes:
        out.append(inflater.feed(data[:size]))
        data = data[size:]
    out.append(inflater.feed(data))
    inflater.end()
    return b"".join(out)


@given(st.lists(st.binary(max_size=200), max_size=4), st.lists(st.integers(1, 50), max_size=10))
def test_gzip_in_any_members_and_pieces(members: list[bytes], sizes: list[int]) -> None:
    packed = b"".join(gzip.compress(member) for member in members)
    whole = b"".join(members)
    assert inflate("gzip", packed, sizes, len(whole)) == whole
    if whole:
        with pytest.raises(Overflow):
            inflate("gzip", packed, sizes, len(whole) - 1)


@given(st.binary(max_size=500), st.lists(st.integers(2, 50), max_size=10))
def test_deflate_with_and_without_its_header(data: bytes, sizes: list[int]) -> None:
    assert inflate("deflate", zlib.compress(data), sizes, len(data)) == data
    assert inflate("deflate", raw(data), sizes, len(data)) == data


@given(st.binary(max_size=500), st.lists(st.integers(1, 50), max_size=10))
def test_br_in_any_pieces(data: bytes, sizes: list[int]) -> None:
    assert inflate("br", brotli.compress(data), sizes, len(data)) == data


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.lists(st.integers(1, 50), max_size=10))
def test_zstd_in_any_frames_and_pieces(frames: list[bytes], sizes: list[int]) -> None:
    packed, whole = b"".join(map(zstandard.compress, frames)), b"".join(frames)
    assert inflate("zstd", packed, sizes, len(whole)) == whole


@pytest.mark.parametrize(("coding", "compress"), [("br", brotli.compress), ("zstd", zstandard.compress)])
def test_a_bomb_stops_at_the_limit(coding: str, compress: Callable[[bytes], bytes]) -> None:
    packed = compress(b"0" * 10_000_000)
    assert len(inflated(packed, coding, 10_000_000) or b"") == 10_000_000
    with pytest.raises(Overflow):
        inflated(packed, coding, 1_000_000)


def test_a_window_that_no_browser_would_take() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compress(bytes(range(256)) * 64 * 1024)
    with pytest.raises(Undecodable, match=r"(?i)memory|window"):
        inflated(packed, "zstd", 100_000_000)


@given(st.binary(min_size=1, max_size=200), st.integers(1, 20))
def test_a_cut_is_noticed(data: bytes, missing: int) -> None:
    packed = gzip.compress(data)
    with pytest.raises(Undecodable):
        inflate("gzip", packed[:-missing], [], 1000)


@given(st.binary(min_size=1, max_size=200))
def test_anything_else_is_refused_or_bounded(data: bytes) -> None:
    for coding in ("gzip", "deflate", "br", "zstd"):
        with contextlib.suppress(Undecodable, Overflow):
            assert len(inflate(coding, data, [], 1000)) <= 1000


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
def test_what_a_header_asks_for(header: str, count: int) -> None:
    assert len(inflaters(header, 10)) == count


@pytest.mark.parametrize("header", ["compress", "compress, gzip"])
def test_what_can_not_be_undone(header: str) -> None:
    with pytest.raises(Undecodable, match="not supported"):
        inflated(gzip.compress(b"x"), header, 10)


def test_codings_by_the_dozen() -> None:
    with pytest.raises(Undecodable, match="it has 12 codings"):
        inflaters("gzip," * 12, 10)


@pytest.mark.parametrize("cut", [0, 1])
def test_what_follows_is_ignored_wherever_it_is_cut(cut: int) -> None:
    packed = gzip.compress(b"warp")
    assert inflate("gzip", packed + b"\0\0\0", [len(packed) + cut], 100) == b"warp"
    assert inflate("deflate", zlib.compress(b"warp") + b"\0\0\0", [len(zlib.compress(b"warp")) + cut], 100) == b"warp"


def test_members_by_the_thousand() -> None:
    packed = gzip.compress(b"warp", mtime=0)
    assert inflated(packed * 9_000, "gzip", 10**6) == b"warp" * 9_000
    with pytest.raises(Undecodable, match="too many members"):
        inflated(gzip.compress(b"", mtime=0) * 500_000, "gzip", 10**6)


def test_a_large_body() -> None:
    body = bytes(range(256)) * 4096
    assert inflated(gzip.compress(body), "gzip", len(body)) == body
    with pytest.raises(Overflow):
        inflated(gzip.compress(body), "gzip", len(body) - 1)

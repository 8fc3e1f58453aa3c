"""Content codings: bombs, thousands of members, nested codings, streams that end early or have wrong headers."""

from __future__ import annotations

import gzip
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache, reduce
from random import Random
from typing import Final

import brotli

from uttu.testing.site.hostile.model import Kind, page
from uttu.testing.site.message import HTML, TEXT

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_MB: Final = 1024 * 1024
_PAGE: Final = b"<!doctype html><title>Packed</title><p>" + b"text " * 200
_BAD: Final = "dead: bad_response"
_LARGE: Final = "dead: too_large"


def raw_deflate(data: bytes, level: int = 9) -> bytes:
    packer = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: Final[dict[str, tuple[str, Callable[[bytes], bytes]]]] = {
    "gzip": ("gzip", lambda data: gzip.compress(data, mtime=0)),
    "deflate": ("deflate", zlib.compress),
    "raw-deflate": ("deflate", raw_deflate),
    "br": ("br", lambda data: bytes(brotli.compress(data, quality=5))),
    "zstd": ("zstd", zstd.compress),
}


@lru_cache(maxsize=16)
def bomb(name: str, megabytes: int) -> bytes:
    """Zeros, compressed at least a thousand to one.

    If the format allows it, one compressed megabyte is repeated: after a full flush, a deflate block does not refer to
    earlier data, and zstd frames may follow one another.
    """
    zeros = bytes(_MB)
    if name == "zstd":
        return zstd.compress(zeros) * megabytes
    if name == "br":
        packer = brotli.Compressor(quality=1)
        pieces = [packer.process(zeros) for _ in range(megabytes)]
        return b"".join([*pieces, packer.finish()])
    flushing = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    blocks = (flushing.compress(zeros) + flushing.flush(zlib.Z_FULL_FLUSH)) * megabytes + b"\x03\x00"
    if name == "raw-deflate":
        return blocks
    if name == "deflate":
        return b"\x78\x9c" + blocks + struct.pack(">I", _checksum(zlib.adler32, megabytes, 1))
    size = megabytes * _MB & 0xFFFFFFFF
    return b"\x1f\x8b\x08" + bytes(7) + blocks + struct.pack("<II", _checksum(zlib.crc32, megabytes, 0), size)


def _checksum(add: Callable[[bytes, int], int], megabytes: int, start: int) -> int:
    zeros = bytes(_MB)
    return reduce(lambda value, _: add(zeros, value), range(megabytes), start)


def _coded(
    name: str, about: str, coding: str, make: Callable[[], bytes], ends: str = "done|dead", content_type: str = HTML
) -> Kind:
    return Kind(
        name=f"codings/{name}",
        about=about,
        reply=page(make, content_type, ("Content-Encoding", coding)),
        handler="size",
        ends=ends,
    )


def _of_each() -> Iterator[Kind]:
    for name, (coding, pack) in PACKERS.items():
        yield from _of_one(name, coding, pack)


def _of_one(name: str, coding: str, pack: Callable[[bytes], bytes]) -> Iterator[Kind]:
    def kind(what: str, about: str, make: Callable[[], bytes], ends: str = "done|dead", type: str = HTML) -> Kind:
        return _coded(f"{name}-{what}", about, coding, make, ends, type)

    def cut() -> bytes:
        whole = pack(_PAGE)
        return whole[: len(whole) // 2]

    yield kind("bomb", f"{name}: 200 MB of zeros, a thousand to one", lambda: bomb(name, 200), _LARGE, TEXT)
    yield kind("near", f"{name}: 15 MB of zeros, just within the limit", lambda: bomb(name, 15), "done", TEXT)
    yield kind("cut", f"{name} that ends in the middle", cut, _BAD)
    yield kind("garbage", f"random bytes that claim to be {name}", lambda: Random(1).randbytes(100_000), _BAD)
    yield kind("plain", f"plain text that claims to be {name}", lambda: _PAGE)
    yield kind("tail", f"{name} with 10 MB of garbage behind it", lambda: pack(_PAGE) + b"\xff" * (10 * _MB))
    yield kind("empty", f"an empty body that claims to be {name}", lambda: b"")
    yield _coded(
        f"{name}-twice",
        f"{name} in {name}: a bomb of a bomb",
        f"{coding}, {coding}",
        lambda: pack(bomb(name, 100)),
        f"{_LARGE}|{_BAD}",
    )


def _members(count: int, data: bytes) -> bytes:
    return gzip.compress(data, mtime=0) * count


def _stored(blocks: int) -> bytes:
    """Empty stored deflate blocks: five bytes each, no output."""
    return b"\x00\x00\x00\xff\xff" * blocks + b"\x03\x00"


def _fields(flags: int, fields: bytes) -> bytes:
    """A gzip member with optional header fields."""
    body = struct.pack("<II", zlib.crc32(_PAGE), len(_PAGE))
    return b"\x1f\x8b\x08" + bytes((flags,)) + bytes(6) + fields + raw_deflate(_PAGE) + body


def _flushes(count: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    block = b"".join(packer.compress(b"x") + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(1000))
    head = block[:10]
    return head + block[10:] * (count // 1000) + b"\x03\x00" + bytes(8)


def _onion(layers: int) -> bytes:
    data = _PAGE
    for _ in range(layers):
        data = gzip.compress(data, mtime=0)
    return data


def _single() -> Iterator[Kind]:
    yield _coded("gzip-members", "700 gzip members of 16 KB", "gzip", lambda: _members(700, bytes(16 * 1024)))
    yield _coded("gzip-members-1", "200,000 gzip members of one byte", "gzip", lambda: _members(200_000, b"x"))
    yield _coded("gzip-members-0", "500,000 empty gzip members", "gzip", lambda: _members(500_000, b""))
    yield _coded(
        "gzip-members-bomb", "10,000 gzip members of 1 MB", "gzip", lambda: _members(10_000, bytes(_MB)), _LARGE
    )
    yield _coded(
        "gzip-stored",
        "2 million empty blocks in gzip",
        "gzip",
        lambda: gzip.compress(b"", mtime=0)[:10] + _stored(2_000_000) + bytes(8),
    )
    yield _coded("deflate-stored", "2 million empty blocks in deflate", "deflate", lambda: _stored(2_000_000))
    yield _coded("gzip-flushes", "a million flushes in gzip", "gzip", lambda: _flushes(1_000_000))
    yield _coded("gzip-name", "a gzip file name of 5 MB", "gzip", lambda: _fields(8, b"x" * (5 * _MB) + b"\0"))
    yield _coded("gzip-name-open", "a gzip file name without end", "gzip", lambda: _fields(8, b"x" * (5 * _MB)))
    yield _coded("gzip-extra", "a gzip extra field of 64 KB", "gzip", lambda: _fields(4, b"\xff\xff" + bytes(0xFFFF)))
    yield _coded("gzip-reserved", "gzip with reserved flags", "gzip", lambda: _fields(0xE0, b""))
    yield _coded(
        "gzip-checksum", "gzip with a wrong checksum", "gzip", lambda: gzip.compress(_PAGE, mtime=0)[:-8] + b"\xff" * 8
    )
    yield _coded("zstd-frames", "200,000 zstd frames of one byte", "zstd", lambda: zstd.compress(b"x") * 200_000)
    yield _coded(
        "zstd-skipped",
        "300,000 skippable zstd frames",
        "zstd",
        lambda: (struct.pack("<II", 0x184D2A50, 4) + b"skip") * 300_000,
    )
    yield _coded(
        "zstd-window",
        "zstd with a window of 2 GB",
        "zstd",
        lambda: b"\x28\xb5\x2f\xfd\x00" + bytes((21 << 3,)) + b"\x01\x00\x00",
    )
    yield _coded(
        "zstd-size",
        "zstd that announces 2^62 bytes",
        "zstd",
        lambda: b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 62) + b"\x01\x00\x00",
    )
    yield _coded("br-window", "brotli with a large window", "br", lambda: b"\x11" + b"\xff" * 1000)
    yield _coded("onion", "gzip ten times over", ", ".join(["gzip"] * 10), lambda: _onion(10))
    yield _coded("onion-100", "gzip a hundred times over", ", ".join(["gzip"] * 100), lambda: _onion(100))
    yield _coded(
        "mixed",
        "deflate in gzip in br in zstd",
        "deflate, gzip, br, zstd",
        lambda: zstd.compress(bytes(brotli.compress(gzip.compress(zlib.compress(_PAGE), mtime=0)))),
        "done",
    )
    yield _coded(
        "mixed-bomb",
        "a bomb of gzip in br",
        "gzip, br",
        lambda: bytes(brotli.compress(bomb("gzip", 200), quality=5)),
        _LARGE,
    )
    yield _coded("named-1000", "a thousand codings named", ", ".join(["gzip"] * 1000), lambda: _PAGE)
    yield _coded("unknown", "a coding that does not exist", "made-up", lambda: _PAGE)
    yield _coded("commas", "a Content-Encoding of commas", ",,, ,,", lambda: _PAGE)
    yield _coded("identity", "identity, a hundred times", ", ".join(["identity"] * 100), lambda: _PAGE)
    yield Kind(
        name="codings/lines",
        about="a hundred Content-Encoding lines",
        reply=page(lambda: _PAGE, HTML, *[("Content-Encoding", "gzip")] * 100),
    )


KINDS: Final = (*_of_each(), *_single())

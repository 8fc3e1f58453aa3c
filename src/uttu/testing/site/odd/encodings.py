"""Content encodings, correct and wrong.

All of them carry the same page. The path decides which one is sent, whatever the client accepts.

================  ====================================================================
``gzip``          also under the old name ``x-gzip``
``deflate``       in the zlib format, as the standard says
``raw-deflate``   a bare stream, as some servers send it under the same name
``br``, ``zstd``  stored in compressed form, so that the site needs no library for them
``twice``         deflate, then gzip
``wrong``         declared as gzip, but plain
``cut``           gzip that ends too early, with the right Content-Length
``unknown``       an unknown encoding
================  ====================================================================
"""

from __future__ import annotations

import asyncio
import gzip
import struct
import zlib
from base64 import b64decode
from functools import lru_cache
from typing import Final

from uttu.testing.site.message import TEXT, Answer, Exchange, Incoming, Reply, html

_MB: Final = 1024 * 1024

# The two literals decompress to exactly this page; a test checks it.
PAGE: Final = html("Compressed", '<p>It arrived small: grüße.</p>\n<a href="/odd/">back</a>').body
_BR: Final = b64decode(
    "G8EAABwHdgy9NoIfwqnbUpXTPVYZS1340aI/YgjN+uRNhaEknRwwV5ylYSBtgTxKMA2Ichsbz1OEGkQjQsHAFn6EE9OKKrm82IvY"
    "oFkgtGG1QkKB5O8CI54+vcz7f16hSb2nMFOh5QM66JOeXQM="
)
_ZSTD: Final = b64decode(
    "KLUv/SDCpQQAogkfHKC7AesfV8UKedZZbF/Xt6ylhoxJ0tdQxnbKiFGM5fz49i3jfusonbB7ENLnjMVrbL2MobeCV5d1VaYVUvaM"
    "GvSpqbXbIwwtGyhIk2Vv30KPIq/QpAe7/OaXHREsLznjPaodldbvcxm2x2X3uDOYp2VbxnJ+bA5Rr1AIbAcArgUBZAKB9O4VomR1"
    "sdYcWEFZAg=="
)


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


_GZIP: Final = gzip.compress(PAGE, mtime=0)
ENCODINGS: Final = {
    "gzip": ("gzip", _GZIP),
    "x-gzip": ("x-gzip", _GZIP),
    "deflate": ("deflate", zlib.compress(PAGE)),
    "raw-deflate": ("deflate", _raw_deflate(PAGE)),
    "br": ("br", _BR),
    "zstd": ("zstd", _ZSTD),
    "twice": ("deflate, gzip", gzip.compress(zlib.compress(PAGE), mtime=0)),
    "wrong": ("gzip", PAGE),
    "cut": ("gzip", _GZIP[: len(_GZIP) // 2]),
    "unknown": ("x-made-up", PAGE),
}


def encoding(parts: list[str], incoming: Incoming) -> Reply:
    if len(parts) != 2 or parts[1] not in ENCODINGS:
        return None
    name, body = ENCODINGS[parts[1]]
    return Answer(body, headers=(("Content-Encoding", name), ("Vary", "Accept-Encoding")))


def bomb(parts: list[str], incoming: Incoming) -> Reply:
    megabytes = min(int(incoming.number("mb", 1024)), 4095)

    async def script(exchange: Exchange) -> None:
        # In a thread: the checksum of a gigabyte takes long enough to distort the times in the log.
        body = await asyncio.to_thread(gzip_bomb, megabytes)
        await exchange.send(Answer(body, TEXT, headers=(("Content-Encoding", "gzip"),)))

    return script


@lru_cache(maxsize=4)
def gzip_bomb(megabytes: int) -> bytes:
    """Zeros, compressed a thousand to one.

    One compressed megabyte is repeated: after a full flush, a deflate block does not refer to earlier data, so copies
    of it form one valid stream.
    """
    zeros = bytes(_MB)
    packer = zlib.compressobj(level=9, wbits=-zlib.MAX_WBITS)
    block = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = 0
    for _ in range(megabytes):
        checksum = zlib.crc32(zeros, checksum)
    head = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
    return head + block * megabytes + b"\x03\x00" + struct.pack("<II", checksum, megabytes * _MB & 0xFFFFFFFF)

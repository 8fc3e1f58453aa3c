"""TLS: certificates that must not be trusted, endless handshakes, and the kinds of other groups over TLS."""

from __future__ import annotations

import asyncio
from typing import Final

from uttu.testing.site.hostile import codings, http1
from uttu.testing.site.hostile.model import PLAIN, Certificate, Kind, Talk, Wire, page

_BAD: Final = "dead: (tls|network|bad_response)"
_RECORD: Final = b"\x16\x03\x03"  # handshake, TLS 1.2


def _handshake(*pieces: bytes, hang: bool = True, pause: float = 0.0, endless: bytes = b"") -> Talk:
    """Read the client's hello, then answer with these bytes instead of TLS."""

    async def talk(wire: Wire) -> None:
        await wire.reader.read(65536)
        for piece in pieces:
            await wire.send(piece)
        if endless:
            await wire.repeat(endless, pause=pause)
        if hang:
            await wire.hang()

    return talk


async def _reset(wire: Wire) -> None:
    await wire.reader.read(65536)
    wire.reset()


async def _close_silently(wire: Wire) -> None:
    """Close the connection without the alert that ends TLS, in a body of unknown length: it may be incomplete."""
    await wire.head()
    await wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + PLAIN.body)
    await asyncio.sleep(0.05)
    wire.writer.get_extra_info("socket").shutdown(2)


async def _garbage_after(wire: Wire) -> None:
    """A complete answer, then bytes that are not TLS."""
    await wire.head()
    await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PLAIN.body) + PLAIN.body)
    await asyncio.sleep(0.05)
    sock = wire.writer.get_extra_info("socket")
    import os

    os.write(sock.fileno(), b"\xff" * 1000)
    await asyncio.sleep(0.5)


def _raw(name: str, about: str, talk: Talk, ends: str = _BAD) -> Kind:
    return Kind(name=f"tls/{name}", about=about, talk=talk, certificate="none", ends=ends)


def _certified(certificate: Certificate, about: str) -> Kind:
    return Kind(
        name=f"tls/{certificate}",
        about=about,
        reply=page(lambda: PLAIN.body),
        certificate=certificate,
        ends="dead: tls",
    )


KINDS: Final = (
    _certified("expired", "a certificate that has expired"),
    _certified("future", "a certificate that is not valid yet"),
    _certified("self-signed", "a certificate that signs itself"),
    _certified("other-host", "a certificate for another host"),
    _certified("unknown-authority", "a certificate of an unknown authority"),
    _raw("handshake-never", "never answers the hello", _handshake(), "dead: timeout"),
    _raw("handshake-closed", "hangs up after the hello", _handshake(hang=False)),
    _raw("handshake-reset", "resets after the hello", _reset),
    _raw("handshake-plain", "answers the hello with plain HTTP", _handshake(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
    _raw("handshake-garbage", "answers the hello with garbage", _handshake(b"\xff" * 4096)),
    _raw("handshake-alert", "answers the hello with an alert", _handshake(b"\x15\x03\x03\x00\x02\x02\x28")),
    _raw(
        "handshake-warnings", "warning alerts without end", _handshake(endless=b"\x15\x03\x03\x00\x02\x01\x00" * 1000)
    ),
    _raw(
        "handshake-half",
        "half a server hello",
        _handshake(_RECORD + b"\x00\x50\x02\x00\x00\x4c\x03\x03"),
        "dead: timeout",
    ),
    _raw(
        "handshake-huge",
        "a handshake message of 16 MB",
        _handshake(
            _RECORD + b"\x40\x00\x0b\xff\xff\xff" + b"\0" * 16380, endless=_RECORD + b"\x40\x00" + b"\0" * 16384
        ),
    ),
    _raw(
        "handshake-drip",
        "a server hello, byte by byte",
        _handshake(_RECORD + b"\x40\x00\x02", endless=b"\0", pause=0.2),
        "dead: timeout",
    ),
    _raw("handshake-empty", "empty records without end", _handshake(endless=(_RECORD + b"\x00\x00") * 1000)),
    Kind(name="tls/silent-close", about="ends a body without ending TLS", talk=_close_silently, certificate="good"),
    # Garbage in the same read as the answer makes the TLS library drop both.
    Kind(
        name="tls/garbage-after",
        about="garbage after the answer",
        talk=_garbage_after,
        certificate="good",
        ends="done|dead: network",
    ),
    *(kind.over_tls() for kind in codings.KINDS),
    *(kind.over_tls() for kind in http1.KINDS),
)

"""Proxies: their URLs, and the handshake before a connection through one can be used.

    http, https   a plain http request goes to the proxy with its whole URL; https asks for a tunnel with CONNECT
    socks5        the proxy gets an address; the caller has resolved the name (RFC 1928, RFC 1929 for the password)
    socks5h       the proxy gets the name and resolves it itself

The handshake uses a :class:`HandshakeProtocol`. Afterwards the HTTP connection takes over the transport.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

_SCHEMES: Final = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_match_url: Final = re.compile(
    r"(?P<scheme>[a-z0-9]+)://(?:(?P<login>[^/?#\s]*)@)?(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[^/?#@:\[\]\s]+))"
    r"(?::(?P<port>[0-9]{1,5}))?/?"
).fullmatch
_match_tunnel_status: Final = re.compile(rb"HTTP/1\.[01] +([0-9]{3})").match
_HEAD_LIMIT: Final = 64 * 1024
_SOCKS_ERRORS: Final = (
    "",
    "general failure",
    "not allowed",
    "network unreachable",
    "host unreachable",
    "connection refused",
    "time to live expired",
    "command not supported",
    "address type not supported",
)


class ProxyRefused(ConnectionError):
    """A proxy refuses the connection. The message says why."""


class Proxy(NamedTuple):
    url: str  # with the password
    scheme: str
    host: str  # with its port, without the login; for messages
    name: str  # a name, or an address without brackets
    port: int
    user: bytes
    password: bytes

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    @property
    def is_socks(self) -> bool:
        return self.scheme in ("socks5", "socks5h")

    @property
    def authorization(self) -> str:
        """The value of ``Proxy-Authorization``; empty if the URL has no login."""
        login = self.user + b":" + self.password
        return "Basic " + base64.b64encode(login).decode() if login != b":" else ""


@lru_cache(maxsize=1024)
def parse_proxy(url: str) -> Proxy:
    """Parse the URL of a proxy.

    :raises ValueError: ``url`` is not the URL of a proxy. The message does not contain the password.
    """
    match = _match_url(url)
    if match is None or match["scheme"] not in _SCHEMES:
        schemes = " or ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise ValueError(f"a proxy URL begins with {schemes}, then user:password@ if needed, a host and a port")
    port = int(match["port"] or _SCHEMES[match["scheme"]])
    if not 0 < port < 65536:
        raise ValueError(f"the port {port} of the proxy is not between 1 and 65535")
    host = url.partition("://")[2].rpartition("@")[2].rstrip("/")
    user, _, password = (match["login"] or "").partition(":")
    name = match["address"] or match["name"]
    return Proxy(url, match["scheme"], host, name, port, unquote_to_bytes(user), unquote_to_bytes(password))


class HandshakeProtocol(asyncio.Protocol):
    """Buffers what a new connection receives until its final protocol takes over, such as the replies of a proxy."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.received = bytearray()
        self.is_lost = False
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    async def read(self, size: int) -> bytes:
        """Read exactly ``size`` bytes.

        :raises ConnectionError: the connection ended before.
        """
        while len(self.received) < size:
            await self._wait_for_data()
        data = bytes(self.received[:size])
        del self.received[:size]
        return data

    async def read_head(self) -> bytes:
        """Read up to and including the empty line that ends an HTTP head."""
        while (end := self.received.find(b"\r\n\r\n")) < 0:
            if len(self.received) > _HEAD_LIMIT:
                raise ProxyRefused(f"the proxy sent a head longer than {_HEAD_LIMIT} bytes")
            await self._wait_for_data()
        return await self.read(end + 4)

    async def _wait_for_data(self) -> None:
        if self._ended:
            raise ProxyRefused("the proxy closed the connection")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = self.is_lost = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def connect_http(protocol: HandshakeProtocol, proxy: Proxy, host: str) -> None:
    """Ask an HTTP proxy for a tunnel to ``host`` (with its port).

    :raises ProxyRefused: the proxy does not open one.
    """
    login = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    protocol.transport.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{login}\r\n".encode())
    while True:
        head = await protocol.read_head()
        match = _match_tunnel_status(head)
        if match is None:
            raise ProxyRefused("the proxy does not speak HTTP")
        if match[1][:1] == b"2":
            return
        if match[1][:1] != b"1":
            line = head.partition(b"\r\n")[0].decode("latin-1")
            raise ProxyRefused(f"the proxy refused the tunnel: {line[:100]!r}")


async def connect_socks(protocol: HandshakeProtocol, proxy: Proxy, name: str, port: int) -> None:
    """Ask a SOCKS5 proxy for a connection to ``name``, a host name or an IP address.

    :raises ProxyRefused: the proxy does not connect.
    """
    write = protocol.transport.write
    has_login = bool(proxy.user or proxy.password)
    write(b"\x05\x02\x00\x02" if has_login else b"\x05\x01\x00")
    method = await protocol.read(2)
    if method == b"\x05\x02" and has_login:
        user, password = proxy.user[:255], proxy.password[:255]
        write(b"\x01" + bytes((len(user),)) + user + bytes((len(password),)) + password)
        if (await protocol.read(2))[1]:
            raise ProxyRefused("the proxy rejected the user and password")
    elif method != b"\x05\x00":
        is_socks5 = method[:1] == b"\x05"
        raise ProxyRefused("the proxy requires a login" if is_socks5 else "the proxy does not speak SOCKS5")
    write(b"\x05\x01\x00" + _encode_socks_address(name) + port.to_bytes(2, "big"))
    reply = await protocol.read(5)
    if reply[1]:
        code = reply[1]
        reason = _SOCKS_ERRORS[code] if code < len(_SOCKS_ERRORS) else f"error {code}"
        raise ProxyRefused(f"the proxy cannot connect: {reason}")
    # The rest of the reply: the proxy's own address (its first byte has been read) and a port.
    rest = {1: 3, 4: 15, 3: reply[4]}.get(reply[3])
    if rest is None:
        raise ProxyRefused("the proxy sent an invalid reply")
    await protocol.read(rest + 2)


def _encode_socks_address(name: str) -> bytes:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        text = name.encode("idna") if not name.isascii() else name.encode()
        return b"\x03" + bytes((len(text),)) + text
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed

"""Connections to hosts, with TLS and without, straight or through a proxy: how they are made, and kept for the next.

A connection of HTTP/1 serves one exchange at a time. One of HTTP/2 serves many, so a host usually has one. The TLS
handshake decides between them. While the first handshake with a host is under way, other fetches from it wait for that.

One timer a connection watches over it for as long as it is open: it looks when the earliest of its times may be over,
and again if it is not. So an exchange costs no timer of its own.

Connections that are kept take file descriptors, of which a process has only so many. Beyond half of them, the one that
was used longest ago is closed; should there be none left, all that are idle are.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import ssl
from time import monotonic
from typing import Final

from uttu.fetch.base import Resolve
from uttu.fetch.exchange import HUNG_UP, LargeBodies, PoolClosed, Timeouts
from uttu.fetch.http1 import Http1Connection, PlainConnection, SecureConnection
from uttu.fetch.http2 import Http2Connection
from uttu.fetch.proxies import HandshakeProtocol, Proxy, connect_http, connect_socks
from uttu.fetch.resolver import look_up_addresses, resolve_unguarded
from uttu.fetch.tls import TlsContexts

Connection = Http1Connection | Http2Connection

_MOST_IDLE: Final = 10_000
_MOST_KNOWN: Final = 20_000
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
# How long a host may take to say goodbye.
_GOODBYE_SECONDS: Final = 1.0
_log = logging.getLogger("uttu.fetch")


class Route:
    """Where a URL leads: ``host`` has the port, as in the URL; ``name`` is a name, or an address without brackets.

    ``key``: what connections are kept under; those of one key are interchangeable. ``is_absolute``: requests go to the
    proxy itself, with their whole URL.
    """

    __slots__ = ("host", "is_absolute", "key", "login", "name", "port", "proxy", "secure")

    def __init__(self, secure: bool, host: str, name: str, port: int, proxy: Proxy | None, login: str = "") -> None:
        self.secure = secure
        self.host = host
        self.name = name
        self.port = port
        self.proxy = proxy
        self.login = login
        self.is_absolute = proxy is not None and not secure and not proxy.is_socks
        if proxy is None:
            self.key = f"https {host}" if secure else host
        else:
            self.key = proxy.url if self.is_absolute else f"{proxy.url} {secure:d} {host}"


class ProxyNotFound(OSError):
    """The name of a proxy does not resolve."""


class ConnectionPool:
    """All connections of a fetcher. ``resolve`` gives the addresses of a host (with its port) and its name; no other
    addresses are connected to."""

    def __init__(self, timeouts: Timeouts, tls: TlsContexts, *, http2: bool) -> None:
        self.resolve: Resolve = resolve_unguarded
        self.large_bodies = LargeBodies()
        self._timeouts = timeouts
        self._tls = tls
        self._http2 = http2
        self._open: set[Connection] = set()
        self._idle: dict[str, dict[Connection, None]] = {}
        self._shared: dict[str, dict[Http2Connection, None]] = {}  # those of HTTP/2, idle or not
        self._resting: dict[Connection, None] = {}  # the idle ones, in the order in which they came to rest
        self._most_resting = _most_idle()
        self._patience: set[asyncio.Timeout] = set()
        self._handshakes: dict[str, asyncio.Future[None]] = {}  # with hosts that may speak HTTP/2
        self._speaks_http1: dict[str, bool] = {}  # by key; True: HTTP/2 is not even offered
        self._closed = False

    def kept(self, key: str) -> Connection | None:
        """One that is open and has room, asked again first that was used last."""
        if self._shared and (shared := self._shared.get(key)) is not None:
            for connection in tuple(shared):
                if connection in self._resting:
                    self._wake(connection)
                    if not connection.is_usable:
                        connection.drop()
                        continue
                if connection.has_room:
                    return connection
        while idle := self._idle.get(key):
            found = next(reversed(idle))
            self._wake(found)
            if found.is_usable:
                return found
        return None

    async def acquire(self, place: Route) -> Connection:
        """A kept one, or a new one; raises what :meth:`connect` does."""
        key = place.key
        found = self.kept(key)
        if found is not None:
            return found
        if not (place.secure and self._http2) or key in self._speaks_http1:
            return await self.connect(place)
        while (handshake := self._handshakes.get(key)) is not None:
            await asyncio.wait((handshake,))
            handshake.result()
            found = self.kept(key)
            if found is not None:
                return found
            if key in self._speaks_http1:
                return await self.connect(place)
        handshake = self._handshakes[key] = asyncio.get_running_loop().create_future()
        try:
            connection = await self.connect(place)
        except Exception as error:
            handshake.set_exception(error)
            handshake.exception()  # perhaps nobody waits for it
            raise
        finally:
            del self._handshakes[key]
            if not handshake.done():
                handshake.set_result(None)
        return connection

    def remember_http1(self, place: Route, *, is_required: bool) -> None:
        """This host did not choose HTTP/2, or ``is_required``: it said that it wants HTTP/1.1."""
        if len(self._speaks_http1) >= _MOST_KNOWN:
            self._speaks_http1.clear()
        self._speaks_http1[place.key] = is_required
        if is_required:
            _log.debug("%s wants HTTP/1.1 instead of HTTP/2", place.host)
        for connection in tuple(self._shared.get(place.key, ())):
            connection.retire()

    async def connect(self, place: Route) -> Connection:
        """A new one.

        :raises TimeoutError: it took too long.
        :raises ssl.SSLError: there is no TLS with this host, or its certificate is not accepted.
        :raises OSError: the host can't be reached, or its name does not resolve (:class:`socket.gaierror`).
        :raises Refused, ProxyUnknown: it is the proxy that does not let us through, or is not found.
        :raises UnicodeError: it has a name that nobody can have.
        :raises Closed: the connections were closed meanwhile.
        """
        seconds = min(self._timeouts.connect, self._timeouts.total)
        until = monotonic() + seconds
        try:
            async with asyncio.timeout(seconds) as patience:
                self._patience.add(patience)
                try:
                    connection = await self._connect(place, until)
                finally:
                    self._patience.discard(patience)
        except TimeoutError as error:
            raise (PoolClosed() if self._closed else error) from error
        if self._closed:
            connection.drop()
            raise PoolClosed
        return connection

    async def _connect(self, place: Route, until: float) -> Connection:
        proxy = place.proxy
        if proxy is None:
            addresses = await self.resolve(place.host, place.name)
            return self._start(place, await self._connect_to_any(addresses, place.port, place, until))
        target = place.name
        if proxy.scheme == "socks5":
            target = (await look_up_addresses(place.name))[0]
        try:
            addresses = await look_up_addresses(proxy.name)
        except (OSError, UnicodeError) as error:
            raise ProxyNotFound(f"the name {proxy.name} does not resolve: {error}") from error
        dialogue = await self._connect_to_any(addresses, proxy.port, place, until)
        try:
            if proxy.is_socks:
                await connect_socks(dialogue, proxy, target, place.port)
            elif place.secure:
                host = place.host if place.host.endswith(f":{place.port}") else f"{place.host}:{place.port}"
                await connect_http(dialogue, proxy, host)
            if place.secure:
                dialogue = await self._secure(dialogue, place)
        except BaseException:
            dialogue.transport.abort()
            raise
        return self._start(place, dialogue)

    async def _connect_to_any(self, addresses: list[str], port: int, place: Route, until: float) -> HandshakeProtocol:
        error: OSError = ConnectionError(HUNG_UP)
        for number, address in enumerate(addresses):
            try:
                # Each has its share of the time that is left, so that a dead one leaves some to the others.
                async with asyncio.timeout((until - monotonic()) / (len(addresses) - number)):
                    return await self._connect_to(address, port, place)
            except ssl.SSLCertVerificationError:
                raise
            except OSError as failure:
                _log.debug("%s: no connection to %s port %d: %r", place.host, address, port, failure)
                error = failure
        raise error

    async def _connect_to(self, address: str, port: int, place: Route) -> HandshakeProtocol:
        loop = asyncio.get_running_loop()
        secure, name = (place.secure, place.name) if place.proxy is None else (place.proxy.is_secure, place.proxy.name)

        async def connect() -> HandshakeProtocol:
            if not secure:
                return (await loop.create_connection(HandshakeProtocol, address, port))[1]
            context = self._context(place) if place.proxy is None else self._tls.http1
            made = await loop.create_connection(
                HandshakeProtocol,
                address,
                port,
                ssl=context,
                server_hostname=name,
                ssl_shutdown_timeout=_GOODBYE_SECONDS,
            )
            return made[1]

        try:
            return await connect()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS or not self._resting:
                raise
        _log.debug("Out of file descriptors: closing %d idle connections", len(self._resting))
        for connection in tuple(self._resting):
            connection.drop()
        await asyncio.sleep(0)  # they are closed in the next round
        return await connect()

    async def _secure(self, dialogue: HandshakeProtocol, place: Route) -> HandshakeProtocol:
        """TLS with the host, over a tunnel."""
        if dialogue.received:
            raise ConnectionError("the host speaks before it is asked")
        inner = HandshakeProtocol()
        transport = await asyncio.get_running_loop().start_tls(
            dialogue.transport,
            inner,
            self._context(place),
            server_hostname=place.name,
            ssl_shutdown_timeout=_GOODBYE_SECONDS,
        )
        if transport is None:
            raise ConnectionError(HUNG_UP)
        inner.connection_made(transport)
        return inner

    def _context(self, place: Route) -> ssl.SSLContext:
        return self._tls.http2 if self._http2 and not self._speaks_http1.get(place.key) else self._tls.http1

    def _start(self, place: Route, dialogue: HandshakeProtocol) -> Connection:
        """Hand the transport over to the protocol that was agreed on, with what came meanwhile."""
        transport = dialogue.transport
        if dialogue.is_lost:
            raise ConnectionError(HUNG_UP)
        loop = asyncio.get_running_loop()
        secured = transport.get_extra_info("ssl_object") if place.secure else None
        connection: Connection
        if secured is not None and secured.selected_alpn_protocol() == "h2":
            connection = Http2Connection(self, place.key, self._timeouts, loop)
            self._shared.setdefault(place.key, {})[connection] = None
        else:
            if secured is not None and self._http2 and place.key not in self._speaks_http1:
                self.remember_http1(place, is_required=False)
            kind = SecureConnection if place.secure else PlainConnection
            connection = kind(self, place.key, self._timeouts, loop, absolute=place.is_absolute)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if dialogue.received:
            connection.data_received(bytes(dialogue.received))
        return connection

    def opened(self, connection: Connection) -> None:
        self._open.add(connection)

    def keep(self, connection: Connection) -> None:
        self._idle.setdefault(connection.key, {})[connection] = None
        self._resting[connection] = None
        if len(self._resting) > self._most_resting:
            next(iter(self._resting)).drop()

    def forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._resting:
            self._wake(connection)
        if isinstance(connection, Http2Connection) and (shared := self._shared.get(connection.key)) is not None:
            shared.pop(connection, None)
            if not shared:
                del self._shared[connection.key]

    def _wake(self, connection: Connection) -> None:
        del self._resting[connection]
        idle = self._idle[connection.key]
        del idle[connection]
        if not idle:
            del self._idle[connection.key]

    def close(self) -> None:
        """Break off what is under way, and make no more."""
        self._closed = True
        for patience in self._patience:
            if not patience.expired():
                patience.reschedule(0)
        for connection in tuple(self._open):
            connection.fail(PoolClosed())


def _most_idle() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_IDLE if limit == resource.RLIM_INFINITY else min(max(limit // 2, 1), _MOST_IDLE)

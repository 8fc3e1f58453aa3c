"""The connection pool: open connections to hosts, directly or through a proxy, with or without TLS, and reuse them.

An HTTP/1 connection serves one exchange at a time, an HTTP/2 connection many, so a host with HTTP/2 usually has one.
The TLS handshake (ALPN) decides between them. During the first handshake with a host, other fetches from it wait for
its result.

Each connection has one timer for as long as it is open (:class:`~uttu.fetch.exchange.ConnectionTimer`), so an exchange
does not start one.

Idle connections use file descriptors. If they use more than half of the process's limit, the least recently used one is
closed. If a new connection finds no free descriptor, all idle connections are closed.
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
from uttu.fetch.exchange import CLOSED_BY_PEER, LargeBodies, PoolClosed, Timeouts
from uttu.fetch.http1 import Http1Connection, PlainConnection, SecureConnection
from uttu.fetch.http2 import Http2Connection
from uttu.fetch.proxies import HandshakeProtocol, Proxy, connect_http, connect_socks
from uttu.fetch.resolver import look_up_addresses, resolve_unguarded
from uttu.fetch.tls import TlsContexts

Connection = Http1Connection | Http2Connection

_MAX_IDLE: Final = 10_000
_MAX_HTTP1_HOSTS: Final = 20_000
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
# How long to wait for the host's close_notify.
_TLS_SHUTDOWN_SECONDS: Final = 1.0
_log = logging.getLogger("uttu.fetch")


class Route:
    """How to reach the host of a URL.

    ``host`` has the port, as in the URL; ``name`` is a name, or an IP address without brackets. Connections with the
    same ``key`` are interchangeable. ``is_absolute``: requests go to an HTTP proxy, with their whole URL.
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
    """All connections of a fetcher. They go only to addresses that ``resolve`` returns."""

    def __init__(self, timeouts: Timeouts, tls: TlsContexts, *, http2: bool) -> None:
        self.resolve: Resolve = resolve_unguarded
        self.large_bodies = LargeBodies()
        self._timeouts = timeouts
        self._tls = tls
        self._http2 = http2
        self._open: set[Connection] = set()
        self._idle: dict[str, dict[Connection, None]] = {}
        self._shared: dict[str, dict[Http2Connection, None]] = {}  # HTTP/2 connections, idle or not
        self._idle_order: dict[Connection, None] = {}  # all idle connections, the least recently used first
        self._max_idle = _get_max_idle()
        self._running_timeouts: set[asyncio.Timeout] = set()
        self._handshakes: dict[str, asyncio.Future[None]] = {}  # running handshakes that may choose HTTP/2
        self._http1_hosts: dict[str, bool] = {}  # hosts without HTTP/2, by key; True: do not offer it
        self._closed = False

    def find_open(self, key: str) -> Connection | None:
        """An open connection with room for a request, the most recently used first. None without one."""
        if self._shared and (shared := self._shared.get(key)) is not None:
            for http2_connection in tuple(shared):
                if http2_connection in self._idle_order:
                    self._remove_idle(http2_connection)
                    if not http2_connection.is_usable:
                        http2_connection.abort()
                        continue
                if http2_connection.has_room:
                    return http2_connection
        while idle := self._idle.get(key):
            connection = next(reversed(idle))
            self._remove_idle(connection)
            if connection.is_usable:
                return connection
        return None

    async def acquire(self, route: Route) -> Connection:
        """An open connection, or else a new one. Raises what :meth:`connect` raises."""
        key = route.key
        connection = self.find_open(key)
        if connection is not None:
            return connection
        if not (route.secure and self._http2) or key in self._http1_hosts:
            return await self.connect(route)
        while (handshake := self._handshakes.get(key)) is not None:
            await asyncio.wait((handshake,))
            handshake.result()
            connection = self.find_open(key)
            if connection is not None:
                return connection
            if key in self._http1_hosts:
                return await self.connect(route)
        handshake = self._handshakes[key] = asyncio.get_running_loop().create_future()
        try:
            connection = await self.connect(route)
        except Exception as error:
            handshake.set_exception(error)
            handshake.exception()  # mark as retrieved, since there may be no other fetch that waits
            raise
        finally:
            del self._handshakes[key]
            if not handshake.done():
                handshake.set_result(None)
        return connection

    def remember_http1(self, route: Route, *, is_required: bool) -> None:
        """Remember that a host did not choose HTTP/2, or (``is_required``) that it asked for HTTP/1.1."""
        if len(self._http1_hosts) >= _MAX_HTTP1_HOSTS:
            self._http1_hosts.clear()
        self._http1_hosts[route.key] = is_required
        if is_required:
            _log.debug("%s requires HTTP/1.1 instead of HTTP/2", route.host)
        for connection in tuple(self._shared.get(route.key, ())):
            connection.retire()

    async def connect(self, route: Route) -> Connection:
        """Open a new connection.

        :raises TimeoutError: the connect timeout expired.
        :raises ssl.SSLError: the TLS handshake failed, or the certificate is not accepted.
        :raises OSError: the host refuses the connection, or its name does not resolve (:class:`socket.gaierror`).
        :raises ProxyRefused, ProxyNotFound: the proxy refuses the connection, or its name does not resolve.
        :raises UnicodeError: the name cannot be encoded for DNS.
        :raises PoolClosed: the pool was closed meanwhile.
        """
        seconds = min(self._timeouts.connect, self._timeouts.total)
        deadline = monotonic() + seconds
        try:
            async with asyncio.timeout(seconds) as timeout:
                self._running_timeouts.add(timeout)
                try:
                    connection = await self._connect(route, deadline)
                finally:
                    self._running_timeouts.discard(timeout)
        except TimeoutError as error:
            raise (PoolClosed() if self._closed else error) from error
        if self._closed:
            connection.abort()
            raise PoolClosed
        return connection

    async def _connect(self, route: Route, deadline: float) -> Connection:
        proxy = route.proxy
        if proxy is None:
            addresses = await self.resolve(route.host, route.name)
            return self._create_connection(route, await self._connect_to_any(addresses, route.port, route, deadline))
        target = route.name
        if proxy.scheme == "socks5":
            target = (await look_up_addresses(route.name))[0]
        try:
            addresses = await look_up_addresses(proxy.name)
        except (OSError, UnicodeError) as error:
            raise ProxyNotFound(f"cannot resolve the proxy {proxy.name}: {error}") from error
        protocol = await self._connect_to_any(addresses, proxy.port, route, deadline)
        try:
            if proxy.is_socks:
                await connect_socks(protocol, proxy, target, route.port)
            elif route.secure:
                host = route.host if route.host.endswith(f":{route.port}") else f"{route.host}:{route.port}"
                await connect_http(protocol, proxy, host)
            if route.secure:
                protocol = await self._start_tls(protocol, route)
        except BaseException:
            protocol.transport.abort()
            raise
        return self._create_connection(route, protocol)

    async def _connect_to_any(
        self, addresses: list[str], port: int, route: Route, deadline: float
    ) -> HandshakeProtocol:
        last_error: OSError = ConnectionError(CLOSED_BY_PEER)
        for number, address in enumerate(addresses):
            try:
                # Each address gets an equal share of the remaining time, so that a dead one leaves some to the others.
                async with asyncio.timeout((deadline - monotonic()) / (len(addresses) - number)):
                    return await self._connect_to(address, port, route)
            except ssl.SSLCertVerificationError:
                raise
            except OSError as error:
                _log.debug("%s: no connection to %s port %d: %r", route.host, address, port, error)
                last_error = error
        raise last_error

    async def _connect_to(self, address: str, port: int, route: Route) -> HandshakeProtocol:
        loop = asyncio.get_running_loop()
        secure, name = (route.secure, route.name) if route.proxy is None else (route.proxy.is_secure, route.proxy.name)

        async def connect() -> HandshakeProtocol:
            if not secure:
                return (await loop.create_connection(HandshakeProtocol, address, port))[1]
            context = self._context(route) if route.proxy is None else self._tls.http1
            made = await loop.create_connection(
                HandshakeProtocol,
                address,
                port,
                ssl=context,
                server_hostname=name,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_SECONDS,
            )
            return made[1]

        try:
            return await connect()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS or not self._idle_order:
                raise
        _log.debug("Out of file descriptors: closing %d idle connections", len(self._idle_order))
        for connection in tuple(self._idle_order):
            connection.abort()
        await asyncio.sleep(0)  # aborted transports close in the next iteration of the event loop
        return await connect()

    async def _start_tls(self, protocol: HandshakeProtocol, route: Route) -> HandshakeProtocol:
        """Do the TLS handshake with the host, through a tunnel."""
        if protocol.received:
            raise ConnectionError("data before the TLS handshake")
        inner = HandshakeProtocol()
        transport = await asyncio.get_running_loop().start_tls(
            protocol.transport,
            inner,
            self._context(route),
            server_hostname=route.name,
            ssl_shutdown_timeout=_TLS_SHUTDOWN_SECONDS,
        )
        if transport is None:
            raise ConnectionError(CLOSED_BY_PEER)
        inner.connection_made(transport)
        return inner

    def _context(self, route: Route) -> ssl.SSLContext:
        return self._tls.http2 if self._http2 and not self._http1_hosts.get(route.key) else self._tls.http1

    def _create_connection(self, route: Route, protocol: HandshakeProtocol) -> Connection:
        """Hand the transport, and data that has arrived, over to a connection of the negotiated protocol."""
        transport = protocol.transport
        if protocol.is_lost:
            raise ConnectionError(CLOSED_BY_PEER)
        loop = asyncio.get_running_loop()
        tls_object = transport.get_extra_info("ssl_object") if route.secure else None
        connection: Connection
        if tls_object is not None and tls_object.selected_alpn_protocol() == "h2":
            connection = Http2Connection(self, route.key, self._timeouts, loop)
            self._shared.setdefault(route.key, {})[connection] = None
        else:
            if tls_object is not None and self._http2 and route.key not in self._http1_hosts:
                self.remember_http1(route, is_required=False)
            kind = SecureConnection if route.secure else PlainConnection
            connection = kind(self, route.key, self._timeouts, loop, absolute=route.is_absolute)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if protocol.received:
            connection.data_received(bytes(protocol.received))
        return connection

    def on_open(self, connection: Connection) -> None:
        self._open.add(connection)

    def on_idle(self, connection: Connection) -> None:
        self._idle.setdefault(connection.key, {})[connection] = None
        self._idle_order[connection] = None
        if len(self._idle_order) > self._max_idle:
            next(iter(self._idle_order)).abort()

    def on_close(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle_order:
            self._remove_idle(connection)
        if isinstance(connection, Http2Connection) and (shared := self._shared.get(connection.key)) is not None:
            shared.pop(connection, None)
            if not shared:
                del self._shared[connection.key]

    def _remove_idle(self, connection: Connection) -> None:
        del self._idle_order[connection]
        idle = self._idle[connection.key]
        del idle[connection]
        if not idle:
            del self._idle[connection.key]

    def close(self) -> None:
        """Abort all exchanges and connection attempts, and refuse new ones."""
        self._closed = True
        for timeout in self._running_timeouts:
            if not timeout.expired():
                timeout.reschedule(0)
        for connection in tuple(self._open):
            connection.fail(PoolClosed())


def _get_max_idle() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MAX_IDLE if limit == resource.RLIM_INFINITY else min(max(limit // 2, 1), _MAX_IDLE)

"""The server under the dashboard: uvicorn, with limits for clients that are slow, and an end that waits for nobody.

A connection has ``_HEAD_SECONDS`` to send the head of a request. A client that does not read its response is dropped by
the kernel after ``_UNREAD_MILLISECONDS``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from typing import Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from uttu.api.app import close_streams, create_app
from uttu.api.settings import PORT, DashboardConfig
from uttu.clients.addresses import is_port_free
from uttu.errors import ConfigError, UsageError

_HEAD_SECONDS: Final = 10.0
_UNREAD_MILLISECONDS: Final = 20_000
_LARGEST_HEAD: Final = 32 * 1024
_MOST_CONNECTIONS: Final = 500
_END_SECONDS: Final = 2
_PORTS: Final = 50
_log = logging.getLogger("uttu.api")


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol with a time limit for the head of the first request, and for each one after it."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()
        elif self._deadline is None and self._is_idle:
            # The next request on this connection has begun, but its head is not complete.
            self._deadline = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self._is_idle:
            self.transport.abort()

    @property
    def _is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete


class DashboardServer(uvicorn.Server):
    """A server that ends its streams before it waits for its connections."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self._dashboard = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await close_streams(self._dashboard)
        await super().shutdown(sockets)


def bind(config: DashboardConfig) -> socket.socket:
    """Open the socket that the dashboard listens on.

    :raises UsageError: the address can't be used.
    """
    settings = config.settings
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            settings.host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"The dashboard can't listen on {settings.host}: {error.strerror}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError, AttributeError):
            # Connections inherit it.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MILLISECONDS)
        listening.bind(place)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            hint = "Is a dashboard open already? Give another port with --port"
            raise UsageError(f"Port {settings.port} is in use. {hint}") from error
        raise UsageError(f"The dashboard can't listen on {settings.host}: {error.strerror}") from error
    return listening


def choose_port(config: DashboardConfig) -> DashboardConfig:
    """Take the next free port if the default one is in use, as by the dashboard of another folder."""
    settings = config.settings
    if settings.port != PORT or is_port_free(PORT, settings.host):
        return config
    port = next((port for port in range(PORT + 1, PORT + _PORTS) if is_port_free(port, settings.host)), PORT)
    return msgspec.structs.replace(config, settings=msgspec.structs.replace(settings, port=port))


def make_server(config: DashboardConfig) -> DashboardServer:
    """Make the server.

    :raises UsageError: others could reach it, and it has neither users nor tokens.
    :raises ConfigError: the certificate or the users can't be read.
    """
    settings = config.settings
    app = create_app(config)
    tls: dict[str, Any] = {}
    if settings.tls_cert:
        cert, key = (config.folder / name for name in (settings.tls_cert, settings.tls_key))
        for file in (cert, key):
            if not file.is_file():
                raise ConfigError(f"dashboard: There is no file {file}")
        tls = {"ssl_certfile": str(cert), "ssl_keyfile": str(key)}
    made = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=LimitedProtocol,
        ws="none",
        loop="auto",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies) or None,
        root_path=settings.root_path,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_END_SECONDS,
        h11_max_incomplete_event_size=_LARGEST_HEAD,
        **tls,
    )
    try:
        made.load()
    except OSError as error:
        raise ConfigError(f"dashboard: The certificate can't be used: {error}") from error
    return DashboardServer(made, app)


def serve(config: DashboardConfig) -> None:
    """Run the dashboard until a signal ends it.

    :raises UsageError: it may not or can't listen there.
    :raises ConfigError: the certificate or the users can't be read.
    """
    server = make_server(config)
    listening = bind(config)
    _log.info("The dashboard listens at %s", config.settings.url)
    with listening:
        server.run(sockets=[listening])

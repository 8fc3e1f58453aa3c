"""Serve a site on the current event loop."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from uttu.testing.site.app import SiteApp
from uttu.testing.site.log import Log, Record
from uttu.testing.site.model import Layout, Site
from uttu.testing.site.protocol import Connection, Hub

_BACKLOG: Final = 1024
_PORT_TRIES: Final = 50


class Running:
    """A site that is being served."""

    def __init__(self, site: Site, port: int, log: Log) -> None:
        self.site = site
        self.port = port
        self.urls = site.urls(port)
        self._log = log

    @property
    def url(self) -> str:
        """The root of host 0."""
        return self.urls[0]

    @property
    def log(self) -> list[Record]:
        """The requests so far. The list grows while the site runs."""
        return self._log.records

    async def until(self, condition: Callable[[list[Record]], bool]) -> None:
        """Wait until ``condition`` is true for the log. It is checked after every change. Needs ``keep``."""
        await self._log.until(condition)

    def flush(self) -> None:
        """Write all records to the log file, if there is one."""
        self._log.flush()


@asynccontextmanager
async def serve(site: Site | None = None, *, log: Path | None = None, keep: bool = True) -> AsyncIterator[Running]:
    """Serve ``site`` on the running loop until the block ends. Then every connection is dropped.

    :param log: also write the records to this file.
    :param keep: keep the records in memory.
    :raises OSError: the port is in use.
    """
    site = site or Site()
    context = _tls(site)
    sockets = listen(site)
    port: int = sockets[0].getsockname()[1]
    book = Log(log, keep=keep)
    hub = Hub(SiteApp(Layout.at(site, port)), book)
    loop = asyncio.get_running_loop()
    servers = [
        await loop.create_server(partial(Connection, hub, host, address), sock=sock, ssl=context, backlog=_BACKLOG)
        for host, (address, sock) in enumerate(zip(site.addresses, sockets, strict=True))
    ]
    try:
        yield Running(site, port, book)
    finally:
        for server in servers:
            server.close()
        await hub.close()
        # Some loops wait for clients in the middle of a TLS handshake. Limit that.
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                for server in servers:
                    await server.wait_closed()
        book.close()


def listen(site: Site) -> list[socket.socket]:
    """A listening socket for every host, all on the same port.

    :raises OSError: the port is in use, or no port is free on all hosts.
    """
    for _ in range(_PORT_TRIES):
        sockets: list[socket.socket] = []
        port = site.port
        try:
            for address in site.addresses:
                sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                sockets.append(sock)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((address, port))
                # Listen at once: another process can still take a port that is bound but not listening.
                sock.listen(_BACKLOG)
                port = sock.getsockname()[1]
        except OSError as error:
            for sock in sockets:
                sock.close()
            # The port was free on host 0, but is in use on another host. Try another one.
            if site.port or error.errno != errno.EADDRINUSE:
                raise
        else:
            return sockets
    raise OSError(errno.EADDRINUSE, f"no port is free on all {site.hosts} hosts from {site.base}")


def _tls(site: Site) -> ssl.SSLContext | None:
    if not site.certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.certificate, site.key or None)
    context.set_alpn_protocols(["http/1.1"])
    return context

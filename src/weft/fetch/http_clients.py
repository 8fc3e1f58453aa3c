"""The HTTP library's clients: how they are set up, and one for each proxy in use.

The library binds a proxy to a client and its connection pool. Setting a client up takes about
10 ms, most of it for the system's certificates, so the clients of the last proxies used are kept.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyreqwest.client import ClientBuilder
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.proxy import ProxyBuilder

from weft.errors import ConfigError
from weft.fetch.http1 import HEAD_LIMIT
from weft.fetch.http_errors import Timeouts
from weft.fetch.plain_connections import IDLE_SECONDS

if TYPE_CHECKING:
    from pyreqwest.client import Client

_SCHEMES: Final = ("http://", "https://", "socks5://", "socks5h://")
_KEPT: Final = 64
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class Clients:
    """Clients that differ in nothing but their proxy, made when they are needed: each reads all certificates.

    What the user has set is tried at once.

    :raises ConfigError: ``headers``, ``ca_file`` or ``proxy`` are not usable.
    """

    def __init__(
        self,
        *,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        http2: bool,
        verify: bool,
        ca_file: str | Path,
        proxy: str,
    ) -> None:
        try:
            ClientBuilder().default_headers(headers)
        except ValueError as error:
            raise ConfigError(f"user_agent or headers can't be sent: {error}") from error
        self._headers = headers
        self._timeouts = timeouts
        self._http2 = http2
        self._verify = verify
        self._roots = _certificates(ca_file) if ca_file else []
        self._made: OrderedDict[str, Client] = OrderedDict()
        self._proxy = proxy
        self._closed = False
        if proxy or ca_file:
            try:
                self.through("")
            except (ValueError, PyreqwestError) as error:
                setting = f"proxy={_without_password(proxy)}" if proxy else f"ca_file={ca_file}"
                raise ConfigError(f"{setting} can't be used: {error}") from error

    def through(self, proxy: str) -> Client | None:
        """The client for ``proxy``; for "" the one for requests that name none. None once closed.

        :raises ValueError: it is not the URL of a proxy.
        """
        if self._closed:
            return None
        proxy = proxy or self._proxy
        client = self._made.get(proxy)
        if client is not None:
            self._made.move_to_end(proxy)
            return client
        client = self._made[proxy] = self._build(proxy)
        if len(self._made) > _KEPT:
            # Let go rather than closed, which would break off the fetches it still carries: its
            # connections close with the last of them.
            self._made.popitem(last=False)
        return client

    async def close(self) -> None:
        self._closed = True
        clients = list(self._made.values())
        # A closed client breaks off its fetches, but its idle connections close only when it is let go.
        self._made.clear()
        while clients:
            await clients.pop().close()

    def _build(self, proxy: str) -> Client:
        total, connect, read = (timedelta(seconds=seconds) for seconds in self._timeouts)
        builder = (
            ClientBuilder()
            .no_proxy()
            .follow_redirects(False)
            .referer(False)
            .deflate(False)  # see weft.fetch.inflate
            .default_headers(self._headers)
            .timeout(total)
            .connect_timeout(connect)
            .read_timeout(read)
            .pool_idle_timeout(timedelta(seconds=IDLE_SECONDS))
            .danger_accept_invalid_certs(not self._verify)
            # What browsers forgive, a crawler meets.
            .http1_allow_obsolete_multiline_headers_in_responses(True)
            .http1_ignore_invalid_headers_in_responses(True)
            .http1_allow_spaces_after_header_name_in_responses(True)
        )
        builder = builder.http2(True).http2_max_header_list_size(HEAD_LIMIT) if self._http2 else builder.http1_only()
        for root in self._roots:
            builder = builder.add_root_certificate_pem(root)
        if proxy:
            if not proxy.startswith(_SCHEMES):
                raise ValueError(f"the URL of a proxy begins with one of {', '.join(_SCHEMES)}")
            builder = builder.proxy(ProxyBuilder.all(proxy))
        return builder.build()


def _certificates(file: str | Path) -> list[bytes]:
    try:
        found: list[bytes] = _CERTIFICATE.findall(Path(file).read_bytes())
    except OSError as error:
        raise ConfigError(f"ca_file={file} can't be read: {error.strerror}") from error
    if not found:
        raise ConfigError(f"ca_file={file} holds no certificate; it must be in PEM format")
    return found


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", url)

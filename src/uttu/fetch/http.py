"""Fetch over http and https: one request, one response.

    request ─► _prepare: route and header lines ─► ConnectionPool: a connection ─► exchange ─► cookies ─► decoding

All requests take this path: plain or TLS, HTTP/1.1 or HTTP/2, direct or through a proxy. :mod:`uttu.fetch.pool` chooses
the connection; requests, responses, limits and errors are the same for all. Driver errors become subclasses of
:class:`FetchError` here. ADR 11 says why this is not an HTTP library.

Over plain http the fetcher asks only for gzip and deflate, as browsers do, because some middleboxes break codings that
they do not know. It decodes br and zstd whenever a host sends them.

A connection that the host has closed is not used. If the host closes it while a request is being sent, the fetch fails,
since the crawl decides when a host is asked again. The fetcher repeats a request only if the host reports over HTTP/2
that it did not process it, up to ``_MOST_TRIES`` tries in total.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import socket
import ssl
import weakref
from collections.abc import Mapping
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from uttu.clients.addresses import mask_logins
from uttu.errors import BadResponse, ConfigError, FetchError, NetworkError, PrivateHost, TLSError, TooSlow, UnknownHost
from uttu.fetch import proxies
from uttu.fetch.base import Resolve
from uttu.fetch.cookies import CookieJar, cookie_header
from uttu.fetch.decoding import BodyDecoder
from uttu.fetch.exchange import (
    ConnectionBroken,
    OutgoingRequest,
    PoolClosed,
    RawResponse,
    RequestUnprocessed,
    Timeouts,
    describe_timeout,
    drop_reservation,
    make_too_large,
)
from uttu.fetch.http1_parser import BodyLimitExceeded, InvalidResponse
from uttu.fetch.pool import Connection, ConnectionPool, ProxyNotFound, Route
from uttu.fetch.tls import TlsContexts, explain_tls_error
from uttu.model import Request, Response

if TYPE_CHECKING:
    from pathlib import Path

_DEFAULT_HEADERS: Final = {
    "accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "accept-encoding": "gzip, deflate, br, zstd",
}
_PLAIN_CODINGS: Final = "gzip, deflate"
# The fetcher sets these headers itself, since they mark the end of the request.
_FRAMING: Final = frozenset({"content-length", "transfer-encoding"})
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_MOST_TRIES: Final = 3
_log = logging.getLogger("uttu.fetch")
_NOT_CANONICAL: Final = "it is no canonical web address"

# A canonical URL up to its path. Groups: scheme, login, host with port, IPv6 address, name, port.
_origin: Final = re.compile(
    r"(https?)://(?:([^/?#@\s]*)@)?((?:\[([0-9a-f:.]+)\]|([^/?#@:\[\]\\\s]+))"
    r"(?::([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?)"
).fullmatch
_target: Final = re.compile(r"/[!-~]*").fullmatch
_name: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_value: Final = re.compile(r"[\t !-~]*").fullmatch
# The value of a Cookie header. It is sent as UTF-8, as most hosts set cookies.
_text: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*").fullmatch


class HttpFetcher:
    """A :class:`~uttu.fetch.base.Fetcher` for http and https.

    - With ``cookies``, all requests share one jar. A request's own cookies are added to the jar's and replace those of
      the same name. If the request has a ``Cookie`` header, only that is sent.
    - ``proxy`` is the default for requests without a proxy. Its URL is http, https, socks5 (the fetcher resolves host
      names) or socks5h (the proxy does), with user and password. Proxy variables of the environment are ignored.
    - A decoded body loses its ``Content-Encoding`` and ``Content-Length`` headers.
    - ``received`` is the time when the response began to arrive.

    :raises ConfigError: ``user_agent``, ``headers``, ``ca_file`` or ``proxy`` is not usable.
    """

    def __init__(
        self,
        *,
        user_agent: str,
        timeout: float = 30.0,
        connect_timeout: float = 10.0,
        read_timeout: float = 15.0,
        max_body: int = 16 * 1024 * 1024,
        cookies: bool = True,
        http2: bool = True,
        verify: bool = True,
        ca_file: str | Path = "",
        proxy: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._timeouts = Timeouts(timeout, connect_timeout, read_timeout)
        self._max_body = max_body
        self._jar = CookieJar() if cookies else None
        self._proxy = proxy
        own = {"user-agent": user_agent} | {name.lower(): value for name, value in (headers or {}).items()}
        if wrong := _find_invalid_header(own):
            raise ConfigError(f"user_agent or headers can't be sent: {wrong}")
        try:
            if proxy:
                proxies.parse(proxy)
        except ValueError as error:
            raise ConfigError(f"proxy={_without_password(proxy)} can't be used: {error}") from error
        # Indexed by whether the connection uses TLS: plain first.
        self._headers = (_DEFAULT_HEADERS | {"accept-encoding": _PLAIN_CODINGS} | own, _DEFAULT_HEADERS | own)
        self._lines = tuple(map(_format_headers, self._headers))
        self._connections = ConnectionPool(self._timeouts, TlsContexts(verify=verify, ca_file=ca_file), http2=http2)
        self._bodies = BodyDecoder(max_body, self._connections.large_bodies)
        self._closed = False

    def use_resolver(self, resolve: Resolve) -> None:
        """See :class:`~uttu.fetch.base.ResolverAware`."""
        self._connections.resolve = resolve

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        started = monotonic()
        url = request.url
        if self._closed:
            raise FetchError(f"{url} can't be fetched: the fetcher is closed")
        try:
            place, outgoing = self._prepare(request, first)
        except ValueError as error:
            raise FetchError(f"{url} can't be asked for: {error}") from error
        answer = await self._exchange(url, place, outgoing, started)
        if self._jar is not None:
            self._jar.keep(answer.headers, url)
        if answer.body and answer.headers.get("content-encoding") is not None:
            try:
                await self._bodies.decode(url, answer, first=first)
            except BaseException:
                drop_reservation(answer.reservation)
                raise
        response = Response(
            request=request,
            url=url,
            status=answer.status,
            headers=answer.headers,
            body=answer.body,
            received=answer.received,
            elapsed=monotonic() - started,
            version=answer.version,
            cut=answer.cut,
        )
        if answer.reservation is not None:  # the body is large
            weakref.finalize(response, drop_reservation, answer.reservation).atexit = False
        return response

    async def close(self) -> None:
        """Abort running fetches and refuse new ones."""
        self._closed = True
        self._connections.close()

    def _prepare(self, request: Request, first: int | None) -> tuple[Route, OutgoingRequest]:
        """The route and the request in the form that connections send.

        :raises ValueError: the URL, the method, a header or a cookie is not valid.
        """
        url = request.url
        path = url.find("/", 8)  # after https://
        place, target = _parse_route(url[:path], request.proxy or self._proxy), url[path:]
        if path < 0 or not _target(target):
            raise ValueError(_NOT_CANONICAL)
        secure = place.secure
        usual = headers = self._headers[secure]
        lines = self._lines[secure]
        if not self._is_usual(request, place):
            if not _name(request.method):
                raise ValueError(f"{request.method!r} is no method")
            extra = self._extra_headers(request, usual, place)
            if extra:
                headers = {**usual, **extra}
                lines = _format_headers(headers)
        limit = self._max_body if first is None else first
        outgoing = OutgoingRequest(
            request.method,
            "https" if secure else "http",
            place.host,
            target,
            headers,
            lines,
            request.body,
            limit,
            first is not None,
        )
        return place, outgoing

    def _is_usual(self, request: Request, place: Route) -> bool:
        """Whether the default headers are all there is to send, as for most pages. False if in doubt."""
        return (
            request.method == "GET"
            and not (request.headers or request.cookies or request.body)
            and not (place.login or place.is_absolute)
            and (self._jar is None or self._jar.is_empty)
            and not request.carried
        )

    def _extra_headers(self, request: Request, usual: Mapping[str, str], place: Route) -> dict[str, str]:
        """The headers of this request beyond the default ones.

        :raises ValueError: a header or a cookie is not valid.
        """
        extra = {name.lower(): value for name, value in request.headers.items()} if request.headers else {}
        if extra and (wrong := _find_invalid_header(extra)):
            raise ValueError(wrong)
        if "cookie" not in extra and (request.cookies or "cookie" not in usual):
            cookies = cookie_header(self._jar, request)
            if cookies:
                if not _text(cookies):
                    raise ValueError("a cookie has a value that can't be sent")
                extra["cookie"] = cookies
        if place.login and "authorization" not in extra:
            user, _, password = place.login.partition(":")
            pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
            extra["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        if request.body or request.method in _WITH_BODY:
            extra["content-length"] = str(len(request.body))
        if place.is_absolute and place.proxy is not None and place.proxy.authorization:
            extra["proxy-authorization"] = place.proxy.authorization
        return extra

    async def _exchange(self, url: str, place: Route, outgoing: OutgoingRequest, started: float) -> RawResponse:
        host = place.host
        via = f" (through the proxy {place.proxy.host})" if place.proxy is not None else ""
        tries = 0
        while True:
            tries += 1
            connection = self._connections.kept(place.key) or await self._connect(url, via, place)
            try:
                return await connection.exchange(outgoing, started)
            except RequestUnprocessed as error:
                if error.needs_http1:
                    self._connections.remember_http1(place, is_required=True)
                _log.debug("%s%s: not processed by %s (try %d): %s", mask_logins(url), via, host, tries, error)
                if tries == _MOST_TRIES:
                    raise NetworkError(f"{url}{via}: {host} hung up or broke the connection: {error}") from error
            except TimeoutError as error:
                raise TooSlow(f"{url}{via}: {describe_timeout(host, monotonic() - started, self._timeouts)}") from error
            except InvalidResponse as error:
                raise BadResponse(f"{url}{via}: {host} sent something that is not a valid response: {error}") from error
            except BodyLimitExceeded as error:
                raise make_too_large(url, self._max_body, str(error)) from error
            except ConnectionBroken as error:
                what = "hung up before the body was complete" if error.begun else "hung up or broke the connection"
                raise NetworkError(f"{url}{via}: {host} {what}: {_reason(error.cause)}") from error
            except PoolClosed as error:
                raise FetchError(f"{url}: the fetcher was closed during the fetch") from error

    async def _connect(self, url: str, via: str, place: Route) -> Connection:
        host, name = place.host, place.name
        try:
            return await self._connections.acquire(place)
        except TimeoutError as error:
            raise TooSlow(f"{url}{via}: {describe_timeout(host, None, self._timeouts)}") from error
        except (socket.gaierror, UnicodeError) as error:
            reason = error.strerror if isinstance(error, socket.gaierror) else error
            if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
                raise NetworkError(f"{url}{via}: the name {name} can't be looked up at the moment: {reason}") from error
            raise UnknownHost(f"{url}{via}: the name {name} does not resolve: {reason}") from error
        except ssl.SSLError as error:
            raise TLSError(f"{url}{via}: {explain_tls_error(error, host)}") from error
        except PrivateHost as error:
            raise PrivateHost(f"{url}: {error}") from error
        except ProxyNotFound as error:
            raise NetworkError(f"{url}{via}: {error}") from error
        except OSError as error:
            raise NetworkError(f"{url}{via}: {host} can't be reached: {_reason(error)}") from error
        except PoolClosed as error:
            raise FetchError(f"{url}: the fetcher was closed during the fetch") from error


@lru_cache(maxsize=4096)
def _parse_route(origin: str, proxy: str) -> Route:
    """The route to the host of a URL. ``origin`` is the URL up to its path.

    :raises ValueError: ``origin`` is not the beginning of a canonical URL, or ``proxy`` is not the URL of a proxy.
    """
    found = _origin(origin)
    if found is None:
        raise ValueError(_NOT_CANONICAL)
    scheme, login, host, address, name, port = found.groups()
    secure = scheme == "https"
    way = proxies.parse(proxy) if proxy else None
    return Route(secure, host, address or name, int(port or (443 if secure else 80)), way, login or "")


def _find_invalid_header(headers: Mapping[str, str]) -> str:
    """Describes the first invalid header; empty if all are valid."""
    for name, value in headers.items():
        if not _name(name):
            return f"{name!r} is no name of a header"
        if not _value(value):
            return f"the header {name} has a value that can't be sent: {value[:60]!r}"
        if name in _FRAMING:
            return f"the header {name} is sent as the body needs it"
    return ""


def _format_headers(headers: Mapping[str, str]) -> str:
    """Header lines for HTTP/1.1, with names capitalized as most clients do."""
    return "".join(f"{'-'.join(map(str.capitalize, name.split('-')))}: {value}\r\n" for name, value in headers.items())


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):  # its errno is one of OpenSSL's
        return (error.reason or str(error)).lower().replace("_", " ")
    return os.strerror(error.errno) if error.errno else str(error)


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", url)

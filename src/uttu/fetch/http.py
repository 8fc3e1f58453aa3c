"""Fetch over http and https: one request, one response.

    request ─► _prepare: route and header lines ─► ConnectionPool: a connection ─► exchange ─► cookies ─► decoding

All requests take this path: plain or TLS, HTTP/1.1 or HTTP/2, direct or through a proxy. :mod:`uttu.fetch.pool` chooses
the connection; requests, responses, limits and errors are the same for all. Driver errors become subclasses of
:class:`FetchError` here. ADR 11 says why this is not an HTTP library.

Over plain http the fetcher asks only for gzip and deflate, as browsers do, because some middleboxes break codings that
they do not know. It decodes br and zstd whenever a host sends them.

A connection that the host has closed is not used. If the host closes it while a request is being sent, the fetch fails,
since the crawl decides when a host is asked again. The fetcher repeats a request only if the host reports over HTTP/2
that it did not process it, up to ``_MAX_TRIES`` tries in total.
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

from uttu.clients.addresses import mask_logins, mask_password
from uttu.errors import BadResponse, ConfigError, FetchError, NetworkError, PrivateHost, TLSError, TooSlow, UnknownHost
from uttu.fetch import proxies
from uttu.fetch.base import Resolve
from uttu.fetch.cookies import CookieJar, build_cookie_header
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
# The fetcher sets these headers itself: they say where the body of the request ends.
_FRAMING: Final = frozenset({"content-length", "transfer-encoding"})
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_MAX_TRIES: Final = 3
_log = logging.getLogger("uttu.fetch")
_NOT_CANONICAL: Final = "not a canonical http or https URL"

# A canonical URL up to its path. Groups: scheme, login, host with port, IPv6 address, name, port.
_match_origin: Final = re.compile(
    r"(https?)://(?:([^/?#@\s]*)@)?((?:\[([0-9a-f:.]+)\]|([^/?#@:\[\]\\\s]+))"
    r"(?::([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?)"
).fullmatch
_is_target: Final = re.compile(r"/[!-~]*").fullmatch
_is_header_name: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_is_header_value: Final = re.compile(r"[\t !-~]*").fullmatch
# The value of a Cookie header. It is sent as UTF-8, as most hosts set cookies.
_is_cookie_value: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*").fullmatch


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
        configured = {"user-agent": user_agent} | {name.lower(): value for name, value in (headers or {}).items()}
        if reason := _explain_invalid_header(configured):
            raise ConfigError(f"Invalid user_agent or headers: {reason}")
        try:
            if proxy:
                proxies.parse_proxy(proxy)
        except ValueError as error:
            raise ConfigError(f"Invalid proxy={mask_password(proxy)}: {error}") from error
        # Indexed by whether the connection uses TLS: plain first.
        self._headers = (
            _DEFAULT_HEADERS | {"accept-encoding": _PLAIN_CODINGS} | configured,
            _DEFAULT_HEADERS | configured,
        )
        self._lines = tuple(map(_format_headers, self._headers))
        self._pool = ConnectionPool(self._timeouts, TlsContexts(verify=verify, ca_file=ca_file), http2=http2)
        self._decoder = BodyDecoder(max_body, self._pool.large_bodies)
        self._closed = False

    def use_resolver(self, resolve: Resolve) -> None:
        """See :class:`~uttu.fetch.base.ResolverAware`."""
        self._pool.resolve = resolve

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        started = monotonic()
        url = request.url
        if self._closed:
            raise FetchError(f"{url}: the fetcher is closed")
        try:
            route, outgoing = self._prepare(request, first)
        except ValueError as error:
            raise FetchError(f"{url}: invalid request: {error}") from error
        raw = await self._exchange(url, route, outgoing, started)
        if self._jar is not None:
            self._jar.store(raw.headers, url)
        if raw.body and raw.headers.get("content-encoding") is not None:
            try:
                await self._decoder.decode(url, raw, first=first)
            except BaseException:
                drop_reservation(raw.reservation)
                raise
        response = Response(
            request=request,
            url=url,
            status=raw.status,
            headers=raw.headers,
            body=raw.body,
            received=raw.received,
            elapsed=monotonic() - started,
            version=raw.version,
            cut=raw.cut,
        )
        if raw.reservation is not None:  # the body is large
            weakref.finalize(response, drop_reservation, raw.reservation).atexit = False
        return response

    async def close(self) -> None:
        """Abort running fetches and refuse new ones."""
        self._closed = True
        self._pool.close()

    def _prepare(self, request: Request, first: int | None) -> tuple[Route, OutgoingRequest]:
        """The route and the request in the form that connections send.

        :raises ValueError: the URL, the method, a header or a cookie is not valid.
        """
        url = request.url
        path = url.find("/", 8)  # after https://
        route, target = _parse_route(url[:path], request.proxy or self._proxy), url[path:]
        if path < 0 or not _is_target(target):
            raise ValueError(_NOT_CANONICAL)
        secure = route.secure
        defaults = headers = self._headers[secure]
        lines = self._lines[secure]
        if not self._uses_default_headers(request, route):
            if not _is_header_name(request.method):
                raise ValueError(f"{request.method!r} is not an HTTP method")
            extra = self._build_extra_headers(request, defaults, route)
            if extra:
                headers = {**defaults, **extra}
                lines = _format_headers(headers)
        limit = self._max_body if first is None else first
        outgoing = OutgoingRequest(
            request.method,
            "https" if secure else "http",
            route.host,
            target,
            headers,
            lines,
            request.body,
            limit,
            first is not None,
        )
        return route, outgoing

    def _uses_default_headers(self, request: Request, route: Route) -> bool:
        """Whether only the default headers are sent, as for most pages. Cheap to check; False if in doubt."""
        return (
            request.method == "GET"
            and not (request.headers or request.cookies or request.body)
            and not (route.login or route.is_absolute)
            and (self._jar is None or self._jar.is_empty)
            and not request.carried
        )

    def _build_extra_headers(self, request: Request, defaults: Mapping[str, str], route: Route) -> dict[str, str]:
        """The headers of this request beyond the default ones.

        :raises ValueError: a header or a cookie is not valid.
        """
        extra = {name.lower(): value for name, value in request.headers.items()} if request.headers else {}
        if extra and (reason := _explain_invalid_header(extra)):
            raise ValueError(reason)
        if "cookie" not in extra and (request.cookies or "cookie" not in defaults):
            cookies = build_cookie_header(self._jar, request)
            if cookies:
                if not _is_cookie_value(cookies):
                    raise ValueError("a cookie contains a control character")
                extra["cookie"] = cookies
        if route.login and "authorization" not in extra:
            user, _, password = route.login.partition(":")
            pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
            extra["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        if request.body or request.method in _WITH_BODY:
            extra["content-length"] = str(len(request.body))
        if route.is_absolute and route.proxy is not None and route.proxy.authorization:
            extra["proxy-authorization"] = route.proxy.authorization
        return extra

    async def _exchange(self, url: str, route: Route, outgoing: OutgoingRequest, started: float) -> RawResponse:
        host = route.host
        via = f" (through the proxy {route.proxy.host})" if route.proxy is not None else ""
        tries = 0
        while True:
            tries += 1
            connection = self._pool.find_open(route.key) or await self._connect(url, via, route)
            try:
                return await connection.exchange(outgoing, started)
            except RequestUnprocessed as error:
                if error.needs_http1:
                    self._pool.remember_http1(route, is_required=True)
                _log.debug("%s%s: not processed by %s (try %d): %s", mask_logins(url), via, host, tries, error)
                if tries == _MAX_TRIES:
                    raise NetworkError(f"{url}{via}: {host} did not process the request in {tries} tries") from error
            except TimeoutError as error:
                raise TooSlow(f"{url}{via}: {describe_timeout(host, monotonic() - started, self._timeouts)}") from error
            except InvalidResponse as error:
                raise BadResponse(f"{url}{via}: {host} sent an invalid response: {error}") from error
            except BodyLimitExceeded as error:
                raise make_too_large(url, self._max_body, str(error)) from error
            except ConnectionBroken as error:
                missing = "the body was complete" if error.has_head else "the response"
                reason = _describe_os_error(error.cause)
                raise NetworkError(f"{url}{via}: the connection to {host} broke before {missing}: {reason}") from error
            except PoolClosed as error:
                raise FetchError(f"{url}: the fetcher was closed during the fetch") from error

    async def _connect(self, url: str, via: str, route: Route) -> Connection:
        host, name = route.host, route.name
        try:
            return await self._pool.acquire(route)
        except TimeoutError as error:
            raise TooSlow(f"{url}{via}: {describe_timeout(host, None, self._timeouts)}") from error
        except (socket.gaierror, UnicodeError) as error:
            reason = error.strerror if isinstance(error, socket.gaierror) else error
            is_temporary = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
            error_class = NetworkError if is_temporary else UnknownHost
            raise error_class(f"{url}{via}: cannot resolve {name}: {reason}") from error
        except ssl.SSLError as error:
            raise TLSError(f"{url}{via}: {explain_tls_error(error, host)}") from error
        except PrivateHost as error:
            raise PrivateHost(f"{url}: {error}") from error
        except ProxyNotFound as error:
            raise NetworkError(f"{url}{via}: {error}") from error
        except OSError as error:
            raise NetworkError(f"{url}{via}: cannot connect to {host}: {_describe_os_error(error)}") from error
        except PoolClosed as error:
            raise FetchError(f"{url}: the fetcher was closed during the fetch") from error


@lru_cache(maxsize=4096)
def _parse_route(origin: str, proxy: str) -> Route:
    """The route to the host of a URL. ``origin`` is the URL up to its path.

    :raises ValueError: ``origin`` is not the beginning of a canonical URL, or ``proxy`` is not the URL of a proxy.
    """
    match = _match_origin(origin)
    if match is None:
        raise ValueError(_NOT_CANONICAL)
    scheme, login, host, address, name, port = match.groups()
    secure = scheme == "https"
    parsed_proxy = proxies.parse_proxy(proxy) if proxy else None
    return Route(secure, host, address or name, int(port or (443 if secure else 80)), parsed_proxy, login or "")


def _explain_invalid_header(headers: Mapping[str, str]) -> str:
    """What is wrong with the first invalid header; empty if all are valid."""
    for name, value in headers.items():
        if not _is_header_name(name):
            return f"{name!r} is not a valid header name"
        if not _is_header_value(value):
            return f"the value of the header {name} is not printable ASCII: {value[:60]!r}"
        if name in _FRAMING:
            return f"remove the header {name}: it is set automatically"
    return ""


def _format_headers(headers: Mapping[str, str]) -> str:
    """Header lines for HTTP/1.1, with names capitalized as most clients do."""
    return "".join(f"{'-'.join(map(str.capitalize, name.split('-')))}: {value}\r\n" for name, value in headers.items())


def _describe_os_error(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):  # its errno is one of OpenSSL's
        return (error.reason or str(error)).lower().replace("_", " ")
    return os.strerror(error.errno) if error.errno else str(error)

"""HTTP by pyreqwest, the Rust client: the way almost every page is fetched.

Why this shape. The library offers a response read whole or streamed. Streamed costs no more, since
it hands over head and up to 64 KB of body in one await, and it is the only way to stop at the size
limit, or at once when a fetch is cancelled in the middle of a body. So every response is streamed,
and a page of usual size takes two awaits, of which only the first one waits.

What the library leaves to us: the size limit, gzip and deflate (``inflate``), the meaning of its
errors (``http_errors``), and header values that are not ASCII (``mirror``). What it can't do: a
fetch cancelled before its head arrived returns at once, but its exchange runs on in the background
until the host answers or the total timeout ends it.
"""

from __future__ import annotations

import re
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final

from pyreqwest.client import ClientBuilder
from pyreqwest.cookie import CookieStore
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.proxy import ProxyBuilder

from weft.errors import BadResponse, ConfigError, FetchError, TooLarge
from weft.fetch.http_errors import Timeouts, explain
from weft.fetch.inflate import Inflater, Overflow, inflaters
from weft.fetch.mirror import read_value
from weft.model import Headers, Request, Response

if TYPE_CHECKING:
    from pathlib import Path

    from pyreqwest.bytes import Bytes
    from pyreqwest.client import Client
    from pyreqwest.request import StreamRequest
    from pyreqwest.response import Response as Answer

    _Read = Callable[[int], Awaitable[Bytes | None]]

_DEFAULT_HEADERS: Final = {
    "accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "accept-encoding": "gzip, deflate, br, zstd",
}
_PROXY_SCHEMES: Final = ("http://", "https://", "socks5://", "socks5h://")
_PIECE: Final = 65536  # as much as comes with the head
_KEPT_PROXIES: Final = 64
# Longer than most delays between two requests to a host, and short enough that a crawl of
# thousands of hosts does not run out of file descriptors.
_IDLE: Final = timedelta(seconds=20)
_HEAD_LIMIT: Final = 256 * 1024  # what browsers take
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_BODILESS: Final = frozenset({204, 304})
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class HttpFetcher:
    """A :class:`~weft.fetch.base.Fetcher` for http and https.

    - Cookies: with ``cookies`` on, all requests share one jar. A request's own cookies are sent with
      the jar's and win over them; a ``Cookie`` header of the request's own is sent alone.
    - ``proxy`` is for requests that name none. Proxies are http, https, socks5 (names resolved
      here) or socks5h (by the proxy), with user and password in the URL; the environment's are ignored.
    - The headers that told of a body's compression are gone from the response, as it is.
    - ``received`` is the moment head and the first 64 KB of the body were in.

    :raises ConfigError: ``ca_file`` or ``proxy`` is not usable.
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
        self._jar = CookieStore() if cookies else None
        self._http2 = http2
        self._verify = verify
        self._roots = _certificates(ca_file) if ca_file else []
        self._headers = {
            **_DEFAULT_HEADERS,
            "user-agent": user_agent,
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        self._proxy = proxy
        self._proxied: OrderedDict[str, Client] = OrderedDict()
        self._closed = False
        try:
            self._client = self._connect(proxy)
        except (ValueError, PyreqwestError) as error:
            what = f"proxy={_without_password(proxy)}" if proxy else f"ca_file={ca_file}"
            raise ConfigError(f"{what} can't be used: {error}") from error

    async def fetch(self, request: Request) -> Response:
        started = monotonic()
        try:
            async with self._prepare(request) as answer:
                received = monotonic()
                body, decoded = await self._read(request, answer)
                pairs = await self._pairs(answer)
        except PyreqwestError as error:
            proxy = request.proxy or self._proxy
            raise explain(error, request, proxy, monotonic() - started, self._timeouts) from error
        if decoded:
            pairs = tuple(pair for pair in pairs if pair[0] not in ("content-encoding", "content-length"))
        return Response(
            request=request,
            url=request.url,
            status=answer.status,
            headers=Headers(pairs),
            body=body,
            received=received,
            elapsed=monotonic() - started,
            version=answer.version,
        )

    async def close(self) -> None:
        self._closed = True
        clients = [self._client, *self._proxied.values()]
        self._proxied.clear()
        for client in clients:
            await client.close()

    def _prepare(self, request: Request) -> StreamRequest:
        try:
            client = self._client_for(request.proxy) if request.proxy else self._client
            builder = client.request(request.method, request.url)
            if request.headers:
                builder = builder.headers(request.headers)
            if request.cookies and not any(name.lower() == "cookie" for name in request.headers):
                builder = builder.header("cookie", self._cookie_header(request))
            if request.body:
                builder = builder.body_bytes(request.body)
            elif request.method in _WITH_BODY:
                builder = builder.header("content-length", "0")
            return builder.build_streamed()
        except ValueError as error:  # also the library's own BuilderError
            raise FetchError(f"{request.url} can't be asked for: {error}") from error

    async def _read(self, request: Request, answer: Answer) -> tuple[bytes, bool]:
        """The whole body, and whether a coding named in its headers was undone."""
        announced, encoding = _about_body(answer)
        if announced > self._max_body and _has_body(request, answer):
            raise self._too_large(request, f"the body is announced with {announced} bytes")
        read = answer.body_reader.read
        piece = await read(_PIECE)
        if piece is None:
            return b"", False
        whole = len(piece) == announced
        if encoding is not None:
            try:
                stages = inflaters(encoding, self._max_body)
                if stages:
                    return await _inflate(piece, stages, None if whole else read), True
            except Overflow as error:
                raise self._too_large(request, "the decompressed body goes on after that") from error
            except (ValueError, zlib.error) as error:
                raise BadResponse(f"{request.url}: the body does not decode as {encoding}: {error}") from error
        if whole:
            return piece.to_bytes(), False
        pieces = []
        size = 0
        while piece is not None:
            pieces.append(piece)
            size += len(piece)
            if size > self._max_body:
                raise self._too_large(request, "the body goes on after that")
            piece = await read(_PIECE)
        return pieces[0].to_bytes() if len(pieces) == 1 else b"".join(pieces), False

    async def _pairs(self, answer: Answer) -> tuple[tuple[str, str], ...]:
        headers = answer.headers
        try:
            return tuple(headers.items())
        except ValueError:  # a value is not ASCII: keep those that are, and of a redirect its target in any case
            redirect = 300 <= answer.status < 400
        pairs: list[tuple[str, str]] = []
        for name in dict.fromkeys(headers.keys()):
            try:
                pairs += [(name, value) for value in headers.getall(name)]
            except ValueError:
                if redirect and name == "location" and (value := await read_value(self._plain(), headers, name)):
                    pairs.append((name, value))
        return tuple(pairs)

    def _too_large(self, request: Request, why: str) -> TooLarge:
        return TooLarge(f"{request.url}: larger than max_body={self._max_body} bytes: {why}")

    def _cookie_header(self, request: Request) -> str:
        # The library leaves its jar out when a request has a Cookie header, so the jar's are put in here.
        jar = self._jar.matches(request.url) if self._jar is not None else ()
        cookies = {cookie.name: cookie.value for cookie in jar} | request.cookies
        return "; ".join(f"{name}={value}" for name, value in cookies.items())

    def _plain(self) -> Client:
        """A client that uses no proxy."""
        return self._client_for("") if self._proxy else self._client

    def _client_for(self, proxy: str) -> Client:
        client = self._proxied.get(proxy)
        if client is not None:
            self._proxied.move_to_end(proxy)
            return client
        if self._closed:
            return self._client  # answers that it is closed
        client = self._proxied[proxy] = self._connect(proxy)
        if len(self._proxied) > _KEPT_PROXIES:
            # Let go rather than closed: closing would break off the fetches it still carries. Its
            # connections close with the last of them.
            self._proxied.popitem(last=False)
        return client

    def _connect(self, proxy: str) -> Client:
        """A client with its own connection pool, through ``proxy`` if there is one."""
        total, connect, read = (timedelta(seconds=seconds) for seconds in self._timeouts)
        builder = (
            ClientBuilder()
            .no_proxy()
            .follow_redirects(False)
            .referer(False)
            .gzip(False)
            .deflate(False)
            .default_headers(self._headers)
            .timeout(total)
            .connect_timeout(connect)
            .read_timeout(read)
            .pool_idle_timeout(_IDLE)
            .danger_accept_invalid_certs(not self._verify)
            # What browsers forgive, a crawler meets.
            .http1_allow_obsolete_multiline_headers_in_responses(True)
            .http1_ignore_invalid_headers_in_responses(True)
            .http1_allow_spaces_after_header_name_in_responses(True)
        )
        builder = builder.http2(True).http2_max_header_list_size(_HEAD_LIMIT) if self._http2 else builder.http1_only()
        if self._jar is not None:
            builder = builder.cookie_provider(self._jar)
        for root in self._roots:
            builder = builder.add_root_certificate_pem(root)
        if proxy:
            if not proxy.startswith(_PROXY_SCHEMES):
                raise ValueError(f"a proxy's URL begins with one of {', '.join(_PROXY_SCHEMES)}")
            builder = builder.proxy(ProxyBuilder.all(proxy))
        return builder.build()


async def _inflate(piece: Bytes, stages: Sequence[Inflater], read: _Read | None) -> bytes:
    """The body that begins with ``piece`` and goes on with what ``read`` gives, decompressed."""
    pieces = []
    following: Bytes | None = piece
    while following is not None:
        data = following.to_bytes()
        for stage in stages:
            data = stage.feed(data)
        pieces.append(data)
        following = await read(_PIECE) if read is not None else None
    for stage in stages:
        stage.end()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _about_body(answer: Answer) -> tuple[int, str | None]:
    """The announced length, -1 if there is none, and the coding that is still to be undone."""
    try:
        length = answer.get_header("content-length")
        encoding = answer.get_header("content-encoding")
    except ValueError:  # not ASCII, hence nonsense
        return -1, None
    return int(length) if length is not None and length.isdecimal() else -1, encoding


def _has_body(request: Request, answer: Answer) -> bool:
    return request.method != "HEAD" and answer.status not in _BODILESS


def _certificates(file: str | Path) -> list[bytes]:
    try:
        with open(file, "rb") as stream:
            found = _CERTIFICATE.findall(stream.read())
    except OSError as error:
        raise ConfigError(f"ca_file={file} can't be read: {error.strerror}") from error
    if not found:
        raise ConfigError(f"ca_file={file} holds no certificate; it must be in PEM format")
    return found


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", url)

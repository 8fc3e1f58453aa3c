"""HTTP by pyreqwest, the Rust client; the plainest of requests take a shorter way (``plain``).

Why this shape. The library offers a response read whole or streamed. Streamed costs no more, since
it hands over the head and up to 64 KB of the body in one await, and it is the only way to stop at
the size limit, or at once when a fetch is cancelled in the middle of a body. So every response is
streamed, and a page of usual size takes two awaits, of which only the first one waits.

What the library leaves to us: the size limit, some content codings (``inflate``) and the meaning of its
errors (``http_errors``). What it can't do: hand out header values that are not ASCII, which are left
out; and a fetch that is cancelled before its head arrived returns at once, but its exchange runs on in
the background until the host answers or the total timeout ends it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from pyreqwest.exceptions import PyreqwestError

from weft.errors import BadResponse, FetchError
from weft.fetch.cookies import Jar, cookie_header
from weft.fetch.http1 import BODILESS
from weft.fetch.http_clients import Clients
from weft.fetch.http_errors import Timeouts, explain, too_large
from weft.fetch.inflate import Inflater, Overflow, Undecodable, beginning, inflaters
from weft.fetch.plain import CODINGS, RESERVED, PlainFetcher
from weft.model import Headers, Request, Response

if TYPE_CHECKING:
    from pathlib import Path

    from pyreqwest.bytes import Bytes
    from pyreqwest.http import HeaderMap
    from pyreqwest.request import StreamRequest
    from pyreqwest.response import Response as Answer

T = TypeVar("T")

_DEFAULT_HEADERS: Final = {
    "accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "accept-encoding": "gzip, deflate, br, zstd",
}
_PIECE: Final = 65536  # as much as comes with the head
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


class HttpFetcher:
    """A :class:`~weft.fetch.base.Fetcher` for http and https.

    - Cookies: with ``cookies`` on, all requests share one jar. A request's own cookies are sent with
      the jar's and win over them; a ``Cookie`` header of the request's own is sent alone.
    - ``proxy`` is for requests that name none. Proxies are http, https, socks5 (names resolved
      here) or socks5h (by the proxy), with user and password in the URL; the environment's are ignored.
    - The headers that told of a body's compression are gone from the response, as it is.
    - ``received`` is the moment when the response began to arrive; by the library, when its head and the first 64 KB of
      the body were in.

    :raises ConfigError: ``user_agent``, ``headers``, ``ca_file`` or ``proxy`` are not usable.
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
        self._jar = Jar() if cookies else None
        self._proxy = proxy
        own = {"user-agent": user_agent} | {name.lower(): value for name, value in (headers or {}).items()}
        self._plain: PlainFetcher | None = None
        if not proxy and RESERVED.isdisjoint(own):
            sent = _DEFAULT_HEADERS | {"accept-encoding": CODINGS} | own
            self._plain = PlainFetcher(headers=sent, timeouts=self._timeouts, max_body=max_body, jar=self._jar)
        self._clients = Clients(
            headers=_DEFAULT_HEADERS | own,
            timeouts=self._timeouts,
            http2=http2,
            verify=verify,
            ca_file=ca_file,
            proxy=proxy,
        )

    def fetch(self, request: Request, *, first: int | None = None) -> Coroutine[Any, Any, Response]:
        if self._plain is not None and (place := self._plain.place_of(request)) is not None:
            return self._plain.fetch(request, place, first)
        return self._fetch(request, first)

    async def _fetch(self, request: Request, first: int | None) -> Response:
        started = monotonic()
        cut = False
        try:
            async with self._prepare(request) as answer:
                received = monotonic()
                headers: Headers = _Received(answer.headers)
                if self._jar is not None:
                    self._jar.keep(headers, request.url)
                length, encoding = headers.get("content-length", ""), headers.get("content-encoding")
                if encoding is not None:
                    encoding = ", ".join(headers.get_all("content-encoding"))
                announced = int(length) if length.isdecimal() else -1
                piece = await answer.body_reader.read(_PIECE)
                if first is not None:
                    body, inflated, cut = await self._read_first(first, request, answer, piece, encoding)
                    if inflated:
                        headers = headers.without("content-encoding", "content-length")
                elif piece is not None and len(piece) == announced < _PIECE and encoding is None:
                    body = piece.to_bytes()
                    if announced > self._max_body:
                        raise too_large(request.url, self._max_body, f"it has {announced}")
                else:
                    body, inflated = await self._read(request, answer, piece, announced, encoding)
                    if inflated:
                        headers = headers.without("content-encoding", "content-length")
        except PyreqwestError as error:
            proxy = request.proxy or self._proxy
            raise explain(error, request, proxy, monotonic() - started, self._timeouts) from error
        return Response(
            request=request,
            url=request.url,
            status=answer.status,
            headers=headers,
            body=body,
            received=received,
            elapsed=monotonic() - started,
            version=answer.version,
            cut=cut,
        )

    async def close(self) -> None:
        if self._plain is not None:
            self._plain.close()
        await self._clients.close()

    def _prepare(self, request: Request) -> StreamRequest:
        try:
            client = self._clients.through(request.proxy)
            if client is None:
                raise FetchError(f"{request.url} can't be fetched: the fetcher is closed")
            builder = client.request(request.method, request.url)
            if request.headers:
                builder = builder.headers(request.headers)
            if not any(name.lower() == "cookie" for name in request.headers) and (
                cookies := cookie_header(self._jar, request)
            ):
                builder = builder.header("cookie", cookies)
            if request.body:
                builder = builder.body_bytes(request.body)
            elif request.method in _WITH_BODY:
                builder = builder.header("content-length", "0")
            return builder.build_streamed()
        except PyreqwestError:
            raise  # explained by the caller
        except ValueError as error:
            raise FetchError(f"{request.url} can't be asked for: {error}") from error

    async def _read(
        self, request: Request, answer: Answer, piece: Bytes | None, announced: int, encoding: str | None
    ) -> tuple[bytes, bool]:
        """The whole of a body that begins with ``piece``, and whether it was decompressed here."""
        if announced > self._max_body and request.method != "HEAD" and answer.status not in BODILESS:
            raise too_large(request.url, self._max_body, f"{announced} are announced")
        if piece is None:
            return b"", False
        read = answer.body_reader.read
        if encoding is not None:
            try:
                stages = inflaters(encoding, self._max_body)
                if stages:
                    return await _inflate(piece, stages, read), True
            except Overflow as error:
                raise too_large(request.url, self._max_body, "there are more when decompressed") from error
            except Undecodable as error:
                raise BadResponse(f"{request.url}: the body does not decode as {encoding}: {error}") from error
        pieces = []
        size = 0
        while piece is not None:
            pieces.append(piece)
            size += len(piece)
            if size > self._max_body:
                raise too_large(request.url, self._max_body, "there are more")
            piece = await read(_PIECE)
        return pieces[0].to_bytes() if len(pieces) == 1 else b"".join(pieces), False

    async def _read_first(
        self, first: int, request: Request, answer: Answer, piece: Bytes | None, encoding: str | None
    ) -> tuple[bytes, bool, bool]:
        """The first so many bytes of a body, whether it was decompressed here, and whether it goes on."""
        pieces: list[bytes] = []
        size = 0
        while piece is not None and size <= first:
            pieces.append(piece.to_bytes())
            size += len(piece)
            piece = await answer.body_reader.read(_PIECE) if size <= first else None
        body, cut = b"".join(pieces)[:first], size > first
        try:
            found = beginning(body, encoding, first, not cut) if encoding is not None and body else None
        except Undecodable as error:
            raise BadResponse(f"{request.url}: the body does not decode as {encoding}: {error}") from error
        return (body, False, cut) if found is None else (found[0], True, not found[1])


class _Received(Headers):
    """Headers that stay with the library until they are asked for: of most responses, two or three are."""

    __slots__ = ("_map",)

    def __init__(self, headers: HeaderMap) -> None:
        self._pairs = ()
        self._lookup = None
        self._map: HeaderMap | None = headers

    @overload
    def get(self, name: str, /) -> str | None: ...
    @overload
    def get(self, name: str, /, default: T) -> str | T: ...
    def get(self, name: str, /, default: T | None = None) -> str | T | None:
        if self._map is not None:
            try:
                found = self._map.get(name)
                return default if found is None else found
            except ValueError:  # it is not ASCII, or no name
                pass
        return super().get(name, default)

    def pairs(self) -> tuple[tuple[str, str], ...]:
        if self._map is not None:
            try:
                self._pairs = tuple(self._map.items())
            except ValueError:
                self._pairs = _readable(self._map)
            self._map = None
        return self._pairs


def _readable(headers: HeaderMap) -> tuple[tuple[str, str], ...]:
    """Those whose values are ASCII."""
    pairs: list[tuple[str, str]] = []
    for name in dict.fromkeys(headers.keys()):
        with contextlib.suppress(ValueError):
            pairs += [(name, value) for value in headers.getall(name)]
    return tuple(pairs)


async def _inflate(piece: Bytes, stages: list[Inflater], read: Callable[[int], Awaitable[Bytes | None]]) -> bytes:
    """The body that begins with ``piece`` and goes on with what ``read`` gives, decompressed."""
    pieces = []
    following: Bytes | None = piece
    while following is not None:
        data = following.to_bytes()
        for stage in stages:
            data = stage.feed(data)
        pieces.append(data)
        following = await read(_PIECE)
    for stage in stages:
        stage.end()
    return b"".join(pieces)

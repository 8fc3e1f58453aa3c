"""HTTP/1.1 over plain connections, on the event loop itself: the short way for pages without TLS.

Why it is there. The HTTP library works in a thread of its own, and for each response the two threads hand Python's
lock to each other: a quarter of the CPU of a whole crawl, and a millisecond or two until the loop sees an answer that
has arrived, from which a lane's delay counts. For TLS that thread is worth its price, since a handshake is a
millisecond of work; without TLS nothing takes that long. See ADR 11.

It does the one thing that a crawl does all the time: GET, straight from the host. Everything else (other methods,
proxies, passwords in URLs, codings asked for by name) is left to the library; ``place_of`` tells.

Of codings it asks for gzip and deflate, as browsers do without TLS; br and zstd are undone where a host sends them
uninvited.

A connection serves one exchange at a time and is kept for the next. One that the host has closed meanwhile is not
used; if it closes just then, the fetch fails, as it is for the crawl to say when the host is asked again.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from time import monotonic
from typing import Final

from weft.errors import BadResponse, FetchError, NetworkError, TooSlow, UnknownHost
from weft.fetch.cookies import Jar, cookie_header
from weft.fetch.http1 import Garbled, Reading, TooMuch
from weft.fetch.http_errors import Timeouts, too_large, too_slow
from weft.fetch.inflate import Overflow, Undecodable, beginning, inflated
from weft.fetch.plain_connections import Closed, Connection, Connections
from weft.model import Headers, Request, Response

Place = re.Match[str]

CODINGS: Final = "gzip, deflate"
# Headers that change how an exchange works: who sends one of them is left to the library.
RESERVED: Final = frozenset({"host", "accept-encoding", "connection", "content-length", "transfer-encoding", "upgrade"})

# Of a canonical URL without a password: host with port, address, name, port, target.
_place: Final = re.compile(
    r"http://((?:\[([0-9a-f:.]+)\]|([^/?#@:\[\]\\\s]+))"
    r"(?::([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?)(/[!-~]*)"
).fullmatch
_name: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_value: Final = re.compile(r"[\t !-~]*").fullmatch


class PlainFetcher:
    """Fetches what it has a place for. ``headers``, their names in lower case, are sent with each request."""

    def __init__(self, *, headers: Mapping[str, str], timeouts: Timeouts, max_body: int, jar: Jar | None) -> None:
        self._headers = dict(headers)
        self._usual = _lines(self._headers)
        self._timeouts = timeouts
        self._max_body = max_body
        self._jar = jar
        self._closed = False
        self._connections = Connections(timeouts)

    def place_of(self, request: Request) -> Place | None:
        """Where to ask for it; None if it is not for this fetcher, or can't be sent at all."""
        if request.method != "GET" or request.body or request.proxy or self._closed:
            return None
        place = _place(request.url)
        if place is None:
            return None
        if request.headers or request.cookies:
            sent = [*request.headers.items(), ("cookie", "; ".join(map("=".join, request.cookies.items())))]
            if not all(_name(name) and name.lower() not in RESERVED and _value(value) for name, value in sent):
                return None
        return place

    async def fetch(self, request: Request, place: Place, first: int | None = None) -> Response:
        started = monotonic()
        url, host = request.url, place[1]
        try:
            head = f"GET {place[5]} HTTP/1.1\r\nHost: {host}\r\n{self._lines_of(request)}\r\n"
        except ValueError as error:  # the jar knows no such host
            raise FetchError(f"{url} can't be asked for: {error}") from error
        reading = Reading(self._max_body) if first is None else Reading(first, may_cut=True)
        try:
            connection = self._connections.kept(host) or await self._connect(url, place)
            received = await connection.exchange(head.encode(), reading, started)
        except TimeoutError as error:
            raise TooSlow(f"{url}: {too_slow(host, monotonic() - started, self._timeouts)}") from error
        except Garbled as error:
            raise BadResponse(f"{url}: {host} sent something that is not a valid response: {error}") from error
        except TooMuch as error:
            raise too_large(url, self._max_body, str(error)) from error
        except OSError as error:
            begun = reading.status >= 200
            what = "hung up before the body was complete" if begun else "hung up or broke the connection"
            raise NetworkError(f"{url}: {host} {what}: {_reason(error)}") from error
        except Closed as error:
            raise FetchError(f"{url}: the fetcher was closed during the fetch") from error
        if self._jar is not None:
            self._jar.keep(reading.headers, url)
        body, headers, cut = self._decoded(url, reading, first)
        return Response(
            request=request,
            url=url,
            status=reading.status,
            headers=headers,
            body=body,
            received=received,
            elapsed=monotonic() - started,
            version=reading.version,
            cut=cut,
        )

    def close(self) -> None:
        """Break off what is under way, and begin nothing more."""
        self._closed = True
        self._connections.close()

    def _lines_of(self, request: Request) -> str:
        own = {name.lower(): value for name, value in request.headers.items()} if request.headers else {}
        headers = {**self._headers, **own} if own else self._headers
        if "cookie" not in own and (request.cookies or "cookie" not in headers):
            cookies = cookie_header(self._jar, request)
            if cookies:
                headers = {**headers, "cookie": cookies}
        return self._usual if headers is self._headers else _lines(headers)

    async def _connect(self, url: str, place: Place) -> Connection:
        host, address, name, port, _ = place.groups()
        try:
            return await self._connections.connect(host, address or name, int(port or 80))
        except TimeoutError as error:
            raise TooSlow(f"{url}: {too_slow(host, None, self._timeouts)}") from error
        except (socket.gaierror, UnicodeError) as error:
            reason = error.strerror if isinstance(error, socket.gaierror) else error
            if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
                raise NetworkError(f"{url}: the name {name} can't be looked up at the moment: {reason}") from error
            raise UnknownHost(f"{url}: the name {name} does not resolve: {reason}") from error
        except OSError as error:
            raise NetworkError(f"{url}: {host} can't be reached: {_reason(error)}") from error

    def _decoded(self, url: str, reading: Reading, first: int | None) -> tuple[bytes, Headers, bool]:
        body, headers, cut = reading.body, reading.headers, reading.cut
        if not body or "content-encoding" not in headers:
            return body, headers, cut
        encoding = ", ".join(headers.get_all("content-encoding"))
        try:
            if first is None:
                decoded = inflated(body, encoding, self._max_body)
            elif (found := beginning(body, encoding, first, not cut)) is not None:
                decoded, cut = found[0], not found[1]
            else:
                decoded = None
        except Overflow as error:
            raise too_large(url, self._max_body, "there are more when decompressed") from error
        except Undecodable as error:
            raise BadResponse(f"{url}: the body does not decode as {encoding}: {error}") from error
        if decoded is None:
            return body, headers, cut
        return decoded, headers.without("content-encoding", "content-length"), cut


def _lines(headers: Mapping[str, str]) -> str:
    """With names in the case that most clients send."""
    return "".join(f"{'-'.join(map(str.capitalize, name.split('-')))}: {value}\r\n" for name, value in headers.items())


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)

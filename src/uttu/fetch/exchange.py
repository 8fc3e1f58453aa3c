"""One request and its response as connections exchange them, its timeouts, and how it can fail.

Shared by HTTP/1.1 and HTTP/2. ``OutgoingRequest`` is a request ready to be sent, ``RawResponse`` the answer before its
body is decompressed. Connections call their owner (:class:`ConnectionOwner`) when they open, become idle and close.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final, NamedTuple, Protocol, TypeVar

from uttu.errors import TooLarge
from uttu.fetch.http2_frames import encode_field
from uttu.model import Headers


class Timeouts(NamedTuple):
    """Seconds: for the whole exchange, to connect, between two reads."""

    total: float
    connect: float
    read: float


def describe_timeout(host: str, took: float | None, timeouts: Timeouts) -> str:
    """Say which timeout expired. ``took`` is the duration of the exchange; None: there was no connection."""
    if took is None:
        limit, name = min((timeouts.connect, "connect_timeout"), (timeouts.total, "timeout"))
        return f"no connection to {host} within {name}={limit:g} s"
    if took >= timeouts.total:
        return f"{host} did not finish the response within timeout={timeouts.total:g} s"
    return f"{host} sent nothing for read_timeout={timeouts.read:g} s"


def make_too_large(url: str, limit: int, detail: str) -> TooLarge:
    return TooLarge(f"{url}: the body is larger than max_body={limit} bytes ({detail})")


# Idle connections are closed after this time. It is longer than most delays between two requests to a host.
IDLE_SECONDS: Final = 20.0
# At a deadline, if data has arrived but was not read yet, check again after this time.
RECHECK_SECONDS: Final = 0.01
CLOSED_BY_PEER: Final = "Connection closed by peer"
# Headers that belong to an HTTP/1 connection, or that HTTP/2 replaces by pseudo-headers.
_NOT_IN_HTTP2: Final = frozenset(
    {
        "host",
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "transfer-encoding",
        "upgrade",
        "te",
    }
)


LARGE_BODY: Final = 1024 * 1024
_LARGE_BODIES: Final = 96 * 1024 * 1024
_PATIENCE_SECONDS: Final = 10.0


class Reservation:
    """Memory that one large body may take; released once."""

    __slots__ = ("_bodies", "_size")

    def __init__(self, bodies: LargeBodies, size: int) -> None:
        self._bodies = bodies
        self._size = size

    def release(self) -> None:
        size, self._size = self._size, 0
        self._bodies.free(size)


class LargeBodies:
    """Bounds the memory that large bodies of one fetcher take, from their second megabyte until they are handled.

    A body of more than ``LARGE_BODY`` bytes needs a reservation of the most that it may become. While too much is
    reserved, its connection stops reading, so the host waits. The reservation ends with the response. After
    ``patience`` seconds it is granted in any case: handlers may keep responses for as long as they like.
    """

    def __init__(self, size: int = _LARGE_BODIES, patience: float = _PATIENCE_SECONDS) -> None:
        self._size = self._left = size
        self._patience = patience
        self._waiting: deque[tuple[int, asyncio.Future[Reservation]]] = deque()

    def reserve(self, size: int) -> asyncio.Future[Reservation]:
        """Reserve ``size`` bytes, or all if it is more. The future may be cancelled while it is pending."""
        loop = asyncio.get_running_loop()
        granted: asyncio.Future[Reservation] = loop.create_future()
        size = min(size, self._size)
        if not self._waiting and size <= self._left:
            self._grant(size, granted)
        else:
            self._waiting.append((size, granted))
            loop.call_later(self._patience, self._grant, size, granted)
        return granted

    def free(self, size: int) -> None:
        self._left += size
        while self._waiting:
            size, granted = self._waiting[0]
            if not granted.done() and size > self._left:
                return
            self._waiting.popleft()
            self._grant(size, granted)

    def _grant(self, size: int, granted: asyncio.Future[Reservation]) -> None:
        if not granted.done():
            self._left -= size
            granted.set_result(Reservation(self, size))


def drop_reservation(granted: asyncio.Future[Reservation] | None) -> None:
    """Release a reservation, or stop waiting for it."""
    if granted is not None and not granted.cancel() and not granted.cancelled():
        granted.result().release()


T_contra = TypeVar("T_contra", contravariant=True)


class ConnectionOwner(Protocol[T_contra]):
    """The pool that a connection belongs to."""

    @property
    def large_bodies(self) -> LargeBodies: ...

    def on_open(self, connection: T_contra, /) -> None:
        """The connection is open."""

    def on_idle(self, connection: T_contra, /) -> None:
        """The connection has no exchange and can be used again."""

    def on_close(self, connection: T_contra, /) -> None:
        """The connection is closed."""


class ConnectionTimer:
    """The only timer of a connection. An exchange that ends in time neither starts nor cancels one.

    The timer fires at the earliest deadline that was passed to ``watch``; the connection then passes the next one. A
    later deadline, which is the usual case, does not change the timer.
    """

    __slots__ = ("_due", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def watch(self, due: float, check: Callable[[], None]) -> None:
        """Call ``check`` at ``due`` (monotonic seconds), unless it will be called before that.

        ``check`` is an argument here and not of the constructor: stored, it would make a reference cycle of every
        connection.
        """
        if self._handle is not None:
            if self._due <= due:
                return
            self._handle.cancel()
        self._due = due
        self._handle = self._loop.call_later(due - monotonic(), self._fire, check)

    def _fire(self, check: Callable[[], None]) -> None:
        self._handle = None
        check()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class SharedBufferProtocol(asyncio.BufferedProtocol):
    """For connections with TLS. Decrypted bytes go into one buffer for all of them and are copied from there. Otherwise
    the event loop allocates 256 KB for every read."""

    def get_buffer(self, sizehint: int) -> memoryview:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(_BUFFER[:nbytes]))

    def data_received(self, data: bytes) -> None:
        raise NotImplementedError


_BUFFER: Final = memoryview(bytearray(256 * 1024))


class OutgoingRequest:
    """A request, ready to be sent; ``lines`` are its ``headers`` (names in lower case) as HTTP/1 writes them.

    ``limit`` is the maximum size of the response body in bytes. A longer body is cut if ``may_cut``, else refused.
    """

    __slots__ = ("_headers", "_host", "_lines", "_scheme", "_target", "body", "is_head", "limit", "may_cut", "method")

    def __init__(
        self,
        method: str,
        scheme: str,
        host: str,
        target: str,
        headers: Mapping[str, str],
        lines: str,
        body: bytes,
        limit: int,
        may_cut: bool,
    ) -> None:
        self.method = method
        self.body = body
        self.limit = limit
        self.may_cut = may_cut
        self.is_head = method == "HEAD"
        self._scheme = scheme
        self._host = host
        self._target = target
        self._headers = headers
        self._lines = lines

    def encode_http1(self, *, absolute: bool = False) -> bytes:
        """The request as HTTP/1.1. With ``absolute``, its target is the whole URL, as proxies need it."""
        target = f"{self._scheme}://{self._host}{self._target}" if absolute else self._target
        host_line = "" if "host" in self._headers else f"Host: {self._host}\r\n"
        head = f"{self.method} {target} HTTP/1.1\r\n{host_line}{self._lines}\r\n".encode("utf-8", "surrogateescape")
        return head + self.body if self.body else head

    def encode_http2_headers(self) -> bytes:
        """The header block for HTTP/2, with the pseudo-headers first."""
        block = [
            encode_field(b":method", self.method.encode()),
            encode_field(b":scheme", self._scheme.encode()),
            encode_field(b":authority", self._headers.get("host", self._host).encode()),
            encode_field(b":path", self._target.encode()),
        ]
        block += [
            encode_field(name.encode(), value.encode("utf-8", "surrogateescape"))
            for name, value in self._headers.items()
            if name not in _NOT_IN_HTTP2
        ]
        return b"".join(block)


class RawResponse:
    """A response whose body is not decompressed. ``received`` is the monotonic time when its first byte arrived."""

    __slots__ = ("body", "cut", "headers", "received", "reservation", "status", "version")

    def __init__(
        self, status: int, version: str, headers: Headers, received: float, body: bytes = b"", cut: bool = False
    ) -> None:
        self.status = status
        self.version = version
        self.headers = headers
        self.received = received
        self.body = body
        self.cut = cut
        self.reservation: asyncio.Future[Reservation] | None = None


class PoolClosed(Exception):
    """The connections were closed by their owner."""


class ConnectionBroken(Exception):
    """The connection broke. ``has_head``: the head of the response had arrived."""

    def __init__(self, has_head: bool, cause: OSError) -> None:
        super().__init__(str(cause))
        self.has_head = has_head
        self.cause = cause


class RequestUnprocessed(Exception):
    """The host did not process the request, so it may be sent again. ``needs_http1``: only over HTTP/1.1."""

    def __init__(self, *, needs_http1: bool = False) -> None:
        super().__init__("the host did not process the request")
        self.needs_http1 = needs_http1

"""HTTP/1.1 connections, with TLS and without.

A connection serves one exchange at a time. It sends the request, feeds :class:`ResponseParser` with the response,
enforces the timeouts, and becomes idle or closes after the exchange.
"""

from __future__ import annotations

import asyncio
import select
from time import monotonic
from typing import cast

from uttu.fetch.exchange import (
    CLOSED_BY_PEER,
    IDLE_SECONDS,
    LARGE_BODY,
    RECHECK_SECONDS,
    ConnectionBroken,
    ConnectionOwner,
    ConnectionTimer,
    OutgoingRequest,
    RawResponse,
    Reservation,
    SharedBufferProtocol,
    Timeouts,
    drop_reservation,
)
from uttu.fetch.http1_parser import InvalidResponse, ResponseParser
from uttu.fetch.tls import store_session


class Http1Connection(asyncio.BaseProtocol):
    """An HTTP/1 connection. Serves one exchange at a time, and can be used again after it."""

    def __init__(
        self,
        owner: ConnectionOwner[Http1Connection],
        key: str,
        timeouts: Timeouts,
        loop: asyncio.AbstractEventLoop,
        *,
        absolute: bool = False,
    ) -> None:
        self.key = key
        self._owner = owner
        self._timeouts = timeouts
        self._loop = loop
        self._absolute = absolute
        self._transport: asyncio.Transport
        self._unread = select.poll()  # polls the socket for data that the event loop has not read yet
        self._parser: ResponseParser | None = None
        self._received_early = False  # whether data arrived before the first request
        self._waiter: asyncio.Future[float]
        # Monotonic seconds; 0: not yet.
        self._started = 0.0  # the current or last exchange
        self._received = 0.0  # its first byte
        self._last_read = 0.0  # the last read, or the start of the exchange
        self._timer = ConnectionTimer(loop)
        self._reservation: asyncio.Future[Reservation] | None = None  # of a large body
        self._is_paused = False

    @property
    def is_usable(self) -> bool:
        """Whether the connection is open and no data is waiting: between responses that is an end of stream or junk."""
        return not self._transport.is_closing() and not self._unread.poll(0)

    async def exchange(self, outgoing: OutgoingRequest, started: float) -> RawResponse:
        """Send a request and read its response.

        :param started: the monotonic time when the fetch began.
        :raises TimeoutError: the total or the read timeout expired.
        :raises ConnectionBroken: the connection ended before the response did.
        :raises InvalidResponse, BodyLimitExceeded: see :class:`ResponseParser`.
        :raises PoolClosed: the pool was closed during the exchange.
        """
        if self._transport.is_closing():
            raise ConnectionBroken(False, ConnectionError(CLOSED_BY_PEER))
        if self._received_early:
            self.abort()
            raise InvalidResponse("data before the request")
        waiter: asyncio.Future[float] = self._loop.create_future()
        is_first = not self._started
        self._waiter = waiter
        self._parser = parser = ResponseParser(outgoing.limit, may_cut=outgoing.may_cut, bodiless=outgoing.is_head)
        self._started, self._received, self._last_read = started, 0.0, monotonic()
        self._timer.watch(self._deadline, self._check_deadlines)
        self._transport.write(outgoing.encode_http1(absolute=self._absolute))
        try:
            received = await waiter
        except asyncio.CancelledError:
            self._drop_reservation()
            if self._parser is parser:
                self.abort()
            elif waiter.done() and not waiter.cancelled():
                waiter.exception()  # mark as retrieved: the exchange failed at the same moment
            raise
        except Exception as error:
            self._drop_reservation()
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise ConnectionBroken(parser.status >= 200, error) from error
            raise
        if is_first and (tls_object := self._transport.get_extra_info("ssl_object")) is not None:
            store_session(tls_object)
        response = RawResponse(parser.status, parser.version, parser.headers, received, parser.body, parser.cut)
        if self._reservation is not None:
            response.reservation, self._reservation = self._reservation, None
        return response

    def fail(self, error: Exception) -> None:
        """Let the current exchange raise ``error``, and abort the connection."""
        if self._parser is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.abort()

    def abort(self) -> None:
        self._parser = None
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        self._owner.on_open(self)
        self._unread.register(transport.get_extra_info("socket"), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        self._last_read = monotonic()
        if not self._started:
            self._received_early = True
            return
        if self._parser is None or self._waiter.done():
            self.abort()  # data without a request, or the fetch was cancelled
            return
        if not self._received:
            self._received = self._last_read
        try:
            if self._parser.feed(data):
                self._finish(self._parser)
            elif self._reservation is None and self._parser.size > LARGE_BODY:
                self._reserve(self._parser)
        except Exception as error:
            self.fail(error)

    def _reserve(self, parser: ResponseParser) -> None:
        """Reserve memory for a large body; stop reading until it is granted."""
        self._reservation = self._owner.large_bodies.reserve(parser.limit)
        if not self._reservation.done():
            self._is_paused = True
            self._transport.pause_reading()
            self._reservation.add_done_callback(self._resume)

    def _resume(self, _: object = None) -> None:
        if self._is_paused and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def _drop_reservation(self) -> None:
        drop_reservation(self._reservation)
        self._reservation = None

    def eof_received(self) -> None:
        if self._parser is not None and not self._waiter.done() and self._parser.end():
            self._finish(self._parser)
        else:
            self.fail(ConnectionError(CLOSED_BY_PEER))

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._owner.on_close(self)
        # Some hosts close a TLS connection without close_notify. Browsers accept that as the end of the body, too.
        if error is None and self._parser is not None and not self._waiter.done() and self._parser.end():
            self._finish(self._parser)
            return
        self.fail(error if isinstance(error, OSError) else ConnectionError(CLOSED_BY_PEER))

    def _finish(self, parser: ResponseParser) -> None:
        self._parser = None
        self._waiter.set_result(self._received)
        if self._is_paused:
            self._resume()
        if parser.keep_alive and not self._transport.is_closing():
            self._owner.on_idle(self)
            self._timer.watch(self._last_read + IDLE_SECONDS, self._check_deadlines)
        else:
            # Later, because close() of a TLS transport calls back into this protocol, and fails if the host closes too.
            self._loop.call_soon(self._transport.close)

    @property
    def _deadline(self) -> float:
        """The monotonic time at which the exchange or the idle connection times out if no more data arrives."""
        if self._parser is None:
            return self._last_read + IDLE_SECONDS
        return min(self._started + self._timeouts.total, self._last_read + self._timeouts.read)

    def _check_deadlines(self) -> None:
        due = self._deadline
        if monotonic() < due:
            self._timer.watch(due, self._check_deadlines)
        elif self._parser is None:
            self._transport.close()
        elif self._unread.poll(0) and monotonic() < self._started + self._timeouts.total:
            # The data arrived in time, but this process was too busy to read it.
            self._timer.watch(monotonic() + RECHECK_SECONDS, self._check_deadlines)
        else:
            self.fail(TimeoutError())


class PlainConnection(Http1Connection, asyncio.Protocol):
    """HTTP/1.1 without TLS."""


class SecureConnection(Http1Connection, SharedBufferProtocol):
    """HTTP/1.1 over TLS."""

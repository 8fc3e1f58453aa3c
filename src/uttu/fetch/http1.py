"""HTTP/1.1 connections, with TLS and without.

A connection serves one exchange at a time. :class:`ResponseParser` reads the response; what is here sends the request,
keeps the timeouts and decides whether the connection can be used again.
"""

from __future__ import annotations

import asyncio
import select
from time import monotonic
from typing import cast

from uttu.fetch.exchange import (
    AGAIN_SECONDS,
    HUNG_UP,
    IDLE_SECONDS,
    LARGE_BODY,
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
from uttu.fetch.tls import keep_session


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
        self._arrived = select.poll()
        self._reading: ResponseParser | None = None
        self._early = False  # whether the host spoke before it was first asked
        self._waiter: asyncio.Future[float]
        self._started = 0.0  # the exchange; 0: there was none
        self._received = 0.0  # the beginning of the response
        self._heard = 0.0  # anything, or the exchange began
        self._timer = ConnectionTimer(loop)
        self._reservation: asyncio.Future[Reservation] | None = None  # of a large body
        self._is_paused = False

    @property
    def is_usable(self) -> bool:
        """Whether nothing has come since the last response: it would be the host's end, or nothing good."""
        return not self._transport.is_closing() and not self._arrived.poll(0)

    async def exchange(self, outgoing: OutgoingRequest, started: float) -> RawResponse:
        """Send a request and read its response. ``started``: the fetch did.

        :raises TimeoutError: it took too long in all, or nothing came for too long.
        :raises Broken: the host hung up.
        :raises Garbled, TooMuch: see :class:`ResponseParser`.
        :raises Closed: the connection was closed meanwhile.
        """
        if self._transport.is_closing():
            raise ConnectionBroken(False, ConnectionError(HUNG_UP))
        if self._early:
            self.drop()
            raise InvalidResponse("it speaks before it is asked")
        waiter: asyncio.Future[float] = self._loop.create_future()
        is_first = not self._started
        self._waiter = waiter
        self._reading = reading = ResponseParser(outgoing.limit, may_cut=outgoing.may_cut, bodiless=outgoing.is_head)
        self._started, self._received, self._heard = started, 0.0, monotonic()
        self._timer.watch(self._deadline, self._check_deadlines)
        self._transport.write(outgoing.encode_http1(absolute=self._absolute))
        try:
            received = await waiter
        except asyncio.CancelledError:
            self._drop_reservation()
            if self._reading is reading:
                self.drop()
            elif waiter.done() and not waiter.cancelled():
                waiter.exception()  # it ended at the same moment, and nobody asks how
            raise
        except Exception as error:
            self._drop_reservation()
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise ConnectionBroken(reading.status >= 200, error) from error
            raise
        if is_first and (secured := self._transport.get_extra_info("ssl_object")) is not None:
            keep_session(secured)
        answer = RawResponse(reading.status, reading.version, reading.headers, received, reading.body, reading.cut)
        if self._reservation is not None:
            answer.reservation, self._reservation = self._reservation, None
        return answer

    def fail(self, error: Exception) -> None:
        """End the exchange under way with this, and the connection."""
        if self._reading is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.drop()

    def drop(self) -> None:
        self._reading = None
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._owner.opened(self)
        self._arrived.register(transport.get_extra_info("socket"), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        self._heard = monotonic()
        if not self._started:
            self._early = True
            return
        if self._reading is None or self._waiter.done():
            self.drop()  # it spoke without being asked, or nobody listens any more
            return
        if not self._received:
            self._received = self._heard
        try:
            if self._reading.feed(data):
                self._finish(self._reading)
            elif self._reservation is None and self._reading.size > LARGE_BODY:
                self._reserve(self._reading)
        except Exception as error:
            self.fail(error)

    def _reserve(self, reading: ResponseParser) -> None:
        """Reserve memory for a large body; stop reading until it is granted."""
        self._reservation = self._owner.large_bodies.reserve(reading.limit)
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
        if self._reading is not None and not self._waiter.done() and self._reading.end():
            self._finish(self._reading)
        else:
            self.fail(ConnectionError(HUNG_UP))

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._owner.forget(self)
        # Some hosts close a connection with TLS without saying so first. Browsers take that for the end, too.
        if error is None and self._reading is not None and not self._waiter.done() and self._reading.end():
            self._finish(self._reading)
            return
        self.fail(error if isinstance(error, OSError) else ConnectionError(HUNG_UP))

    def _finish(self, reading: ResponseParser) -> None:
        self._reading = None
        self._waiter.set_result(self._received)
        if self._is_paused:
            self._resume()
        if reading.keeps and not self._transport.is_closing():
            self._owner.keep(self)
            self._timer.watch(self._heard + IDLE_SECONDS, self._check_deadlines)
        else:
            # Not now: within a callback, closing a transport with TLS calls back, and fails if the host closes, too.
            self._loop.call_soon(self._transport.close)

    @property
    def _deadline(self) -> float:
        """When its patience ends, unless something comes."""
        if self._reading is None:
            return self._heard + IDLE_SECONDS
        return min(self._started + self._timeouts.total, self._heard + self._timeouts.read)

    def _check_deadlines(self) -> None:
        due = self._deadline
        if monotonic() < due:
            self._timer.watch(due, self._check_deadlines)
        elif self._reading is None:
            self._transport.close()
        elif self._arrived.poll(0) and monotonic() < self._started + self._timeouts.total:
            self._timer.watch(monotonic() + AGAIN_SECONDS, self._check_deadlines)  # it was this process that was late
        else:
            self.fail(TimeoutError())


class PlainConnection(Http1Connection, asyncio.Protocol):
    """Without TLS."""


class SecureConnection(Http1Connection, SharedBufferProtocol):
    """With TLS."""

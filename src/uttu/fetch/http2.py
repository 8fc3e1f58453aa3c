"""One HTTP/2 connection (RFC 9113), as much of it as a client needs that reads whole responses.

Many exchanges share the connection, each as a stream. Server push is turned off, priorities are ignored, and a response
is read whole or cut, as in HTTP/1 (``http1``): the same limits, the same headers, the same errors. ``http2_frames``
reads and writes the frames, and bounds the cost of frames that carry nothing.

A request that the host has not begun to work on raises :class:`RequestUnprocessed`; by the standard it may be sent
again.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, cast

from uttu.fetch import http2_frames as wire
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
    RequestUnprocessed,
    Reservation,
    SharedBufferProtocol,
    Timeouts,
    drop_reservation,
)
from uttu.fetch.http1_parser import (
    BODILESS,
    HEAD_LIMIT,
    BodyLimitExceeded,
    InvalidResponse,
    parse_content_length,
    parse_field,
)
from uttu.fetch.http2_frames import ErrorCode, FrameReader, HeaderField, HpackDecoder, InvalidHeaderBlock, encode_frame
from uttu.fetch.tls import keep_session
from uttu.model import Headers

VERSION: Final = "HTTP/2.0"
_USUAL_STREAMS: Final = 100  # until the host says how many it allows


@dataclass(slots=True, eq=False)
class Http2Stream:
    """One exchange: the response so far, and what is still to be sent."""

    outgoing: OutgoingRequest
    started: float
    window: int  # bytes that we may send
    waiter: asyncio.Future[RawResponse]
    unsent: bytes
    heard: float
    received: float = 0.0
    answer: RawResponse | None = None  # set when the head is complete
    length: int | None = None  # announced by the host
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0
    window_left: int = wire.STREAM_WINDOW  # bytes that the host may send
    reservation: asyncio.Future[Reservation] | None = None  # of a large body


class Http2Connection(SharedBufferProtocol):
    def __init__(
        self, owner: ConnectionOwner[Http2Connection], key: str, timeouts: Timeouts, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.key = key
        self._owner = owner
        self._timeouts = timeouts
        self._loop = loop
        self._transport: asyncio.Transport
        self._arrived = select.poll()
        self._streams: dict[int, Http2Stream] = {}
        self._next_id = 1
        self._most_streams = _USUAL_STREAMS
        self._is_leaving = False  # it takes no more requests
        self._reader = FrameReader()
        self._decoder = HpackDecoder(HEAD_LIMIT)
        self._window = 65_535  # how much we may send, in all
        self._stream_window = 65_535
        self._window_left = wire.CONNECTION_WINDOW
        self._rested = self._heard = monotonic()
        self._timer = ConnectionTimer(loop)

    @property
    def has_room(self) -> bool:
        return (
            not self._is_leaving
            and len(self._streams) < self._most_streams
            and self._next_id <= wire.LAST_ID
            and not self._transport.is_closing()
        )

    @property
    def is_usable(self) -> bool:
        """Whether one that rested can go on: what came meanwhile would be its end, most likely."""
        return self.has_room and not self._arrived.poll(0)

    async def exchange(self, outgoing: OutgoingRequest, started: float) -> RawResponse:
        """Like :meth:`uttu.fetch.http1.Http1Connection.exchange`, and:

        :raises RequestUnprocessed: the host did not begin to work on the request.
        """
        if not self.has_room:
            raise RequestUnprocessed
        waiter: asyncio.Future[RawResponse] = self._loop.create_future()
        number = self._next_id
        self._next_id += 2
        self._reader.budget = max(self._reader.budget, wire.FRAME_BUDGET)
        stream = self._streams[number] = Http2Stream(
            outgoing, started, self._stream_window, waiter, outgoing.body, monotonic()
        )
        self._timer.watch(self._deadline_of(stream), self._check_deadlines)
        self._send_head(number, stream)
        try:
            return await waiter
        except Exception:
            drop_reservation(stream.reservation)
            raise
        except asyncio.CancelledError:
            drop_reservation(stream.reservation)
            if self._streams.get(number) is stream:
                self._reset(number)
            elif waiter.done() and not waiter.cancelled():
                waiter.exception()  # it ended at the same moment, and nobody asks how
            raise

    def fail(self, error: Exception) -> None:
        """End all exchanges with this, and the connection."""
        self._is_leaving = True
        for number in tuple(self._streams):
            self._fail(number, error)
        self.drop()

    def retire(self) -> None:
        """Take no more requests, and close with the last one."""
        self._is_leaving = True
        if not self._streams:
            self._close_soon()

    def _close_soon(self) -> None:
        """Not now: within a callback, closing a transport with TLS calls back, and fails if the host closes, too."""
        self._loop.call_soon(self._transport.close)

    def drop(self) -> None:
        self._is_leaving = True
        self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._arrived.register(transport.get_extra_info("socket"), select.POLLIN)
        self._owner.opened(self)
        self._transport.write(wire.CLIENT_PREFACE)
        self._timer.watch(self._rested + IDLE_SECONDS, self._check_deadlines)

    def data_received(self, data: bytes) -> None:
        self._heard = monotonic()
        try:
            self._read(data)
        except (InvalidResponse, InvalidHeaderBlock) as error:
            self._end(ErrorCode.PROTOCOL_ERROR)
            self.fail(InvalidResponse(str(error)))
        except Exception as error:
            self.fail(error)

    def eof_received(self) -> None:
        self.fail(ConnectionError(HUNG_UP))

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._owner.forget(self)
        self.fail(error if isinstance(error, OSError) else ConnectionError(HUNG_UP))

    # Frames.

    def _read(self, data: bytes) -> None:
        is_closing = self._transport.is_closing
        for kind, flags, number, payload in self._reader.feed(data):
            if is_closing():
                return
            if (handler := _HANDLERS.get(kind)) is not None:
                handler(self, flags, number, payload)

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        if flags & wire.PADDED:
            payload = wire.strip_padding(payload)
        self._window_left -= size
        if self._window_left < wire.CONNECTION_WINDOW // 2:
            self._grant(0, wire.CONNECTION_WINDOW - self._window_left)
            self._window_left = wire.CONNECTION_WINDOW
        stream = self._stream(number)
        if stream is None:
            return
        stream.window_left -= size
        if stream.window_left < 0:
            raise InvalidResponse("it sends more than its window allows")
        if stream.answer is None:
            raise InvalidResponse("it sends a body without a head")
        if payload:
            stream.heard = monotonic()
            stream.pieces.append(payload)
            stream.size += len(payload)
            if stream.size > stream.outgoing.limit:
                self._stop_at_limit(number, stream)
                return
        if flags & wire.END_STREAM:
            self._finish(number, stream)
        elif stream.window_left < wire.STREAM_WINDOW // 2:
            if stream.size > LARGE_BODY and stream.reservation is None:
                stream.reservation = self._owner.large_bodies.reserve(stream.outgoing.limit)
            self._open_window(number, stream)

    def _open_window(self, number: int, stream: Http2Stream) -> None:
        """Let the host send more of a body, as soon as there is memory for it."""
        granted = stream.reservation
        if granted is not None and not granted.done():
            granted.add_done_callback(lambda _: self._open_window(number, stream))
        elif self._streams.get(number) is stream:
            self._grant(number, wire.STREAM_WINDOW - stream.window_left)
            stream.window_left = wire.STREAM_WINDOW

    def _stop_at_limit(self, number: int, stream: Http2Stream) -> None:
        if not stream.outgoing.may_cut:
            self._fail(number, BodyLimitExceeded("there are more"))
            return
        assert stream.answer is not None
        stream.answer.cut = True
        stream.pieces[-1] = stream.pieces[-1][: stream.outgoing.limit - stream.size]
        self._reset(number)
        self._complete(stream)

    def _on_headers(self, flags: int, number: int, block: bytes) -> None:
        fields = self._decoder.decode(block)
        is_last = bool(flags & wire.END_STREAM)
        stream = self._stream(number)
        if stream is None:
            return
        stream.heard = monotonic()
        if not stream.received:
            stream.received = stream.heard
        try:
            if stream.answer is None:
                self._begin(stream, fields)
            elif not is_last:
                raise InvalidResponse("it has a second head")
            if is_last:
                self._finish(number, stream)
        except (InvalidResponse, BodyLimitExceeded) as error:
            self._fail(number, error)

    def _begin(self, stream: Http2Stream, fields: list[HeaderField]) -> None:
        status = dict(fields).get(b":status", b"")
        if len(status) != 3 or not status.isdigit() or status < b"100" or status == b"101":
            raise InvalidResponse(f"its status is {status[:20]!r}")
        if status < b"200":
            return  # a note; the response follows
        pairs = [found for name, value in fields if (found := parse_field(name, value)) is not None]
        stream.answer = RawResponse(int(status), VERSION, Headers(pairs), stream.received)
        if not (stream.outgoing.is_head or stream.answer.status in BODILESS):
            stream.length = parse_content_length(stream.answer.headers)
            if stream.length is not None and stream.length > stream.outgoing.limit and not stream.outgoing.may_cut:
                raise BodyLimitExceeded(f"{stream.length} are announced")

    def _finish(self, number: int, stream: Http2Stream) -> None:
        if stream.answer is None:
            raise InvalidResponse("it ends before its head")
        if stream.length is not None and stream.length != stream.size:
            self._fail(number, InvalidResponse(f"its length is {stream.length}, but {stream.size} bytes came"))
            return
        if stream.unsent:
            self._write(encode_frame(wire.RST_STREAM, 0, number, ErrorCode.CANCEL.to_bytes(4, "big")))
        self._forget(number)
        self._complete(stream)
        if number == 1:
            keep_session(self._transport.get_extra_info("ssl_object"))

    def _complete(self, stream: Http2Stream) -> None:
        assert stream.answer is not None
        if not (stream.outgoing.is_head or stream.answer.status in BODILESS):
            stream.answer.body = stream.pieces[0] if len(stream.pieces) == 1 else b"".join(stream.pieces)
        stream.answer.reservation = stream.reservation
        if not stream.waiter.done():
            stream.waiter.set_result(stream.answer)

    def _on_reset(self, flags: int, number: int, payload: bytes) -> None:
        stream = self._stream(number)
        code = int.from_bytes(payload[:4], "big")
        if stream is None:
            return
        self._forget(number)
        if code in (ErrorCode.REFUSED_STREAM, ErrorCode.HTTP_1_1_REQUIRED):
            self._settle(stream, RequestUnprocessed(needs_http1=code == ErrorCode.HTTP_1_1_REQUIRED))
        else:
            self._settle(stream, ConnectionError(f"it reset the stream ({wire.describe_error_code(code)})"))

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        if flags & wire.ACK:
            return
        for at in range(0, len(payload) - 5, 6):
            name, value = int.from_bytes(payload[at : at + 2], "big"), int.from_bytes(payload[at + 2 : at + 6], "big")
            if name == wire.Setting.MAX_STREAMS:
                self._most_streams = value
            elif name == wire.Setting.INITIAL_WINDOW:
                if value > wire.LAST_ID:
                    raise InvalidResponse("its window is too large")
                for stream in self._streams.values():
                    stream.window += value - self._stream_window
                self._stream_window = value
        self._write(encode_frame(wire.SETTINGS, wire.ACK, 0))
        self._send_bodies()

    def _on_ping(self, flags: int, number: int, payload: bytes) -> None:
        if not flags & wire.ACK:
            self._write(encode_frame(wire.PING, wire.ACK, 0, payload[:8].ljust(8, b"\0")))

    def _on_goaway(self, flags: int, number: int, payload: bytes) -> None:
        self._is_leaving = True
        last = int.from_bytes(payload[:4], "big") & wire.LAST_ID
        code = int.from_bytes(payload[4:8], "big")
        for open_number, stream in tuple(self._streams.items()):
            if open_number > last:
                self._forget(open_number)
                self._settle(stream, RequestUnprocessed(needs_http1=code == ErrorCode.HTTP_1_1_REQUIRED))
        if not self._streams:
            self._close_soon()

    def _on_window(self, flags: int, number: int, payload: bytes) -> None:
        more = int.from_bytes(payload[:4], "big") & wire.LAST_ID
        if not number:
            self._window += more
            if self._window > wire.LAST_ID:
                raise InvalidResponse("its window is too large")
        elif (stream := self._stream(number)) is not None:
            stream.window += more
            if stream.window > wire.LAST_ID:
                raise InvalidResponse("its window is too large")
        self._send_bodies()

    def _on_push(self, flags: int, number: int, payload: bytes) -> None:
        raise InvalidResponse("it pushes, which was turned off")

    def _stream(self, number: int) -> Http2Stream | None:
        """None: it is over, or was given up here."""
        stream = self._streams.get(number)
        if stream is None and (number >= self._next_id or not number & 1):
            raise InvalidResponse(f"it speaks of stream {number}, which was never opened")
        return stream

    # Sending.

    def _send_head(self, number: int, stream: Http2Stream) -> None:
        block = stream.outgoing.encode_http2_headers()
        self._write(wire.encode_header_frames(number, block, end_stream=not stream.unsent))
        if stream.unsent:
            self._send_body(number, stream)

    def _send_bodies(self) -> None:
        for number, stream in self._streams.items():
            if stream.unsent:
                self._send_body(number, stream)

    def _send_body(self, number: int, stream: Http2Stream) -> None:
        while stream.unsent and (room := min(self._window, stream.window, wire.FRAME_SIZE)) > 0:
            piece, stream.unsent = stream.unsent[:room], stream.unsent[room:]
            self._window -= len(piece)
            stream.window -= len(piece)
            self._write(encode_frame(wire.DATA, 0 if stream.unsent else wire.END_STREAM, number, piece))

    def _grant(self, number: int, more: int) -> None:
        self._write(encode_frame(wire.WINDOW_UPDATE, 0, number, more.to_bytes(4, "big")))

    def _reset(self, number: int) -> None:
        self._write(encode_frame(wire.RST_STREAM, 0, number, ErrorCode.CANCEL.to_bytes(4, "big")))
        self._forget(number)

    def _end(self, code: int) -> None:
        self._is_leaving = True
        self._write(encode_frame(wire.GOAWAY, 0, 0, bytes(4) + code.to_bytes(4, "big")))

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    # The end of an exchange.

    def _fail(self, number: int, error: Exception) -> None:
        stream = self._streams[number]
        self._reset(number)
        self._settle(stream, error)

    def _settle(self, stream: Http2Stream, error: Exception) -> None:
        if stream.waiter.done():
            return
        if isinstance(error, OSError) and not isinstance(error, TimeoutError):
            error = ConnectionBroken(stream.answer is not None, error)
        stream.waiter.set_exception(error)

    def _forget(self, number: int) -> None:
        del self._streams[number]
        if self._streams:
            return
        self._rested = monotonic()
        if self._is_leaving:
            self._close_soon()
        else:
            self._owner.keep(self)
            self._timer.watch(self._rested + IDLE_SECONDS, self._check_deadlines)

    def _deadline_of(self, stream: Http2Stream) -> float:
        return min(stream.started + self._timeouts.total, stream.heard + self._timeouts.read)

    def _check_deadlines(self) -> None:
        now = monotonic()
        if not self._streams and now >= self._rested + IDLE_SECONDS:
            self._end(ErrorCode.NO_ERROR)
            self._transport.close()
            return
        is_late = bool(self._streams) and bool(self._arrived.poll(0))  # it was this process that was late
        for number, stream in tuple(self._streams.items()):
            if now >= stream.started + self._timeouts.total or (now >= self._deadline_of(stream) and not is_late):
                # If nothing came at all, the connection is dead, most likely: the next request gets another.
                self._is_leaving = self._is_leaving or self._heard < stream.started
                self._fail(number, TimeoutError())
        if self._transport.is_closing():
            return
        dues = [self._deadline_of(stream) for stream in self._streams.values()] or [self._rested + IDLE_SECONDS]
        self._timer.watch(max(min(dues), now + AGAIN_SECONDS) if is_late else min(dues), self._check_deadlines)


_HANDLERS: Final[dict[int, Callable[[Http2Connection, int, int, bytes], None]]] = {
    wire.DATA: Http2Connection._on_data,
    wire.HEADERS: Http2Connection._on_headers,
    wire.RST_STREAM: Http2Connection._on_reset,
    wire.SETTINGS: Http2Connection._on_settings,
    wire.PUSH_PROMISE: Http2Connection._on_push,
    wire.PING: Http2Connection._on_ping,
    wire.GOAWAY: Http2Connection._on_goaway,
    wire.WINDOW_UPDATE: Http2Connection._on_window,
}

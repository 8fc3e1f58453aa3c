"""One HTTP/2 connection (RFC 9113), for a client that reads whole responses.

Many exchanges share the connection, each as a stream. Server push is turned off, priorities are ignored, and a response
is read whole or cut, as in HTTP/1 (``http1``): the same limits, the same headers, the same errors. ``http2_frames``
reads and writes the frames, and bounds the cost of frames that carry nothing.

A request that the host reports as not processed raises :class:`RequestUnprocessed`; by the standard it may be repeated.
"""

from __future__ import annotations

import asyncio
import select
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, cast

from uttu.fetch import http2_frames as wire
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
    RequestUnprocessed,
    Reservation,
    SharedBufferProtocol,
    Timeouts,
    drop_reservation,
)
from uttu.fetch.http1_parser import (
    BODILESS,
    HEAD_LIMIT,
    READING_STOPPED,
    BodyLimitExceeded,
    InvalidResponse,
    parse_content_length,
    parse_field,
)
from uttu.fetch.http2_frames import ErrorCode, FrameReader, HeaderField, HpackDecoder, InvalidHeaderBlock, encode_frame
from uttu.fetch.tls import store_session
from uttu.model import Headers

VERSION: Final = "HTTP/2.0"
_DEFAULT_MAX_STREAMS: Final = 100  # until the host sends SETTINGS_MAX_CONCURRENT_STREAMS
_WINDOW_TOO_LARGE: Final = "flow-control window too large"


@dataclass(slots=True, eq=False)
class Http2Stream:
    """One exchange: the response so far, and the part of the request body that is not sent yet."""

    outgoing: OutgoingRequest
    started: float
    send_window: int  # bytes that may be sent
    waiter: asyncio.Future[RawResponse]
    unsent: bytes
    last_read: float
    received: float = 0.0
    response: RawResponse | None = None  # set when the head is complete
    length: int | None = None  # Content-Length
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0
    receive_window: int = wire.STREAM_WINDOW  # bytes that the host may send
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
        self._unread = select.poll()
        self._streams: dict[int, Http2Stream] = {}
        self._next_id = 1
        self._max_streams = _DEFAULT_MAX_STREAMS
        self._is_draining = False  # it accepts no more requests, and closes after the last response
        self._reader = FrameReader()
        self._decoder = HpackDecoder(HEAD_LIMIT)
        self._send_window = 65_535  # bytes that may be sent on all streams together
        self._initial_send_window = 65_535  # of a new stream
        self._receive_window = wire.CONNECTION_WINDOW
        self._idle_since = self._last_read = monotonic()
        self._timer = ConnectionTimer(loop)

    @property
    def has_room(self) -> bool:
        return (
            not self._is_draining
            and len(self._streams) < self._max_streams
            and self._next_id <= wire.LAST_ID
            and not self._transport.is_closing()
        )

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection can be used: it has room, and no data is waiting, which would be a GOAWAY."""
        return self.has_room and not self._unread.poll(0)

    async def exchange(self, outgoing: OutgoingRequest, started: float) -> RawResponse:
        """Like :meth:`uttu.fetch.http1.Http1Connection.exchange`, and:

        :raises RequestUnprocessed: the host did not process the request.
        """
        if not self.has_room:
            raise RequestUnprocessed
        waiter: asyncio.Future[RawResponse] = self._loop.create_future()
        stream_id = self._next_id
        self._next_id += 2
        self._reader.budget = max(self._reader.budget, wire.FRAME_BUDGET)
        stream = Http2Stream(outgoing, started, self._initial_send_window, waiter, outgoing.body, monotonic())
        self._streams[stream_id] = stream
        self._timer.watch(self._deadline_of(stream), self._check_deadlines)
        self._send_head(stream_id, stream)
        try:
            return await waiter
        except BaseException as error:
            drop_reservation(stream.reservation)
            if not isinstance(error, asyncio.CancelledError):
                raise
            if self._streams.get(stream_id) is stream:
                self._reset_stream(stream_id)
            elif waiter.done() and not waiter.cancelled():
                waiter.exception()  # mark as retrieved: the exchange failed at the same moment
            raise

    def fail(self, error: Exception) -> None:
        """Let all exchanges raise ``error``, and abort the connection."""
        self._is_draining = True
        for stream_id in tuple(self._streams):
            self._fail_stream(stream_id, error)
        self.abort()

    def retire(self) -> None:
        """Accept no more requests, and close after the last response."""
        self._is_draining = True
        if not self._streams:
            self._close_soon()

    def _close_soon(self) -> None:
        # Later, because close() of a TLS transport calls back into this protocol, and fails if the host closes too.
        self._loop.call_soon(self._transport.close)

    def abort(self) -> None:
        self._is_draining = True
        self._transport.abort()

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._unread.register(transport.get_extra_info("socket"), select.POLLIN)
        self._owner.on_open(self)
        self._transport.write(wire.CLIENT_PREFACE)
        self._timer.watch(self._idle_since + IDLE_SECONDS, self._check_deadlines)

    def data_received(self, data: bytes) -> None:
        self._last_read = monotonic()
        try:
            self._read_frames(data)
        except (InvalidResponse, InvalidHeaderBlock) as error:
            self._send_goaway(ErrorCode.PROTOCOL_ERROR)
            self.fail(InvalidResponse(str(error)))
        except Exception as error:
            self.fail(error)

    def eof_received(self) -> None:
        self.fail(ConnectionError(CLOSED_BY_PEER))

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._owner.on_close(self)
        self.fail(error if isinstance(error, OSError) else ConnectionError(CLOSED_BY_PEER))

    # Frames.

    def _read_frames(self, data: bytes) -> None:
        is_closing = self._transport.is_closing
        for kind, flags, stream_id, payload in self._reader.feed(data):
            if is_closing():
                return
            if (handler := _FRAME_HANDLERS.get(kind)) is not None:
                handler(self, flags, stream_id, payload)

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        if flags & wire.PADDED:
            payload = wire.strip_padding(payload)
        self._receive_window -= size
        if self._receive_window < wire.CONNECTION_WINDOW // 2:
            self._send_window_update(0, wire.CONNECTION_WINDOW - self._receive_window)
            self._receive_window = wire.CONNECTION_WINDOW
        stream = self._find_stream(stream_id)
        if stream is None:
            return
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise InvalidResponse("more data than the flow-control window allows")
        if stream.response is None:
            raise InvalidResponse("DATA frame before HEADERS")
        if payload:
            stream.last_read = monotonic()
            stream.pieces.append(payload)
            stream.size += len(payload)
            if stream.size > stream.outgoing.limit:
                self._stop_at_limit(stream_id, stream)
                return
        if flags & wire.END_STREAM:
            self._finish(stream_id, stream)
        elif stream.receive_window < wire.STREAM_WINDOW // 2:
            if stream.size > LARGE_BODY and stream.reservation is None:
                stream.reservation = self._owner.large_bodies.reserve(stream.outgoing.limit)
            self._open_window(stream_id, stream)

    def _open_window(self, stream_id: int, stream: Http2Stream) -> None:
        """Let the host send more of a body, as soon as there is memory for it."""
        granted = stream.reservation
        if granted is not None and not granted.done():
            granted.add_done_callback(lambda _: self._open_window(stream_id, stream))
        elif self._streams.get(stream_id) is stream:
            self._send_window_update(stream_id, wire.STREAM_WINDOW - stream.receive_window)
            stream.receive_window = wire.STREAM_WINDOW

    def _stop_at_limit(self, stream_id: int, stream: Http2Stream) -> None:
        if not stream.outgoing.may_cut:
            self._fail_stream(stream_id, BodyLimitExceeded(READING_STOPPED))
            return
        assert stream.response is not None
        stream.response.cut = True
        stream.pieces[-1] = stream.pieces[-1][: stream.outgoing.limit - stream.size]
        self._reset_stream(stream_id)
        self._complete(stream)

    def _on_headers(self, flags: int, stream_id: int, block: bytes) -> None:
        fields = self._decoder.decode(block)
        is_last = bool(flags & wire.END_STREAM)
        stream = self._find_stream(stream_id)
        if stream is None:
            return
        stream.last_read = monotonic()
        if not stream.received:
            stream.received = stream.last_read
        try:
            if stream.response is None:
                self._set_head(stream, fields)
            elif not is_last:
                raise InvalidResponse("second HEADERS frame without END_STREAM")
            if is_last:
                self._finish(stream_id, stream)
        except (InvalidResponse, BodyLimitExceeded) as error:
            self._fail_stream(stream_id, error)

    def _set_head(self, stream: Http2Stream, fields: list[HeaderField]) -> None:
        status = dict(fields).get(b":status", b"")
        if len(status) != 3 or not status.isdigit() or status < b"100" or status == b"101":
            raise InvalidResponse(f"invalid status {status[:20]!r}")
        if status < b"200":
            return  # an interim response; the final one follows
        pairs = [pair for name, value in fields if (pair := parse_field(name, value)) is not None]
        stream.response = RawResponse(int(status), VERSION, Headers(pairs), stream.received)
        if not (stream.outgoing.is_head or stream.response.status in BODILESS):
            stream.length = parse_content_length(stream.response.headers)
            if stream.length is not None and stream.length > stream.outgoing.limit and not stream.outgoing.may_cut:
                raise BodyLimitExceeded(f"Content-Length: {stream.length}")

    def _finish(self, stream_id: int, stream: Http2Stream) -> None:
        if stream.response is None:
            raise InvalidResponse("stream ended before HEADERS")
        if stream.length is not None and stream.length != stream.size:
            error = InvalidResponse(f"Content-Length is {stream.length}, but {stream.size} bytes arrived")
            self._fail_stream(stream_id, error)
            return
        # If part of the request is unsent, the host answered before it read all of it.
        (self._reset_stream if stream.unsent else self._remove_stream)(stream_id)
        self._complete(stream)
        if stream_id == 1:
            store_session(self._transport.get_extra_info("ssl_object"))

    def _complete(self, stream: Http2Stream) -> None:
        assert stream.response is not None
        if not (stream.outgoing.is_head or stream.response.status in BODILESS):
            stream.response.body = stream.pieces[0] if len(stream.pieces) == 1 else b"".join(stream.pieces)
        stream.response.reservation = stream.reservation
        if not stream.waiter.done():
            stream.waiter.set_result(stream.response)

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        code = int.from_bytes(payload[:4], "big")
        if (stream := self._find_stream(stream_id)) is None:
            return
        self._remove_stream(stream_id)
        if code in (ErrorCode.REFUSED_STREAM, ErrorCode.HTTP_1_1_REQUIRED):
            self._set_error(stream, RequestUnprocessed(needs_http1=code == ErrorCode.HTTP_1_1_REQUIRED))
        else:
            self._set_error(stream, ConnectionError(f"stream reset ({wire.describe_error_code(code)})"))

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & wire.ACK:
            return
        for name, value in struct.iter_unpack(">HI", payload[: len(payload) // 6 * 6]):
            if name == wire.Setting.MAX_STREAMS:
                self._max_streams = value
            elif name == wire.Setting.INITIAL_WINDOW:
                if value > wire.MAX_WINDOW:
                    raise InvalidResponse(_WINDOW_TOO_LARGE)
                for stream in self._streams.values():
                    stream.send_window += value - self._initial_send_window
                self._initial_send_window = value
        self._write(encode_frame(wire.SETTINGS, wire.ACK, 0))
        self._send_bodies()

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not flags & wire.ACK:
            self._write(encode_frame(wire.PING, wire.ACK, 0, payload[:8].ljust(8, b"\0")))

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._is_draining = True
        last = int.from_bytes(payload[:4], "big") & wire.LAST_ID
        code = int.from_bytes(payload[4:8], "big")
        for open_id, stream in tuple(self._streams.items()):
            if open_id > last:
                self._remove_stream(open_id)
                self._set_error(stream, RequestUnprocessed(needs_http1=code == ErrorCode.HTTP_1_1_REQUIRED))
        if not self._streams:
            self._close_soon()

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        increment = int.from_bytes(payload[:4], "big") & wire.LAST_ID
        if not stream_id:
            self._send_window += increment
            if self._send_window > wire.MAX_WINDOW:
                raise InvalidResponse(_WINDOW_TOO_LARGE)
        elif (stream := self._find_stream(stream_id)) is not None:
            stream.send_window += increment
            if stream.send_window > wire.MAX_WINDOW:
                raise InvalidResponse(_WINDOW_TOO_LARGE)
        self._send_bodies()

    def _on_push(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise InvalidResponse("server push, although it is turned off")

    def _find_stream(self, stream_id: int) -> Http2Stream | None:
        """The stream, or None if it has ended or was reset."""
        stream = self._streams.get(stream_id)
        if stream is None and (stream_id >= self._next_id or not stream_id & 1):
            raise InvalidResponse(f"frame for stream {stream_id}, which was never opened")
        return stream

    # Sending.

    def _send_head(self, stream_id: int, stream: Http2Stream) -> None:
        block = stream.outgoing.encode_http2_headers()
        self._write(wire.encode_header_frames(stream_id, block, end_stream=not stream.unsent))
        if stream.unsent:
            self._send_body(stream_id, stream)

    def _send_bodies(self) -> None:
        for stream_id, stream in self._streams.items():
            if stream.unsent:
                self._send_body(stream_id, stream)

    def _send_body(self, stream_id: int, stream: Http2Stream) -> None:
        while stream.unsent and (room := min(self._send_window, stream.send_window, wire.FRAME_SIZE)) > 0:
            piece, stream.unsent = stream.unsent[:room], stream.unsent[room:]
            self._send_window -= len(piece)
            stream.send_window -= len(piece)
            self._write(encode_frame(wire.DATA, 0 if stream.unsent else wire.END_STREAM, stream_id, piece))

    def _send_window_update(self, stream_id: int, increment: int) -> None:
        self._write(encode_frame(wire.WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big")))

    def _reset_stream(self, stream_id: int) -> None:
        self._write(encode_frame(wire.RST_STREAM, 0, stream_id, ErrorCode.CANCEL.to_bytes(4, "big")))
        self._remove_stream(stream_id)

    def _send_goaway(self, code: int) -> None:
        self._is_draining = True
        self._write(encode_frame(wire.GOAWAY, 0, 0, bytes(4) + code.to_bytes(4, "big")))

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    # Ends of exchanges.

    def _fail_stream(self, stream_id: int, error: Exception) -> None:
        stream = self._streams[stream_id]
        self._reset_stream(stream_id)
        self._set_error(stream, error)

    def _set_error(self, stream: Http2Stream, error: Exception) -> None:
        if stream.waiter.done():
            return
        if isinstance(error, OSError) and not isinstance(error, TimeoutError):
            error = ConnectionBroken(stream.response is not None, error)
        stream.waiter.set_exception(error)

    def _remove_stream(self, stream_id: int) -> None:
        del self._streams[stream_id]
        if self._streams:
            return
        self._idle_since = monotonic()
        if self._is_draining:
            self._close_soon()
        else:
            self._owner.on_idle(self)
            self._timer.watch(self._idle_since + IDLE_SECONDS, self._check_deadlines)

    def _deadline_of(self, stream: Http2Stream) -> float:
        return min(stream.started + self._timeouts.total, stream.last_read + self._timeouts.read)

    def _check_deadlines(self) -> None:
        now = monotonic()
        if not self._streams and now >= self._idle_since + IDLE_SECONDS:
            self._send_goaway(ErrorCode.NO_ERROR)
            self._transport.close()
            return
        # If data has arrived, the host was in time and this process was too busy to read it.
        has_unread = bool(self._streams) and bool(self._unread.poll(0))
        for stream_id, stream in tuple(self._streams.items()):
            if now >= stream.started + self._timeouts.total or (now >= self._deadline_of(stream) and not has_unread):
                # If no data arrived at all, the connection is probably dead: use another one for the next request.
                self._is_draining = self._is_draining or self._last_read < stream.started
                self._fail_stream(stream_id, TimeoutError())
        if self._transport.is_closing():
            return
        deadline = min(map(self._deadline_of, self._streams.values()), default=self._idle_since + IDLE_SECONDS)
        self._timer.watch(max(deadline, now + RECHECK_SECONDS) if has_unread else deadline, self._check_deadlines)


_FRAME_HANDLERS: Final[dict[int, Callable[[Http2Connection, int, int, bytes], None]]] = {
    wire.DATA: Http2Connection._on_data,
    wire.HEADERS: Http2Connection._on_headers,
    wire.RST_STREAM: Http2Connection._on_reset,
    wire.SETTINGS: Http2Connection._on_settings,
    wire.PUSH_PROMISE: Http2Connection._on_push,
    wire.PING: Http2Connection._on_ping,
    wire.GOAWAY: Http2Connection._on_goaway,
    wire.WINDOW_UPDATE: Http2Connection._on_window_update,
}

"""Plain connections to hosts: each serves one exchange at a time, and is kept for the next.

One timer a connection watches over it for as long as it is open: it looks when the earliest of its times may be over,
and again if it is not. So an exchange costs no timer of its own.

Those that are kept take file descriptors, of which a process has only so many. Beyond half of them, the one that was
used longest ago is closed; should there be none left, all that are idle are.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import select
from time import monotonic
from typing import Final, cast

from weft.addresses import addresses_of
from weft.fetch.http1 import Garbled, Reading
from weft.fetch.http_errors import Timeouts

# Longer than most delays between two requests to a host. The library keeps its own as long.
IDLE_SECONDS: Final = 20.0
_MOST_IDLE: Final = 10_000
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_AGAIN_SECONDS: Final = 0.01
_HUNG_UP: Final = "it closed the connection"


class Closed(Exception):
    """The connections were closed by their owner."""


class Connections:
    """All connections of a fetcher; a host is named with its port, as in a URL."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._open: set[Connection] = set()
        self._idle: dict[str, dict[Connection, None]] = {}
        self._resting: dict[Connection, None] = {}  # the same, in the order in which they came to rest
        self._most_resting = _most_idle()
        self._patience: set[asyncio.Timeout] = set()
        self._closed = False

    def kept(self, host: str) -> Connection | None:
        """One that is open and idle, asked again first that was used last."""
        while idle := self._idle.get(host):
            connection = next(reversed(idle))
            self._wake(connection)
            if connection.is_usable:
                return connection
        return None

    async def connect(self, host: str, name: str, port: int) -> Connection:
        """A new one.

        :raises TimeoutError: it took too long.
        :raises OSError: the host can't be reached, or its name does not resolve (:class:`socket.gaierror`).
        :raises UnicodeError: it has a name that nobody can have.
        :raises Closed: the connections were closed meanwhile.
        """
        seconds = min(self._timeouts.connect, self._timeouts.total)
        until = monotonic() + seconds
        try:
            async with asyncio.timeout(seconds) as patience:
                self._patience.add(patience)
                try:
                    connection = await self._connect_to_any(host, await addresses_of(name), port, until)
                finally:
                    self._patience.discard(patience)
        except TimeoutError as error:
            raise (Closed() if self._closed else error) from error
        if self._closed:
            connection.drop()
            raise Closed
        return connection

    async def _connect_to_any(self, host: str, addresses: list[str], port: int, until: float) -> Connection:
        error: OSError = ConnectionError(_HUNG_UP)
        for number, address in enumerate(addresses):
            try:
                # Each has its share of the time that is left, so that a dead one leaves some to the others.
                async with asyncio.timeout((until - monotonic()) / (len(addresses) - number)):
                    return await self._connect(host, address, port)
            except OSError as failure:
                error = failure
        raise error

    async def _connect(self, host: str, address: str, port: int) -> Connection:
        loop = asyncio.get_running_loop()

        async def connect() -> Connection:
            made = await loop.create_connection(lambda: Connection(self, host, self._timeouts, loop), address, port)
            return made[1]

        try:
            return await connect()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS or not self._resting:
                raise
        for connection in tuple(self._resting):
            connection.drop()
        await asyncio.sleep(0)  # they are closed in the next round
        return await connect()

    def opened(self, connection: Connection) -> None:
        self._open.add(connection)

    def keep(self, connection: Connection) -> None:
        self._idle.setdefault(connection.host, {})[connection] = None
        self._resting[connection] = None
        if len(self._resting) > self._most_resting:
            next(iter(self._resting)).drop()

    def forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._resting:
            self._wake(connection)

    def _wake(self, connection: Connection) -> None:
        del self._resting[connection]
        idle = self._idle[connection.host]
        del idle[connection]
        if not idle:
            del self._idle[connection.host]

    def close(self) -> None:
        """Break off what is under way, and make no more."""
        self._closed = True
        for patience in self._patience:
            if not patience.expired():
                patience.reschedule(0)
        for connection in tuple(self._open):
            connection.fail(Closed())


def _most_idle() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_IDLE if limit == resource.RLIM_INFINITY else min(max(limit // 2, 1), _MOST_IDLE)


class Connection(asyncio.Protocol):
    def __init__(self, owner: Connections, host: str, timeouts: Timeouts, loop: asyncio.AbstractEventLoop) -> None:
        self.host = host
        self._owner = owner
        self._timeouts = timeouts
        self._loop = loop
        self._transport: asyncio.Transport
        self._arrived = select.poll()
        self._reading: Reading | None = None
        self._early = False  # whether the host spoke before it was first asked
        self._waiter: asyncio.Future[float]
        self._started = 0.0  # the exchange; 0: there was none
        self._received = 0.0  # the beginning of the response
        self._heard = 0.0  # anything, or the exchange began
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether nothing has come since the last response: it would be the host's end, or nothing good."""
        return not self._transport.is_closing() and not self._arrived.poll(0)

    async def exchange(self, request: bytes, reading: Reading, started: float) -> float:
        """Send a request and read its response; returns when that began to arrive. ``started``: the fetch did.

        :raises TimeoutError: it took too long in all, or nothing came for too long.
        :raises ConnectionError: the host hung up.
        :raises Garbled, TooMuch: see :class:`Reading`.
        :raises Closed: the connection was closed meanwhile.
        """
        if self._transport.is_closing():
            raise ConnectionError(_HUNG_UP)
        if self._early:
            self.drop()
            raise Garbled("it speaks before it is asked")
        waiter: asyncio.Future[float] = self._loop.create_future()
        self._waiter = waiter
        self._reading = reading
        self._started, self._received, self._heard = started, 0.0, monotonic()
        self._watch(self._due)
        self._transport.write(request)
        try:
            return await waiter
        except asyncio.CancelledError:
            if self._reading is reading:
                self.drop()
            elif waiter.done() and not waiter.cancelled():
                waiter.exception()  # it ended at the same moment, and nobody asks how
            raise

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
        except Exception as error:
            self.fail(error)

    def eof_received(self) -> None:
        if self._reading is not None and not self._waiter.done() and self._reading.end():
            self._finish(self._reading)
        else:
            self.fail(ConnectionError(_HUNG_UP))

    def connection_lost(self, error: Exception | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._owner.forget(self)
        self.fail(error if isinstance(error, OSError) else ConnectionError(_HUNG_UP))

    def _finish(self, reading: Reading) -> None:
        self._reading = None
        if reading.keeps and not self._transport.is_closing():
            self._owner.keep(self)
            self._watch(self._heard + IDLE_SECONDS)
        else:
            self._transport.close()
        self._waiter.set_result(self._received)

    @property
    def _due(self) -> float:
        """When its patience ends, unless something comes."""
        if self._reading is None:
            return self._heard + IDLE_SECONDS
        return min(self._started + self._timeouts.total, self._heard + self._timeouts.read)

    def _watch(self, due: float) -> None:
        if self._alarm is not None:
            if self._alarm_at <= due:
                return
            self._alarm.cancel()
        self._alarm_at = due
        self._alarm = self._loop.call_later(due - monotonic(), self._look)

    def _look(self) -> None:
        self._alarm = None
        due = self._due
        if monotonic() < due:
            self._watch(due)
        elif self._reading is None:
            self._transport.close()
        elif self._arrived.poll(0) and monotonic() < self._started + self._timeouts.total:
            self._watch(monotonic() + _AGAIN_SECONDS)  # it was this process that was late
        else:
            self.fail(TimeoutError())

"""The two kinds of subscribers on Redis, and the buffer that both use.

    RedisGroupConsumer       reads the stream of its group with XREADGROUP
    RedisBroadcastConsumer   has no group; receives published messages with SUBSCRIBE and PSUBSCRIBE

Each has two tasks. ``_read`` fills the :class:`PrefetchBuffer` from a dedicated connection, on which it may block. So
``receive`` only waits for the buffer, and can be cancelled without losing a message. ``_keep_alive`` sends heartbeats,
moves delayed messages that are due and, for a group, takes over the messages of subscribers without heartbeats.

For broadcasts, patterns of topics become globs of Redis. A glob may match more topics, so the consumer filters messages
by topic and by headers after it receives them. If a subscriber is too slow, messages wait on the server up to
``client-output-buffer-limit pubsub``. Beyond that the server closes the connection, and listeners get ``LOST``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from math import inf
from typing import Any, Final

import redis.exceptions as refused

from uttu.bus.backend import group_deleted, group_mismatch
from uttu.bus.base import Delivery, SubscribeOptions
from uttu.bus.redis.codec import decode_entries, decode_message, decode_topics, encode_definition
from uttu.bus.redis.connection import BrokerConnection, cancel_and_wait, report_failure
from uttu.bus.topics import is_pattern, matches
from uttu.clients.redis.connection import DedicatedConnection
from uttu.errors import BusError


class PrefetchBuffer:
    """Deliveries between the task that reads and the consumer loop that takes them.

    Counts buffered and unacknowledged deliveries together: there are at most ``prefetch`` of them if the reading task
    adds no more than :meth:`room` returns.
    """

    def __init__(self, options: SubscribeOptions) -> None:
        self.is_paused = False
        self._prefetch = options.prefetch
        self._min_room = max(1, options.prefetch // 2)  # minimum room for a read, unless the buffer is empty
        self._buffer: deque[Delivery] = deque()
        self._positions: set[str] = set()  # of buffered and unacknowledged deliveries
        self._failure: Exception | None = None
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    def __contains__(self, position: str) -> bool:
        return position in self._positions

    async def room(self) -> int:
        """Return the number of further deliveries; wait until it is at least half the prefetch or the buffer is empty.

        Waits also while the buffer is paused.
        """
        while True:
            room = self._prefetch - len(self._positions)
            if not self.is_paused and room > 0 and (room >= self._min_room or not self._buffer):
                return room
            self._emptied.clear()
            await self._emptied.wait()

    def add(self, deliveries: Sequence[Delivery]) -> None:
        self._buffer.extend(deliveries)
        self._positions.update([delivery.position for delivery in deliveries])
        if self._buffer:
            self._filled.set()

    async def take(self, limit: int) -> list[Delivery]:
        """Wait for a delivery, and return up to ``limit`` of them.

        :raises Exception: the error passed to :meth:`fail`, when the buffer is empty.
        """
        while not self._buffer:
            if self._failure is not None:
                raise self._failure
            self._filled.clear()
            await self._filled.wait()
        self._emptied.set()
        return [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]

    def release(self, deliveries: Sequence[Delivery]) -> None:
        """Make room: these deliveries are settled."""
        self._positions.difference_update([delivery.position for delivery in deliveries])
        self._emptied.set()

    def drop(self) -> None:
        """Remove all deliveries that the consumer loop has not taken yet."""
        self.release(self._buffer)
        self._buffer.clear()

    def set_paused(self, paused: bool) -> None:
        self.is_paused = paused
        self._emptied.set()

    def fail(self, error: Exception) -> None:
        """Make :meth:`take` raise ``error`` when the buffer is empty."""
        self._failure = error
        self._filled.set()


_BLOCK_SECONDS: Final = 1.0  # BLOCK of XREADGROUP
_TICK_SECONDS: Final = 0.5  # longest pause between two heartbeats
_TAKEOVER_EVERY: Final = 20  # ticks between two searches for readers without a heartbeat
_LEAVE_SECONDS: Final = 3.0  # time limit of each step of close()
_UNBLOCK_SECONDS: Final = 0.05  # pause between two CLIENT UNBLOCK
_RECOVER_COUNT: Final = 1000  # pending entries in one read after a reconnect
_MILLISECOND: Final = 0.001


class RedisGroupConsumer:
    """A subscriber of a group; see :class:`uttu.bus.backend.Consumer`. Create it with :meth:`join`."""

    def __init__(self, server: BrokerConnection, options: SubscribeOptions) -> None:
        self._server = server
        self._options = options
        self._name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._takeover = round(server.options.takeover * 1000)
        self._token = b""
        self._buffer = PrefetchBuffer(options)
        # Held while entries are settled, and while _open() reads the pending entries: an entry that is settled in
        # between would be delivered a second time.
        self._settling = asyncio.Lock()
        self._connection = server.create_dedicated()
        self._client_id = 0  # of the connection, for CLIENT UNBLOCK; 0 if unknown
        self._is_reading = False
        self._is_closing = False
        self._next_retry = inf  # loop time of this subscriber's next retry; _keep_alive() ticks then
        self._wake = asyncio.Event()  # wakes _keep_alive()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def join(cls, server: BrokerConnection, options: SubscribeOptions) -> RedisGroupConsumer:
        """Join the group, create it if necessary, and start to read.

        :raises BusRefused: the group exists with other topics or another filter.
        """
        consumer = cls(server, options)
        await consumer._join(server.options.timeout)
        for work in (consumer._read(), consumer._keep_alive()):
            consumer._tasks.append(asyncio.create_task(report_failure(work, consumer._buffer.fail)))
        return consumer

    async def receive(self, limit: int) -> list[Delivery]:
        return await self._buffer.take(limit)

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        await self._settle("acknowledge", deliveries)

    async def retry(self, deliveries: Sequence[Delivery], delay: float) -> None:
        await self._settle("retry", deliveries, round(delay * 1000))
        self._next_retry = min(self._next_retry, asyncio.get_running_loop().time() + delay + _MILLISECOND)
        self._wake.set()

    async def dead_letter(self, deliveries: Sequence[Delivery], reason: str) -> None:
        await self._settle("dead_letter", deliveries, reason)

    def set_paused(self, paused: bool) -> None:
        self._buffer.set_paused(paused)

    async def close(self) -> None:
        self._is_closing = True
        if self._tasks:
            reading, keeping_alive = self._tasks
            self._wake.set()
            await self._end_reading(reading)
            await asyncio.wait([keeping_alive], timeout=_LEAVE_SECONDS)
            await cancel_and_wait(keeping_alive)
        await self._connection.close()
        # If the server does not answer, another subscriber takes over the messages after `takeover` seconds.
        with contextlib.suppress(BusError):
            await self._server.operate("leave", self._options.group, self._name, seconds=_LEAVE_SECONDS)

    async def _join(self, seconds: float | None = None) -> None:
        group, definition = self._options.group, encode_definition(self._options)
        token, known = await self._server.operate(
            "join",
            group,
            definition,
            self._name,
            self._takeover,
            secrets.token_hex(8),
            self._token,
            seconds=seconds,
            relief=False,
        )
        if known is None:
            raise group_deleted(group)
        if known != definition:
            raise group_mismatch(
                group, ", ".join(decode_topics(known)), f"{', '.join(self._options.topics)}, or has another filter"
            )
        self._token = token

    async def _settle(self, operation: str, deliveries: Sequence[Delivery], *arguments: Any) -> None:
        async with self._settling:
            entries = " ".join([delivery.position for delivery in deliveries])
            await self._server.operate(operation, self._options.group, entries, *arguments)
            self._buffer.release(deliveries)

    async def _read(self) -> None:
        while not self._is_closing:
            room = await self._buffer.room()
            entries = await self._server.retry(partial(self._read_once, room))
            if entries is None:
                await self._join()
            else:
                self._buffer.add(entries)

    async def _read_once(self, room: int) -> list[Delivery] | None:
        """Return the next entries, or an empty list after ``_BLOCK_SECONDS``; None if the group does not exist."""
        try:
            if not self._connection.is_open:
                return await self._open()
            return await self._read_group(">", room, block=True)
        except refused.ResponseError as error:
            text = str(error)
            if "NOGROUP" in text or "no longer exists" in text:
                return None
            # The stream has moved to another node, or this node became a replica: reconnect.
            if isinstance(error, (refused.MovedError, refused.AskError)) or text.startswith("UNBLOCKED"):
                raise refused.ConnectionError(text) from error
            raise

    async def _open(self) -> list[Delivery]:
        """Connect, and return the pending entries of this subscriber that are not in the buffer.

        The server had sent them over the last connection, but they were lost with it.
        """
        await self._connection.open()
        self._client_id = await _get_client_id(self._connection)
        recovered: list[Delivery] = []
        async with self._settling:
            after = "0"
            while entries := await self._read_group(after, _RECOVER_COUNT):
                recovered += [entry for entry in entries if entry.position not in self._buffer]
                after = entries[-1].position
        return recovered

    async def _read_group(self, after: str, count: int, *, block: bool = False) -> list[Delivery]:
        """Send XREADGROUP: pending entries after the id ``after``, or new ones with ``>``."""
        blocking = ("BLOCK", round(_BLOCK_SECONDS * 1000)) if block else ()
        key = f"{self._server.options.prefix}ready:{self._options.group}"
        self._is_reading = True
        try:
            answer = await self._connection.execute(
                "XREADGROUP",
                "GROUP",
                "g",
                self._name,
                "COUNT",
                count,
                *blocking,
                "STREAMS",
                key,
                after,
                wait=_BLOCK_SECONDS,
            )
        finally:
            self._is_reading = False
        return decode_entries(answer[0][1]) if answer else []

    async def _end_reading(self, reading: asyncio.Task[None]) -> None:
        # Don't cancel a running XREADGROUP: entries in its answer would stay pending until they are taken over. End it
        # with CLIENT UNBLOCK instead.
        end = asyncio.get_running_loop().time() + 2 * _BLOCK_SECONDS
        while self._is_reading and not reading.done() and asyncio.get_running_loop().time() < end:
            if self._client_id:
                await self._server.unblock(self._client_id)
            await asyncio.wait([reading], timeout=_UNBLOCK_SECONDS)
        await cancel_and_wait(reading)

    async def _keep_alive(self) -> None:
        """Call ``tick``, as heartbeat and to move delayed messages: at least every ``interval``, and when due."""
        loop, ticks = asyncio.get_running_loop(), 0
        interval = min(_TICK_SECONDS, self._server.options.takeover / 4)
        while not self._is_closing:
            if self._next_retry <= loop.time():
                self._next_retry = inf
            find_unknown = int(ticks % _TAKEOVER_EVERY == 0)
            wait, was_lost = await self._server.operate(
                "tick", self._options.group, self._name, self._takeover, self._options.attempts, find_unknown
            )
            if was_lost:
                self._buffer.drop()  # these entries were released to other subscribers
            ticks += 1
            next_tick = loop.time() + (interval if wait < 0 else min(interval, wait * _MILLISECOND))
            while (left := min(next_tick, self._next_retry) - loop.time()) > 0 and not self._is_closing:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._wake.wait()


async def _get_client_id(connection: DedicatedConnection) -> int:
    """Return the server's id of the connection, for CLIENT UNBLOCK; 0 if the user may not ask for it."""
    try:
        return int(await connection.execute("CLIENT", "ID"))
    except refused.ResponseError:
        await connection.open()
        return 0


_LISTEN_TICK_SECONDS: Final = 0.5  # longest pause between two calls of ``listen``
_PING_EVERY: Final = 10  # ticks
_SILENCE_SECONDS: Final = _LISTEN_TICK_SECONDS * _PING_EVERY  # longest legitimate silence, because of the pings


class RedisBroadcastConsumer:
    """A subscriber without a group; see :class:`uttu.bus.backend.Consumer`. Create it with :meth:`open`."""

    def __init__(self, server: BrokerConnection, options: SubscribeOptions) -> None:
        self._server = server
        self._options = options
        self._buffer = PrefetchBuffer(options)
        self._numbers = count(1)
        self._connection = server.create_dedicated()
        self._prefix = server.options.prefix
        self._exact = _unique(topic for topic in options.topics if not is_pattern(topic))
        self._patterns = _unique(_to_glob(topic) for topic in options.topics if is_pattern(topic))
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, server: BrokerConnection, options: SubscribeOptions) -> RedisBroadcastConsumer:
        consumer = cls(server, options)
        try:
            await server.retry(consumer._read_once, server.options.timeout)
            await server.operate("listen", seconds=server.options.timeout)
        except BaseException:
            await consumer.close()
            raise
        for work in (consumer._read(), consumer._keep_alive()):
            consumer._tasks.append(asyncio.create_task(report_failure(work, consumer._buffer.fail)))
        return consumer

    async def receive(self, limit: int) -> list[Delivery]:
        return await self._buffer.take(limit)

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        self._buffer.release(deliveries)

    async def retry(self, deliveries: Sequence[Delivery], delay: float) -> None:
        """Drop them: broadcasts are not repeated."""
        self._buffer.release(deliveries)

    async def dead_letter(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """Drop them: only groups have dead letters."""
        self._buffer.release(deliveries)

    def set_paused(self, paused: bool) -> None:
        self._buffer.set_paused(paused)

    async def close(self) -> None:
        await cancel_and_wait(*self._tasks)
        await self._connection.close()

    async def _read(self) -> None:
        while True:
            await self._buffer.room()
            self._buffer.add(await self._server.retry(self._read_once))

    async def _read_once(self) -> list[Delivery]:
        if not self._connection.is_open:
            await self._connection.open()
            for command, names in (("SUBSCRIBE", self._exact), ("PSUBSCRIBE", self._patterns)):
                if names:
                    await self._connection.send(command, *(self._prefix + name for name in names))
                    for _ in names:
                        await self._connection.read()
            return []
        answer = await self._connection.read(_SILENCE_SECONDS)
        match answer:
            case [b"message" | b"pmessage", channel, *_, body]:
                delivery = decode_message(body, str(next(self._numbers)))
                return [delivery] if self._accepts(delivery, channel) else []
        return []  # the answer to a PING

    def _accepts(self, delivery: Delivery, channel: bytes) -> bool:
        # The server sends a message once for each channel and pattern that matches it. Keep the first of these.
        if len(self._exact) + len(self._patterns) > 1 and channel != self._first_channel(delivery.topic):
            return False
        where = self._options.where
        return matches(self._options.topics, delivery.topic) and (where is None or where.matches(delivery.headers))

    def _first_channel(self, topic: str) -> bytes:
        """Return the first channel or pattern of this subscriber that matches the topic."""
        matching = (name for name in (*self._exact, *self._patterns) if name == topic or _glob_matches(name, topic))
        return (self._prefix + next(matching, "")).encode()

    async def _keep_alive(self) -> None:
        """Renew the key ``listening``, publish delayed messages that are due, and ping on the pub/sub connection."""
        ticks = 0
        while True:
            wait = await self._server.operate("listen")
            ticks += 1
            if ticks % _PING_EVERY == 0 and self._connection.is_open:
                await self._server.retry(self._ping)
            await asyncio.sleep(_LISTEN_TICK_SECONDS if wait < 0 else min(_LISTEN_TICK_SECONDS, wait / 1000))

    async def _ping(self) -> None:
        if self._connection.is_open:
            await self._connection.send("PING")


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _to_glob(pattern: str) -> str:
    """Convert a pattern to a glob of Redis that matches at least the same topics."""
    return re.sub(r"\.?#\.?", "*", pattern)


def _glob_matches(glob: str, topic: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, glob.split("*"))), topic) is not None

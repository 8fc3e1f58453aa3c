"""The two kinds of subscribers on Redis, and the buffer that both use.

    RedisGroupConsumer       reads the stream of its group with XREADGROUP
    RedisBroadcastConsumer   has no group; receives published messages with SUBSCRIBE and PSUBSCRIBE

Each has two tasks. ``_read`` (``_hear`` for broadcasts) fills the :class:`PrefetchBuffer` from a dedicated connection,
on which it may block. So ``receive`` only waits for the buffer, and can be cancelled without losing a message.
``_live`` sends heartbeats, moves delayed messages that are due and, for a group, takes over the messages of subscribers
without heartbeats.

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

from uttu.bus.base import Delivery, SubscribeOptions
from uttu.bus.redis.codec import decode_entries, decode_message, decode_topics, encode_definition
from uttu.bus.redis.connection import BrokerConnection, cancel_and_wait, report_failure
from uttu.bus.topics import is_pattern, matches
from uttu.clients.redis.connection import DedicatedConnection
from uttu.errors import BusError, BusRefused


class PrefetchBuffer:
    """Deliveries between the task that reads and the consumer loop that takes them.

    Counts buffered and unacknowledged deliveries together: there are at most ``prefetch`` of them if the reading task
    adds no more than :meth:`room` returns.
    """

    def __init__(self, options: SubscribeOptions) -> None:
        self.is_paused = False
        self._prefetch = options.prefetch
        self._worthwhile = max(1, options.prefetch // 2)  # minimum room for a read, unless the buffer is empty
        self._buffer: deque[Delivery] = deque()
        self._positions: set[str] = set()  # buffered and unacknowledged
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
            if not self.is_paused and room > 0 and (room >= self._worthwhile or not self._buffer):
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

    def end(self, deliveries: Sequence[Delivery]) -> None:
        """Make room: these are acknowledged or given back."""
        self._positions.difference_update([delivery.position for delivery in deliveries])
        self._emptied.set()

    def drop(self) -> None:
        """Remove all deliveries that the consumer loop has not taken yet."""
        self.end(self._buffer)
        self._buffer.clear()

    def pause(self, paused: bool) -> None:
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
    """A subscriber of a group; see :class:`uttu.bus.consumer.Consumer`. Create it with :meth:`join`."""

    def __init__(self, server: BrokerConnection, options: SubscribeOptions) -> None:
        self._server = server
        self._options = options
        self._name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._takeover = round(server.options.takeover * 1000)
        self._token = b""
        self._held = PrefetchBuffer(options)
        # Held while entries are settled, and while _begin() reads the pending entries: an entry that is settled in
        # between would be delivered a second time.
        self._settling = asyncio.Lock()
        self._line = server.line()
        self._connection = 0
        self._is_asking = False
        self._is_closing = False
        self._due = inf  # loop time of this subscriber's next retry; _live() ticks then
        self._sooner = asyncio.Event()  # wakes _live()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def join(cls, server: BrokerConnection, options: SubscribeOptions) -> RedisGroupConsumer:
        """Join the group, create it if necessary, and start to read.

        :raises BusRefused: the group exists with other topics or another filter.
        """
        member = cls(server, options)
        await member._enter(server.options.timeout)
        for work in (member._read(), member._live()):
            member._tasks.append(asyncio.create_task(report_failure(work, member._held.fail)))
        return member

    async def receive(self, limit: int) -> list[Delivery]:
        return await self._held.take(limit)

    async def done(self, deliveries: Sequence[Delivery]) -> None:
        await self._settle("done", deliveries)

    async def again(self, deliveries: Sequence[Delivery], after: float) -> None:
        await self._settle("again", deliveries, round(after * 1000))
        self._due = min(self._due, asyncio.get_running_loop().time() + after + _MILLISECOND)
        self._sooner.set()

    async def bury(self, deliveries: Sequence[Delivery], reason: str) -> None:
        await self._settle("bury", deliveries, reason)

    def hold(self, paused: bool) -> None:
        self._held.pause(paused)

    async def close(self) -> None:
        self._is_closing = True
        if self._tasks:
            reading, living = self._tasks
            self._sooner.set()
            await self._end_reading(reading)
            await asyncio.wait([living], timeout=_LEAVE_SECONDS)
            await cancel_and_wait(living)
        await self._line.close()
        # If the server does not answer, another subscriber takes over the messages after `takeover` seconds.
        with contextlib.suppress(BusError):
            await self._server.operate("leave", self._options.group, self._name, seconds=_LEAVE_SECONDS)

    async def _enter(self, seconds: float | None = None) -> None:
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
            raise BusRefused(f"the group {group} has been forgotten")
        if known != definition:
            raise BusRefused(
                f"the group {group} takes {', '.join(decode_topics(known))}, not {', '.join(self._options.topics)}, "
                "or by another filter; use another name, or forget the group first"
            )
        self._token = token

    async def _settle(self, operation: str, deliveries: Sequence[Delivery], *arguments: Any) -> None:
        async with self._settling:
            entries = " ".join([delivery.position for delivery in deliveries])
            await self._server.operate(operation, self._options.group, entries, *arguments)
            self._held.end(deliveries)

    async def _read(self) -> None:
        while not self._is_closing:
            room = await self._held.room()
            entries = await self._server.retry(partial(self._read_once, room))
            if entries is None:
                await self._enter()
            else:
                self._held.add(entries)

    async def _read_once(self, room: int) -> list[Delivery] | None:
        """Return the next entries, or an empty list after ``_BLOCK_SECONDS``; None if the group does not exist."""
        try:
            if not self._line.is_open:
                return await self._begin()
            return await self._ask(">", room, block=True)
        except refused.ResponseError as error:
            text = str(error)
            if "NOGROUP" in text or "no longer exists" in text:
                return None
            # The stream has moved to another node, or this node became a replica: reconnect.
            if isinstance(error, (refused.MovedError, refused.AskError)) or text.startswith("UNBLOCKED"):
                raise refused.ConnectionError(text) from error
            raise

    async def _begin(self) -> list[Delivery]:
        """Connect, and return the pending entries of this subscriber that are not in the buffer.

        The server had sent them over the last connection, but they were lost with it.
        """
        await self._line.open()
        self._connection = await _get_client_id(self._line)
        found: list[Delivery] = []
        async with self._settling:
            after = "0"
            while entries := await self._ask(after, _RECOVER_COUNT):
                found += [entry for entry in entries if entry.position not in self._held]
                after = entries[-1].position
        return found

    async def _ask(self, after: str, count: int, *, block: bool = False) -> list[Delivery]:
        waiting = ("BLOCK", round(_BLOCK_SECONDS * 1000)) if block else ()
        key = f"{self._server.options.prefix}ready:{self._options.group}"
        self._is_asking = True
        try:
            answer = await self._line.ask(
                "XREADGROUP",
                "GROUP",
                "g",
                self._name,
                "COUNT",
                count,
                *waiting,
                "STREAMS",
                key,
                after,
                wait=_BLOCK_SECONDS,
            )
        finally:
            self._is_asking = False
        return decode_entries(answer[0][1]) if answer else []

    async def _end_reading(self, reading: asyncio.Task[None]) -> None:
        # Don't cancel a running XREADGROUP: entries in its answer would stay pending until they are taken over. End it
        # with CLIENT UNBLOCK instead.
        end = asyncio.get_running_loop().time() + 2 * _BLOCK_SECONDS
        while self._is_asking and not reading.done() and asyncio.get_running_loop().time() < end:
            if self._connection:
                await self._server.unblock(self._connection)
            await asyncio.wait([reading], timeout=_UNBLOCK_SECONDS)
        await cancel_and_wait(reading)

    async def _live(self) -> None:
        """Call ``tick``, as heartbeat and to move delayed messages: at least every ``pause`` seconds, and when due."""
        loop, ticks = asyncio.get_running_loop(), 0
        pause = min(_TICK_SECONDS, self._server.options.takeover / 4)
        while not self._is_closing:
            if self._due <= loop.time():
                self._due = inf
            strangers = int(ticks % _TAKEOVER_EVERY == 0)
            wait, was_lost = await self._server.operate(
                "tick", self._options.group, self._name, self._takeover, self._options.attempts, strangers
            )
            if was_lost:
                self._held.drop()  # these entries were released to other subscribers
            ticks += 1
            next_tick = loop.time() + (pause if wait < 0 else min(pause, wait * _MILLISECOND))
            while (left := min(next_tick, self._due) - loop.time()) > 0 and not self._is_closing:
                self._sooner.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._sooner.wait()


async def _get_client_id(line: DedicatedConnection) -> int:
    """Return the server's id of the connection, for CLIENT UNBLOCK; 0 if the user may not ask for it."""
    try:
        return int(await line.ask("CLIENT", "ID"))
    except refused.ResponseError:
        await line.open()
        return 0


_LISTEN_TICK_SECONDS: Final = 0.5  # longest pause between two calls of ``listen``
_PING_EVERY: Final = 10  # ticks
_SILENCE_SECONDS: Final = _LISTEN_TICK_SECONDS * _PING_EVERY  # longest legitimate silence, because of the pings


class RedisBroadcastConsumer:
    """A subscriber without a group; see :class:`uttu.bus.consumer.Consumer`. Create it with :meth:`begin`."""

    def __init__(self, server: BrokerConnection, options: SubscribeOptions) -> None:
        self._server = server
        self._options = options
        self._held = PrefetchBuffer(options)
        self._numbers = count(1)
        self._line = server.line()
        self._prefix = server.options.prefix
        self._exact = _unique(topic for topic in options.topics if not is_pattern(topic))
        self._patterns = _unique(_to_glob(topic) for topic in options.topics if is_pattern(topic))
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def begin(cls, server: BrokerConnection, options: SubscribeOptions) -> RedisBroadcastConsumer:
        onlooker = cls(server, options)
        try:
            await server.retry(onlooker._hear_once, server.options.timeout)
            await server.operate("listen", seconds=server.options.timeout)
        except BaseException:
            await onlooker.close()
            raise
        for work in (onlooker._hear(), onlooker._live()):
            onlooker._tasks.append(asyncio.create_task(report_failure(work, onlooker._held.fail)))
        return onlooker

    async def receive(self, limit: int) -> list[Delivery]:
        return await self._held.take(limit)

    async def done(self, deliveries: Sequence[Delivery]) -> None:
        self._held.end(deliveries)

    async def again(self, deliveries: Sequence[Delivery], after: float) -> None:
        """Drop them: broadcasts are not repeated."""
        self._held.end(deliveries)

    async def bury(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """Drop them: only groups have dead letters."""
        self._held.end(deliveries)

    def hold(self, paused: bool) -> None:
        self._held.pause(paused)

    async def close(self) -> None:
        await cancel_and_wait(*self._tasks)
        await self._line.close()

    async def _hear(self) -> None:
        while True:
            await self._held.room()
            self._held.add(await self._server.retry(self._hear_once))

    async def _hear_once(self) -> list[Delivery]:
        if not self._line.is_open:
            await self._line.open()
            for command, names in (("SUBSCRIBE", self._exact), ("PSUBSCRIBE", self._patterns)):
                if names:
                    await self._line.say(command, *(self._prefix + name for name in names))
                    for _ in names:
                        await self._line.hear()
            return []
        answer = await self._line.hear(_SILENCE_SECONDS)
        match answer:
            case [b"message" | b"pmessage", way, *_, text]:
                delivery = decode_message(text, str(next(self._numbers)))
                return [delivery] if self._wants(delivery, way) else []
        return []  # the answer to a PING

    def _wants(self, delivery: Delivery, way: bytes) -> bool:
        # The server sends a message once for each channel and pattern that matches it. Keep the first of these.
        if len(self._exact) + len(self._patterns) > 1 and way != self._way_of(delivery.topic):
            return False
        where = self._options.where
        return matches(self._options.topics, delivery.topic) and (where is None or where.matches(delivery.headers))

    def _way_of(self, topic: str) -> bytes:
        ways = (name for name in (*self._exact, *self._patterns) if name == topic or _glob_matches(name, topic))
        return (self._prefix + next(ways, "")).encode()

    async def _live(self) -> None:
        """Renew the key ``listening``, publish delayed messages that are due, and ping on the pub/sub connection."""
        ticks = 0
        while True:
            wait = await self._server.operate("listen")
            ticks += 1
            if ticks % _PING_EVERY == 0 and self._line.is_open:
                await self._server.retry(self._ping)
            await asyncio.sleep(_LISTEN_TICK_SECONDS if wait < 0 else min(_LISTEN_TICK_SECONDS, wait / 1000))

    async def _ping(self) -> None:
        if self._line.is_open:
            await self._line.say("PING")


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _to_glob(pattern: str) -> str:
    """Convert a pattern to a glob of Redis that matches at least the same topics."""
    return re.sub(r"\.?#\.?", "*", pattern)


def _glob_matches(glob: str, topic: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, glob.split("*"))), topic) is not None

"""A subscriber without a group: it hears what is published, by Redis's own publish and subscribe.

Topics are channels, and patterns become Redis's, which take a little more; the rest is left out here, as is what the
filter does not want. What the subscriber is too slow for waits at the server, up to ``client-output-buffer-limit
pubsub``; then the server cuts the connection, and listeners are told that it was lost.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final

from weft.bus.base import Delivery, Interest
from weft.bus.redis.held import Held
from weft.bus.redis.messages import unpacked
from weft.bus.redis.server import Server, failing_to, stopped
from weft.bus.topics import is_pattern, matches

_TICK_SECONDS: Final = 0.5
_PING_EVERY: Final = 10  # ticks
_SILENCE_SECONDS: Final = _TICK_SECONDS * _PING_EVERY


class Onlooker:
    """See :class:`weft.bus.subscription.Source`. Make it with :meth:`begin`."""

    def __init__(self, server: Server, interest: Interest) -> None:
        self._server = server
        self._interest = interest
        self._held = Held(interest)
        self._numbers = count(1)
        self._line = server.line()
        self._prefix = server.options.prefix
        self._exact = _each(topic for topic in interest.topics if not is_pattern(topic))
        self._patterns = _each(_glob(topic) for topic in interest.topics if is_pattern(topic))
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def begin(cls, server: Server, interest: Interest) -> Onlooker:
        onlooker = cls(server, interest)
        try:
            await server.patiently(onlooker._hear_once, server.options.timeout)
            await server.operate("listen", seconds=server.options.timeout)
        except BaseException:
            await onlooker.close()
            raise
        for work in (onlooker._hear(), onlooker._live()):
            onlooker._tasks.append(asyncio.create_task(failing_to(work, onlooker._held.fail)))
        return onlooker

    async def receive(self, limit: int) -> list[Delivery]:
        return await self._held.take(limit)

    async def done(self, deliveries: Sequence[Delivery]) -> None:
        self._held.end(deliveries)

    async def again(self, deliveries: Sequence[Delivery], after: float) -> None:
        """What comes once does not come again."""
        self._held.end(deliveries)

    async def bury(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """Dead letters are a group's."""
        self._held.end(deliveries)

    def hold(self, paused: bool) -> None:
        self._held.pause(paused)

    async def close(self) -> None:
        await stopped(*self._tasks)
        await self._line.close()

    async def _hear(self) -> None:
        while True:
            await self._held.room()
            self._held.add(await self._server.patiently(self._hear_once))

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
                delivery = unpacked(text, str(next(self._numbers)))
                return [delivery] if self._wants(delivery, way) else []
        return []  # an answer to a ping

    def _wants(self, delivery: Delivery, way: bytes) -> bool:
        # A message comes once for each channel and pattern that it fits: the first counts.
        if len(self._exact) + len(self._patterns) > 1 and way != self._way_of(delivery.topic):
            return False
        where = self._interest.where
        return matches(self._interest.topics, delivery.topic) and (where is None or where.matches(delivery.headers))

    def _way_of(self, topic: str) -> bytes:
        ways = (name for name in (*self._exact, *self._patterns) if name == topic or _fits(name, topic))
        return (self._prefix + next(ways, "")).encode()

    async def _live(self) -> None:
        """Say that somebody listens, and publish what is due; and see that the connection is alive."""
        ticks = 0
        while True:
            wait = await self._server.operate("listen")
            ticks += 1
            if ticks % _PING_EVERY == 0 and self._line.is_open:
                await self._server.patiently(self._ping)
            await asyncio.sleep(_TICK_SECONDS if wait < 0 else min(_TICK_SECONDS, wait / 1000))

    async def _ping(self) -> None:
        if self._line.is_open:
            await self._line.say("PING")


def _each(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _glob(pattern: str) -> str:
    """A pattern in Redis's words that takes the same topics, and more."""
    return re.sub(r"\.?#\.?", "*", pattern)


def _fits(glob: str, topic: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, glob.split("*"))), topic) is not None

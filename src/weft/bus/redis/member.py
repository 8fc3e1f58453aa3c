"""A subscriber of a group.

Two tasks work for it. One reads, on a connection of its own, whenever there is room; so it may wait there for long, and
whoever receives can be cancelled without a message being lost. The other says from time to time that the subscriber
lives, and on this occasion moves messages whose time has come, and takes over from subscribers that are silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Any, Final

import redis.exceptions as refused

from weft.bus.base import Delivery, Interest
from weft.bus.redis.held import Held
from weft.bus.redis.messages import defined, deliveries, topics_of
from weft.bus.redis.server import Server, failing_to, stopped
from weft.drivers.redis.line import Line
from weft.errors import BusError, BusRefused

_BLOCK_SECONDS: Final = 1.0
_TICK_SECONDS: Final = 0.5
_STRANGERS_EVERY: Final = 20  # ticks
_LEAVE_SECONDS: Final = 3.0
_UNBLOCK_SECONDS: Final = 0.05
_AT_ONCE: Final = 1000
_MILLISECOND: Final = 0.001


class Member:
    """See :class:`weft.bus.subscription.Source`. Make it with :meth:`join`."""

    def __init__(self, server: Server, interest: Interest) -> None:
        self._server = server
        self._interest = interest
        self._name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._takeover = round(server.options.takeover * 1000)
        self._token = b""
        self._held = Held(interest)
        self._settling = asyncio.Lock()  # of what is held, while it is found out what that is
        self._line = server.line()
        self._connection = 0
        self._is_asking = False
        self._is_closing = False
        self._due = inf  # when something is due that this subscriber knows of
        self._sooner = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def join(cls, server: Server, interest: Interest) -> Member:
        """:raises BusRefused: the group takes other topics."""
        member = cls(server, interest)
        await member._enter(server.options.timeout)
        for work in (member._read(), member._live()):
            member._tasks.append(asyncio.create_task(failing_to(work, member._held.fail)))
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
            await stopped(living)
        await self._line.close()
        # Without an answer others take over in time.
        with contextlib.suppress(BusError):
            await self._server.operate("leave", self._interest.group, self._name, seconds=_LEAVE_SECONDS)

    async def _enter(self, seconds: float | None = None) -> None:
        group, definition = self._interest.group, defined(self._interest)
        token, known = await self._server.operate(
            "join", group, definition, self._name, self._takeover, secrets.token_hex(8), self._token,
            seconds=seconds, relief=False,
        )  # fmt: skip
        if known is None:
            raise BusRefused(f"the group {group} has been forgotten")
        if known != definition:
            raise BusRefused(
                f"the group {group} takes {', '.join(topics_of(known))}, not {', '.join(self._interest.topics)}, "
                "or by another filter; use another name, or forget the group first"
            )
        self._token = token

    async def _settle(self, operation: str, deliveries: Sequence[Delivery], *arguments: Any) -> None:
        async with self._settling:
            entries = " ".join([delivery.position for delivery in deliveries])
            await self._server.operate(operation, self._interest.group, entries, *arguments)
            self._held.end(deliveries)

    async def _read(self) -> None:
        while not self._is_closing:
            room = await self._held.room()
            entries = await self._server.patiently(partial(self._read_once, room))
            if entries is None:
                await self._enter()
            else:
                self._held.add(entries)

    async def _read_once(self, room: int) -> list[Delivery] | None:
        """The next entries, if any; None when the group is not there."""
        try:
            if not self._line.is_open:
                return await self._begin()
            return await self._ask(">", room, block=True)
        except refused.ResponseError as error:
            text = str(error)
            if "NOGROUP" in text or "no longer exists" in text:
                return None
            # The group is on another node by now, or this one is no primary any more.
            if isinstance(error, (refused.MovedError, refused.AskError)) or text.startswith("UNBLOCKED"):
                raise refused.ConnectionError(text) from error
            raise

    async def _begin(self) -> list[Delivery]:
        """Connect; what was on its way when the last connection was lost is asked for again."""
        await self._line.open()
        self._connection = await _number_of(self._line)
        found: list[Delivery] = []
        async with self._settling:
            after = "0"
            while entries := await self._ask(after, _AT_ONCE):
                found += [entry for entry in entries if entry.position not in self._held]
                after = entries[-1].position
        return found

    async def _ask(self, after: str, count: int, *, block: bool = False) -> list[Delivery]:
        waiting = ("BLOCK", round(_BLOCK_SECONDS * 1000)) if block else ()
        key = f"{self._server.options.prefix}ready:{self._interest.group}"
        self._is_asking = True
        try:
            answer = await self._line.ask(
                "XREADGROUP", "GROUP", "g", self._name, "COUNT", count, *waiting, "STREAMS", key, after,
                wait=_BLOCK_SECONDS,
            )  # fmt: skip
        finally:
            self._is_asking = False
        return deliveries(answer[0][1]) if answer else []

    async def _end_reading(self, reading: asyncio.Task[None]) -> None:
        # Not in the middle: what the server gives after that would be lost until it is taken over.
        end = asyncio.get_running_loop().time() + 2 * _BLOCK_SECONDS
        while self._is_asking and not reading.done() and asyncio.get_running_loop().time() < end:
            if self._connection:
                await self._server.unblock(self._connection)
            await asyncio.wait([reading], timeout=_UNBLOCK_SECONDS)
        await stopped(reading)

    async def _live(self) -> None:
        loop, ticks = asyncio.get_running_loop(), 0
        pause = min(_TICK_SECONDS, self._server.options.takeover / 4)
        while not self._is_closing:
            if self._due <= loop.time():
                self._due = inf
            strangers = int(ticks % _STRANGERS_EVERY == 0)
            wait, was_lost = await self._server.operate(
                "tick", self._interest.group, self._name, self._takeover, self._interest.attempts, strangers
            )
            if was_lost:
                self._held.drop()  # it is others' by now
            ticks += 1
            next_tick = loop.time() + (pause if wait < 0 else min(pause, wait * _MILLISECOND))
            while (left := min(next_tick, self._due) - loop.time()) > 0 and not self._is_closing:
                self._sooner.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._sooner.wait()


async def _number_of(line: Line) -> int:
    """What the server calls the connection; 0 if it does not tell."""
    try:
        return int(await line.ask("CLIENT", "ID"))
    except refused.ResponseError:
        await line.open()
        return 0

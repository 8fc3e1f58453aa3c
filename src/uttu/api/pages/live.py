"""The live stream: the fragments of a page, rendered again while somebody looks at it.

    viewer ──┐
    viewer ──┼── room of one address, role and language ── renders every second
    viewer ──┘        └── each viewer gets the fragments that differ from what it has

The first viewer of a room starts its task, and the last one ends it, so a page that nobody looks at costs nothing. A
viewer compares with what it got last, not with a queue of changes, so a slow one skips states and holds no memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec

from uttu.api.pages.shapes import Role

# With the age of what is shown and the time of rendering, a change shows within two seconds; see uttu.api.context.
SECONDS: Final = 1.0
# A page that takes long rests for twice as long, but at most for this many times ``SECONDS``.
_LONGEST_REST: Final = 1.5
_QUIET_SECONDS: Final = 5.0
_MOST_ROOMS: Final = 200
_MOST_VIEWERS: Final = 250


class LiveKey(msgspec.Struct, frozen=True):
    """Viewers with the same key see the same fragments."""

    path: str
    query: tuple[tuple[str, str], ...]
    role: Role
    language: str
    base: str = ""


RenderFragments = Callable[[LiveKey], Awaitable[dict[str, str]]]


class _Room:
    def __init__(self) -> None:
        self.fragments: dict[str, str] = {}
        self.version = 0
        self.changed = asyncio.Condition()
        self.viewers = 0
        self.task: asyncio.Task[None] | None = None


class TooManyRooms(Exception):
    """There are too many viewers, or they look at too many different pages at once."""


class LiveHub:
    """Renders the fragments of pages for as long as somebody looks.

    :param render: returns all fragments of a page. It must not raise: an error is a fragment, too.
    """

    def __init__(self, render: RenderFragments, seconds: float = SECONDS) -> None:
        self._render = render
        self._seconds = seconds
        self._rooms: dict[LiveKey, _Room] = {}
        self._closed = False

    @property
    def rooms(self) -> int:
        """How many different pages somebody looks at."""
        return len(self._rooms)

    @property
    def is_full(self) -> bool:
        """Whether there are ``_MOST_VIEWERS`` viewers. More would take the connections that other requests need."""
        return sum(room.viewers for room in self._rooms.values()) >= _MOST_VIEWERS

    def enter(self, key: LiveKey) -> _Room:
        """Join the room of a page.

        :raises TooManyRooms: there are ``_MOST_ROOMS`` others, or ``_MOST_VIEWERS`` viewers.
        """
        if self.is_full or (key not in self._rooms and len(self._rooms) >= _MOST_ROOMS):
            raise TooManyRooms
        room = self._rooms.setdefault(key, _Room())
        room.viewers += 1
        if room.task is None:
            room.task = asyncio.create_task(self._run(key, room))
        return room

    def leave(self, key: LiveKey, room: _Room) -> None:
        room.viewers -= 1
        if not room.viewers:
            if room.task is not None:
                room.task.cancel()
            if self._rooms.get(key) is room:
                del self._rooms[key]

    async def watch(
        self, key: LiveKey, is_valid: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[dict[str, str], None]:
        """Yield fragments that changed; an empty dict after ``_QUIET_SECONDS`` without a change.

        :param is_valid: Whether the viewer may still look; asked before each change, and at least every
            ``_QUIET_SECONDS``.
        :raises TooManyRooms: see :meth:`enter`.
        """
        room = self.enter(key)
        try:
            version, seen = 0, dict[str, str]()
            while not self._closed:
                try:
                    async with asyncio.timeout(_QUIET_SECONDS), room.changed:
                        await room.changed.wait_for(lambda: room.version != version or self._closed)  # noqa: B023
                except TimeoutError:
                    if not is_valid():
                        return
                    yield {}
                    continue
                if not is_valid():
                    return
                version = room.version
                news = {name: html for name, html in room.fragments.items() if seen.get(name) != html}
                seen |= news
                if news:
                    yield news
        finally:
            self.leave(key, room)

    async def close(self) -> None:
        """End all streams."""
        self._closed = True
        for room in list(self._rooms.values()):
            async with room.changed:
                room.changed.notify_all()

    async def _run(self, key: LiveKey, room: _Room) -> None:
        now = asyncio.get_running_loop().time
        while True:
            began = now()
            fragments = await self._render(key)
            if fragments != room.fragments:
                async with room.changed:
                    room.fragments, room.version = fragments, room.version + 1
                    room.changed.notify_all()
            await asyncio.sleep(min(max(self._seconds, 2 * (now() - began)), _LONGEST_REST * self._seconds))


async def stream_events(changes: AsyncIterator[dict[str, str]]) -> AsyncIterator[str]:
    """Changes as server-sent events. A comment keeps a quiet connection open."""
    yield "retry: 2000\n\n"
    with contextlib.suppress(TooManyRooms):
        async for news in changes:
            yield f"event: fragments\ndata: {json.dumps(news)}\n\n" if news else ": still here\n\n"

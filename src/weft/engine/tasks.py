"""Task groups that raise what went wrong, not a group of it; pauses that can be cut short; streams that may pause."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar

T = TypeVar("T")


@contextlib.asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """As :class:`asyncio.TaskGroup`; of several errors at once the first is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


async def called(event: asyncio.Event, seconds: float) -> bool:
    """Wait until an event is set, or for so long; returns whether it is."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def in_batches(stream: AsyncIterator[T], most: int, seconds: float) -> AsyncIterator[list[T]]:
    """What a stream gives, as soon as there are ``most`` of it, or after so many seconds what there is by then.

    Read by a task of its own, so that one that pauses keeps nothing to itself. If the stream fails, that is raised
    after what came before was given; at once, if not a batch had come.
    """
    batch: list[T] = []
    full, room = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        try:
            async for each in stream:
                batch.append(each)
                if len(batch) == most:
                    room.clear()
                    full.set()
                    await room.wait()
        finally:
            full.set()

    reading = asyncio.create_task(read())
    given = over = False
    try:
        while not over:
            await called(full, seconds)
            full.clear()
            over = reading.done()
            if over and not given:
                reading.result()
            if batch:
                came = batch.copy()
                batch.clear()
                room.set()
                given = True
                yield came
        reading.result()
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

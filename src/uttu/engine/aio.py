"""Helpers for asyncio: task groups that raise a single error, waits with a timeout, streams in batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

T = TypeVar("T")


@contextlib.asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """An :class:`asyncio.TaskGroup` that raises the first error itself instead of an exception group."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait until an event is set, ``seconds`` at most; returns whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def batch_stream(stream: AsyncIterator[T], most: int, seconds: float) -> AsyncIterator[list[T]]:
    """Collect a stream's values into batches of ``most`` values, or of fewer after ``seconds``.

    A separate task reads the stream, so values are not held back while the stream waits for its next one. If the
    stream raises, the error is raised after the values before it; at once, if no batch was yielded yet.
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
            await wait_for_event(full, seconds)
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
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


def is_cancelled() -> bool:
    """Whether the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def uncancel() -> None:
    """Undo the cancellation of the current task, which its own handler caused."""
    task = asyncio.current_task()
    assert task is not None
    while task.cancelling():
        task.uncancel()
    # Before Python 3.13 a pending cancellation is still raised at the next await, so raise and suppress it here.
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)

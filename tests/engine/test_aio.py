"""Streams in batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from uttu.engine.aio import batch_stream

NEVER = 3_600.0


async def numbers(count: int, error: Exception | None = None) -> AsyncIterator[int]:
    for number in range(count):
        yield number
    if error is not None:
        raise error


async def test_so_many_at_once() -> None:
    assert [batch async for batch in batch_stream(numbers(5), 2, NEVER)] == [[0, 1], [2, 3], [4]]


async def test_an_empty_stream() -> None:
    assert [batch async for batch in batch_stream(numbers(0), 2, NEVER)] == []


async def test_one_that_pauses_keeps_nothing_to_itself() -> None:
    go_on = asyncio.Event()

    async def pausing() -> AsyncIterator[int]:
        yield 0
        await go_on.wait()
        yield 1

    stream = batch_stream(pausing(), 100, 0.01)
    async with asyncio.timeout(10):
        assert await anext(stream) == [0]
        go_on.set()
        assert [batch async for batch in stream] == [[1]]


async def test_it_is_not_read_further_than_a_batch() -> None:
    read: list[int] = []

    async def noting() -> AsyncIterator[int]:
        async for number in numbers(100):
            read.append(number)
            yield number

    stream = batch_stream(noting(), 10, NEVER)
    assert await anext(stream) == list(range(10))
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(read) <= 20


async def test_what_came_before_an_error_is_given() -> None:
    stream = batch_stream(numbers(3, ValueError("no more")), 2, NEVER)
    assert await anext(stream) == [0, 1]
    assert await anext(stream) == [2]
    with pytest.raises(ValueError, match="no more"):
        await anext(stream)


async def test_but_for_an_error_before_the_first_batch() -> None:
    with pytest.raises(ValueError, match="no more"):
        await anext(batch_stream(numbers(1, ValueError("no more")), 2, NEVER))


async def test_who_stops_listening_ends_the_stream() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            yield 0
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def listen() -> None:
        async for _ in batch_stream(endless(), 1, 0.01):
            pass

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0.05)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert ended.is_set()

"""MemoryBudget for large pages."""

from __future__ import annotations

import asyncio

import pytest

from uttu.engine.admission import MemoryBudget


class Pages:
    """Pages that are in the room until they are let go."""

    def __init__(self, room: MemoryBudget) -> None:
        self.room = room
        self.inside: list[int] = []
        self._ends: dict[int, asyncio.Event] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def enter(self, *sizes: int) -> None:
        for size in sizes:
            self._ends[size] = asyncio.Event()
            self._tasks[size] = asyncio.create_task(self._stay(size))
            await self.settle()

    async def leave(self, size: int) -> None:
        self._ends[size].set()
        await self._tasks[size]
        await self.settle()

    async def cancel(self, size: int) -> None:
        self._tasks[size].cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._tasks[size]
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def _stay(self, size: int) -> None:
        async with self.room.take(size):
            self.inside.append(size)
            try:
                await self._ends[size].wait()
            finally:
                self.inside.remove(size)


async def test_pages_wait_for_room_in_order() -> None:
    pages = Pages(MemoryBudget(100))
    await pages.enter(60, 50, 10)
    assert pages.inside == [60]  # 10 would fit, but is behind 50
    await pages.leave(60)
    assert pages.inside == [50, 10]
    await pages.leave(50)
    await pages.leave(10)
    await pages.enter(100)
    assert pages.inside == [100]
    await pages.leave(100)


async def test_a_page_larger_than_the_room_has_it_alone() -> None:
    pages = Pages(MemoryBudget(100))
    await pages.enter(500, 1)
    assert pages.inside == [500]
    await pages.leave(500)
    await pages.enter(600)
    assert pages.inside == [1]
    await pages.leave(1)
    assert pages.inside == [600]
    await pages.leave(600)


async def test_cancelled_pages_give_back_what_they_had() -> None:
    pages = Pages(MemoryBudget(100))
    await pages.enter(80, 70, 60, 20)
    await pages.cancel(70)
    await pages.cancel(80)
    assert pages.inside == [60, 20]
    await pages.cancel(60)
    await pages.enter(75)
    assert pages.inside == [20, 75]
    await pages.leave(20)
    await pages.leave(75)
    await pages.enter(100)
    assert pages.inside == [100]
    await pages.leave(100)


async def test_a_page_goes_on_without_room_after_a_while() -> None:
    room = MemoryBudget(100, patience=0.01)
    async with room.take(100):
        async with room.take(90):
            pass
        async with asyncio.timeout(5), room.take(10):
            pass
    async with asyncio.timeout(5):
        async with room.take(50), room.take(50):
            pass

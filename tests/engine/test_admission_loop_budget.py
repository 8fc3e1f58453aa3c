"""Rounds of the event loop that are kept short."""

from __future__ import annotations

import asyncio

from uttu.engine.admission import LoopBudget


class Work:
    """Handlers that each take a while, by a clock of their own; ``rounds`` says how many began in each round."""

    def __init__(self, slice_seconds: float, cost: float) -> None:
        self._time = 0.0
        self._cost = cost
        self.rounds: list[int] = [0]
        self.order: list[int] = []
        self.turns = LoopBudget(slice_seconds, lambda: self._time)

    async def run(self, count: int) -> None:
        watching = asyncio.create_task(self._count_rounds())
        await asyncio.gather(*[self._handle(number) for number in range(count)])
        watching.cancel()

    async def _handle(self, number: int) -> None:
        await self.turns.wait()
        self._time += self._cost
        self.order.append(number)
        self.rounds[-1] += 1

    async def _count_rounds(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.rounds.append(0)


async def test_a_round_holds_what_fits_into_its_slice() -> None:
    work = Work(slice_seconds=1.0, cost=0.2)
    await work.run(200)
    assert len(work.order) == 200
    settled = [begun for begun in work.rounds[10:-10] if begun]
    assert max(settled) <= 6, "more than the slice holds, by more than the one that finds out"
    assert sum(settled) / len(settled) >= 3


async def test_they_go_in_the_order_in_which_they_came() -> None:
    work = Work(slice_seconds=1.0, cost=0.4)
    await work.run(50)
    assert work.order == list(range(50))


async def test_work_longer_than_a_slice_still_gets_its_turn() -> None:
    work = Work(slice_seconds=1.0, cost=5.0)
    await work.run(20)
    assert len(work.order) == 20
    assert max(work.rounds[5:]) == 1


async def test_one_that_is_cancelled_in_line_leaves_its_place_to_the_next() -> None:
    work = Work(slice_seconds=1.0, cost=5.0)
    tasks = [asyncio.create_task(work._handle(number)) for number in range(6)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert work.order == [0, 1, 4, 5]


async def test_nothing_runs_on_when_nobody_waits() -> None:
    work = Work(slice_seconds=1.0, cost=0.1)
    await work.run(3)
    for _ in range(5):
        await asyncio.sleep(0)
    assert work.turns._began is None

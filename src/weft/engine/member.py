"""A worker's membership in a crawl: it says how it stands, and hears what is asked of all."""

from __future__ import annotations

import asyncio
import os

import msgspec

from weft.clock import Clock
from weft.engine.states import State
from weft.engine.stats import Stats
from weft.engine.worker import Worker
from weft.frontier.base import Frontier, Ledger

_ATTEND_SECONDS = 1.0


class Member:
    """A :class:`Worker` that attends to its crawl's ledger while it runs."""

    def __init__(self, worker: Worker, ledger: Ledger, stats: Stats, clock: Clock) -> None:
        self.worker = worker
        self._ledger = ledger
        self._stats = stats
        self._clock = clock
        self._started = clock.time()

    async def run(self) -> None:
        attending = asyncio.create_task(self._attend())
        try:
            await self.worker.run()
        finally:
            attending.cancel()
            await asyncio.gather(attending, return_exceptions=True)
        await self._report()

    def drain(self) -> None:
        self.worker.drain()

    def stop(self) -> None:
        self.worker.stop()

    async def _attend(self) -> None:
        while True:
            await self._report()
            await asyncio.sleep(_ATTEND_SECONDS)
            if (await self._ledger.facts()).get("state") != State.RUNNING:
                self.drain()

    async def _report(self) -> None:
        report = self._stats.report(
            pid=os.getpid(),
            started=self._started,
            in_flight=self.worker.in_flight,
            held=self.worker.held,
            concurrency=self.worker.gauge.limit,
        )
        await self._ledger.report(self.worker.name, msgspec.json.encode(report))


async def is_over(frontier: Frontier, ledger: Ledger) -> bool:
    """Nothing is left to do and nothing will come, or the crawl was ended for another reason."""
    facts = await ledger.facts()
    if facts.get("state") != State.RUNNING:
        return True
    return facts.get("seeded") == "yes" and (await frontier.counts()).finished

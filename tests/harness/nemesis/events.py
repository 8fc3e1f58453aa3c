"""Making events happen, and noting what the checks have to know of them."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Final

from tests.harness.nemesis import census
from tests.harness.nemesis.census import CRAWL, Census
from tests.harness.nemesis.checks import Freeze
from tests.harness.nemesis.fleet import Fleet, Process
from tests.harness.nemesis.schedule import Event, Kind, Plan
from tests.harness.servers import CommandRefused, RedisServer

_LOOK_SECONDS: Final = 0.03
# A frozen process waits for others to end its leases; while the crawl is paused or the server away, nobody does. It is
# not so long that a thawed worker takes the answers that wait for it for lost.
_MOST_FROZEN_SECONDS: Final = 15.0
_MOST_RESTING_SECONDS: Final = 10.0


class Nemesis:
    """Lets the events of a plan befall a fleet and its server. Events that last run beside those that follow."""

    def __init__(self, plan: Plan, fleet: Fleet, server: RedisServer) -> None:
        self.freezes: list[Freeze] = []
        self.cuts: list[float] = []
        self.books: list[tuple[str, Census]] = []
        self.done = 0
        self._plan = plan
        self._fleet = fleet
        self._server = server
        self._away = False
        self._restarting, self._pausing = asyncio.Lock(), asyncio.Lock()

    def is_server_to_blame(self, since: float) -> bool:
        """Whether a process that was started then may have found the server away."""
        return self._away or any(cut >= since for cut in self.cuts)

    async def run(self) -> None:
        """Until the last event is over, or the crawl is."""
        async with asyncio.TaskGroup() as group:
            for event in self._plan.events:
                if not await self._until(event.at):
                    return
                group.create_task(self._befall(event))

    def look(self, when: str, pid: int = 0) -> Census | None:
        """The books, which are kept for the checks; None while the server is away."""
        found = None if self._away else census.read(self._server, pid)
        if found:
            self.books.append((when, found))
            self.done = found.done
        return found

    async def _until(self, share: float) -> bool:
        """Until so much of the site is done; False if the crawl is over."""
        wanted = max(1, int(share * self._plan.site.pages))
        while not self._fleet.is_over.is_set():
            found = census.read(self._server) if not self._away else None
            if found and found.done >= wanted:
                return True
            await asyncio.sleep(_LOOK_SECONDS)
        return False

    async def _befall(self, event: Event) -> None:
        match event.kind:
            case Kind.KILL:
                self._kill(_picked(self._fleet.workers, event.pick))
                self._fleet.join()
            case Kind.KILL_CRAWL:
                self._kill(self._fleet.crawl)
            case Kind.LEAVE:
                if leaving := _picked(self._fleet.workers, event.pick):
                    leaving.leave()
            case Kind.JOIN:
                self._fleet.join()
            case Kind.FREEZE:
                await self._freeze(event)
            case Kind.RESTART:
                await self._restart(event.seconds)
            case Kind.CUT:
                self._ask("CLIENT", "KILL", "TYPE", "normal")
                self.cuts.append(time.time())
            case Kind.FLUSH:
                self._ask("SCRIPT", "FLUSH")
                self._ask("FUNCTION", "FLUSH")
            case Kind.PAUSE:
                await self._pause(event.seconds)
        self.look(f"after {event.kind}")

    @staticmethod
    def _kill(process: Process | None) -> None:
        if process:
            process.send(signal.SIGKILL)

    async def _freeze(self, event: Event) -> None:
        """One that has leases: they are to be lost."""
        while not self._fleet.is_over.is_set():
            process = _picked([each for each in self._fleet.alive if not each.is_frozen], event.pick)
            if process is None:
                return
            process.freeze()
            began = time.monotonic()
            found = self.look("frozen", process.pid)
            if found and found.of_worker:
                await self._until_lost(process, began, event.seconds)
                self.freezes.append(Freeze(process.pid, began, time.monotonic(), found.of_worker))
            process.thaw()
            if found and found.of_worker:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _until_lost(self, process: Process, began: float, seconds: float) -> None:
        while (frozen := time.monotonic() - began) < _MOST_FROZEN_SECONDS:
            found = self.look("frozen", process.pid)
            if process.code is not None or (frozen > seconds and found and not found.of_worker):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _restart(self, seconds: float) -> None:
        async with self._restarting:
            self._away = True
            await asyncio.to_thread(self._server.kill)
            self.cuts.append(time.time())
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self._server.restart)
            self.cuts.append(time.time())
            self._away = False

    async def _pause(self, seconds: float) -> None:
        async with self._pausing:
            if not await self._fleet.tell("pause", CRAWL):
                return
            paused = time.monotonic()
            while (resting := time.monotonic() - paused) < _MOST_RESTING_SECONDS:
                found = self.look("paused")
                if resting > seconds and found and not found.leased:
                    break
                await asyncio.sleep(_LOOK_SECONDS)
            await self._fleet.tell("resume", CRAWL)

    def _ask(self, *words: str) -> None:
        try:
            self._server.ask(*words)
        except (OSError, CommandRefused):
            if not self._away:
                raise


def _picked(processes: list[Process], pick: float) -> Process | None:
    return processes[int(pick * len(processes))] if processes else None

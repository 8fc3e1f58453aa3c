"""Draining a crawl to a sink from outside of it, for as long as it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from weft.engine.drain import Drain
from weft.engine.member import is_at_work
from weft.engine.states import State
from weft.frontier.base import Frontier, Ledger, Outbox
from weft.sinks.base import Sink

_LOOK_SECONDS = 0.5


class Follower:
    """Moves a crawl's items to a sink until the crawl is over, or it is told to stop.

    Where it stands is kept with the crawl. So run again it goes on where it was, however it ended, and every item
    is in the sink once. While another drains the same sink, it waits to take over, and says so by ``waiting``.
    """

    def __init__(
        self,
        *,
        frontier: Frontier,
        outbox: Outbox,
        ledger: Ledger,
        sink: Sink,
        owner: str,
        waiting: Callable[[str], None] = lambda owner: None,
    ) -> None:
        self._frontier = frontier
        self._ledger = ledger
        self._sink = sink
        self._drain = Drain(outbox, [sink], ledger, owner)
        self._waiting = waiting
        self._over = asyncio.Event()
        self._told = False

    def stop(self) -> None:
        """Close the sink where it is."""
        self._told = True
        self._over.set()

    async def run(self) -> int:
        """Returns how many items it moved.

        A crawl that finished, or ended at a limit, completes the sink. One that was stopped can go on, and so can
        the sink.

        :raises SinkError: the sink can't be written.
        :raises StoreError: the store can't be read or written.
        """
        await self._drain.open()
        watching = asyncio.create_task(self._watch())
        try:
            await self._drain.run(self._over)
            if not self._told:
                state = await watching
                await self._drain.finish(state.ended)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._drain.close()
        return self._drain.moved

    async def _watch(self) -> State:
        """How the crawl ended, once it has."""
        said = ""
        try:
            while True:
                other = self._drain.elsewhere.get(self._sink.name, "")
                if other and other != said:
                    self._waiting(other)
                said = other
                if self._drain.errors:
                    raise self._drain.errors[0]
                state = State((await self._ledger.facts()).get("state", State.RUNNING))
                over = state in (State.STOPPED, State.LIMITED, State.FINISHED)
                if over and not await is_at_work(self._frontier, self._ledger):
                    return state
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._over.set()

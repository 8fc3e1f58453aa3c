"""Being the only one: a role of a crawl's ledger, kept by claiming it again and again."""

from __future__ import annotations

import asyncio
import contextlib

from weft.errors import StoreError
from weft.frontier.base import Ledger

CLAIM_SECONDS = 10.0


class Claim:
    """A role that is this owner's from :meth:`take` to :meth:`give_up`, unless it is lost on the way."""

    def __init__(self, ledger: Ledger, role: str, owner: str) -> None:
        self._ledger = ledger
        self._role = role
        self._owner = owner
        self._keeping: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """Whether it is held, as far as is known here: a process that was stopped for long may have lost it."""
        return self._keeping is not None and not self._keeping.done()

    async def take(self) -> bool:
        """Have the role, unless another has it.

        :raises StoreError: the ledger can't be written.
        """
        if not self.held and await self._ledger.claim(self._role, self._owner, CLAIM_SECONDS):
            self._keeping = asyncio.create_task(self._keep())
        return self.held

    async def holder(self) -> str:
        """Who has the role; empty if nobody has."""
        return (await self._ledger.claimed()).get(self._role, "")

    async def give_up(self) -> None:
        """Let others have it. Should the store be gone, the claim ends of itself."""
        if self._keeping is None:
            return
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        self._keeping = None
        with contextlib.suppress(StoreError):
            await self._ledger.release(self._role, self._owner)

    async def _keep(self) -> None:
        """Three chances before the claim runs out. An error counts as a loss; who takes it again is told of it."""
        with contextlib.suppress(StoreError):
            while True:
                await asyncio.sleep(CLAIM_SECONDS / 3)
                if not await self._ledger.claim(self._role, self._owner, CLAIM_SECONDS):
                    return

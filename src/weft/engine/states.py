"""The states of a crawl, as they are written in its ledger."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

INTERRUPTED: Final = "interrupted"
"""The reason of a crawl that a signal stops. Whoever sent it may send another, so pages in flight have all the time
they need; for any other reason, only so much."""


class State(StrEnum):
    """``RUNNING`` in the ledger without a process behind it is a crawl that was killed."""

    RUNNING = "running"
    PAUSED = "paused"
    """Workers finish what is in flight and wait, until it runs again."""
    STOPPING = "stopping"
    """Workers drain; ``reason`` says why."""
    STOPPED = "stopped"
    """Ended before its work was: interrupted, or failed. The same command resumes it."""
    LIMITED = "limited"
    """Ended as it was asked to, with work left over."""
    FINISHED = "finished"
    """Nothing was left to do."""

    @property
    def ended(self) -> bool:
        """Whether the same command starts a new crawl instead of going on."""
        return self in (State.LIMITED, State.FINISHED)
